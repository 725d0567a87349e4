"""Lines beside a table of times: other figures of the tests, their first calls, and their ranks."""

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
from .words import cut

# A sweep may give figures in every test; the run file has them all.
MOST_LISTED = 30


def figure_lines(figures: Sequence[Figure], at_most: int = MOST_LISTED) -> list[str]:
    """Return the figures of each test, in the order run.

    A line reads `transformer_ranks[ddp-2]: efficiency 87.3 %, communicating 12.1 %`. Of a test that
    was run again the last figure of a name stands.
    """
    lines = []
    for members in group_by(figures, lambda figure: figure.test_id).values():
        texts = {figure.name: figure_text(figure) for figure in members}
        lines.append(printable(f"{members[0].label}: {', '.join(texts.values())}"))
    return cut(lines, at_most, "tests with figures")


def figure_text(figure: Figure) -> str:
    """Return `efficiency 87.3 %`."""
    # Formatters choose a unit by size, so the sign is none of theirs.
    return f"{figure.name} {'-' * (figure.value < 0)}{_FORMS[figure.unit](abs(figure.value))}"


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


# Of the calls behind call 0.
MOST_CALLS = 4
MOST_FIRST_CALLS = 12
# Standard deviations of a single call that it may lie above the median and still be a steady one.
DEVIATIONS = 3.0
# From the median absolute deviation of normal values to their standard deviation.
MAD_TO_SIGMA = 1.4826


def first_call_lines(rows: Sequence[Row], at_most: int = MOST_FIRST_CALLS) -> list[str]:
    """Return a line for each measurement with first calls.

    There is none for one that only compiled in its first.
    """
    lines = [
        f"{printable(row.label)}: {first_call_text(row.measurement, row.tolerance)}"
        for row in rows
        # The one call of a function that compiles stands in a column of its own.
        if row.measurement is not None
        and len(row.measurement.samples.first_calls_s) > (row.measurement.compile_s is not None)
    ]
    return cut(lines, at_most, "with first calls")


def first_call_text(measurement: Measurement, tolerance: float | None = None) -> str:
    """Return the first calls beside the steady time.

    It reads `call 0 took 1.76 s, 12.6 x the steady 140 ms; call 1 1.00 x; steady from call 1 on`.

    Args:
        measurement: with first calls; their times and the steady one are the host's, of calls by themselves.
        tolerance: of its verdict, as a share of the time; by default the measurement's own.
    """
    steady_s, calls = measurement.samples.alone_s, measurement.samples.first_calls_s
    # Beside a time of the device, which is another one, the clock has to be told.
    clock = " by the host's clock" if measurement.samples.warm_calls_s else ""
    steady_call = steady_from(measurement, tolerance)
    ranks = " on new ranks" if measurement.ranks is not None and measurement.ranks.fresh else ""
    parts = [
        f"call 0{ranks} took {format_seconds(calls[0])}, {format_factor(calls[0] / steady_s)} the steady "
        f"{format_seconds(steady_s)}{clock}"
    ]
    later_calls = calls[
        1 : 1 + (MOST_CALLS if steady_call is None else min(MOST_CALLS, steady_call))
    ]
    parts += [
        f"call {number} {format_factor(seconds / steady_s)}"
        for number, seconds in enumerate(later_calls, 1)
    ]
    if steady_call is not None:
        parts.append(f"steady from call {steady_call} on")
    elif len(calls) > 1:
        parts.append(f"not steady within {len(calls)} calls")
    return "; ".join(parts)


def steady_from(measurement: Measurement, tolerance: float | None = None) -> int | None:
    """Return the first call from which all are steady, or None.

    None where the last is not. As fast is at most a warm call by itself, plus the tolerance, plus
    three standard deviations of a single call. These come from the samples, by their median
    absolute deviation: a sample is the mean of so many calls, so a call alone deviates by the root
    of that number more. What the slowest of the warm calls took is steady in any case.
    """
    samples = measurement.samples
    allowed = tolerance or measurement.tolerance or DEFAULT_TOLERANCE
    deviation_s = median(abs(sample_s - samples.median_s) for sample_s in samples.seconds)
    sigma_s = MAD_TO_SIGMA * deviation_s * math.sqrt(samples.iterations)
    limit_s = max(
        samples.alone_s * (1 + allowed) + DEVIATIONS * sigma_s, *samples.warm_calls_s, 0.0
    )
    late = [number for number, seconds in enumerate(samples.first_calls_s, 1) if seconds > limit_s]
    last_late = max(late, default=0)
    return last_late if last_late < len(samples.first_calls_s) else None


# Warm-up steps, and the steps behind them, whose mean and deviation assignments and papers tell of a model.
WARM_UPS, STEPS = (0, 1, 5), 10


def after_warm_up(measurement: Measurement) -> list[tuple[float, float]]:
    """Return mean and standard deviation of ten calls, in seconds.

    They are the calls behind 0, 1 and 5 others; none where fewer were timed.
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
    """Return the launches, stragglers and oversubscribed tests of ranks.

    A launch has a line; a straggler is named by rank and host.
    """
    measured = [row.measurement for row in rows if row.measurement is not None]
    ranked = [(record, record.ranks) for record in measured if record.ranks is not None]
    measurements = [record for record, _ in ranked]
    collectives = any(rate_suffix(record.key.metric) == "busbw_GBps" for record in measurements)
    lines = [BUSBW] * collectives
    lines += [f"ranks: {text}" for text in dict.fromkeys(launch_text(ranks) for _, ranks in ranked)]
    late = [straggler_text(*pair) for pair in ranked if pair[1].straggler is not None]
    lines += cut(late, MOST_RANKS, "with a straggler")
    lines += [text for record in measurements for text in job_text(record, measurements)]
    oversubscribed = [
        printable(record.label)
        for record in measurements
        if OVERSUBSCRIBED in record.samples.labels
    ]
    if oversubscribed:
        lines.append(
            "oversubscribed: more ranks than cores on a node, so these times are mostly the scheduler's "
            "and never gate: "
            f"{listed(oversubscribed, MOST_RANKS)}"
        )
    return lines


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
    """Return the sentence on a straggler.

    It reads `straggler: rank 3 on node7 took 19.8 ms more of its own in all_reduce[1MiB-4ranks] (98
    % of a call)`.
    """
    assert ranks.straggler is not None
    host = f" on {ranks.hosts[ranks.straggler]}" if ranks.hosts else ""
    lag_s = ranks.lag_s[ranks.straggler] if ranks.lag_s else 0.0
    share = format_percent(lag_s / measurement.median_s).replace("+", "")
    return (
        f"straggler: rank {ranks.straggler}{printable(host)} takes {format_seconds(lag_s)} longer than the fastest "
        f"rank in its own part of {printable(measurement.label)} ({share} of a call)"
    )


def job_text(job: Measurement, measurements: Sequence[Measurement]) -> list[str]:
    """Return a whole program beside its steady time.

    There is none where no test measured both.
    """
    return [
        f"{printable(job.label)}: the whole program takes {format_seconds(job.median_s)}, of which one steady call of "
        f"its work is {format_seconds(call.median_s)}; the rest is start, imports, rendezvous, warm-up and exit"
        for call in measurements
        if job.key.metric == JOB_METRIC
        and call.test_id == job.test_id
        and call.work == job.work
        and call is not job
    ]
