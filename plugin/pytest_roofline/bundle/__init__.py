"""What a vendor's support asks for: a run without names, and what is needed to measure the failing test again."""
