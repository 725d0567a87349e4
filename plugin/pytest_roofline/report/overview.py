"""Sentences about a run as a whole.

They tell of a shift of all tests, what changed, and what the run could have seen.
"""

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

# Tests that a sentence lists before it counts the others.
MOST_NAMED = 3


def overview_lines(rows: Sequence[Row]) -> list[str]:
    """Return the lines about the whole run, above the tests.

    They tell of a shift of all tests, odd sessions, slowdowns that the clock explains, modes, and
    changes of the environment.
    """
    compared = [row for row in rows if row.time_verdict is not None and row.time_verdict.compared]
    changed = changed_texts(compared)
    lines = (
        shift_line(compared)
        + odd_lines(odd_behind(rows))
        + clock_line(compared)
        + _mode_lines(compared)
    )
    lines += [printable(f"changed since the baseline: {'; '.join(changed)}")] if changed else []
    return lines + device_line(compared)


def shift_line(rows: Sequence[Row]) -> list[str]:
    """Return the line that all tests shifted together, if they did."""
    shift = common_shift(compared_verdicts(rows))
    if shift is None:
        return []
    direction = "slower" if shift.estimate > 0 else "faster"
    by = format_percent(growth(shift.estimate))
    return [
        f"ALL TESTS SHIFTED: {shift.moved} of {shift.tests} are {direction}, by {by} in the median. Look for one "
        "common cause (clock, power limit, other processes, driver) before you look at single tests"
    ]


def together_text(row: Row) -> str:
    """Return the change of the time of all tests together, from their common row.

    It reads `all tests together take +8.1 % time (99 % interval +6.9 … +9.2 %, 3 processes against
    15), tolerance 5 %`.
    """
    assert row.change is not None
    assert row.tolerance is not None
    processes = f"{row.processes} processes against {row.baseline_processes}"
    return (
        f"all tests together take {format_percent(row.change)} time ({CONFIDENCE * 100:.0f} % interval "
        f"{span_text(row)}, {processes}), tolerance {format_tolerance(row.tolerance)}"
    )


def clock_line(rows: Sequence[Row]) -> list[str]:
    """Return the line on slowdowns that a lower clock explains.

    Counted in clock cycles, these tests are not slower.
    """
    slow = [
        (row, row.time_verdict)
        for row in rows
        if row.time_verdict is not None and row.time_verdict.kind in (Kind.REGRESSED, Kind.SHIFTED)
    ]
    explained = []
    for row, verdict in slow:
        clock = clock_change(verdict)
        if clock is not None and clock.explains(row.tolerance or 0.0):
            clock_text = format_percent(clock.after_hz / clock.before_hz - 1)
            explained.append(f"{printable(row.label)} (clock {clock_text})")
    if not explained:
        return []
    names = listed(explained, MOST_NAMED)
    return [f"a lower clock explains {len(explained)} of {len(slow)} slowdowns: {names}"]


def device_line(rows: Sequence[Row]) -> list[str]:
    """Return the line that the baseline is from another device.

    It tells the spread between devices, which is added for that.
    """
    differences = [verdict.difference for verdict in compared_verdicts(rows)]
    spreads = [
        change.device for change in differences if change is not None and change.device is not None
    ]
    if not spreads:
        return []
    widest = max(spreads, key=lambda spread: spread.value)
    in_tests = (
        f" in {len(spreads)} of {len(differences)} tests" if len(spreads) < len(differences) else ""
    )
    return [
        f"the baseline is from another device of this product{in_tests}, so the spread between devices is added: "
        f"{widest.value:.1%} ({widest.origin})"
    ]


def _mode_lines(rows: Sequence[Row]) -> list[str]:
    """Return the line on tests whose processes have two modes.

    These are a fast and a slow group of times. It tells how many processes were in the slow mode before, and how many
    are now. Tests that PASSED are left out.
    """
    texts = []
    for row in rows:
        verdict = row.time_verdict
        # A time that passed needs no explanation, and the processes of an invalid one tell nothing.
        if verdict is None or verdict.kind in (Kind.PASSED, Kind.INVALID):
            continue
        split = modes(verdict.baseline_medians_s, verdict.new_medians_s, verdict.tolerance)
        if split is not None:
            before_text = f"{split.slow_before} of {split.before}"
            now_text = f"{split.slow_now} of {split.now}"
            texts.append(
                f"{printable(row.label)} (in the slow mode: {before_text} before, {now_text} now)"
            )
    return [f"processes have two modes: {listed(texts, MOST_NAMED)}"] if texts else []


def changed_texts(rows: Sequence[Row]) -> list[str]:
    """Return the differences from the baselines' environments.

    A difference that not all tests have tells how many have it.
    """
    verdicts = [row.time_verdict for row in rows if row.time_verdict is not None]
    compared = [verdict for verdict in verdicts if verdict.reference is not None]
    counts = Counter(change for verdict in compared for change in verdict.subject.changed)
    of_tests = f" of {len(compared)} tests)"
    return [
        change + (f" ({number}{of_tests}" if number < len(compared) else "")
        for change, number in counts.items()
    ]


def power_lines(rows: Sequence[Row]) -> list[str]:
    """Return the detectable effects of a run.

    They are the slowdowns that it finds, and on how many tests. A second line counts the tests with too few processes
    to detect any slowdown.
    """
    verdicts = compared_verdicts(rows)
    effects = detectable_effects(verdicts)
    parts = [
        f"{format_tolerance(round(effect, 6))} on {_tests_text(test_count, len(verdicts))}"
        for effect, test_count, _compared_count in effects
    ]
    lines = [f"the run detects a slowdown of {', '.join(parts)} (80 % power)"] if parts else []
    # The processes that red needs, for each test that cannot detect anything.
    if needed := [verdict.processes_for_red for verdict in verdicts if verdict.reach is None]:
        lines.append(
            f"the run detects no slowdown on {_tests_text(len(needed), len(verdicts))}: REGRESSED needs {max(needed)} "
            "processes against these baselines, more than this run measures. Pass --roofline-rounds=auto"
        )
    return lines


def _tests_text(number: int, total: int) -> str:
    """Return `3 of 5 tests`, `all 5 tests` or `the one test`."""
    if number < total:
        return f"{number} of {total} tests"
    return f"all {total} tests" if total > 1 else "the one test"


def curve_verdict_line(curve: CurveVerdict) -> str:
    """Return the verdict on a sweep.

    It reads `memcpy_d2d: PASSED +0.4 % (-1.2 … +2.0 %, 1 against 15), 23 of 23 sizes passed; worst 4
    KiB to 64 KiB, +3.1 %`.
    """
    first, last = (format_bytes(size) for size in curve.worst)
    region = first if first == last else f"{first} to {last}"
    new_processes, baseline_processes = curve.processes
    return printable(
        f"{curve.label}: {curve.kind.value} {format_percent(growth(curve.estimate))} "
        f"({bounds_text(curve.interval)}, {new_processes} against {baseline_processes}), "
        f"{curve.passed} of {curve.points} sizes passed; worst {region}, "
        f"{format_percent(growth(curve.worst_estimate))}"
    )
