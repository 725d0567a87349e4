"""Figures of any program, read from the text that it prints."""
