"""How the numbers of a run came about.

The lines tell of sweeps, reasons, peaks of memory, conditions, and waits for the device.
"""

from collections.abc import Callable, Sequence

from ..core.keys import JOB_METRIC
from ..core.records import CurveSummary
from ..core.rows import Row
from ..core.samples import Samples
from ..core.units import (
    cut,
    format_bytes,
    format_seconds,
    format_tolerance,
    listed,
    printable,
    three_digits,
)
from ..core.verdicts import Kind
from ..core.work import rate_suffix
from ..stats.key_results import NO_PEAK

# The least share of a call that the device idles for a line to say so; less changes no verdict.
LEAST_WAIT = 0.01

# The relative error of a fit above which latency and bandwidth do not describe a sweep, for example because its
# small sizes stay in a cache.
FAIR_FIT = 0.25


def curve_line(curve: CurveSummary) -> str:
    """Return the results of a sweep, the same test over many sizes, as one line.

    It has the plateau, the sizes that reach shares of the plateau and of the roofline, and the
    fit of latency and bandwidth.
    """
    unit, name = rate_unit(curve.metric)
    shares = curve.reached | {f"{share} of roof": size for share, size in curve.of_roof.items()}
    sizes = [
        f"{share} from {format_bytes(size)}" for share, size in shares.items() if size is not None
    ]
    plateau = f"plateau {three_digits(curve.plateau / unit)} {name} ({curve.metric})"
    # The time of a whole program includes its start, so its rate has no plateau.
    parts = [] if curve.metric == JOB_METRIC else [", ".join([plateau, *sizes])]
    return f"{printable(curve.label)}: {'; '.join([*parts, fit_text(curve)])}"


def fit_text(curve: CurveSummary) -> str:
    """Return the latency and bandwidth that fit a sweep, each with its standard error.

    It reads `fits 2.00 µs ± 30.0 ns + size at 2.10 ± 0.01 GB/s`.
    """
    unit, name = rate_unit(curve.metric)
    fit = curve.fit
    text = f"{format_seconds(fit.latency_s)}{_error_text(fit.latency_error_s, format_seconds)}"
    if fit.bandwidth is not None:
        error = _error_text(fit.bandwidth_error, lambda value: three_digits(value / unit))
        text += f" + size at {three_digits(fit.bandwidth / unit)}{error} {name}"
    if fit.misfit > FAIR_FIT:
        return f"no latency and bandwidth fit the curve: the best, {text}, are {fit.misfit:.0%} off"
    return f"fits {text}"


def rate_unit(metric: str) -> tuple[float, str]:
    """Return the size and name of a metric's unit.

    The size is in bytes or FLOP per second.
    """
    return (1e12, "TFLOP/s") if rate_suffix(metric) == "TFLOPS" else (1e9, "GB/s")


def _error_text(error: float | None, format_error: Callable[[float], str]) -> str:
    return f" ± {format_error(error)}" if error else ""


def reason_lines(rows: Sequence[Row], at_most: int = 3) -> list[str]:
    """Return a line for each test that could not be judged.

    It has the reason and a remedy.
    """
    lines = [
        printable(f"{row.verdict} {row.label}: {row.time_reason}")
        for row in rows
        if row.time_verdict is not None
        and row.time_verdict.kind in (Kind.INCONCLUSIVE, Kind.INVALID, Kind.NO_BASELINE)
    ]
    return cut(lines, at_most, "of these")


def peak_lines(rows: Sequence[Row], at_most: int = 3) -> list[str]:
    """Return the peaks of memory that differ from the baseline.

    A last line lists the tests whose peak the baseline does not have.
    """
    peaks = [(printable(row.label), row.peak) for row in rows if row.peak is not None]
    changed = [
        (label, peak) for label, peak in peaks if peak.baseline_value is not None and peak.reason
    ]
    lines = [f"peak {peak.verdict} {label}: {printable(peak.reason)}" for label, peak in changed]
    without_baseline = [label for label, peak in peaks if peak.reason == NO_PEAK]
    return [
        *cut(lines, at_most, "of these"),
        *_about_lines(f"{NO_PEAK}, so the peak memory is not compared", without_baseline, at_most),
    ]


def condition_lines(
    rows: Sequence[Row],
    at_most: int = 3,
    unknown_since: str = "the driver does not report the state of the device",
) -> list[str]:
    """Return the conditions under which the numbers were measured.

    These are tests that the host slows down, drift, excluded blocks, the power cap, and unknown
    facts. Each line lists the tests of one condition.

    Args:
        rows: of a run.
        at_most: the number of tests that a line lists.
        unknown_since: the reason why facts about the device are unknown.
    """
    measured = [
        (printable(row.label), row.measurement.samples)
        for row in rows
        if row.measurement is not None
    ]
    return [
        line
        for meaning, tests in _tests_by_condition(measured, unknown_since).items()
        for line in _about_lines(meaning, tests, at_most)
    ]


