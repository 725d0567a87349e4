"""Where the time goes: an untimed pass under a profiler, and what its trace tells."""
