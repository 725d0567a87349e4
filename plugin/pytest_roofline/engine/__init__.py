"""Devices, their facts, the cache policy and the timing engine."""
