"""What `many_runs.py` is made of: fleets of run files with planted faults, and what was found of them."""
