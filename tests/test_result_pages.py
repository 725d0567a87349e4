"""The pages of results beside the sources of their figures: whoever changes a source says so on the page."""

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.feature
def test_no_page_is_stale_without_saying_since_when(monkeypatch):
    """The message says how a page is made anew, and what to write on it until then."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    states = importlib.import_module("remake").states()
    assert [state.line() for state in states if state.silent] == []
