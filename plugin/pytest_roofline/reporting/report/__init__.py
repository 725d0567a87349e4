"""Reports of saved runs: JSON, CSV, a Markdown summary, and one page with plots that opens without a network."""
