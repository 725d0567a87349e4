"""Judgement of many runs at once.

`history` shows what became slower over time, `fleet` the slow parts of a fleet.
"""
