"""The programs of `benchmarks/` as modules: they are scripts beside their own package, not part of the plugin."""

import importlib
from pathlib import Path

import pytest
from tests.conftest import make

__all__ = ["make"]
BENCHMARKS = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def program():
    """Imports a program of `benchmarks/`, or a module of `benchmarks/detectors`, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield importlib.import_module
