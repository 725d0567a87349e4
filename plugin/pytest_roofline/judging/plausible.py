"""Whether figures can be true: held against the datasheet's peak, whose data has a source, and nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..core.entries import Entry
from ..core.records import Ceiling, rate
from ..core.units import MIB, format_bytes
from ..core.work import RATE_UNITS, Work, rate_suffix
from .comparators import class_of_key, key_of_entry
from .hardware import (
    UPPER_BOUND,
    above_peak,
    collective_ceiling,
    format_ceiling,
    is_arithmetic,
    pair_ceiling,
    product_ceiling,
    product_like,
)
from .published_peaks import most_share, operation_of, published_ceiling

# Less than this share of the peak, from 64 MiB up, was something else than a copy or a kernel at work.
LOWER_BOUND = 0.2
LOWER_BOUND_FROM_BYTES = 64 * MIB
# The same of a peak that bounds nothing: less is a power of ten off, whatever its source was worth.
LEAST_DOUBTFUL = 0.1
# Shares below this are said with decimals.
LEAST_IN_WHOLE = 0.1
# From so many FLOP a byte on, arithmetic may be what takes the time.
LEAST_ARITHMETIC = 1.0


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something in a baseline that should not be there.

    Args:
        hint: whether it may be meant; then it fails nothing.
        entry: the label of its entry; empty for the file as a whole.
    """

    observed: str
    expected: str
    remedy: str
    hint: bool = False
    entry: str = ""


def beyond_peak(entry: Entry) -> Iterator[Flaw]:
    """The fastest process against 1.02 times the datasheet's peak, the slowest copy against a fifth of it."""
    assert entry.work is not None
    ceiling = _ceiling(entry, entry.work)
    if ceiling is None:
        return
    computes = is_arithmetic(ceiling)
    bounded = [session for session in entry.sessions if computes or "cache_resident" not in session.achieved]
    if not bounded:
        return
    fastest = min(bounded, key=lambda session: min(session.process_medians))
    share = _share(entry.work, ceiling, min(fastest.process_medians))
    if above_peak(ceiling, entry.work, share, fastest.achieved):
        yield Flaw(
            f"{share:.0%} of {_peak(ceiling)} in session {fastest.run_id}",
            f"at most {UPPER_BOUND * (ceiling.limit or ceiling.value) / ceiling.value:.0%}",
            "the work was not done, or not counted: mend the test, and record it anew",
        )
    slowest = max(bounded, key=lambda session: max(session.process_medians))
    share = _share(entry.work, ceiling, max(slowest.process_medians))
    if not computes and _has_lower_bound(entry) and share is not None and share < LOWER_BOUND:
        yield Flaw(
            f"{share:.1%} of {_peak(ceiling)} in session {slowest.run_id}",
            f"at least {LOWER_BOUND:.0%} from {format_bytes(LOWER_BOUND_FROM_BYTES)} up",
            "find out what held it up, and record it anew",
        )


def _has_lower_bound(entry: Entry) -> bool:
    """Big enough, on a whole device, and bound by its memory or link: not by arithmetic, nor by the host's pages."""
    assert entry.work is not None
    whole = entry.hardware.partition == "none" and class_of_key(key_of_entry(entry)) == "device"
    moves = (entry.work.operational_intensity or 0.0) < LEAST_ARITHMETIC
    return whole and moves and max(entry.work.payload_bytes, entry.work.traffic_bytes // 2) >= LOWER_BOUND_FROM_BYTES


def _ceiling(entry: Entry, work: Work) -> Ceiling | None:
    """The datasheet's peak for an entry: of its device, or of the links between several; None where it is unknown.

    A roofline that bounds nothing is none here.
    """
    hardware, metric = entry.hardware, entry.metric
    known = product_like(hardware.product, hardware.memory)
    if known is None:
        return None
    if hardware.devices in (None, 1):
        found = product_ceiling(known, work, metric)
    elif rate_suffix(metric) == "busbw_GBps":
        found = collective_ceiling(known, hardware, work, metric, _algorithm(entry), operation_of(entry))
    else:
        found = pair_ceiling(known, hardware, metric)
    return found if found is not None and found.bounds else None


def _algorithm(entry: Entry) -> str:
    """How every session did a collective; empty where they differ, or did not know."""
    told = {session.environment.get("algorithm", "") for session in entry.sessions}
    return next(iter(told)) if len(told) == 1 else ""


def _share(work: Work, ceiling: Ceiling, seconds: float) -> float | None:
    achieved = rate(work, ceiling.metric, seconds)
    return None if achieved is None else achieved / ceiling.value


def _peak(ceiling: Ceiling) -> str:
    return f"the datasheet's peak, {format_ceiling(ceiling)},"


def published_beyond_peak(entry: Entry, family: str = "") -> Iterator[Flaw]:
    """A limit above the peak fails every run, one far below it none; a reference is only pointed at."""
    suffix, ceiling = rate_suffix(entry.metric), published_ceiling(entry, family)
    if ceiling is None or suffix is None:
        return
    least, most = _least_published(entry, ceiling), most_share(ceiling)
    for value in entry.value if isinstance(entry.value, tuple) else (entry.value,):
        share = value * RATE_UNITS[suffix] / ceiling.value if isinstance(value, float | int) else None
        # A range from nothing says no more than "less than".
        if share and not least <= share <= most:
            yield Flaw(
                f"{share:{'.0%' if share >= LEAST_IN_WHOLE else '.2%'}} of {_peak(ceiling)} as published",
                f"{least:.0%} to {most:.0%}" if least else f"at most {most:.0%}",
                "read its source again, its unit first",
                hint=entry.kind == "reference",
            )


def _least_published(entry: Entry, ceiling: Ceiling) -> float:
    """The share that a published rate reaches at least; nothing where it may be slow for a good reason.

    So is what computes, what is small, what the host's pages hold up, a part of a device, and what may cross any link.
    """
    size = entry.parameters.get("size_bytes")
    small = isinstance(size, int) and size < LOWER_BOUND_FROM_BYTES
    pageable = "pageable" in (entry.parameters.get("memory"), *entry.metric.split("_"))
    part = entry.hardware.partition not in (None, "none")
    open_link = entry.hardware.devices not in (None, 1) and entry.hardware.link is None
    if is_arithmetic(ceiling) or small or pageable or part or open_link:
        return 0.0
    return LOWER_BOUND if ceiling.bounds else LEAST_DOUBTFUL
