"""The inside of a call: its time, its memory, and where it runs out of memory.

Each feature is read, recorded and printed here; `core` has its records, since run files hold them.
"""
