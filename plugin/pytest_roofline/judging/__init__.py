"""Is that fast enough? Records in, verdicts out; never imports torch or touches a device."""
