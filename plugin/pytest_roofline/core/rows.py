"""A result as a row of plain values: the one vocabulary of every JSON document, table file and property.

In SI units of one call; shares are shares of the value that they speak of, never logarithms.
"""

from dataclasses import dataclass
from typing import Literal

from .keys import Scalar

TIME, PEAK, KERNEL = "time", "peak_bytes", "kernel"
# Of all tables and lists; what is not named here (`MEASURED`, `SKIPPED`, …) comes last.
WORST_FIRST = (
    "FAILED",
    "REGRESSED",
    "OUT OF MEMORY",
    "DEGRADED",
    "INVALID",
    "INCONCLUSIVE",
    "NO BASELINE",
    "IMPROVED",
    "PASSED",
)


def badness(verdict: str, change: float | None = None) -> tuple[int, float]:
    """The key that sorts results worst first: by the word, then by how much worse.

    Args:
        verdict: in a word, as people read it.
        change: the share by which it differs, positive is worse.
    """
    place = WORST_FIRST.index(verdict) if verdict in WORST_FIRST else len(WORST_FIRST)
    return place, -(change or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One result. None is what is not known, or not there.

    Args:
        run: what its run is called in a report.
        run_id: of its run.
        started: when that began.
        test: node id of the test.
        label: as people call it: `memcpy_d2d[64MiB]`.
        benchmark: the name that baselines know it by.
        name: tells measurements of one test apart.
        parameters: of the test.
        metric: what was measured: `time`, `peak_bytes`, `kernel` (what a compiled one asks for); None where a test
            ended without a number.
        value: in `unit`; the centre of the processes that were judged, else that of the one that stands for them. None
            where memory ran out before there was one.
        unit: `s` or `B`; of a kernel None, `figures` holds what it asks for.
        time_s: seconds per call, where it is a time.
        rate: of that time, in `rate_unit`: `B/s` or `FLOP/s`.
        counting: which bytes or FLOPs the rate counts: `traffic_GBps`, `busbw_GBps`, `TFLOPS` and others.
        tokens_per_second: of that time.
        baseline_value: what `value` was compared with; None where that was nothing, or a published limit.
        baseline_time_s: where it is a time.
        baseline_rate: of that time.
        change: share of the baseline's value; positive is worse: 0.25 takes a quarter more time or memory.
        change_low: where `change` may lie, with `confidence`.
        change_high: the other end.
        confidence: 0.99 of an interval at 99 %.
        tolerance: the share that is still the same.
        detectable: the smallest slowdown, as a share, that the run finds in 80 of 100 cases.
        processes: behind the value, those that do not count left out.
        baseline_processes: behind the baseline.
        baseline_sessions: that those are of.
        roofline_share: of the roofline that applies.
        roofline_source: where that is from: a datasheet, or measured.
        verdict: in a word.
        reason: why, in a sentence.
        outcome: how pytest ended the test in the end; None where the run was cut before, or is not known.
        size_bytes: that the test is called by.
        held_bytes: what a call leaves allocated.
        compile_s: what a first call took beyond a warm one.
        asked_bytes: where memory ran out.
        free_bytes: there.
        target: the architecture of a compiled kernel.
        figures: registers, spills and others of a compiled kernel.
        cache: how caches were treated.
        timing: by which clock.
        labels: what is to be known of the measurement: `cache_resident`, `noisy` and others.
        ranks: how many measured together.
        hardware: that baselines know it by.
        device: the product.
        driver: of the device.
        torch: its version.
        host: the name of the machine.
    """

    run: str | None = None
    run_id: str | None = None
    started: str | None = None
    test: str
    label: str
    benchmark: str = ""
    name: str = ""
    parameters: dict[str, Scalar]
    metric: str | None = None
    value: float | None = None
    unit: str | None = None
    time_s: float | None = None
    rate: float | None = None
    rate_unit: str | None = None
    counting: str | None = None
    tokens_per_second: float | None = None
    baseline_value: float | None = None
    baseline_time_s: float | None = None
    baseline_rate: float | None = None
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    confidence: float | None = None
    tolerance: float | None = None
    detectable: float | None = None
    processes: int | None = None
    baseline_processes: int | None = None
    baseline_sessions: int | None = None
    roofline_share: float | None = None
    roofline_source: str | None = None
    verdict: str
    reason: str = ""
    outcome: Literal["passed", "failed", "skipped", "xfailed"] | None = None
    size_bytes: int | None = None
    held_bytes: int | None = None
    compile_s: float | None = None
    asked_bytes: int | None = None
    free_bytes: int | None = None
    target: str | None = None
    figures: dict[str, int] | None = None
    cache: str | None = None
    timing: str | None = None
    labels: list[str] | None = None
    ranks: int | None = None
    hardware: str | None = None
    device: str | None = None
    driver: str | None = None
    torch: str | None = None
    host: str | None = None
