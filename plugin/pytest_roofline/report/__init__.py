"""What people and programs read: messages, tables, lines of the terminal; the report of a run: page, CSV, JSON."""
