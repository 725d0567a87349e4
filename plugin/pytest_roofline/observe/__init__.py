"""What goes on inside a call: where its time goes, what its memory goes into, and where it runs out of it.

Each feature is read, recorded and printed here; `core` has its records, since run files hold them.
"""
