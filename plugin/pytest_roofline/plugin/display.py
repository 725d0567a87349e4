"""What a run prints, put together from the parts in `report`: the header with about how long it will take, progress,
and the closing summary.
"""

import contextlib
import shlex
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from ..baselines.comparators import BaselineComparator, RunComparator
from ..baselines.run_files import watched
from ..core.entries import RESOURCES
from ..core.units import GIB, count, format_tolerance, printable
from ..hardware import family_of, unknown_line
from ..kernel_gate.text import difference_lines
from ..observe.text import memory_lines, out_of_memory_lines, profile_lines
from ..report.explain import detail_lines
from ..report.figures import figure_lines, first_call_lines, rank_lines
from ..report.messages import (
    condition_lines,
    counts_line,
    curve_line,
    gate_lines,
    peak_lines,
    reason_lines,
    shadow_lines,
)
from ..report.overview import curve_verdict_line, ladder_lines, ladder_of, overview_lines, power_lines
from ..report.published import idle_lines, limit_lines, published_lines
from ..report.tables import kernels_table, results_table, roofline_note
from ..report.transfers import matrix_lines, transfer_lines
from ..stats.curves import judge_curves, summarise
from ..stats.outlook import DEFAULT_TOLERANCES
from ..stats.spread import class_of
from ..version import __version__
from .held_reports import call_key, setup_key
from .planned import Planned
from .results import shadow_of
from .session import RooflineSession
from .settings import DEFAULT_FAIL_ON, FAIL_ON

# In pytest's cache: seconds of each test beside its budget, by the device that was measured.
TOOK = "roofline/took"
# Where nothing is known: making and checking buffers, warm-up. Measured on a CPU sweep; an estimate for a person.
BESIDE_S = 1.5
# A further process starts, imports torch and collects: four took 13.6 s and one 3.8 s, on two cores.
PROCESS_S = 3.0
# A test that takes longer is named before it begins.
LONG_S = 60.0


def header_lines(session: RooflineSession) -> list[str]:
    """Version, device, driver, baseline in use and tier; then what is planned and about how long it takes."""
    if not session.opened:
        return [f"roofline {__version__}: {len(session.planned)} tests measure (tier {session.options.tier})"]
    under_test, device = session.under_test, session.under_test.environment.device
    software = under_test.environment.software
    facts = [f"{under_test.device.name} ({printable(device.product)}, {_memory(device.memory_bytes)})"]
    facts += [f"driver {printable(device.driver)}"] if device.driver else []
    facts += [f"torch {software['torch']}"] if "torch" in software else []
    lines = [f"roofline {__version__}: {', '.join(facts)}, against {_against(session)}"]
    tests = [p for p in session.planned.values() if session.unmet(p.marks.needs) is None]
    each = seconds_each(session, tests)
    seconds = seconds_of_all(session, sum(each.values()))
    tolerance = session.options.tolerance or DEFAULT_TOLERANCES[class_of(device.type)]
    lines.append(
        f"roofline: {count(len(tests), 'measuring test')} planned, about {_duration(seconds)} "
        f"(tier {session.options.tier}, tolerance {format_tolerance(tolerance)}{_mode(session)})"
    )
    slow = [test_id for test_id, one_s in each.items() if one_s > LONG_S]
    if slow:
        longest = max(slow, key=lambda test_id: each[test_id])
        lines.append(
            f"roofline: {count(len(slow), 'test')} of these {'take' if len(slow) > 1 else 'takes'} over a minute, for "
            f"set-up and checks more than for measuring; the longest {printable(longest.rpartition('::')[2])}, about "
            f"{_duration(each[longest])}"
        )
    if session.warning:
        lines.append(f"roofline WARNING: {session.warning}")
    return lines


def _mode(session: RooflineSession) -> str:
    """What is not as by default: rounds, what fails, a drill."""
    options = session.options
    text = "" if options.min_share is None else f", at least {format_tolerance(options.min_share)} of the roofline"
    rounds = options.rounds or 1
    text += f", up to {rounds} rounds" if rounds > 1 else ""
    text += f", no round after {_duration(options.time_s)}" if rounds > 1 and options.time_s else ""
    if options.fail_on != frozenset(DEFAULT_FAIL_ON):
        text += f", fails on {', '.join(word for word in FAIL_ON if word in options.fail_on)}"
    text += ", only watches" if options.shadow else ""
    return text + (f", DRILL +{format_tolerance(options.drill)}" if options.drill is not None else "")


