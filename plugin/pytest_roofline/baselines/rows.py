"""A result as a row: the numbers worked out once, for all that show them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import geometric_mean, stdev
from typing import Any

from ..core.judgements import Judgement
from ..core.keys import Key
from ..core.memory import OutOfMemory
from ..core.records import Measurement
from ..core.resources import ExactJudgement, ResourceKey, Resources
from ..core.rows import KERNEL, TIME, Row, finite
from ..core.verdicts import Kind
from ..core.work import Work, rate_unit
from ..stats.judgements import judgement_of
from ..stats.key_results import KeyResults
from ..stats.stats import CONFIDENCE, growth
from ..stats.verdicts import Verdict
from .comparators import Odd

# What all tests are called where they were judged as if they were one.
TOGETHER = "all tests together"


def timed_row(
    measurements: Sequence[Measurement],
    judgement: Judgement | None = None,
    *,
    standing: Measurement | None = None,
    **facts: Any,
) -> Row:
    """The row of a measurement."""
    results = KeyResults(list(measurements))
    one = standing or results.standing(None)
    counted = judgement.processes if judgement is not None else 0
    found = {
        "test": one.test_id,
        "label": one.label,
        "held_bytes": one.held_bytes,
        "compile_s": one.compile_s,
        "labels": list(one.samples.labels) or None,
        "ranks": one.ranks.size if one.ranks is not None else None,
        "processes": counted
        or len({each.process for each in measurements if not each.invalid})
        or None,
        "roofline_source": one.ceiling.source if one.ceiling is not None else None,
        "measurement": one,
        "measurements": tuple(measurements),
    }
    centre = judgement.new_s if judgement is not None and counted > 1 else None
    seconds = centre or _centre_s(results, one)
    row = compared_row(one.key, one.work, judgement, seconds, **found | facts)
    trusted = one.ceiling is not None and row.verdict != Kind.INVALID
    share = (
        row.rate_of(row.time_s, one.ceiling.metric) if one.ceiling is not None and trusted else None
    )
    tokens = finite(one.work.tokens / seconds) if one.work.tokens and one.has_rate else None
    return replace(
        row,
        roofline_share=finite(share / one.ceiling.value)
        if share is not None and one.ceiling is not None
        else None,
        tokens_per_second=tokens,
        flops_per_s=row.rate_of(row.time_s, "TFLOPS"),
        operational_intensity=one.work.operational_intensity,
        std_s=stdev(one.samples.kept) if len(one.samples.kept) > 1 else None,
        iterations=len(one.samples.kept) * one.samples.iterations,
    )


def _centre_s(results: KeyResults, standing: Measurement) -> float:
    """The geometric mean over the processes that count, as where they are compared; where none does what stands."""
    times_s = (
        []
        if standing.invalid or results.invalid(None)
        else [one.median_s for one in results.sound(None)]
    )
    return geometric_mean(times_s) if len(times_s) > 1 else standing.median_s


def compared_row(
    key: Key, work: Work | None, judgement: Judgement | None, seconds: float | None, **facts: Any
) -> Row:
    """The row of a measurement of which a comparison knows no more than the centre of its processes."""
    known = {
        "benchmark": key.benchmark,
        "name": key.name,
        "parameters": key.parameters,
        "cache": key.cache,
        "timing": key.timing,
        "hardware": str(key.hardware),
        "counting": key.metric,
        "size_bytes": _size_bytes(key, work),
        "metric": TIME,
        "unit": "s",
        **(judged_columns(judgement) if judgement is not None else {}),
        **facts,
    }
    row = Row(**known, value=seconds, time_s=seconds, key=key, work=work, judgement=judgement)
    rate, before = row.rate_of(seconds), row.rate_of(row.baseline_time_s)
    return replace(
        row,
        rate=rate,
        baseline_rate=before,
        rate_unit=rate_unit(key.metric) if rate is not None else None,
    )


def _size_bytes(key: Key, work: Work | None) -> int | None:
    """What the test's own name calls its size, else that of the work: a message and its answer are two of it."""
    asked = key.parameters.get("size_bytes")
    if isinstance(asked, int) and asked > 0:
        return asked
    return (work.size_bytes or None) if work is not None else None


def judged_columns(judgement: Judgement) -> dict[str, Any]:
    """What a judgement says of a time, by the names of columns."""
    peak, interval = judgement.peak, judgement.interval
    own = judgement.overall == judgement.verdict or peak is None
    medians_s = judgement.baseline_medians_s
    centre_s = math.exp(math.fsum(map(math.log, medians_s)) / len(medians_s)) if medians_s else None
    reference_s = judgement.reference_s if judgement.reference_s is not None else centre_s
    change = growth(judgement.estimate) if judgement.estimate is not None else None
    return {
        "test": judgement.test_id,
        "label": judgement.label,
        "verdict": judgement.overall,
        "reason": judgement.reason if own or peak is None else peak.reason,
        "baseline_value": reference_s,
        "baseline_time_s": reference_s,
        "change": change if change is None or math.isfinite(change) else None,
        "change_low": growth(interval[0]) if interval is not None else None,
        "change_high": growth(interval[1]) if interval is not None else None,
        "confidence": CONFIDENCE if interval is not None else None,
        "tolerance": judgement.tolerance,
        "detectable": judgement.reach,
        "processes": judgement.processes or None,
        "baseline_processes": len(medians_s) or None,
        "baseline_sessions": len(judgement.reference) or None,
    }


def together_row(verdict: Verdict) -> Row:
    """The row of all tests, where they were judged as if they were one."""
    judgement = judgement_of(verdict, TOGETHER)
    # Its times are shares of those of its tests.
    columns = judged_columns(judgement) | {"baseline_value": None, "baseline_time_s": None}
    return Row(**columns, parameters={}, metric=TIME, unit="s", judgement=judgement)


def odd_behind(odd: Odd, rows: Sequence[Row]) -> Odd:
    """Return the odd sessions that were set aside in some of the rows."""
    names = {row.key.identity for row in rows if row.key is not None}
    return {session: tests for session, tests in odd.items() if names & tests}


def kernel_row(
    key: ResourceKey, figures: dict[str, int], exact: ExactJudgement | None = None, **facts: Any
) -> Row:
    """The row of a compiled kernel."""
    known = {
        "test": exact.test_id if exact is not None else "",
        "label": exact.label if exact is not None else key.label,
        "verdict": exact.verdict if exact is not None else "",
        "reason": exact.reason if exact is not None else "",
        "benchmark": key.benchmark,
        "name": key.name,
        "parameters": key.parameters,
        "metric": KERNEL,
        "target": key.target,
        "figures": figures,
    }
    return Row(**known | facts, what="kernel", exact=exact)


def compiled_row(resources: Resources, exact: ExactJudgement | None = None, **facts: Any) -> Row:
    """The same of a kernel that a run has compiled."""
    known = {"test": resources.test_id, "label": resources.label, "resources": resources}
    return kernel_row(resources.key, resources.figures, exact, **known | facts)


def memory_row(lost: OutOfMemory, **facts: Any) -> Row:
    """The row of what ran out of memory."""
    known = {
        "test": lost.test_id,
        "label": lost.label,
        "benchmark": lost.benchmark,
        "name": lost.name or "",
        "parameters": lost.parameters,
        "metric": TIME,
        "asked_bytes": lost.asked_bytes,
        "free_bytes": lost.free_bytes,
    }
    return Row(**known | facts, what="memory", lost=lost)
