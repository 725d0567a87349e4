"""Processes that a run starts beside its own: how they are started, forked, watched, known again and ended."""
