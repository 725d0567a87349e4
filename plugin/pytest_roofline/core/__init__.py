"""The words that every layer shares: errors, units, work, records, and the reading and writing of their files."""
