"""The texts of a run, put together from the parts in `report`: header, progress and closing summary."""

import contextlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from ..baselines.nights import settings_of_last_green, shadow_runs
from ..baselines.run_rows import Ending
from ..core.groups import group_by
from ..core.memory import MemoryUse
from ..core.profiles import Figure, Profile
from ..core.rows import TIME
from ..core.samples import for_neighbours
from ..core.units import GIB, count, encodable, format_tolerance, printable, without_commands
from ..core.verdicts import Kind
from ..engine.devices.base import ManagedDevice
from ..engine.devices.cpu import QUIETEN
from ..hardware import unknown_line
from ..report.conditions import condition_lines, curve_line, peak_lines, reason_lines
from ..report.explain import detail_lines
from ..report.figures import figure_lines, first_call_lines, rank_lines
from ..report.inside import memory_lines, profile_lines
from ..report.messages import Reds, closing_lines, compared_of, counts_line, reds_of, shadow_lines
from ..report.overview import (
    curve_verdict_line,
    overview_lines,
    power_lines,
)
from ..report.published import idle_lines, limit_lines, published_lines
from ..report.tables import more_table, roofline_note, warm_up_table
from ..report.transfers import matrix_lines, path_lines, transfer_lines
from ..report.words import tolerances_text
from ..settings.command_line import option_value, record_command
from ..settings.options import COLUMNS
from ..settings.parsing import DEFAULT_FAIL_ON, FAIL_ON
from ..stats.curves import judge_curves, summarise
from ..stats.outlook import DEFAULT_TOLERANCES
from ..stats.spread import class_of
from ..version import __version__
from .recording_run import busy_now, name_recorded, recording_lines, refusal_line
from .results import shadow_sentences
from .terminal import wrapped

if TYPE_CHECKING:
    from .session import RooflineSession

# The least time between lines of progress, so that a log of hours stays readable.
PROGRESS_EVERY_S = 20.0
# A file in the folder of runs that says that the columns were explained once.
LEGEND_MARKER = "columns-explained"
LEGEND = f"{COLUMNS}. (Shown once; `pytest --help` explains the columns again.)"


def header_lines(session: "RooflineSession") -> list[str]:
    """Return the header of a run.

    It names the version, the device, its driver, the baseline and the tier, and says how much will be measured. A run
    whose device is not open has one line.
    """
    if not session.opened:
        return [
            f"roofline {__version__}: {len(session.planned)} tests measure (tier {session.options.tier})"
        ]
    purpose = "to be recorded" if session.options.record else f"against {_against(session)}"
    lines = [
        f"roofline {__version__}: {', '.join(_device_facts(session))}, {purpose}",
        _plan_line(session),
        *_settings_line(session),
    ]
    if session.warning:
        lines.append(f"roofline WARNING: {session.warning}")
    return lines


def _device_facts(session: "RooflineSession") -> list[str]:
    """Return the device, its memory, driver and torch."""
    under_test, device = session.under_test, session.under_test.environment.device
    software = under_test.environment.software
    memory = (
        "memory unknown" if device.memory_bytes is None else f"{device.memory_bytes / GIB:.0f} GiB"
    )
    facts = [f"{under_test.device.name} ({printable(device.product)}, {memory})"]
    facts += [f"driver {printable(device.driver)}"] if device.driver else []
    facts += [f"torch {software['torch']}"] if "torch" in software else []
    return facts


def _plan_line(session: "RooflineSession") -> str:
    """Return the line on the planned tests.

    It has their number, time, tier and tolerances.
    """
    # Tests that will be skipped for lack of a device do not count.
    plans = [plan for plan in session.planned.values() if session.unmet(plan.marks.needs) is None]
    seconds = sum(plan.marks.budget or session.options.budget_s for plan in plans)
    per_round = " in every round" if (session.options.rounds or 1) > 1 else ""
    device_class = class_of(session.under_test.environment.device.type)
    run_tolerance = session.options.tolerance or DEFAULT_TOLERANCES[device_class]
    tolerances = tolerances_text(
        [plan.marks.tolerance or run_tolerance for plan in plans] or [run_tolerance]
    )
    return (
        f"roofline: {count(len(plans), 'measuring test')} planned, {_duration(seconds)} of measuring{per_round} "
        f"(tier {session.options.tier}, {tolerances}{_mode(session)})"
    )


