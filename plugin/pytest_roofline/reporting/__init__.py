"""What a person reads: messages, tables, lines of the terminal. Pure: records and verdicts in, text out."""
