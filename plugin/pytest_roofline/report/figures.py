"""Lines beside a table of times.

They tell of other figures of the tests, their first calls, and their ranks.
"""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, median, stdev

from ..core.groups import group_by
from ..core.keys import JOB_METRIC
from ..core.profiles import Figure
from ..core.records import Measurement
from ..core.rows import Row
from ..core.samples import OVERSUBSCRIBED, Ranks
from ..core.units import (
    count,
    cut,
    format_factor,
    format_flop_count,
    format_memory,
    format_percent,
    format_rate,
    format_seconds,
    format_share,
    listed,
    printable,
    three_digits,
)
from ..core.work import rate_suffix
from ..stats.outlook import DEFAULT_TOLERANCE

# Tests whose figures are listed. A sweep may have figures in every test; the run file has them all.
MOST_LISTED = 30


def figure_lines(figures: Sequence[Figure], at_most: int = MOST_LISTED) -> list[str]:
    """Return the figures of each test, in the order run.

    A line reads `transformer_ranks[ddp-2]: efficiency 87.3 %, communicating 12.1 %`. If a test ran
    several times, the line has the last figure of each name.
    """
    lines = []
    for members in group_by(figures, lambda figure: figure.test_id).values():
        texts = {figure.name: figure_text(figure) for figure in members}
        lines.append(printable(f"{members[0].label}: {', '.join(texts.values())}"))
    return cut(lines, at_most, "tests with figures")


def figure_text(figure: Figure) -> str:
    """Return `efficiency 87.3 %`."""
    # Formatters choose a unit by the size of a positive number, so the sign is written here.
    sign = "-" if figure.value < 0 else ""
    return f"{figure.name} {sign}{_FORMS[figure.unit](abs(figure.value))}"


_FORMS: dict[str, Callable[[float], str]] = {
    "B": format_memory,
    "s": format_seconds,
    "share": format_share,
    "FLOP": format_flop_count,
    "tokens/s": lambda value: f"{three_digits(value)} tokens/s",
    "x": format_factor,
    "B/s": format_rate,
    "count": lambda value: f"{value:,.0f}" if value.is_integer() else three_digits(value),
}


# Calls after call 0 that a line lists, and measurements that have a line.
MOST_CALLS = 4
MOST_FIRST_CALLS = 12
# Standard deviations of a single call that it may lie above the median and still be a steady one.
DEVIATIONS = 3.0
# The standard deviation of normal values, as a multiple of their median absolute deviation.
MAD_TO_SIGMA = 1.4826


def first_call_lines(rows: Sequence[Row], at_most: int = MOST_FIRST_CALLS) -> list[str]:
    """Return a line for each measurement with first calls.

    A measurement that timed only one first call, in which it compiled, has none: its compile time is shown instead.
    """
    lines = [
        f"{printable(row.label)}: {first_call_text(row.measurement, row.tolerance)}"
        for row in rows
        if row.measurement is not None and _has_first_calls_to_show(row.measurement)
    ]
    return cut(lines, at_most, "with first calls")


def _has_first_calls_to_show(measurement: Measurement) -> bool:
    """Return True where the first calls need a line.

    The only first call of a function that compiles is shown by the column `compile`.
    """
    shown_elsewhere_count = 1 if measurement.compile_s is not None else 0
    return len(measurement.samples.first_calls_s) > shown_elsewhere_count


def first_call_text(measurement: Measurement, tolerance: float | None = None) -> str:
    """Return the first calls beside the steady time.

    It reads `call 0 took 1.76 s, 12.6 x the steady 140 ms; call 1 1.00 x; steady from call 1 on`.

    Args:
        measurement: with first calls. Their times and the steady time are of single calls, by the host's clock.
        tolerance: of its verdict, as a share of the time; by default the measurement's own.
    """
    steady_s, calls_s = measurement.samples.alone_s, measurement.samples.first_calls_s
    # Warm calls were timed only where the samples are by another clock, the device's.
    clock = " by the host's clock" if measurement.samples.warm_calls_s else ""
    steady_call = steady_from(measurement, tolerance)
    ranks = " on new ranks" if measurement.ranks is not None and measurement.ranks.fresh else ""
    parts = [
        f"call 0{ranks} took {format_seconds(calls_s[0])}, {format_factor(calls_s[0] / steady_s)} the steady "
        f"{format_seconds(steady_s)}{clock}"
    ]
    # The calls after call 0 up to the first steady call, which is listed too.
    later_count = MOST_CALLS if steady_call is None else min(MOST_CALLS, steady_call)
    parts += [
        f"call {number} {format_factor(call_s / steady_s)}"
        for number, call_s in enumerate(calls_s[1 : 1 + later_count], 1)
    ]
    if steady_call is not None:
        parts.append(f"steady from call {steady_call} on")
    elif len(calls_s) > 1:
        parts.append(f"not steady within {len(calls_s)} calls")
    return "; ".join(parts)


def steady_from(measurement: Measurement, tolerance: float | None = None) -> int | None:
    """Return the number of the first steady call, or None.

    All calls after it are steady too. It is None where the last first call is not steady. A steady
    call takes at most the time of a warm call, plus the tolerance, plus three standard deviations of
    a single call. A sample is the mean of several calls, so a single call deviates by the root of
    their number more than a sample does. A call as fast as the slowest warm call is always steady.
    """
    samples = measurement.samples
    tolerated_share = tolerance or measurement.tolerance or DEFAULT_TOLERANCE
    sample_deviation_s = median(abs(sample_s - samples.median_s) for sample_s in samples.seconds)
    # The factor makes a standard deviation of a median deviation.
    call_sigma_s = MAD_TO_SIGMA * sample_deviation_s * math.sqrt(samples.iterations)
    # The time of a single warm call, by the host's clock.
    warm_s = samples.alone_s
    steady_limit_s = warm_s * (1 + tolerated_share) + DEVIATIONS * call_sigma_s
    limit_s = max(steady_limit_s, *samples.warm_calls_s, 0.0)
    # Calls are numbered from 0; each slow call is listed by the number of the call after it.
    after_slow = [
        number for number, seconds in enumerate(samples.first_calls_s, 1) if seconds > limit_s
    ]
    first_steady = max(after_slow, default=0)
    return first_steady if first_steady < len(samples.first_calls_s) else None


