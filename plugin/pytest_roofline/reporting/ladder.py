"""The ladder in words: one sentence that names what is sick, what is fine and where to look."""

import math
from collections.abc import Iterable, Mapping, Sequence

from ..core.records import Judgement, Measurement
from ..core.units import format_percent, listed, printable
from ..judging.comparing import Row
from ..judging.ladder import Ladder, Seen, State, Step, climb, slowed_by
from ..judging.ladder_causes import cause_of
from ..judging.rungs import Rung
from ..judging.runs import Run
from ..judging.stats import growth
from ..judging.trials import Trial
from .results import Result

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


def ladder_of_results(results: Sequence[Result]) -> Ladder | None:
    """The ladder of a run that is at its end."""
    return climb(_of_result(result) for result in results)


def _of_result(result: Result) -> Seen:
    measurement, verdict = result.measurement, result.verdict
    if verdict is None:
        return Seen(measurement.key, result.ended, 0.0)
    before = verdict.reference.clock_hz if verdict.reference is not None else None
    return Seen(
        measurement.key,
        verdict.kind.value,
        verdict.tolerance,
        verdict.estimate,
        verdict.interval,
        _moved(before, measurement.samples.clock_hz),
        slowed_by(measurement),
    )


def ladder_of_rows(rows: Iterable[Row], new: Iterable[Run]) -> Ladder | None:
    """The ladder of an offline comparison.

    Args:
        rows: of the comparison.
        new: the runs on its new side, where they are runs.
    """
    slowed = {m.key.identity: why for run in new for m in run.measurements if (why := slowed_by(m))}
    return climb(_of_row(row, slowed) for row in rows)


def _of_row(row: Row, slowed: Mapping[str, str]) -> Seen:
    verdict = row.verdict
    before, after = (side.clock_hz if side is not None else None for side in (verdict.reference, row.fresh))
    return Seen(
        row.key,
        verdict.kind.value,
        verdict.tolerance,
        verdict.estimate,
        verdict.interval,
        _moved(before, after),
        slowed.get(row.key.identity, ""),
    )


def ladder_of_run(run: Run) -> Ladder | None:
    """The ladder of a saved run, from its judgements; of several processes the one that stands, as in the run."""
    trials: dict[tuple[str, str], Trial] = {}
    for m in run.measurements:
        trials.setdefault((m.test_id, m.key.name), Trial()).measurements.append(m)
    found = ((trials.get((judged.test_id, judged.name)), judged) for judged in run.judgements)
    return climb(_of_judgement(trial.standing(None), judged) for trial, judged in found if trial is not None)


def _of_judgement(measurement: Measurement, judged: Judgement) -> Seen:
    return Seen(
        measurement.key,
        judged.verdict,
        judged.tolerance,
        judged.estimate,
        judged.interval,
        _moved(judged.reference_clock_hz, measurement.samples.clock_hz),
        slowed_by(measurement),
    )


def _moved(before_hz: float | None, after_hz: float | None) -> float | None:
    return None if before_hz is None or after_hz is None else math.log(after_hz / before_hz)