def _memory(size_bytes: int | None) -> str:
    return "memory unknown" if size_bytes is None else f"{size_bytes / GIB:.0f} GiB"


def _against(session: RooflineSession) -> str:
    comparator = session.under_test.comparator
    if isinstance(comparator, RunComparator):
        names = [printable(run.header.run_id) for run in comparator.runs]
        return f"{len(names)} saved run{'s' * (len(names) > 1)} ({', '.join(names)})"
    kernels = session.compiled.known.name
    nothing = isinstance(comparator, BaselineComparator) and not comparator.entries.paths
    # A file may hold both.
    names = [comparator.name] + [f"{kernels} for compiled kernels"] * (kernels not in ("", comparator.name))
    limits = "" if nothing or isinstance(comparator, RunComparator) else _limits_alone(session)
    return printable(", ".join(names) + limits)


def _limits_alone(session: RooflineSession) -> str:
    """How many published limits and floors gate here, where nothing was recorded on this hardware; else empty."""
    under_test = session.under_test
    mine = [entry for entry in under_test.entries if entry.hardware.alone.covers(under_test.hardware.alone)]
    if any(entry.kind == "measured" for entry in mine):
        return ""
    limits, floors = (sum(e.gates and e.kind == kind for e in mine) for kind in ("threshold", "floor"))
    told = [count(limits, "published limit")] * bool(limits or not floors) + [count(floors, "floor")] * bool(floors)
    return f" (nothing recorded on this hardware, {', '.join(told)})"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class _Progress:
    """When the last line of progress was written; one object a run."""

    def __init__(self) -> None:
        self.began_s: float | None = None
        self.said_s = 0.0
        self.started = 0


_progress_key = pytest.StashKey[_Progress]()


def progress_line(session: RooflineSession, item: pytest.Item, every_s: float, now_s: float | None = None) -> str:
    """A line that tells how far the run is, at most one every `every_s` seconds; empty in between."""
    now_s = time.monotonic() if now_s is None else now_s
    state = session.config.stash.setdefault(_progress_key, _Progress())
    if state.began_s is None:
        state.began_s = state.said_s = now_s
    if session.unmet(session.planned[item.nodeid].marks.needs) is not None:
        return ""
    # What will be skipped takes no time, so it is no part of what is left.
    total = sum(session.unmet(plan.marks.needs) is None for plan in session.planned.values())
    done = state.started
    state.started += 1
    if now_s - state.said_s < every_s or done == 0:
        return ""
    state.said_s = now_s
    left_s = (now_s - state.began_s) / done * (total - done)
    return f"roofline: {done} of {total} done, about {_duration(left_s)} left, now {printable(item.name)}"


def _run_argument(session: RooflineSession) -> str:
    """What to type for this run: its name where `roofline` will find it from here, else its path."""
    path = session.writer.path
    if path is None:
        return ""
    return session.run_name if path.parent == Path.cwd() / ".roofline" / "runs" else shlex.quote(str(path))


def _untold_since(session: RooflineSession) -> str:
    """Why the device does not tell of its state, where it does not."""
    from ..engine.devices.base import Managed

    device, why = session.under_test.device, ""
    if isinstance(device, Managed):
        # A summary must not end for a device that is lost by now.
        with contextlib.suppress(Exception):
            why = device.silent_library()
    return why or "the driver does not tell"


def summary_lines(session: RooflineSession, width: int, colour: bool) -> list[str]:
    """What explains the run as a whole, the table, the curves, the counts and the closing sentences."""
    lines: list[str] = []
    rows = session.timed.rows
    if session.options.drill is not None:
        lines.append(f"DRILL: every measured function was slowed down by {format_tolerance(session.options.drill)}")
    exhausted = session.exhausted.found
    if rows or exhausted:
        lines += overview_lines(rows)
        lines += ladder_lines(ladder_of(rows))
        lines += results_table(rows, width, colour, exhausted).split("\n")
        lines += [line for line in (roofline_note(rows), _unknown_hardware(session)) if line]
        lines += limit_lines(rows)
        lines += _curve_lines(session)
        lines += matrix_lines(rows, width)
        lines += transfer_lines(rows)
        lines += rank_lines(rows)
        lines += first_call_lines(rows)
        lines += out_of_memory_lines(exhausted)
        lines += reason_lines(rows)
        lines += peak_lines(rows)
        lines += condition_lines(rows, untold_since=_untold_since(session))
        lines += idle_lines(rows)
        lines += published_lines(rows, verbose=session.config.get_verbosity() > 0)
        if session.config.get_verbosity() > 1:
            lines += detail_lines(rows)
    if session.compiled.rows:
        lines += kernels_table(session.compiled.rows, width, colour).split("\n")
        lines += difference_lines(session.compiled.rows)
    lines += figure_lines(session.noted.figures)
    lines += memory_lines(session.noted.memory_uses)
    lines += profile_lines(session.noted.profiles, width)
    return lines + _closing_lines(session)


