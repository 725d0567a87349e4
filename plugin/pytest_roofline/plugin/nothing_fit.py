"""Recordings without a fit result: the rule that ends them early with status 1, and their last line.

A recording is a saved run of several processes a test, and no gate. `roofline baseline propose` decides what is fit.
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ..baselines.fit import fewest_of, fit_of
from ..baselines.proposals import NothingFit, propose
from ..baselines.run_files import makes_way
from ..baselines.runs import Run
from ..core.errors import RooflineError
from ..core.records import Outcome
from ..core.samples import SIBLINGS, for_neighbours
from ..core.units import count, listed, printable
from ..report.messages import compared_of
from ..settings.command_line import option_value
from ..settings.options import LOOKING, SIDE_BY_SIDE
from ..settings.parsing import Options
from .session import RooflineSession, session_key

# Of the reasons of single measurements so many are named.
MOST_REASONS = 3
# The status of a run that came to its end.
ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


def refusals(state: RooflineSession, waiting: Iterable[str] = ()) -> tuple[str, ...]:
    """Return why no baseline can be made of a recording, else nothing.

    There is a reason for each measurement.

    Args:
        state: of a run, or of its first process.
        waiting: the tests that passed and whose verdicts are open, so that the run file has no outcome of them.
    """
    if not state.options.is_recording or (_is_comparison(state) and not state.options.record):
        return ()
    run = state.writer.read_back()
    if run is None:
        return tuple(map(printable, state.not_measured)) or ("no test measured anything",)
    passed = tuple(Outcome(test_id, "passed") for test_id in waiting)
    run = replace(run, lines=run.lines + passed)
    if state.options.record:
        return _why_unrecorded(run, 1 if passed else fewest_of(state.options.recording))
    try:
        propose([run])
    except NothingFit as error:
        return error.reasons
    except RooflineError as error:
        return (str(error),)
    return ()


def _why_unrecorded(run: Run, fewest: int) -> tuple[str, ...]:
    """Return why nothing of a run fits the baselines, else nothing.

    An entry needs `fewest` sound processes.
    """
    fit = fit_of(run, fewest)
    if not fit.is_empty:
        return ()
    return tuple(refusal.why for refusal in fit.refusals) or (
        "no test measured anything that a baseline can hold",
    )


def _is_comparison(state: RooflineSession) -> bool:
    """Return whether a run compared a drill, or devices with each other."""
    drilled = compared_of([row for row in state.rows if "replaced" in (row.labels or ())]) > 0
    siblings = [SIBLINGS in (row.labels or ()) for row in state.rows if row.lost is None]
    return drilled or (bool(siblings) and all(siblings))


def refusal_line(
    reasons: Sequence[str], rounds: str, run: Run | None, *, named: bool = True
) -> str:
    """Return the last line of a recording without a fit result.

    Args:
        reasons: why nothing is fit.
        rounds: after which, as `1 of 5 rounds`.
        run: as it was saved; None where nothing was.
        named: whether somebody chose the run's name.
    """
    from ..engine.devices.cpu import QUIETEN

    faults = [reason for reason in reasons if not for_neighbours(reason)]
    busy = len(faults) < len(reasons)
    observed = [listed(faults, MOST_REASONS, "; ")] * bool(faults) + [busy_now()] * busy
    remedies = ["correct what made them invalid"] * bool(faults) + [QUIETEN] * busy
    name = "the same" if run is None or makes_way(run) else "another"
    under = f", under {name} name" * named
    waiting = "; --roofline-wait=10m waits for that" * busy
    return (
        f"No baseline can be made of this run, after {rounds}: {'; '.join(observed)}. Expected at least one valid "
        f"result, so pytest ended with status 1. {', '.join(remedies).capitalize()}, and run this "
        f"again{under}{waiting}."
    )


def busy_now() -> str:
    """Return who keeps the cores of this machine busy, watched for a second."""
    from ..engine.devices.cpu import neighbours_now

    return neighbours_now() or "other processes kept its cores busy"


class Recorder:
    """The check of a recording: it fails a run in which no test that measures began."""

    def __init__(self, options: Options) -> None:
        self._options = options

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, object, object]:
        """Replace status 0 of a recording that measured nothing."""
        if exitstatus == pytest.ExitCode.OK and self._is_empty(session.config):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """Print why nothing was recorded, if no opened session does."""
        config = terminalreporter.config
        if exitstatus in ENDED and self._is_empty(config):
            side_by_side = config.pluginmanager.hasplugin("dsession")
            reason = SIDE_BY_SIDE if side_by_side else "no test that measures was selected"
            rounds = f"0 of {count(self._options.recording, 'round')}"
            has_name = option_value(config, "save") is not None
            terminalreporter.write_line(refusal_line([reason], rounds, None, named=has_name))

    def _is_empty(self, config: pytest.Config) -> bool:
        """Return whether this run decides and measured nothing."""
        only_looks = any(config.getoption(name, False) for name in LOOKING)
        state = config.stash.get(session_key, None)
        opened = state is not None and state.opened
        return not (only_looks or opened or hasattr(config, "workerinput"))
