"""Limits that a time may not lie beyond, whatever it used to be: published ones, floors, a share of the roofline.

A limit has no processes behind it and no error of its own. It is breached where the whole interval of the new time lies
beyond it. That is decided for each limit alone; its chance of error is shared among the interim analyses of the run.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..core.entries import PEAK_METRIC, Entry, Statistic
from ..core.facts import Gpu
from ..core.records import Ceiling, Measurement
from ..core.samples import Samples
from ..core.verdicts import Group, Idle, TimeLimit
from ..core.work import RATE_UNITS, Work, rate_suffix
from ..hardware import (
    collective_ceiling,
    is_arithmetic,
    is_large,
    product_like,
)
from .spread import class_of

MEDIANS_ONLY = "the limit is not for the median, and a baseline file holds medians only"
BATCHED = "the limit is for the fastest single call, and a sample here is the mean of several calls"
# Environment variables that choose a collective's algorithm in place of the library.
FORCED = {"NCCL_ALGO", "NCCL_PROTO", "RCCL_MSCCL_ENABLE"}


@dataclass(frozen=True, slots=True)
class Limit:
    """A limit, and the new processes that are compared with it.

    Args:
        new: the processes, each summed up by the statistic of the limit's source. Empty: all of them, by their medians.
    """

    time_limit: TimeLimit
    new: tuple[Group, ...] = ()


def process_s(samples: Samples, statistic: Statistic | None) -> float:
    """Return the seconds of a call under a statistic.

    They are of one process. A source that names no statistic is taken to mean our median. Where a
    sample is the mean of several calls, the best sample is no more than an upper bound on the
    fastest call: see `exact`.
    """
    if statistic == "mean":
        return fmean(samples.kept)
    return min(samples.kept) if statistic == "best" else samples.median_s


def exact(samples: Samples, statistic: Statistic | None) -> bool:
    """Return True where `process_s` gives the statistic, not a bound."""
    return statistic != "best" or samples.iterations == 1


@dataclass(frozen=True, slots=True)
class Summary:
    """New processes, each summed up by a statistic; by an upper bound on it where it is not `exact`."""

    groups: Sequence[Group]
    exact: bool = True


# A function that sums up the new processes of a measurement by a statistic. It returns a text where that is
# impossible: the reason.
Summed = Callable[[Statistic], Summary | str]


def gating_limits(
    entries: Iterable[Entry], work: Work, sum_up: Summed
) -> tuple[list[Limit], list[Idle]]:
    """Return the published limits that may fail a measurement.

    They are followed by the entries that cannot apply here, each with a reason.

    Args:
        entries: published values of the metric. Those that merely inform (`gates` is false) are skipped.
        work: of the measurement, which turns a limit in units of a rate into seconds.
        sum_up: returns the new processes, each summed up by the statistic of a limit's source, or a text on why that is
            impossible.
    """
    limits, idle = [], []
    for entry in entries:
        # A floor is a share of a peak and no published time: `floor_limits` returns those.
        if not entry.gates or entry.kind == "floor":
            continue
        seconds = limit_seconds(entry, work)
        summary = sum_up(entry.statistic or "median")
        if seconds is None:
            idle.append(
                (
                    entry,
                    f"the limit is in {entry.metric}, but the test's work counts no such amount",
                )
            )
        elif isinstance(summary, str):
            idle.append((entry, summary))
        elif summary.exact:
            limits.append(Limit(TimeLimit(seconds, entry), tuple(summary.groups)))
        else:
            # An upper bound on the fastest call may lie beyond a limit that the fastest call itself keeps.
            idle.append((entry, BATCHED))
    return limits, idle


def roofline_limit(measurement: Measurement, share: float) -> Limit | None:
    """Return a limit: the time of a measurement's work at a share of the roofline, or None.

    None where the roofline is not trusted enough to fail a test, or does not bound this work.
    """
    ceiling = measurement.ceiling
    if ceiling is None or ceiling.source != "datasheet":
        return None
    # A peak that does not bound a rate (some hosts have a faster link) serves too: it is only easier to reach.
    if ceiling.confidence not in ("high", "medium"):
        return None
    # The roofline is that of a whole device which does the work itself: a partition or the host cannot reach it.
    is_whole_device = measurement.key.hardware.partition == "none"
    host_does_the_work = class_of("device", measurement.key.metric) == "host"
    if measurement.share_of_ceiling is None or not is_whole_device or host_does_the_work:
        return None
    amount = measurement.work.amount(ceiling.metric)
    # Small work cannot reach the roofline, or stays in a cache.
    if amount is None or not is_large(
        measurement.work, measurement.samples.labels, computes=is_arithmetic(ceiling)
    ):
        return None
    return Limit(TimeLimit(amount / (ceiling.value * share), peak=ceiling, share=share))


def floor_limits(
    entries: Iterable[Entry], measurement: Measurement, gpu: Gpu | None
) -> tuple[list[Limit], list[Idle]]:
    """Return the floors of a measurement, as limits on its time.

    A floor is the least share of a datasheet's peak that work of a certain amount has to reach. The limits are followed
    by the floors that do not apply here, each with a reason.
    """
    limits, idle = [], []
    for entry in entries:
        amount = measurement.work.amount(entry.metric)
        # A floor holds from `from_amount` on, since small work cannot come near the peak.
        if entry.kind != "floor" or amount is None or amount < (entry.from_amount or 0):
            continue
        peak = _floor_peak(measurement)
        if reason := _idle_reason(entry, measurement, peak, gpu):
            idle.append((entry, reason))
        elif peak is not None:
            assert isinstance(entry.value, float | int)
            share = float(entry.value)
            limits.append(Limit(TimeLimit(amount / (peak.value * share), entry, peak, share)))
    return limits, idle


def _floor_peak(measurement: Measurement) -> Ceiling | None:
    """Return the peak that a floor is a share of.

    For a collective it is the bandwidth of the links, also where the switch adds up and allows more.
    """
    hardware = measurement.key.hardware
    if rate_suffix(measurement.key.metric) != "busbw_GBps":
        return measurement.ceiling
    product = product_like(hardware.product, hardware.memory)
    return collective_ceiling(product, hardware, measurement.work, measurement.key.metric)


def _idle_reason(
    entry: Entry, measurement: Measurement, peak: Ceiling | None, gpu: Gpu | None
) -> str:
    """Return why a floor does not apply; empty where it does."""
    forced = FORCED & os.environ.keys()
    if rate_suffix(entry.metric) == "busbw_GBps" and forced:
        return (
            f"{' and '.join(sorted(forced))} overrides the algorithm that the library chooses, and the floor assumes "
            "the library's own choice"
        )
    if not entry.gates:
        return f"this site dropped the floor: {entry.reason}"
    if (
        peak is None
        or peak.source != "datasheet"
        or rate_suffix(peak.metric) != rate_suffix(entry.metric)
    ):
        return "no datasheet's peak is known here, of which the floor is a share"
    if not is_arithmetic(peak):
        # The power limit, which is checked below, matters for arithmetic only.
        return (
            "the measured data stayed in a cache"
            if "cache_resident" in measurement.samples.labels
            else ""
        )
    if gpu is None or not gpu.power_limit_w or not gpu.power_default_w:
        return ""
    if gpu.power_limit_w >= gpu.power_default_w:
        return ""
    return f"the power limit is {gpu.power_limit_w:g} W; the default of the card is {gpu.power_default_w:g} W"


def limit_seconds(entry: Entry, work: Work) -> float | None:
    """Return the seconds in which `work` just meets a published limit.

    None where the limit does not apply to the work.
    """
    return published_s(entry, entry.value, work) if isinstance(entry.value, float | int) else None


def published_s(entry: Entry, value: float, work: Work) -> float | None:
    """Return the seconds that `work` takes at a value of the metric.

    None where a value has no time: a value of 0, a peak of memory, a floor, or a metric that counts
    another amount than the work.
    """
    suffix = rate_suffix(entry.metric)
    if value == 0 or entry.metric == PEAK_METRIC or entry.kind == "floor":
        return None
    if suffix is None:
        # The metric is no rate, so the value is a time already.
        return float(value)
    amount = work.amount(entry.metric)
    return None if amount is None else amount / (value * RATE_UNITS[suffix])