# Assignments and papers report the mean and deviation of 10 steps of a model after 0, 1 or 5 warm-up steps.
WARM_UPS, STEPS = (0, 1, 5), 10


def after_warm_up(measurement: Measurement) -> list[tuple[float, float]]:
    """Return mean and standard deviation of ten calls, in seconds.

    There are three pairs, of the ten calls after 0, 1 and 5 warm-up calls. The list is empty where
    fewer than 15 calls were timed.
    """
    calls = measurement.samples.first_calls_s
    if len(calls) < max(WARM_UPS) + STEPS:
        return []
    series = [calls[warm_up : warm_up + STEPS] for warm_up in WARM_UPS]
    return [(fmean(times), stdev(times)) for times in series]


def deviation_text(mean_s: float, std_s: float) -> str:
    """Return `72.3 ms ± 122 ms`."""
    return f"{format_seconds(mean_s)} ± {format_seconds(std_s)}"


MOST_RANKS = 3
BUSBW = "rates of collectives are bus bandwidth (busbw, as in nccl-tests): the rate that each link would carry"


def rank_lines(rows: Sequence[Row]) -> list[str]:
    """Return the lines on tests that ranks measured.

    They tell how the ranks were started, each straggler, the part of a whole program that is its
    work, and which tests had more ranks than cores.
    """
    pairs = [
        (row.measurement, row.measurement.ranks)
        for row in rows
        if row.measurement is not None and row.measurement.ranks is not None
    ]
    measurements = [measurement for measurement, _ in pairs]
    has_collectives = any(
        rate_suffix(measurement.key.metric) == "busbw_GBps" for measurement in measurements
    )
    lines = [BUSBW] if has_collectives else []
    lines += [f"ranks: {text}" for text in dict.fromkeys(launch_text(ranks) for _, ranks in pairs)]
    stragglers = [
        straggler_text(measurement, ranks)
        for measurement, ranks in pairs
        if ranks.straggler is not None
    ]
    lines += cut(stragglers, MOST_RANKS, "with a straggler")
    lines += [text for measurement in measurements for text in job_text(measurement, measurements)]
    return lines + _oversubscribed_lines(measurements)


def _oversubscribed_lines(measurements: Sequence[Measurement]) -> list[str]:
    """Return the line on tests with more ranks than cores, if any."""
    names = [
        printable(measurement.label)
        for measurement in measurements
        if OVERSUBSCRIBED in measurement.samples.labels
    ]
    if not names:
        return []
    return [
        "oversubscribed: a node has more ranks than cores, so these times mostly show the scheduler of the system "
        f"and never gate: {listed(names, MOST_RANKS)}"
    ]


def launch_text(ranks: Ranks) -> str:
    """Return how and where ranks were started.

    It reads `local, gloo, 2 threads a rank, on node7`.
    """
    hosts = list(dict.fromkeys(ranks.hosts))
    on_hosts = f"on {printable(', '.join(hosts[:4]))}" + (
        f" and {len(hosts) - 4} more hosts" if len(hosts) > 4 else ""
    )
    threads = f"{count(ranks.threads, 'thread')} a rank" if ranks.threads is not None else ""
    parts = [ranks.launcher, ranks.backend, threads, on_hosts if hosts else ""]
    return ", ".join(part for part in parts if part)


def straggler_text(measurement: Measurement, ranks: Ranks) -> str:
    """Return the sentence on a straggler, the rank that all others wait for.

    It reads `straggler: rank 3 on node7 takes 19.8 ms longer for its part of all_reduce[1MiB-4ranks]
    than the fastest rank (98 % of a call)`.
    """
    assert ranks.straggler is not None
    host = f" on {ranks.hosts[ranks.straggler]}" if ranks.hosts else ""
    lag_s = ranks.lag_s[ranks.straggler] if ranks.lag_s else 0.0
    # `format_percent` writes a change, so it puts a `+` before the share.
    share = format_percent(lag_s / measurement.median_s).replace("+", "")
    return (
        f"straggler: rank {ranks.straggler}{printable(host)} takes {format_seconds(lag_s)} longer for its part of "
        f"{printable(measurement.label)} than the fastest rank ({share} of a call)"
    )


def job_text(job: Measurement, measurements: Sequence[Measurement]) -> list[str]:
    """Return how much of a whole program is one steady call.

    The list is empty where `job` is no whole program, and where its test measured no steady call.

    Args:
        job: the measurement of the whole program.
        measurements: all measurements of the run; those of the same test and work are steady calls.
    """
    # The metric of the time of a whole program, from start to exit.
    if job.key.metric != JOB_METRIC:
        return []
    return [
        f"{printable(job.label)}: the whole program takes {format_seconds(job.median_s)}, of which one steady call of "
        f"its work is {format_seconds(call.median_s)}; the rest is start, imports, rendezvous, warm-up and exit"
        for call in measurements
        if call.test_id == job.test_id and call.work == job.work and call is not job
    ]
