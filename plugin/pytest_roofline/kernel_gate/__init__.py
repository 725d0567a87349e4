"""A compiled kernel's exact demands on a GPU: compiled without one, and read in its binary."""
