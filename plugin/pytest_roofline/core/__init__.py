"""The words that every layer shares: errors, units, work, records. Standard library only."""
