"""What may explain a verdict, in words: the clock, what changed since the baseline, modes, another device."""

from ..core.units import format_percent, format_seconds, printable
from ..judging.explaining import ClockChange, Modes, clock_change, modes
from ..judging.stats import growth
from ..judging.verdicts import Kind, changed_environment
from .results import Result, count


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


def clock_text(clock: ClockChange, tolerance: float) -> str:
    """`the clock explains it: 1980 → 1500 MHz (-24.2 %), in cycles +0.4 %`."""
    word = "the clock explains it" if clock.explains(tolerance) else "the clock does not explain it all"
    moved = format_percent(clock.after_hz / clock.before_hz - 1)
    return (
        f"{word}: {clock.before_hz / 1e6:.0f} → {clock.after_hz / 1e6:.0f} MHz ({moved}), "
        f"in cycles {format_percent(growth(clock.in_cycles))}"
    )


def modes_text(split: Modes) -> str:
    """Where two modes lie, and how often the slow one is occupied."""
    return (
        f"the baseline's processes have two modes, {format_seconds(split.fast_s)} and {format_seconds(split.slow_s)}: "
        f"{split.slow_before} of {split.before} are in the slow one, and {split.slow_now} of the {split.now} new ones"
    )
