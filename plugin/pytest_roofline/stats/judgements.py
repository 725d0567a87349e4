"""A verdict as the plain record that a run file keeps and that every row shows."""

import math
from collections.abc import Mapping

from ..core.records import Judgement, SessionRecord, SpreadRecord
from .spread import Spread
from .verdicts import Verdict, changed_environment


def judgement_of(
    verdict: Verdict,
    label: str,
    *,
    name: str = "",
    test_id: str = "",
    environments: tuple[Mapping[str, str], ...] = (),
    clock_hz: float | None = None,
) -> Judgement:
    """Everything that was said of a measurement, and what it rests on; `remarks` and `published` are for who knows.

    Args:
        verdict: on it.
        label: of it.
        name: that tells it from others of its test.
        test_id: of its test.
        environments: of the new processes.
        clock_hz: their median clock.
    """
    found, reference, limit = verdict.difference, verdict.reference, verdict.limit
    before = reference.environments if reference is not None else ()
    changes = (change for facts in environments for change in changed_environment(dict(facts), before))
    return Judgement(
        test_id=test_id,
        label=label,
        verdict=verdict.kind.value,
        tolerance=verdict.tolerance,
        name=name,
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
        reference_clock_hz=reference.clock_hz if reference else None,
        limit_s=limit.seconds if limit else None,
        peak=verdict.peak,
        new_medians_s=verdict.new_medians_s,
        clock_hz=clock_hz,
        shift=reference.shift if reference else 0.0,
        changed=tuple(dict.fromkeys(changes)),
        limit=limit.kind if limit else "",
        limit_source=limit.whose if limit else "",
        siblings=verdict.siblings,
        fewest=verdict.fewest,
        slower_processes=verdict.slower_processes,
        compared_processes=verdict.compared_processes,
    )


def _spread(spread: Spread) -> SpreadRecord:
    return SpreadRecord(spread.value, spread.origin, _finite(spread.freedom))


def _finite(freedom: float) -> float | None:
    return None if math.isinf(freedom) else freedom
