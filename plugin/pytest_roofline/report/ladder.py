"""The ladder in words: one sentence that names what is slower, what is fine and where to look."""

import math
from collections.abc import Iterable, Sequence

from ..baselines.runs import Run
from ..core.keys import Key
from ..core.rows import Row
from ..core.units import format_percent, printable
from ..hardware.rungs import Rung
from ..stats.ladder import Evidence, RungState, RungStep, climb, look_at, slowed_by
from ..stats.stats import growth


def ladder_lines(steps: Sequence[RungStep]) -> list[str]:
    """One sentence; nothing where nothing regressed."""
    if not steps:
        return []
    parts = []
    for state in RungState:
        named = [
            _sick_text(step) if state is RungState.SICK else step.rung.value for step in steps if step.state is state
        ]
        parts += [f"{state.value}: {', '.join(named)}"] if named else []
    look = look_at([step.rung for step in steps if step.state is RungState.SICK])
    return [printable(f"ladder: {'; '.join(parts)}. Look at {look}")]


def _sick_text(step: RungStep) -> str:
    told = f" in {step.sick} of {step.seen}"
    if step.rung is Rung.CLOCK and step.change is None:
        return f"clock, by {step.cause}{told}"
    assert step.change is not None
    unit = "" if step.rung is Rung.CLOCK else " time"
    return f"{step.rung.value} {format_percent(growth(step.change))}{unit}{told}" + (
        f", {step.cause}" if step.cause else ""
    )


def ladder_of(rows: Iterable[Row], runs: Iterable[Run] = ()) -> tuple[RungStep, ...]:
    """The ladder of the results of a run or a comparison.

    Args:
        rows: of it.
        runs: on the new side of a comparison, whose rows hold no measurements.
    """
    slowed = {m.key.identity: why for run in runs for m in run.measurements if (why := slowed_by(m))}
    return climb(_seen(row, row.key, slowed.get(row.key.identity, "")) for row in rows if row.key is not None)


def _seen(row: Row, key: Key, slowed: str) -> Evidence:
    judged, one = row.judgement, row.measurement
    if judged is None:
        return Evidence(key, row.verdict, 0.0)
    before, after = judged.reference_clock_hz, judged.clock_hz or (one.samples.clock_hz if one is not None else None)
    moved = None if before is None or after is None else math.log(after / before)
    why = slowed_by(one) if one is not None else slowed
    return Evidence(key, judged.verdict, judged.tolerance, judged.estimate, judged.interval, moved, why)
