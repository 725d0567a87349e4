"""The program that makes the baselines of published figures, as modules: it is a script beside its data."""

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest
from tests.conftest import make

__all__ = ["make"]
PUBLISHED = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def module():
    """Imports a module of `baselines/published/` by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PUBLISHED)
        yield importlib.import_module


@pytest.fixture(scope="session")
def build(module):
    """The program itself, under a name that no package has."""
    spec = importlib.util.spec_from_file_location("published_build", PUBLISHED / "build.py")
    program = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = program
    spec.loader.exec_module(program)
    yield program
    del sys.modules[spec.name]


@pytest.fixture(scope="session")
def found(module):
    """Every record of the data, accounted for."""
    return module("entries").account()


@pytest.fixture(scope="session")
def figures(module):
    """The published figures, by metric and value."""
    return {
        (one.hardware, one.variant, one.metric, one.value): one
        for one in module("figures").published()
    }
