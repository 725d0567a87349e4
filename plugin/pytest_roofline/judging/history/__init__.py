"""Tests over time: steps, drift, and what changed where they are."""

from .changes import Change, History, history

__all__ = ["Change", "History", "history"]