def _tests_by_condition(
    measured: Sequence[tuple[str, Samples]], unknown_since: str
) -> dict[str, list[str]]:
    """Return the tests under each condition, which is named by its sentence.

    A condition without tests has an empty list. The order is that of the lines.
    """
    # The modes by the device's clock; a time by the host's clock asks no driver for these facts.
    by_device = [
        (test, samples) for test, samples in measured if samples.mode in ("events", "graph")
    ]
    unknown_neighbours = [test for test, samples in by_device if samples.neighbours == "unknown"]
    unknown_throttle = [test for test, samples in by_device if not samples.throttle_known]
    # `_PACES` and `_LABELS` have the sentence of each label that samples may carry.
    return {
        **{meaning: _paces(measured, label) for label, meaning in _PACES.items()},
        **{
            meaning: [test for test, samples in measured if label in samples.labels]
            for label, meaning in _LABELS.items()
        },
        "blocks excluded": [
            f"{test} ({_causes_text(samples)})" for test, samples in measured if samples.excluded
        ],
        "at the software power cap, which is normal under load": [
            f"{test} ({_cap_text(samples)})"
            for test, samples in measured
            if samples.power_capped_share
        ],
        f"not known whether other processes used the device, since {unknown_since}": unknown_neighbours,
        f"not known whether the device was throttled, since {unknown_since}": unknown_throttle,
        "another process uses the device": [
            test for test, samples in measured if samples.neighbours == "seen"
        ],
    }


def _paces(measured: Sequence[tuple[str, Samples]], label: str) -> list[str]:
    """Return the tests with a label, each with its times by both clocks.

    A test whose time by the host's clock is not known is left out.
    """
    return [
        f"{test} ({format_seconds(samples.median_s)} on the device's clock, "
        f"{format_seconds(samples.wall_s)} on the host's)"
        for test, samples in measured
        if label in samples.labels and samples.wall_s is not None
    ]


def _cap_text(samples: Samples) -> str:
    """Return how often the power cap held: `in 40% of its blocks, at 1200 MHz`."""
    clock = f", at {samples.clock_hz / 1e6:.0f} MHz" if samples.clock_hz else ""
    return f"in {samples.power_capped_share:.0%} of its blocks{clock}"


def _causes_text(samples: Samples) -> str:
    """Return how many blocks were excluded by each cause: `2 of 40 by heat`."""
    block_count = len(samples.blocks)
    return ", ".join(
        f"{number} of {block_count} by {cause}" for cause, number in samples.excluded.items()
    )


def waiting_lines(rows: Sequence[Row], at_most: int = 3) -> list[str]:
    """Return the tests whose function waits for the device.

    Each has the time that this costs.
    """
    lines = []
    for row in rows:
        if row.measurement is None:
            continue
        samples = row.measurement.samples
        # The share of a call's time for which the host waits; None where it is not known.
        share = samples.idle_share or 0.0
        if share >= LEAST_WAIT:
            lines.append(
                f"{printable(row.label)}: the call waits for the device for {format_tolerance(round(share, 2))} of its "
                f"time ({format_seconds(share * samples.median_s)} of {format_seconds(samples.median_s)}). "
                "Move synchronize(), .item() or .cpu() out of the function"
            )
    return cut(lines, at_most, "of these")


# The meanings of labels that samples have. Lines on the first show the times of both clocks.
_PACES = {
    "host_bound": "host-bound: the host is measured, not the device",
    "waits_inside": "a call waits for the device, so the time includes the host's part",
}
_LABELS = {
    "replaced": "a hook replaced the function, as in a drill, so the time never becomes a baseline",
    "profiled": "measured with a profiler attached, or after a profiler in this process, so the time is never judged "
    "and never becomes a baseline",
    "noisy": "noisy: the budget ended before the median was precise enough",
    "drifting": "drifting: the calls still became slower or faster when the budget ended (raise --roofline-budget)",
    "clock_moved": "the clock changed by over 10 % within a block, for an unknown reason",
    "wall_clock": "timed by the host's clock, since the device's events are unreliable",
    "graph_refused": "short calls were timed call by call, since no graph could be captured",
}


def _about_lines(meaning: str, tests: Sequence[str], at_most: int) -> list[str]:
    """Return a line that lists the tests of a condition, if any."""
    return [f"{meaning}: {listed(tests, at_most)}"] if tests else []
