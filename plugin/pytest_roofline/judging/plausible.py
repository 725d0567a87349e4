"""Whether figures can be true: held against the datasheet's peak, whose data has a source, and nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..core.entries import Entry
from ..core.facts import DeviceFacts, HardwareKey
from ..core.records import Ceiling, rate
from ..core.units import MIB, format_bytes
from ..core.work import RATE_UNITS, Work, rate_suffix
from .comparators import class_of_key, key_of_entry
from .hardware import (
    BOUNDED_FROM_BYTES,
    UPPER_BOUND,
    above_peak,
    datasheet_ceiling,
    format_ceiling,
    is_arithmetic,
    products,
)

# Less than this share of the peak, from 64 MiB up, was something else than a copy or a kernel at work.
LOWER_BOUND = 0.2
LOWER_BOUND_FROM_BYTES = 64 * MIB
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
    ceiling = _ceiling(entry.hardware, entry.work, entry.metric)
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
            f"at most {UPPER_BOUND:.0%}",
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


def _ceiling(hardware: HardwareKey, work: Work, metric: str) -> Ceiling | None:
    """The datasheet's peak for an entry on one device; None where the product or the peak is unknown."""
    names = (
        name
        for name, known in products().items()
        if known.product == hardware.product and hardware.memory in (None, known.memory)
    )
    name = next(names, None)
    if name is None or hardware.devices not in (None, 1):
        return None
    return datasheet_ceiling(DeviceFacts("accelerator", name), work, metric)


def _share(work: Work, ceiling: Ceiling, seconds: float) -> float | None:
    achieved = rate(work, ceiling.metric, seconds)
    return None if achieved is None else achieved / ceiling.value


def _peak(ceiling: Ceiling) -> str:
    return f"the datasheet's peak, {format_ceiling(ceiling)},"


def published_beyond_peak(entry: Entry) -> Iterator[Flaw]:
    """A limit above the peak fails every run; a reference is only pointed at, and if it is of bytes also when low."""
    suffix = rate_suffix(entry.metric)
    # Without its work a payload may have crossed a link or not, and each has a peak of its own.
    known = suffix in ("traffic_GBps", "TFLOPS")
    work = entry.work or (Work(read_bytes=BOUNDED_FROM_BYTES) if known else None)
    ceiling = _ceiling(entry.hardware, work, entry.metric) if work and suffix else None
    if ceiling is None or suffix is None:
        return
    reference = entry.kind == "reference"
    size = entry.parameters.get("size_bytes")
    small = isinstance(size, int) and size < LOWER_BOUND_FROM_BYTES
    least = LOWER_BOUND if reference and not small and not is_arithmetic(ceiling) else 0.0
    for value in entry.value if isinstance(entry.value, tuple) else (entry.value,):
        share = value * RATE_UNITS[suffix] / ceiling.value if isinstance(value, float | int) else None
        if share is not None and not least <= share <= UPPER_BOUND:
            yield Flaw(
                f"{share:.0%} of {_peak(ceiling)} as published",
                f"at most {UPPER_BOUND:.0%}" if is_arithmetic(ceiling) else f"{LOWER_BOUND:.0%} to {UPPER_BOUND:.0%}",
                "read its source again",
                hint=reference,
            )
