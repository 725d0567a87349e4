"""Sentences about a run as a whole: a shift of all tests, what changed, what it could have seen."""

from collections import Counter
from collections.abc import Sequence

from ..baselines.remarks import odd_lines
from ..baselines.rows import odd_behind
from ..core.rows import Row, compared_verdicts
from ..core.units import format_bytes, format_percent, format_tolerance, listed, printable
from ..core.verdicts import Kind
from ..stats.causes import clock_change, common_shift, detectable_effects, modes
from ..stats.curves import CurveVerdict
from ..stats.stats import CONFIDENCE, growth
from ..stats.verdicts import span_text as bounds_text
from .words import span_text

# Of the tests that a sentence is about.
MOST_NAMED = 3


def overview_lines(rows: Sequence[Row]) -> list[str]:
    """A shift of the whole suite, slowdowns that the clock explains, and what changed: once, ahead of the tests."""
    judged = [row for row in rows if row.time_verdict is not None and row.time_verdict.compared]
    changed = changed_texts(judged)
    lines = (
        shift_line(judged) + odd_lines(odd_behind(rows)) + clock_line(judged) + _mode_lines(judged)
    )
    lines += [printable(f"changed since the baseline: {'; '.join(changed)}")] if changed else []
    return lines + device_line(judged)


def shift_line(rows: Sequence[Row]) -> list[str]:
    """That all tests shifted together, where they did."""
    shift = common_shift(compared_verdicts(rows))
    if shift is None:
        return []
    direction, by = (
        "slower" if shift.estimate > 0 else "faster",
        format_percent(growth(shift.estimate)),
    )
    return [
        f"ALL TESTS SHIFTED: {shift.moved} of {shift.tests} are {direction}, by {by} in the median; look for one cause "
        "(clock, power limit, neighbours, driver) before the single tests"
    ]


def together_text(row: Row) -> str:
    """`all tests together take +8.1 % time (99 % interval +6.9 … +9.2 %, 3 processes against 15), tolerance 5 %`."""
    assert row.change is not None
    assert row.tolerance is not None
    behind = f"{row.processes} processes against {row.baseline_processes}"
    return (
        f"all tests together take {format_percent(row.change)} time ({CONFIDENCE * 100:.0f} % interval "
        f"{span_text(row)}, {behind}), tolerance {format_tolerance(row.tolerance)}"
    )


def clock_line(rows: Sequence[Row]) -> list[str]:
    """Slowdowns that a lower clock explains: in cycles there is none."""
    slow = [
        row
        for row in rows
        if row.time_verdict is not None and row.time_verdict.kind in (Kind.REGRESSED, Kind.SHIFTED)
    ]
    explained = []
    for row in slow:
        clock = clock_change(row.time_verdict) if row.time_verdict is not None else None
        if clock is not None and clock.explains(row.tolerance or 0.0):
            explained.append(
                f"{printable(row.label)} (clock {format_percent(clock.after_hz / clock.before_hz - 1)})"
            )
    told = listed(explained, MOST_NAMED)
    return (
        [f"a lower clock explains {len(explained)} of {len(slow)} slowdowns: {told}"]
        if told
        else []
    )


def device_line(rows: Sequence[Row]) -> list[str]:
    """That other devices than the known ones are compared, and what is added for that."""
    differences = [verdict.difference for verdict in compared_verdicts(rows)]
    spreads = [each.device for each in differences if each is not None and each.device is not None]
    if not spreads:
        return []
    widest = max(spreads, key=lambda spread: spread.value)
    of = (
        f" in {len(spreads)} of {len(differences)} tests" if len(spreads) < len(differences) else ""
    )
    return [
        f"another device of the same product is compared{of}, so the spread between devices is added: "
        f"{widest.value:.1%} ({widest.origin})"
    ]


def _mode_lines(rows: Sequence[Row]) -> list[str]:
    """Tests whose baseline has two modes, and how often the slow one is occupied now; of what did not simply pass."""
    told = []
    for row in rows:
        judged = row.time_verdict
        if judged is None or judged.kind in (Kind.PASSED, Kind.INVALID):
            continue
        split = modes(judged.baseline_medians_s, judged.new_medians_s, judged.tolerance)
        if split is not None:
            was, now = f"{split.slow_before} of {split.before}", f"{split.slow_now} of {split.now}"
            told.append(f"{printable(row.label)} (slow mode {was} before, {now} now)")
    return [f"processes have two modes: {listed(told, MOST_NAMED)}"] if told else []


def changed_texts(rows: Sequence[Row]) -> list[str]:
    """What differs from the baselines' environments, with how many of the tests it concerns where not all."""
    verdicts = [row.time_verdict for row in rows if row.time_verdict is not None]
    compared = [verdict for verdict in verdicts if verdict.reference is not None]
    counts = Counter(change for verdict in compared for change in verdict.subject.changed)
    of = f" of {len(compared)} tests)"
    return [
        change + (f" ({number}{of}" if number < len(compared) else "")
        for change, number in counts.items()
    ]


def power_lines(rows: Sequence[Row]) -> list[str]:
    """What the run would have caught by its baselines, and on how many tests nothing."""
    verdicts = compared_verdicts(rows)
    seen = detectable_effects(verdicts)
    parts = [
        f"{format_tolerance(round(share, 6))} on {_of(caught, len(verdicts))}"
        for share, caught, _ in seen
    ]
    lines = [f"detects a slowdown of {', '.join(parts)} (80 % power)"] if parts else []
    if blind := [judged.fewest for judged in verdicts if judged.reach is None]:
        lines.append(
            f"detects no slowdown on {_of(len(blind), len(verdicts))}: red needs {max(blind)} processes against their "
            "baselines, more than this run takes (--roofline-rounds=auto)"
        )
    return lines


def _of(caught: int, total: int) -> str:
    return (
        f"{caught} of {total} tests"
        if caught < total
        else f"all {total} tests"
        if total > 1
        else "the one test"
    )


def curve_verdict_line(curve: CurveVerdict) -> str:
    """`memcpy_d2d: PASSED +0.4 % (-1.2 … +2.0 %, 1 against 15), 23 of 23 sizes; worst 4 KiB to 64 KiB, +3.1 %`."""
    first, last = (format_bytes(size) for size in curve.worst)
    region = first if first == last else f"{first} to {last}"
    return printable(
        f"{curve.label}: {curve.kind.value} {format_percent(growth(curve.estimate))} "
        f"({bounds_text(curve.interval)}, {curve.processes[0]} against {curve.processes[1]}), "
        f"{curve.passed} of {curve.points} sizes passed; worst {region}, "
        f"{format_percent(growth(curve.worst_estimate))}"
    )
