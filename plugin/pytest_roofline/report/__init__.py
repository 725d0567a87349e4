"""Output for people and programs: messages, tables, terminal lines, and the report of a run."""
