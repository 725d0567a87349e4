"""Ranks: processes that one controller starts, keeps, and asks for numbers. They never run pytest."""