def _settings_line(session: "RooflineSession") -> list[str]:
    """List the settings outside a gate's command, and those not heeded."""
    unheeded = [str(setting) for setting in session.options.elsewhere if not setting.heeded]
    texts = [*session.settings, *(f"{text} (not heeded)" for text in unheeded)]
    return [f"roofline: settings from outside the command: {', '.join(texts)}"] if texts else []


def _mode(session: "RooflineSession") -> str:
    """Return the settings of the run that are not the default.

    Each begins with a comma, since they follow the tolerances of the header.
    """
    options, rounds = session.options, session.options.rounds or 1
    text = ""
    if options.min_share is not None:
        text += f", every test must reach {format_tolerance(options.min_share)} of the roofline"
    if rounds > 1:
        text += f", up to {rounds} rounds"
    if rounds > 1 and options.time_s:
        text += f", no new round after {_duration(options.time_s)}"
    if options.fail_on != frozenset(DEFAULT_FAIL_ON):
        text += f", fails on {', '.join(word for word in FAIL_ON if word in options.fail_on)}"
    if options.shadow:
        text += ", only watches"
    if options.drill is not None:
        text += f", DRILL +{format_tolerance(options.drill)}"
    return text


def _against(session: "RooflineSession") -> str:
    """Return the names of the runs or baselines to compare with."""
    comparator = session.under_test.comparator
    if comparator.runs:
        names = [printable(run.header.run_id) for run in comparator.runs]
        return f"{count(len(names), 'saved run')} ({', '.join(names)})"
    benchmarks = {plan.benchmark for plan in session.planned.values()}
    other_names = (kind.against(comparator, benchmarks) for kind in session.kinds)
    return printable(", and ".join(filter(None, (comparator.name, *other_names))))


def _duration(seconds: float) -> str:
    """Return seconds as text: `89 s`, `2 min`.

    They are in minutes from 90 on.
    """
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class _Progress:
    """The progress of a run: its start, its last line, and the tests that it began."""

    def __init__(self) -> None:
        self.began_s: float | None = None
        self.last_line_s = 0.0
        self.started_count = 0


_progress_key = pytest.StashKey[_Progress]()


def progress_line(session: "RooflineSession", item: pytest.Item) -> str:
    """Return a line on the run's progress.

    It comes now and then; in between the text is empty.
    """
    now_s = time.monotonic()
    state = session.config.stash.setdefault(_progress_key, _Progress())
    # The first test begins the progress.
    if state.began_s is None:
        state.began_s = state.last_line_s = now_s
    if session.unmet(session.planned[item.nodeid].marks.needs) is not None:
        return ""
    # Tests that will be skipped take no time, so they do not count.
    # `unmet` returns why the device does not suit a test, and None if it does.
    total_count = sum(session.unmet(plan.marks.needs) is None for plan in session.planned.values())
    done_count = state.started_count
    state.started_count += 1
    if now_s - state.last_line_s < PROGRESS_EVERY_S or done_count == 0:
        return ""
    state.last_line_s = now_s
    remaining_s = (now_s - state.began_s) / done_count * (total_count - done_count)
    return (
        f"roofline: {done_count} of {total_count} tests done, about {_duration(remaining_s)} left, "
        f"now {printable(item.name)}"
    )


def _why_silent(session: "RooflineSession") -> str:
    """Return why the device does not report its state."""
    device, reason = session.under_test.device, ""
    if isinstance(device, ManagedDevice):
        # The device may be lost by now, which must not end the summary.
        with contextlib.suppress(Exception):
            reason = device.silent_library()
    return reason or "the driver does not report the state of the device"


def summary_lines(
    session: "RooflineSession", width: int, colour: bool, status: int = 0
) -> list[str]:
    """Return the summary: table, explanations, failures, and the closing sentence.

    With -q only what failed, or why nothing was compared, and the sentence; with -v also how the numbers were taken,
    with -vv each in full.
    """
    is_quiet = session.config.get_verbosity() < 0
    tables = [] if is_quiet else _tables(session, width, colour)
    lines = _busy_lines(session) if is_quiet else _lines_below(session, width)
    # In a recording, the verdict on a compiled kernel turns nothing red.
    judged_rows = [row for row in session.rows if row.exact is None or not session.options.record]
    reds = reds_of(
        {test_id: Ending(outcome, outcome) for test_id, outcome in session.outcomes.items()},
        judged_rows,
    )
    closing = _closing(session, reds, status)
    if session.refusals:
        closing.append(_refusal(session))
    if session.recording is not None:
        # A recording compares nothing, so its lines replace the sentence with the colour. Reasons of reds stay.
        red_lines = closing[:-1] if reds else []
        closing = [*red_lines, *recording_lines(session, session.recording)]
    # A line that a CI would take for a command is escaped; `wrapped` does that for the other lines.
    return [
        *map(without_commands, tables),
        *(part for line in [*lines, *closing] for part in wrapped(line, width)),
    ]


