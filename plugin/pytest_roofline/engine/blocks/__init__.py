"""One block of samples: taken by a stopwatch, kept or excluded by the conditions, and written into the log."""