def _unknown_hardware(session: RooflineSession) -> str:
    return unknown_line(session.under_test.environment.device) if session.timed.rows else ""


def _curve_lines(session: RooflineSession) -> list[str]:
    rows = session.timed.rows
    lines = [curve_verdict_line(curve) for curve in judge_curves(rows)]
    measured = (row.measurement for row in rows if row.measurement is not None)
    return lines + [curve_line(curve) for curve in summarise(measured)]


def _closing_lines(session: RooflineSession) -> list[str]:
    rows, lines = session.timed.rows, []
    family = family_of(session.under_test.environment.device)
    if session.writer.trouble:
        lines.append(f"WARNING: {session.writer.trouble}")
    elif session.writer.path is not None:
        lines.append(f"run saved as {session.writer.path}")
    lines += session.reports.lines
    lines += [f"WARNING: {printable(sentence)}" for sentence in session.noted.warnings]
    if session.rounds_refused:
        lines.append(f"WARNING: no further rounds: {session.rounds_refused}")
    if session.health:
        lines.append(f"device health: {session.health.splitlines()[0]}")
    lines += power_lines(rows)
    if session.options.shadow:
        known = watched(session.options.folder, session.under_test.hardware)
        lines += shadow_lines(shadow_of(session.config).sentences, known)
    kernels = session.compiled.rows
    family = RESOURCES if kernels and not rows else family
    lines += gate_lines([*rows, *kernels], len(session.planned), _run_argument(session), family)
    rounds = f", {session.rounds_used} rounds" if session.rounds_used > 1 else ""
    lines.append(counts_line(len(rows), session.not_measured, len(kernels)) + rounds)
    return lines


def seconds_each(session: RooflineSession, tests: Iterable[Planned]) -> dict[str, float]:
    """About how long each of these tests will take in one process, by its name."""
    took = _known(session).get(_here(session), {})
    seconds = {}
    for plan in tests:
        beside_s = took.get(plan.item.nodeid, BESIDE_S)
        seconds[plan.item.nodeid] = max(0.0, _budget_s(session, plan) + beside_s)
    return seconds


def seconds_of_all(session: RooflineSession, alone_s: float) -> float:
    """About how long tests will take that take so long in one process, in as many as record them."""
    comparator = session.under_test.comparator
    records = isinstance(comparator, BaselineComparator) and not comparator.entries.paths
    further = session.options.recording - 1 if records else 0
    return alone_s + further * (alone_s + PROCESS_S)


def remember(session: RooflineSession) -> None:
    """Keep how long the tests of this run took, for the headers of later ones; not of those that did not end well."""
    cache, beside = _cache(session), {}
    for test_id, plan in session.planned.items():
        call = plan.item.stash.get(call_key, None)
        if call is not None and call.excinfo is None:
            took_s = plan.item.stash.get(setup_key, 0.0) + call.duration
            beside[test_id] = round(took_s - _budget_s(session, plan), 3)
    if cache is not None and beside and session.round is None:
        known, here = _known(session), _here(session)
        cache.set(TOOK, known | {here: known.get(here, {}) | beside})


def _budget_s(session: RooflineSession, plan: Planned) -> float:
    return plan.marks.budget or session.options.budget_s


def _here(session: RooflineSession) -> str:
    """The device, and the cores beside it, which make and check what it computes."""
    environment = session.under_test.environment
    return f"{environment.device.product}, {environment.host.cpu_model}, {environment.host.usable_cores} cores"


def _known(session: RooflineSession) -> dict[str, dict[str, float]]:
    """What earlier runs remember by device; a cache that something else wrote holds nothing."""
    cache = _cache(session)
    found = cache.get(TOOK, {}) if cache is not None else {}
    tests = list(found.values()) if isinstance(found, dict) else [None]
    numbers = (value for one in tests if isinstance(one, dict) for value in one.values())
    fits = all(isinstance(one, dict) for one in tests) and all(isinstance(value, int | float) for value in numbers)
    return found if fits else {}


def _cache(session: RooflineSession) -> Any:
    """pytest's cache; None where it is switched off."""
    return getattr(session.config, "cache", None)
