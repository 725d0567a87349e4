"""The programs of `benchmarks/` as modules: they are scripts beside their own package, not part of the plugin."""

import importlib
from pathlib import Path

import pytest

# An inner pytest forgets what was first imported in it, and torch cannot be imported twice.
import torch  # noqa: F401
from tests.conftest import make

__all__ = ["make"]
BENCHMARKS = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def rows_of():
    """The rows of the first table below a title of a page, each as its cells."""

    def rows(text, title):
        lines = text.partition(f"# {title}\n")[2].partition("\n#")[0].splitlines()
        return [
            [cell.strip() for cell in line.strip("|").split("|")]
            for line in lines
            if line.startswith("|")
        ][2:]

    return rows


@pytest.fixture(scope="session")
def program():
    """Imports a program of `benchmarks/`, or a module of `benchmarks/detectors`, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield importlib.import_module
