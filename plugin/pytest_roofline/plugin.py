"""The pytest plugin: hooks of a few lines each. Heavy modules are imported when a test that measures is at hand."""

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .options import MARKER, MARKER_KEYWORDS, add_options, parse_options

if TYPE_CHECKING:
    from .fixture import Roofline
    from .reporting.messages import Result
    from .session import RooflineSession

FIXTURE = "roofline"
# A line of progress at most this often, so that a log of hours stays readable.
PROGRESS_EVERY_S = 20.0

_session_key: "pytest.StashKey[RooflineSession]" = pytest.StashKey()
_results_key: "pytest.StashKey[list[Result]]" = pytest.StashKey()
_by_verdict_key = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the options and their ini twins."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the hooks that others may implement."""
    from . import hooks

    pluginmanager.add_hookspecs(hooks)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and refuse options that cannot be used."""
    config.addinivalue_line(
        "markers", f"{MARKER}({', '.join(f'{k}=…' for k in MARKER_KEYWORDS)}): how to measure and judge"
    )
    parse_options(config)


@pytest.fixture
def roofline(request: pytest.FixtureRequest) -> "Roofline":
    """Measures functions on the device and holds them against this hardware's baseline."""
    from .fixture import Roofline
    from .options import read_marks

    return Roofline(request.config.stash[_session_key], request.node, read_marks(request.node))


def _measures(item: pytest.Item) -> bool:
    return FIXTURE in getattr(item, "fixturenames", ())


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check markers, refuse xdist and collisions, and leave out the sizes of a higher tier."""
    from .options import read_marks

    marked = {item.nodeid: read_marks(item) for item in items if _measures(item) or item.get_closest_marker(MARKER)}
    if not any(_measures(item) for item in items):
        return
    if hasattr(config, "workerinput"):
        # A worker that fails to collect crashes the run; the first test refuses in its place.
        return
    from .selection import select

    select(config, items, marked)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Open the device and the baselines before the first test, so that what cannot work says so at once."""
    config = session.config
    measuring = [item for item in session.items if _measures(item)]
    if not measuring or hasattr(config, "workerinput"):
        return
    from .selection import plan
    from .session import RooflineSession

    config.stash[_session_key] = state = RooflineSession(config, parse_options(config))
    state.planned = plan(measuring)
    if not config.option.collectonly:
        assert state.ground


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """The header line, once it is known that something will be measured."""
    state = config.stash.get(_session_key, None)
    if state is None:
        return []
    from .display import header_lines

    return header_lines(state)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse to measure beside neighbours; skip what this device cannot do, before anything is set up for it."""
    if not _measures(item):
        return
    if hasattr(item.config, "workerinput"):
        pytest.fail(XDIST, pytrace=False)
    from .selection import skip_for_device

    skip_for_device(item.config.stash[_session_key], item)


XDIST = (
    "roofline measures, and pytest-xdist runs tests side by side (-n above 0), which disturbs every timing; "
    "run without -n, or with -n 0"
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Judge a test's measurements when its body has ended well; a regression fails it here, in the call phase."""
    state = item.config.stash.get(_session_key, None)
    if state is None or not _measures(item):
        return (yield)
    item.stash[_results_key], item.stash[_by_verdict_key] = [], False
    try:
        outcome = yield
    except BaseException:
        state.abandon(item)
        raise
    results = item.stash[_results_key] = state.judge(item)
    _publish(item, results)
    red = [result for result in results if result.verdict is not None and state.fails(result.verdict)]
    if red:
        from .reporting.messages import failure_message

        item.stash[_by_verdict_key] = True
        where = _relative(state.writer.path, item.config.rootpath)
        pytest.fail("\n".join(failure_message(result, where) for result in red), pytrace=False)
    return outcome


def _relative(path: Path | None, folder: Path) -> str:
    if path is None:
        return ""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def _publish(item: pytest.Item, results: Sequence["Result"]) -> None:
    """The figures as properties, which JUnit XML and other reports carry."""
    from .reporting.messages import properties

    # A rerun publishes its own figures, not the earlier attempt's beside them.
    others = [pair for pair in item.user_properties if not pair[0].startswith("roofline")]
    item.user_properties[:] = [*others, *properties(results)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, pytest.TestReport]:
    """Give the report its number for the status word, and note a test's end in the run file."""
    report: pytest.TestReport = yield
    if hasattr(item.config, "workerinput") and _measures(item):
        report.roofline_refused = XDIST  # type: ignore[attr-defined]
    state = item.config.stash.get(_session_key, None)
    if state is None or not _measures(item):
        return report
    if call.when == "call":
        from .reporting.messages import status_word

        results = item.stash.get(_results_key, [])
        report.roofline_word = "; ".join(status_word(result) for result in results)  # type: ignore[attr-defined]
    from .outcomes import note

    note(state, item, report, by_verdict=item.stash.get(_by_verdict_key, False))
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """End the whole run as a usage error where a worker of xdist was asked to measure."""
    refused = getattr(report, "roofline_refused", "")
    if refused and hasattr(report, "node"):
        raise pytest.UsageError(refused)


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """`PASSED 1511 GB/s +0.2 %` in a verbose run; a plain FAILED for failures, since tools look for it."""
    word = getattr(report, "roofline_word", "")
    if word and report.when == "call" and report.outcome == "passed" and not hasattr(report, "wasxfail"):
        return "passed", ".", f"PASSED {word}"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Say now and then how far a long run is."""
    state = item.config.stash.get(_session_key, None)
    if state is not None and _measures(item):
        from .display import progress_line

        line = progress_line(state, item, PROGRESS_EVERY_S)
        reporter: Any = item.config.pluginmanager.get_plugin("terminalreporter")
        if line and reporter is not None:
            reporter.write_line(line)
    return (yield)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """End the run file; a run that was to be kept under a name and could not be is no success."""
    state = session.config.stash.get(_session_key, None)
    if state is None or not state.opened:
        return
    state.close(int(exitstatus))
    if state.writer.trouble and state.options.save and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The table, the curves and what was compared."""
    state = config.stash.get(_session_key, None)
    if state is None or not state.opened:
        return
    from .display import summary_lines

    terminalreporter.section("roofline")
    for line in summary_lines(state, width=terminalreporter._tw.fullwidth, colour=terminalreporter._tw.hasmarkup):
        terminalreporter.write_line(line)
