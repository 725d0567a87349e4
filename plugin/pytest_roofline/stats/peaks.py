"""The verdict on the most memory that one call holds: less is better, and more beyond a tolerance is red.

An allocator counts, so a peak does not vary as a time does: there is no interval and nothing to wait for, and the
comparison is direct. Unchanged code differs by what a library takes as its workspace, and by what is rounded up.
"""

from collections.abc import Iterable
from statistics import median_low

from ..core.keys import Key
from ..core.records import Measurement, PeakJudgement
from ..core.units import MIB, format_memory, format_percent
from .verdicts import Kind, Reference

# As a share of the baseline's peak, either way.
PEAK_TOLERANCE = 0.05
# Never less than this: the block that torch's caching allocator packs small tensors into; of a CPU a page.
BLOCK_BYTES, PAGE_BYTES = 2 * MIB, 4096
NO_PEAK = "the baseline holds no peak yet"


def typical_peak(processes: Iterable[Iterable[Measurement]]) -> int | None:
    """The peak that stands for several processes: the one in the middle, of two the smaller; None where none has one.

    Code that takes more takes it in every process; the largest would make a regression of one odd workspace in twelve
    rounds. Of the attempts of one process the largest counts, so that nobody reruns a test into green.
    """
    known = [[one.peak_bytes for one in attempts if one.peak_bytes is not None] for attempts in processes]
    most = [max(peaks) for peaks in known if peaks]
    return median_low(most) if most else None


def judge_peak(new_bytes: int | None, reference: Reference | None, key: Key) -> PeakJudgement | None:
    """The verdict on a peak; None where there is none on either side.

    Args:
        new_bytes: now; None where nobody asked for it, or the device does not tell.
        reference: what the times are compared with.
        key: of the measurement.
    """
    old_bytes = reference.peak_bytes if reference is not None else None
    if old_bytes is None:
        why = "no baseline" if reference is None else NO_PEAK
        return None if new_bytes is None else PeakJudgement(Kind.NO_BASELINE.value, new_bytes, reason=why)
    if new_bytes is None:
        why = (
            f"the baseline has a peak of {format_memory(old_bytes)} and none was taken; expected peak_bytes=True and a "
            "device that tells, or an entry without a peak: `roofline baseline approve --replace`"
        )
        return PeakJudgement(Kind.INVALID.value, None, old_bytes, reason=why)
    on_cpu = "-cores" in (key.hardware.partition or "")
    allowed_bytes = max(int(PEAK_TOLERANCE * old_bytes), PAGE_BYTES if on_cpu else BLOCK_BYTES)
    kind, why = Kind.PASSED, ""
    if abs(new_bytes - old_bytes) > allowed_bytes:
        kind = Kind.REGRESSED if new_bytes > old_bytes else Kind.IMPROVED
        why = f"{moved_text(old_bytes, new_bytes)}, tolerated {format_memory(allowed_bytes)}"
    return PeakJudgement(kind.value, new_bytes, old_bytes, allowed_bytes, why)


def moved_text(old_bytes: int, new_bytes: int) -> str:
    """`peak memory +10.0 % (1.10 GiB, baseline 1.00 GiB)`; of a baseline of nothing without the share."""
    share = f" {format_percent(new_bytes / old_bytes - 1)}" if old_bytes else ""
    return f"peak memory{share} ({format_memory(new_bytes)}, baseline {format_memory(old_bytes)})"