def _lines_below(session: "RooflineSession", width: int) -> list[str]:
    """Return the lines between the tables and the reasons of reds."""
    lines = _legend(session) if session.timed.rows else []
    lines += _details(session, width) if session.config.get_verbosity() > 0 else []
    return lines + _notes(session, width) + _saved_lines(session) + _explanations(session)


def _closing(session: "RooflineSession", reds: Reds, status: int) -> list[str]:
    """Return the reasons, and the sentence on the run.

    They say why tests are red or undecided.
    """
    verbosity, rows = session.config.get_verbosity(), session.rows
    closing = closing_lines(
        rows,
        reds,
        planned=[encodable(test_id) for test_id in session.planned],
        # A recording in which nothing is fit shows no command to record the same again.
        record_command="" if session.refusals else record_command(session.config),
        # With -v the details have named every undecided test, and a recording decides none.
        most_undecided=0 if verbosity > 0 or session.options.record else 1,
        status=status,
        lost_output=session.lost_output,
        settings=_new_settings(session),
        tell_reds=not prints_failures(session.config),
    )
    has_explanation = bool(session.refusals) or compared_of(rows) > 0
    if session.options.shadow or (verbosity < 0 and not reds and has_explanation):
        # The lines above give the reasons already.
        return closing[-1:]
    return closing


def _refusal(session: "RooflineSession") -> str:
    """Return the last line of a recording without a fit result."""
    rounds = f"{session.rounds_used} of {count(session.options.recording, 'round')}"
    has_name = option_value(session.config, "save") is not None
    return refusal_line(session.refusals, rounds, session.writer.read_back(), named=has_name)


def prints_failures(config: pytest.Config) -> bool:
    """Return whether pytest's section FAILURES explains each failed test."""
    return config.getoption("tbstyle") != "no" and not config.getoption("no_summary")


def _new_settings(session: "RooflineSession") -> list[str]:
    """Return a gate's outside settings that are new.

    They changed since its last green run.
    """
    if not session.options.gate:
        return []
    before = settings_of_last_green(session.options.folder, session.writer.path)
    new = [text for text in session.settings if text not in before]
    return new + [f"no longer {text}" for text in before if text not in session.settings]


def wrap_failures(session: "RooflineSession", reporter: Any) -> None:
    """Wrap the lines of our failures for the terminal.

    pytest prints them later. Files keep the whole lines.
    """
    for report in reporter.getreports("failed"):
        # The items that this plugin adds, such as `roofline gate`, are in no file and have no `::`.
        is_ours = report.nodeid in session.planned or "::" not in report.nodeid
        for traceback, *_ in getattr(report.longrepr, "chain", ()) if is_ours else ():
            for entry in traceback.reprentries:
                # Pytest gives this style to an exception without a traceback, as our verdicts raise it.
                if getattr(entry, "style", "") == "value":
                    width = reporter._tw.fullwidth
                    entry.lines = [part for line in entry.lines for part in wrapped(line, width)]


def _tables(session: "RooflineSession", width: int, colour: bool) -> list[str]:
    """Return all results in the tables of their kinds."""
    lines = []
    if session.options.drill is not None:
        lines.append(
            f"DRILL: every measured function was slowed down by {format_tolerance(session.options.drill)}"
        )
    for table, kinds in group_by(session.kinds, lambda kind: kind.table).items():
        rows = [row for kind in kinds for row in kind.rows]
        if session.recording is not None and TIME in {kind.metric for kind in kinds}:
            rows = name_recorded(session.recording, rows)
        lines += table(rows, width, colour).split("\n") if rows else []
        if session.config.get_verbosity() > 0:
            measured = [row for row in rows if row.measurement is not None]
            lines += more_table(measured, width).split("\n")
    return [line for line in lines if line]


