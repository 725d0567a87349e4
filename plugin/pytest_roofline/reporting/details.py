"""Everything that a verdict rests on, in words: for `-vv` and for `roofline explain`."""

from collections.abc import Sequence

from ..core.records import Judgement, SpreadRecord
from ..core.rows import Row
from ..core.units import count, format_percent, format_seconds, format_tolerance, printable
from ..judging.stats import growth
from ..judging.verdicts import span_text


def detail_lines(rows: Sequence[Row]) -> list[str]:
    """For each verdict, three lines with its spreads, its chances of error and what stands behind it."""
    judged = (row.judgement for row in rows if row.judgement is not None)
    return [line for judgement in judged if judgement.compared for line in _lines(judgement)]


def _lines(judgement: Judgement) -> list[str]:
    return [
        f"{printable(judgement.label)}: {judgement.verdict}",
        f"    {spread_text(judgement)}",
        f"    {chance_text(judgement)}",
        f"    {sides_text(judgement)}",
    ]


def spread_text(judgement: Judgement) -> str:
    """The spreads between processes, sessions and devices, each with where it comes from."""
    spreads = (
        ("processes", judgement.process_spread),
        ("sessions", judgement.session_spread),
        ("devices", judgement.device_spread),
    )
    return "spread between " + "; ".join(f"{name} {_spread(s)}" for name, s in spreads if s is not None)


def _spread(spread: SpreadRecord) -> str:
    return f"{spread.value:.2%} ({printable(spread.origin)})"


def chance_text(judgement: Judgement) -> str:
    """Standard error, p, adjusted p, and the slowdown that the run's rule finds 80 times in 100."""
    assert judgement.error is not None
    freedom = "known" if judgement.freedom is None else f"{judgement.freedom:.3g} degrees of freedom"
    parts = [f"standard error {judgement.error:.2%} ({freedom})"]
    parts += [f"p {judgement.p:.2g}"] if judgement.p is not None else []
    parts += [f"adjusted for all tests {judgement.p_adjusted:.2g}"] if judgement.p_adjusted is not None else []
    parts += [f"would have caught {judgement.reach:.1%}"] if judgement.reach is not None else []
    return ", ".join(parts)


def sides_text(judgement: Judgement) -> str:
    """The two centres, and how many devices, sessions and processes stand behind each."""
    assert judgement.new_s is not None
    assert judgement.reference_s is not None
    sessions, devices = len(judgement.reference), len({session.device for session in judgement.reference})
    processes = sum(len(session.process_medians) for session in judgement.reference)
    device = "another device" if judgement.device_spread else "paired" if judgement.paired else "one device"
    return (
        f"now {format_seconds(judgement.new_s)} from {count(judgement.processes, 'process', 'es')} of 1 session; "
        f"baseline {format_seconds(judgement.reference_s)} from {count(processes, 'process', 'es')} of "
        f"{count(sessions, 'session')} on {count(devices, 'device')} ({device})"
    )


def difference_text(judgement: Judgement) -> str:
    """`+6.1 % (99 % -0.4 … +13.2 %), tolerance 5 %`."""
    assert judgement.estimate is not None
    assert judgement.interval is not None
    return (
        f"{format_percent(growth(judgement.estimate))} time (99 % interval {span_text(judgement.interval)}), "
        f"tolerance {format_tolerance(judgement.tolerance)}"
    )
