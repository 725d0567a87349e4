"""The ladder in words: one sentence that names what is sick, what is fine and where to look."""

import math
from collections.abc import Iterable

from ..core.keys import Key
from ..core.rows import Row
from ..core.units import format_percent, listed, printable
from ..judging.ladder import Ladder, Seen, State, Step, climb, slowed_by
from ..judging.ladder_causes import cause_of
from ..judging.rungs import Rung
from ..judging.runs import Run
from ..judging.stats import growth

# Of the tests that are slower where their part is not.
MOST_NAMED = 3


def ladder_lines(ladder: Ladder | None) -> list[str]:
    """One sentence, and more where tests are slower alone or stand on no rung; nothing where nothing regressed."""
    if ladder is None:
        return []
    cause, sick = cause_of(ladder), [_sick_text(step) for step in ladder.of(State.SICK)]
    parts = [f"ladder: {cause.what}" + (f" ({', '.join(sick)})" if sick else "")]
    for state in (State.FINE, State.UNKNOWN):
        named = [step.rung.value for step in ladder.of(state)]
        parts += [f"{state.value}: {', '.join(named)}"] if named else []
    lines = [printable(f"{'; '.join(parts)}. Look at {cause.look}")]
    for step in ladder.steps:
        if step.alone:
            told = f"of {step.seen} tests only {listed(step.alone, MOST_NAMED)} got slower"
            lines.append(printable(f"ladder: {step.rung.value}: {told}, which is no sign of the whole part"))
    if ladder.elsewhere and sick:
        count = f"{ladder.elsewhere} of {ladder.regressed}"
        lines.append(f"ladder: {count} regressed tests are no measure of one part, and may have causes of their own")
    return lines


def _sick_text(step: Step) -> str:
    told = f" in {step.sick} of {step.seen}"
    if step.rung is Rung.CLOCK:
        if step.change is None:
            return f"{step.cause}{told}"
        moved = f" {format_percent(growth(step.change))}{told}"
        return f"{step.rung.value}{moved}" + (f", {step.cause}" if step.cause else "")
    change = "" if step.change is None else f" {format_percent(growth(step.change))} time"
    return f"{step.rung.value}{change}{told}"


def ladder_of(rows: Iterable[Row], runs: Iterable[Run] = ()) -> Ladder | None:
    """The ladder of the results of a run or a comparison.

    Args:
        rows: of it.
        runs: on the new side of a comparison, whose rows hold no measurements.
    """
    slowed = {m.key.identity: why for run in runs for m in run.measurements if (why := slowed_by(m))}
    return climb(_seen(row, row.key, slowed.get(row.key.identity, "")) for row in rows if row.key is not None)


def _seen(row: Row, key: Key, slowed: str) -> Seen:
    judged, one = row.judgement, row.measurement
    if judged is None:
        return Seen(key, row.verdict, 0.0)
    before, after = judged.reference_clock_hz, judged.clock_hz or (one.samples.clock_hz if one is not None else None)
    moved = None if before is None or after is None else math.log(after / before)
    why = slowed_by(one) if one is not None else slowed
    return Seen(key, judged.verdict, judged.tolerance, judged.estimate, judged.interval, moved, why)
