"""The words that every layer shares.

They are errors, units, work, records, and the reading and writing of their files.
"""
