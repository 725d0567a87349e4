"""What is said of a run as a whole: what moved everything, what changed, what it could have seen, its curves."""

from collections import Counter
from collections.abc import Sequence

from ..core.units import format_bytes, format_percent, format_tolerance, printable
from ..judging.curves import CurveVerdict
from ..judging.explaining import clock_change, common_shift, could_have_seen, modes
from ..judging.stats import CONFIDENCE, growth
from ..judging.verdicts import Kind, Verdict, changed_environment, interval_text, span_text
from .results import Result


def overview_lines(results: Sequence[Result]) -> list[str]:
    """A shift of the whole suite, slowdowns that the clock explains, and what changed: once, ahead of the tests."""
    judged = [result for result in results if result.verdict is not None and result.verdict.difference is not None]
    verdicts = [result.verdict for result in judged if result.verdict is not None]
    clocks = [(one.label, one.verdict, one.measurement.samples.clock_hz) for one in judged if one.verdict is not None]
    lines = shift_line(verdicts) + clock_line(clocks) + _mode_lines(judged) + _change_lines(judged)
    return lines + device_line(verdicts)


def shift_line(verdicts: Sequence[Verdict]) -> list[str]:
    """That the whole suite moved together, where it did."""
    shift = common_shift(verdicts)
    if shift is None:
        return []
    direction = "slower" if shift.estimate > 0 else "faster"
    return [
        f"THE WHOLE SUITE MOVED: {shift.moved} of {shift.tests} tests are {direction}, the middle one by "
        f"{format_percent(growth(shift.estimate))}; look for one cause (clock, power limit, neighbours, "
        "driver) before the single tests"
    ]


def together_text(verdict: Verdict) -> str:
    """`all tests together take +8.1 % time (99 % interval +6.9 … +9.2 %, 3 processes against 15), tolerance 5 %`."""
    assert verdict.change is not None
    assert verdict.reference is not None
    behind = f"{verdict.processes} processes against {len(verdict.reference.medians_s)}"
    return (
        f"all tests together take {format_percent(verdict.change)} time ({CONFIDENCE * 100:.0f} % interval "
        f"{interval_text(verdict)}, {behind}), tolerance {format_tolerance(verdict.tolerance)}"
    )


def clock_line(judged: Sequence[tuple[str, Verdict, float | None]]) -> list[str]:
    """Slowdowns that vanish in cycles.

    Args:
        judged: labels with their verdicts, and with the clock of the new processes in cycles per second.
    """
    slow = [one for one in judged if one[1].kind is Kind.REGRESSED]
    explained = []
    for label, verdict, clock_hz in slow:
        clock = clock_change(verdict, clock_hz)
        if clock is not None and clock.explains(verdict.tolerance):
            explained.append((printable(label), clock.after_hz / clock.before_hz - 1))
    if not explained:
        return []
    names = ", ".join(f"{label} (clock {format_percent(moved)})" for label, moved in explained[:3])
    more = f" and {len(explained) - 3} more" if len(explained) > 3 else ""
    return [f"clock, not code: {len(explained)} of {len(slow)} slowdowns vanish in cycles: {names}{more}"]


def device_line(verdicts: Sequence[Verdict]) -> list[str]:
    """That other devices than the known ones are compared, and what is added for that."""
    found = [verdict.difference for verdict in verdicts if verdict.difference is not None]
    spreads = [one.device for one in found if one.device is not None]
    if not spreads:
        return []
    widest = max(spreads, key=lambda spread: spread.value)
    of = f" in {len(spreads)} of {len(found)} tests" if len(spreads) < len(found) else ""
    return [
        f"another device of the same product is compared{of}, so the spread between devices is added: "
        f"{widest.value:.1%} ({widest.origin})"
    ]


def _mode_lines(results: Sequence[Result]) -> list[str]:
    """Tests whose baseline has two modes, and how often the slow one is occupied now; of what did not simply pass."""
    told = []
    for result in results:
        verdict = result.verdict
        assert verdict is not None
        if verdict.kind in (Kind.PASSED, Kind.INVALID) or verdict.reference is None:
            continue
        split = modes(verdict.reference, verdict.new_medians_s)
        if split is not None:
            was, now = f"{split.slow_before} of {split.before}", f"{split.slow_now} of {split.now}"
            told.append(f"{printable(result.measurement.label)} (slow mode {was} before, {now} now)")
    more = f" and {len(told) - 3} more" if len(told) > 3 else ""
    return [f"processes have two modes: {', '.join(told[:3])}{more}"] if told else []


def _change_lines(results: Sequence[Result]) -> list[str]:
    """What differs from the baselines' environments, with how many tests it concerns where not all."""
    counts: Counter[str] = Counter()
    for result in results:
        assert result.verdict is not None
        if result.verdict.reference is not None:
            counts.update(changed_environment(dict(result.environment), result.verdict.reference.environments))
    if not counts:
        return []
    texts = [change + (f" ({count} tests)" if count < len(results) else "") for change, count in counts.items()]
    return [printable(f"changed since the baseline: {'; '.join(texts)}")]


def power_lines(results: Sequence[Result]) -> list[str]:
    """What the run would have caught by its baselines, and on how many tests nothing."""
    held = [result.verdict for result in results if result.verdict is not None and result.verdict.difference]
    seen = could_have_seen(held)
    parts = [f"{format_tolerance(round(share, 6))} on {_of(caught, len(held))}" for share, caught, _ in seen]
    lines = [f"would have caught {', '.join(parts)} (80 times in 100)"] if parts else []
    if asleep := [verdict.fewest for verdict in held if verdict.reach is None]:
        lines.append(
            f"would have caught nothing on {_of(len(asleep), len(held))}: red needs {max(asleep)} processes against "
            "their baselines, more than this run takes (--roofline-rounds=auto)"
        )
    return lines


def _of(caught: int, total: int) -> str:
    return f"{caught} of {total} tests" if caught < total else f"all {total} tests" if total > 1 else "the one test"


def curve_verdict_line(curve: CurveVerdict) -> str:
    """`memcpy_d2d: PASSED +0.4 % (-1.2 … +2.0 %, 1 against 15), 23 of 23 sizes; worst 4 KiB to 64 KiB, +3.1 %`."""
    first, last = (format_bytes(size) for size in curve.worst)
    region = first if first == last else f"{first} to {last}"
    return printable(
        f"{curve.label}: {curve.kind.value} {format_percent(growth(curve.estimate))} "
        f"({span_text(curve.interval)}, {curve.processes[0]} against {curve.processes[1]}), "
        f"{curve.passed} of {curve.points} sizes passed; worst {region}, "
        f"{format_percent(growth(curve.worst_estimate))}"
    )
