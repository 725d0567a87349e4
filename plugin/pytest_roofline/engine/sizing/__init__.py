"""How a function is timed: the stopwatch, the warm-up, and how many calls make a sample."""
