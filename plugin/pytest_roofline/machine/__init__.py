"""The state of this machine: doctor, self-test of the timing, and expectations of a device."""
