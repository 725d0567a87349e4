"""References of measurements: run files and baseline files, comparison, proposals, upkeep."""
