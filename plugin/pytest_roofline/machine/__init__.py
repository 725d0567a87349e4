"""Is this machine itself in order? The doctor, the self-test of the timing, and what a device is expected to be."""
