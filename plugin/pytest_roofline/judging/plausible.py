"""Whether figures can be true: held against the datasheet's peak, whose data has a source, and nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..core.entries import Entry
from ..core.records import Ceiling, rate
from ..core.units import MIB, format_bytes
from ..core.work import RATE_UNITS, Work, rate_suffix
from .comparators import class_of_key, key_of_entry
from .hardware import (
    BOUNDED_FROM_BYTES,
    UPPER_BOUND,
    above_peak,
    collective_ceiling,
    format_ceiling,
    is_arithmetic,
    pair_ceiling,
    product_ceiling,
    product_like,
)

# Less than this share of the peak, from 64 MiB up, was something else than a copy or a kernel at work.
LOWER_BOUND = 0.2
LOWER_BOUND_FROM_BYTES = 64 * MIB
# The collective that a switch can do with fewer bytes on the links.
ALL = "all_reduce"
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
        found = collective_ceiling(known, hardware, work, metric, _algorithm(entry), _operation(entry))
    else:
        found = pair_ceiling(known, hardware, metric)
    return found if found is not None and found.bounds else None


def _algorithm(entry: Entry) -> str:
    """How every session did a collective; empty where they differ, or did not know."""
    told = {session.environment.get("algorithm", "") for session in entry.sessions}
    return next(iter(told)) if len(told) == 1 else ""


def _operation(entry: Entry) -> str:
    """The collective, by the names that the tests of this project give it."""
    return entry.benchmark if "operation" not in entry.parameters else str(entry.parameters["operation"])


def _share(work: Work, ceiling: Ceiling, seconds: float) -> float | None:
    achieved = rate(work, ceiling.metric, seconds)
    return None if achieved is None else achieved / ceiling.value


def _peak(ceiling: Ceiling) -> str:
    return f"the datasheet's peak, {format_ceiling(ceiling)},"


def published_beyond_peak(entry: Entry) -> Iterator[Flaw]:
    """A limit above the peak fails every run; a reference is only pointed at, and if it is of bytes also when low."""
    suffix = rate_suffix(entry.metric)
    work = (entry.work or _stand_in(entry, suffix)) if suffix else None
    ceiling = _ceiling(entry, work) if work else None
    if ceiling is None or suffix is None:
        return
    most = UPPER_BOUND * (ceiling.limit or ceiling.value) / ceiling.value
    reference = entry.kind == "reference"
    size = entry.parameters.get("size_bytes")
    small = isinstance(size, int) and size < LOWER_BOUND_FROM_BYTES
    least = LOWER_BOUND if reference and not small and not is_arithmetic(ceiling) else 0.0
    for value in entry.value if isinstance(entry.value, tuple) else (entry.value,):
        share = value * RATE_UNITS[suffix] / ceiling.value if isinstance(value, float | int) else None
        if share is not None and not least <= share <= most:
            yield Flaw(
                f"{share:.0%} of {_peak(ceiling)} as published",
                f"at most {most:.0%}" if is_arithmetic(ceiling) else f"{LOWER_BOUND:.0%} to {most:.0%}",
                "read its source again",
                hint=reference,
            )


def _stand_in(entry: Entry, suffix: str) -> Work | None:
    """Some work of the kind that a published figure without any speaks of; None where it may be of several kinds."""
    if suffix in ("traffic_GBps", "TFLOPS"):
        return Work(read_bytes=BOUNDED_FROM_BYTES)
    if suffix == "busbw_GBps":
        # Of an all_reduce more crosses the bus than its size; of every other collective at most as much.
        return Work(algbw_bytes=BOUNDED_FROM_BYTES, busbw_bytes=BOUNDED_FROM_BYTES * (1 + (_operation(entry) == ALL)))
    # A payload of one device may have crossed the host's link or not, and each has a peak of its own.
    return Work(payload_bytes=BOUNDED_FROM_BYTES) if suffix == "payload_GBps" and entry.hardware.devices == 2 else None