def _legend(session: "RooflineSession") -> list[str]:
    """Return the meaning of the columns, once for a user.

    A file in the folder of runs marks that it was shown.
    """
    marker_file = session.options.folder / "runs" / LEGEND_MARKER
    if marker_file.exists() or not any(
        row.roofline_share or row.interval for row in session.timed.rows
    ):
        return []
    with contextlib.suppress(OSError):
        marker_file.parent.mkdir(parents=True, exist_ok=True)
        marker_file.touch()
    return [LEGEND]


def _details(session: "RooflineSession", width: int) -> list[str]:
    """Return the lines on how the numbers were measured."""
    rows = session.timed.rows
    lines = [
        roofline_note(rows),
        unknown_line(session.under_test.environment.device) if rows else "",
    ]
    lines += limit_lines(rows)
    lines += [curve_verdict_line(curve) for curve in judge_curves(rows)]
    lines += [
        curve_line(curve)
        for curve in summarise(row.measurement for row in rows if row.measurement is not None)
    ]
    lines += matrix_lines(rows, width) + transfer_lines(rows) + path_lines(rows, width)
    lines += rank_lines(rows) + first_call_lines(rows)
    lines.append(warm_up_table(rows, width))
    lines += reason_lines(rows) + peak_lines(rows)
    lines += condition_lines(rows, unknown_since=_why_silent(session)) if rows else []
    lines += idle_lines(rows) + published_lines(rows, verbose=True) + power_lines(rows)
    lines += detail_lines(rows) if session.config.get_verbosity() > 1 else []
    rounds = f", {session.rounds_used} rounds" if session.rounds_used > 1 else ""
    lines.append(counts_line(session.counts, session.not_measured) + rounds)
    return [part for line in lines for part in line.split("\n") if part]


def _notes(session: "RooflineSession", width: int) -> list[str]:
    """Return the lines on figures, memory, profiles, and functions that wait."""
    lines = [line for kind in session.kinds for line in kind.notes()]
    lines += figure_lines(session.run_notes.of(Figure)) + memory_lines(
        session.run_notes.of(MemoryUse)
    )
    return lines + profile_lines(session.run_notes.of(Profile), width)


def _saved_lines(session: "RooflineSession") -> list[str]:
    """Return where the run is saved, and the warnings about that."""
    lines = []
    if session.writer.trouble:
        lines.append(f"WARNING: {session.writer.trouble}")
    elif session.writer.path is not None:
        lines.append(f"run saved as {session.writer.path}")
    if session.writer.aside is not None:
        lines.append(
            f"the earlier run of the same name was INVALID in every test; it is kept as {session.writer.aside}"
        )
    lines += session.reports.lines
    lines += [f"WARNING: {printable(sentence)}" for sentence in session.run_notes.warnings]
    if session.why_no_rounds:
        lines.append(f"WARNING: no further rounds: {session.why_no_rounds}")
    return lines


def _explanations(session: "RooflineSession") -> list[str]:
    """Return the lines on what many tests have in common.

    They are on a shared change, and on the device.
    """
    rows = session.timed.rows
    lines = _busy_lines(session) + overview_lines(rows)
    lines += [f"device health: {session.health.splitlines()[0]}"] if session.health else []
    if session.options.shadow:
        watched_nights = shadow_runs(session.options.folder, session.under_test.hardware)
        lines += shadow_lines(shadow_sentences(session.config), watched_nights)
    return lines


def _busy_lines(session: "RooflineSession") -> list[str]:
    """Return a line on who keeps the machine busy.

    There is one if a result suffered.
    """
    rows = session.timed.rows
    busy_count = sum(row.verdict == Kind.INVALID and for_neighbours(row.reason) for row in rows)
    if not busy_count or any(map(for_neighbours, session.refusals)):
        # The last line of a recording without a fit result says the same.
        return []
    # `roofline drill` names its run itself, so its user need not choose a name.
    has_name = session.options.save is not None and session.options.drill is None
    # Only a run without any valid result gives its name to the next.
    name = "the same" if busy_count == len(session.rows) else "another"
    name_hint = f", under {name} name" if has_name else ""
    return [
        f"This machine was too busy for {busy_count} of {count(len(rows), 'result')}: {busy_now()}. "
        f"{QUIETEN.capitalize()}, and run this again{name_hint}. To wait for a quiet machine, add --roofline-wait=10m"
    ]
