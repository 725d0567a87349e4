"""What a compiled kernel asks of a GPU, exactly: compiled without one, read in its binary, held against a baseline."""
