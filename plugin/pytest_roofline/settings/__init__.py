"""The settings of a run: options with their ini twins, the command, and the round that a process is."""
