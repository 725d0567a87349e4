"""The preparation of a measurement: what stamps cost, and how many calls make a sample."""
