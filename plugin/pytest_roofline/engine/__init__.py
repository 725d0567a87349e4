"""How fast is it? Devices, their facts, cache policy and the timing engine."""
