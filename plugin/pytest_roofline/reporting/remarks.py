"""What may explain a verdict, in words: the clock, what changed since the baseline, modes, another device."""

from ..core.units import format_percent, format_seconds, format_tolerance, printable
from ..judging.explaining import ClockChange, Modes, clock_change, modes
from ..judging.stats import growth
from ..judging.verdicts import Kind, Verdict, changed_environment
from .results import Result, count

RECORD = "record it on three days"


def remarks(result: Result) -> list[str]:
    """What may explain a verdict: the clock, what changed since the baseline, modes, another device."""
    verdict = result.verdict
    if verdict is None or verdict.reference is None:
        return []
    lines = changed_environment(dict(result.environment), verdict.reference.environments)
    if verdict.reference.shift:
        taken = format_percent(growth(verdict.reference.shift))
        lines.insert(0, f"all tests of this run moved together, {taken} of it is taken out here")
    clock = clock_change(verdict, result.measurement.samples.clock_hz)
    if clock is not None:
        lines.insert(0, clock_text(clock, verdict.tolerance))
    lines += _sitting_text(verdict)
    if verdict.kind in (Kind.REGRESSED, Kind.INCONCLUSIVE, Kind.IMPROVED) and verdict.difference is not None:
        split = modes(verdict.reference, verdict.new_medians_s)
        lines += [modes_text(split)] if split is not None else []
        if verdict.difference.unequal:
            lines.append(f"the new processes differ more among themselves ({verdict.difference.process.value:.1%})")
        if verdict.difference.device is not None:
            device = verdict.difference.device
            lines.append(f"another device than the baseline's, {device.value:.1%} between devices ({device.origin})")
    if result.left_out:
        lines.append(f"{count(len(result.left_out), 'process', 'es')} left out: {result.left_out[-1]}")
    return [printable(line) for line in lines]


def _sitting_text(verdict: Verdict) -> list[str]:
    """Of what is or looks slower, that nobody knows how its sessions differ."""
    found = verdict.difference
    slow = verdict.kind is Kind.REGRESSED or (verdict.kind is Kind.INCONCLUSIVE and verdict.looks_slow)
    if not slow or not verdict.sitting or found is None or not found.session.origin.startswith("prior"):
        return []
    assumed = format_tolerance(round(found.session.value, 3))
    where = "one sitting" if found.session.origin.endswith("one sitting") else "two sittings"
    return [f"the baseline was recorded in {where}, so how sessions differ is assumed ({assumed}): {RECORD}"]


def clock_text(clock: ClockChange, tolerance: float) -> str:
    """`the clock explains it: 1980 → 1500 MHz (-24.2 %), in cycles +0.4 %`."""
    word = "the clock explains it" if clock.explains(tolerance) else "the clock does not explain it all"
    word += " and more" * clock.overshoots(tolerance)
    moved = format_percent(clock.after_hz / clock.before_hz - 1)
    return (
        f"{word}: {clock.before_hz / 1e6:.0f} → {clock.after_hz / 1e6:.0f} MHz ({moved}), "
        f"in cycles {format_percent(growth(clock.in_cycles))}"
    )


def modes_text(split: Modes) -> str:
    """`3 of 15 baseline processes and 5 of 6 new ones are in the slow mode, 25.5 ms; the others at 22.5 ms`."""
    return (
        f"{split.slow_before} of {split.before} baseline processes and {split.slow_now} of {split.now} new ones are "
        f"in the slow mode, {format_seconds(split.slow_s)}; the others at {format_seconds(split.fast_s)}"
    )
