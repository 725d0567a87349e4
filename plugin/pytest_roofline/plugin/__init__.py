"""The plugin's entry: all that a run without measurements loads. `running` joins for a test that measures.

No object is registered under a name, since `-p no:NAME` in an ini file would switch a part of a gate off.
"""

import os
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ..core.errors import NO_TORCH
from ..settings.command_line import is_configured
from ..settings.options import (
    FIXTURE,
    MARKER,
    MARKER_KEYWORDS,
    PLAN_VARIABLE,
    RANK_VARIABLES,
    RANKS_FIXTURE,
    ROUND_VARIABLE,
    SIDE_BY_SIDE,
    add_options,
    tier_key,
)
from ..settings.unknown_options import refuse_options, refuse_values
from .ending import GateOfCommand, end_status_key

if TYPE_CHECKING:
    from ..engine.devices import Device
    from .distributed import Distributed
    from .fixture import Roofline
    from .kinds import ResultKind

# Launchers set these variables in the processes that they start. Without any of them no code for ranks is imported.
_LAUNCHER_VARIABLES = (*RANK_VARIABLES, "SLURM_STEP_ID")


class Hooks:
    """Hooks that a conftest.py or another plugin may implement to change what is measured, and on what."""

    @pytest.hookspec(firstresult=True)
    def pytest_roofline_device(self, config: pytest.Config, name: str | None) -> "Device | None":
        """Return the device to measure on; None for the built-in choice.

        Args:
            config: pytest's configuration.
            name: what `--roofline-device` asks for; None if it was not given.
        """

    @pytest.hookspec(firstresult=True)
    def pytest_roofline_function(
        self, item: pytest.Item, name: str, fn: Callable[..., object]
    ) -> Callable[..., object] | None:
        """Return the function to measure instead of `fn`; None measures `fn`.

        This is the seam for drills: slow a function down and see the gate turn red. The measurement carries the label
        `replaced`, so it never becomes a baseline.

        Args:
            item: the test that measures.
            name: the measurement's name within the test; empty for the only one.
            fn: the function that the test gave.
        """

    @pytest.hookspec
    def pytest_roofline_result_kinds(self, config: pytest.Config) -> "Sequence[ResultKind]":  # type: ignore[empty-body]
        """Return further kinds of result.

        Each is judged and shown as times, memory and compiled kernels are.

        Args:
            config: pytest's configuration.
        """


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options and their ini twins."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugin's hooks, and refuse values of flags."""
    pluginmanager.add_hookspecs(Hooks)
    pluginmanager.register(GateOfCommand())
    refuse_values(pluginmanager)


@pytest.hookimpl(wrapper=True)
def pytest_load_initial_conftests(
    parser: pytest.Parser, args: list[str]
) -> Generator[None, object, object]:
    """Refuse unknown options, once every conftest.py has registered its own."""
    result = yield
    refuse_options(parser, args)
    return result


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Make this pytest a round or a rank of another run.

    A round repeats tests of its parent. The exit status is that of a rank that has served rank 0; None lets pytest go
    on.
    """
    if os.environ.get(ROUND_VARIABLE):
        from .round_child import begin

        begin(config)
    if any(name in os.environ for name in _LAUNCHER_VARIABLES):
        from .attaching import attach

        status = attach(config)
        if status is not None:
            # Only rank 0 has the gate. This process has served it, so its own status 0 is no false one.
            config.stash[end_status_key] = int(pytest.ExitCode.OK)
        return status
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and refuse options that cannot be used."""
    keywords = ", ".join(f"{keyword}=…" for keyword in MARKER_KEYWORDS)
    config.addinivalue_line("markers", f"{MARKER}({keywords}): how to measure and judge a test")
    plan_path = os.environ.get(PLAN_VARIABLE)
    if plan_path and config.getoption("collectonly", False):
        from .planned import PlanWriter

        config.pluginmanager.register(PlanWriter(Path(plan_path)))
    if config.getoption("benchmark_only", False):
        from .bridge import AmongBenchmarks

        config.pluginmanager.register(AmongBenchmarks())
    if is_configured(config):
        from ..settings.parsing import parse_options

        options = parse_options(config)
        if options.gate:
            from .gate import Gatekeeper

            config.pluginmanager.register(Gatekeeper(options))
        if options.is_recording:
            from .recording_run import Recorder

            config.pluginmanager.register(Recorder(options))
        if options.wait_s is not None:
            from .waiting import Waiting

            config.pluginmanager.register(Waiting(options.wait_s))


@pytest.fixture
def roofline(request: pytest.FixtureRequest) -> "Roofline":
    """Measures functions on the device and holds them against this hardware's baseline."""
    from .running import make_fixture

    return make_fixture(request)


# The function is not called `distributed`: an import of the module of that name would replace it here.
@pytest.fixture(name=RANKS_FIXTURE)
def distributed_fixture(request: pytest.FixtureRequest) -> "Distributed":
    """Runs functions on ranks: processes that are started once and kept from test to test."""
    from .running import make_distributed

    return make_distributed(request)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, object, object]:
    """Register the hooks of a run with tests that measure.

    This hook runs around those of other plugins, and so sees the tests before and after they leave some out.
    """
    collected_items = [item for item in items if _uses_roofline(item)]
    result = yield
    measuring_items = [item for item in items if _uses_roofline(item)]
    if measuring_items:
        from .running import join

        join(config, items, measuring_items, collected_items)
    return result


# In quotes, since pytest 8 has no such name.
def pytest_terminal_summary(terminalreporter: "pytest.TerminalReporter") -> None:
    """Print why tests did not measure: a higher tier, pytest-xdist, or no torch."""
    if sentence := terminalreporter.config.stash.get(tier_key, ""):
        terminalreporter.write_line(f"roofline: {sentence}")
    rootpath = terminalreporter.config.rootpath
    if any(_lacks_torch(report, rootpath) for report in terminalreporter.getreports("error")):
        terminalreporter.write_line(f"roofline: {NO_TORCH}")
    refused_reports = [
        report
        for report in terminalreporter.getreports("skipped")
        if SIDE_BY_SIDE in str(report.longrepr)
    ]
    if refused_reports:
        terminalreporter.write_line(
            f"roofline: skipped tests that measure: {len(refused_reports)}; {SIDE_BY_SIDE}"
        )


def _lacks_torch(report: pytest.CollectReport | pytest.TestReport, rootpath: Path) -> bool:
    """Return whether a file with our fixture imports a missing torch."""
    path = rootpath / report.fspath
    return (
        "No module named 'torch" in report.longreprtext
        and path.is_file()
        and FIXTURE in path.read_text(encoding="utf-8", errors="replace")
    )


def _uses_roofline(item: pytest.Item) -> bool:
    """Return whether a test has our fixture or marker."""
    has_fixture = not {FIXTURE, RANKS_FIXTURE}.isdisjoint(getattr(item, "fixturenames", ()))
    return has_fixture or item.get_closest_marker(MARKER) is not None
