"""Two sides of a change, measured in turn by fresh processes on one device: `roofline ab`."""
