"""The inside of a call: its time and its memory.

`core` has the records, since run files hold them, and `report/inside.py` their words.
"""
