"""A compiled kernel's exact demands on a GPU: compiled without one, read in its binary, compared with a baseline."""
