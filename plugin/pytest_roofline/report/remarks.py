"""What may explain a verdict, in words: the clock, what changed since the baseline, modes, another device."""

import math
from collections.abc import Sequence

from ..core.records import Judgement
from ..core.units import count, format_percent, format_seconds, format_tolerance, printable
from ..stats.explaining import ClockChange, Modes, clock_change, modes
from ..stats.stats import growth
from ..stats.verdicts import Kind

RECORD = "record it on three days"


def remarks(judgement: Judgement, left_out: Sequence[str] = (), *, sitting: bool = False) -> list[str]:
    """What may explain a verdict: the clock, what changed since the baseline, modes, another device.

    Args:
        judgement: with everything but its remarks.
        left_out: why processes do not count.
        sitting: whether sessions of the baseline were recorded in one sitting.
    """
    if not judgement.reference:
        return []
    lines = list(judgement.changed)
    if judgement.shift:
        taken = format_percent(growth(judgement.shift))
        lines.insert(0, f"all tests of this run moved together, {taken} of it is taken out here")
    clock = clock_change(judgement)
    if clock is not None:
        lines.insert(0, clock_text(clock, judgement.tolerance))
    lines += _sitting_text(judgement) if sitting else []
    if judgement.compared and judgement.verdict in (Kind.REGRESSED, Kind.INCONCLUSIVE, Kind.IMPROVED):
        split = modes(judgement.baseline_medians_s, judgement.new_medians_s)
        lines += [modes_text(split)] if split is not None else []
        if judgement.unequal and judgement.process_spread is not None:
            lines.append(f"the new processes differ more among themselves ({judgement.process_spread.value:.1%})")
        device = judgement.device_spread
        if device is not None:
            lines.append(f"another device than the baseline's, {device.value:.1%} between devices ({device.origin})")
    if left_out:
        lines.append(f"{count(len(left_out), 'process', 'es')} left out: {left_out[-1]}")
    return [printable(line) for line in lines]


def _sitting_text(judgement: Judgement) -> list[str]:
    """Of what is or looks slower, that nobody knows how its sessions differ."""
    spread, estimate = judgement.session_spread, judgement.estimate
    looks_slow = estimate is not None and estimate > math.log1p(judgement.tolerance)
    slow = judgement.verdict == Kind.REGRESSED or (judgement.verdict == Kind.INCONCLUSIVE and looks_slow)
    if not slow or spread is None or not spread.origin.startswith("prior"):
        return []
    assumed = format_tolerance(round(spread.value, 3))
    where = "one sitting" if spread.origin.endswith("one sitting") else "two sittings"
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
