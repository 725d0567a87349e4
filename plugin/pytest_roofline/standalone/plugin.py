"""The pytest plugin of a reproducer: options, hooks, marker and fixtures of pytest-roofline, without its verdicts."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..core.cases import machine_text
from ..options import MARKER, RANKS_FIXTURE, add_options
from ..settings import parse_options, read_marks
from .fixture import Roofline
from .results import VARIABLE, Told, found_of, write_results

if TYPE_CHECKING:
    from ..core.records import Measurement
    from ..measuring.devices import Device
    from ..ranks import Distributed


class Measuring:
    """The device of a run, opened when the first test asks, and what was measured on it."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._device: Device | None = None
        self._failure, self._skipped = "", False
        self.results: list[tuple[Measurement, tuple[str, ...]]] = []

    def device(self) -> "Device":
        """What is measured: the one of a conftest.py, or the one that was asked for."""
        if self._device is None:
            from ..measuring.devices import open_device

            asked = parse_options(self._config).device
            known = self._config.hook.pytest_roofline_device(config=self._config, name=asked)
            self._device = open_device(asked) if known is None else known
        return self._device

    @property
    def machine(self) -> str:
        """What was measured, in words."""
        if self._device is None:
            return ""
        from ..measuring.environment import gather

        return machine_text(gather(self._device))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep why the test failed, in the words that a run keeps, and whether it was skipped."""
        self._skipped |= report.skipped
        if report.failed and not self._failure:
            crash = getattr(report.longrepr, "reprcrash", None)
            text = crash.message if crash is not None else str(report.longrepr)
            self._failure = text.splitlines()[0] if text else "failed"

    def pytest_sessionfinish(self) -> None:
        """Hand over what was measured."""
        path = os.environ.get(VARIABLE)
        if path:
            found = tuple(found_of(*one) for one in self.results)
            write_results(Path(path), Told(self.machine, found, self._failure, self._skipped))


_key: pytest.StashKey[Measuring] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of the plugin, so that a test may read them."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """The hooks of the plugin."""
    from .. import hooks

    pluginmanager.add_hookspecs(hooks)


def pytest_configure(config: pytest.Config) -> None:
    """Know the marker, and be ready."""
    config.addinivalue_line("markers", f"{MARKER}(...): how to measure and judge")
    config.stash[_key] = Measuring(config)
    config.pluginmanager.register(config.stash[_key], "roofline-reproducer")


@pytest.fixture
def roofline(request: pytest.FixtureRequest) -> Roofline:
    """Measures functions on the device."""
    measuring = request.config.stash[_key]
    # Ranks have the accelerators for themselves.
    if RANKS_FIXTURE not in request.fixturenames:
        measuring.device()
    options = parse_options(request.config)
    return Roofline(measuring.device, request.node, read_marks(request.node), options, measuring.results)


@pytest.fixture
def distributed(request: pytest.FixtureRequest) -> "Distributed":
    """Runs functions on ranks."""
    from ..ranks import make_distributed

    return make_distributed(request)
