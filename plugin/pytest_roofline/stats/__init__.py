"""Is that fast enough? Samples in, verdicts out; never imports torch or touches a device."""
