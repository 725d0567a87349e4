"""A verdict as the plain record that a run file keeps."""

import math

from ..core.records import Judgement, SessionRecord, SpreadRecord
from ..judging.spread import Spread
from .published import figure_texts
from .remarks import remarks
from .results import Result


def judgement_of(result: Result) -> Judgement:
    """Everything that was said of a measurement, and what it rests on."""
    measurement, verdict = result.measurement, result.verdict
    assert verdict is not None
    found, reference = verdict.difference, verdict.reference
    return Judgement(
        test_id=measurement.test_id,
        label=measurement.label,
        verdict=verdict.kind.value,
        tolerance=verdict.tolerance,
        name=measurement.key.name,
        reason=verdict.reason,
        estimate=verdict.estimate,
        interval=verdict.interval,
        error=found.error if found else None,
        freedom=_finite(found.freedom) if found else None,
        p=verdict.p,
        p_adjusted=verdict.p_adjusted,
        mde=verdict.mde,
        reach=verdict.reach,
        processes=verdict.processes,
        new_s=found.new_s if found else None,
        reference_s=found.reference_s if found else None,
        source=reference.source if reference else "",
        reference=tuple(SessionRecord(g.medians_s, g.device, g.started) for g in reference.groups) if reference else (),
        process_spread=_spread(found.process) if found else None,
        session_spread=_spread(found.session) if found else None,
        device_spread=_spread(found.device) if found and found.device else None,
        paired=bool(found and found.paired),
        unequal=bool(found and found.unequal),
        remarks=tuple(remarks(result)),
        published=figure_texts(result),
        reference_clock_hz=reference.clock_hz if reference else None,
        limit_s=verdict.limit.seconds if verdict.limit else None,
        peak=verdict.peak,
    )


def _spread(spread: Spread) -> SpreadRecord:
    return SpreadRecord(spread.value, spread.origin, _finite(spread.freedom))


def _finite(freedom: float) -> float | None:
    return None if math.isinf(freedom) else freedom
