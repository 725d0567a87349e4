"""The reproducer of `roofline bundle`: measures one test with the plugin's own engine, and needs pytest and torch only.

A copy of this folder travels in the archive, beside copies of `core`, `measuring`, `distributed` and the few modules of
the pytest layer that need nothing else. It stores no run, knows no baseline but the recorded times, and judges nothing.
"""
