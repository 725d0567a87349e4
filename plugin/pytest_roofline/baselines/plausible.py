"""Plausibility of figures, compared with the datasheet's peak and nothing else."""

from collections.abc import Iterable, Sequence

from ..core.directions import is_own_figure
from ..core.entries import Baseline, Entry
from ..core.errors import BadInput, Flaw
from ..core.facts import HardwareKey
from ..core.keys import Key
from ..core.reasons import Reason, ReasonCode
from ..core.records import Ceiling, rate
from ..core.units import MIB, format_flops, format_rate
from ..core.verdicts import Reference
from ..core.work import Work, rate_suffix
from ..hardware import (
    Product,
    catalogue,
    collective_ceiling,
    is_large,
    link_ceiling,
    moved_bytes,
    product_ceiling,
    product_like,
)
from .files import key_of_entry

# A copy of so many bytes or more comes near the peak.
SATURATES_FROM_BYTES = 64 * MIB
# A peak that bounds nothing is still not exceeded by more than this factor. The largest real excess is that of a V100,
# which reaches some hosts over NVLink at 75 GB/s, 4.8 times its 15.75 GB/s of PCIe.
BEYOND_DOUBT = 5.0
# With so many FLOP a byte or more, arithmetic may take most of the time.
LEAST_ARITHMETIC = 1.0
# Rates below or above these shares of the peak are absurd. The lower one holds only for a copy or a product that is
# large enough to saturate the device.
ABSURD = (0.01, 1.10)
# No call takes less than a cycle of the fastest clock, and none is timed for longer than a day.
POSSIBLE_S = (1e-10, 86_400.0)
# A CPU may reach only this share of the lowest peak, for instance where a cgroup limits its memory.
LEAST_OF_A_CPU = 0.1
# A matrix product of so many FLOP, and so many FLOP a byte, saturates the arithmetic units.
LARGE_PRODUCT_FLOPS, LARGE_PRODUCT_INTENSITY = 10**12, 1000.0


def family_of_key(hardware: HardwareKey) -> str | None:
    """Return the family whose file holds this hardware.

    None where the entry leaves its product open.
    """
    if hardware.is_cpu:
        return "cpu"
    product = product_like(hardware.product, None)
    return product.family if product is not None else hardware.product


def absurd(
    key: Key, work: Work, medians_s: Sequence[float], achieved: Iterable[Sequence[str]]
) -> Flaw | None:
    """Return the flaw of times that no machine can have, or None.

    Args:
        medians_s: of the processes.
        achieved: the modes of the processes, which tell whether data stayed in a cache.
    """
    if is_own_figure(key.metric):
        return None
    fastest, slowest = min(medians_s), max(medians_s)
    shortest_s, longest_s = POSSIBLE_S
    if fastest < shortest_s or slowest > longest_s:
        observed = f"processes with {fastest:.3g} to {slowest:.3g} s a call"
        expected = f"{shortest_s:g} to {longest_s:g} s a call"
        return Flaw(observed, expected, "record the entry again")
    roof = _roof(key, work)
    if roof is None:
        return None
    lowest_peak, highest_peak = roof
    least_share, most_share = ABSURD
    computes = rate_suffix(key.metric) == "TFLOPS"
    highest, lowest = (rate(work, key.metric, seconds) or 0.0 for seconds in (fastest, slowest))
    format_value = format_flops if computes else format_rate
    # Small work may stay in a cache, which is faster than the peak of the memory.
    large = is_large(work, [label for mode in achieved for label in mode], computes=computes)
    if large and highest > most_share * highest_peak:
        return Flaw(
            f"{format_value(highest)}, {highest / highest_peak:.0%} of the highest peak that applies",
            f"at most {most_share:.0%}",
            "the work was not done, or was counted wrongly; correct the test, and record the test again",
        )
    if _saturates(key, work) and lowest < least_share * lowest_peak:
        return Flaw(
            f"{format_value(lowest)}, {lowest / lowest_peak:.2%} of the lowest peak that applies",
            f"at least {least_share:.0%} of the peak for work that saturates the device",
            "find out what slowed the test down, and record the test again",
        )
    return None


def absurd_entry(entry: Entry) -> Flaw | None:
    """Return the flaw of a recorded entry's times, or None.

    Published figures have none here: they are no times of a call.
    """
    if entry.kind != "measured":
        return None
    assert entry.work is not None
    return absurd(
        key_of_entry(entry),
        entry.work,
        entry.medians,
        [session.achieved for session in entry.sessions],
    )


def refuse_absurd(proposal: Baseline) -> None:
    """Raise BadInput for a proposal with absurd entries.

    No machine can have their times, or their hardware is not that of the proposal's file.
    """
    for entry in proposal.entries:
        family = family_of_key(entry.hardware)
        if family not in (None, proposal.family):
            raise BadInput(
                f"{entry.label} was measured on {entry.hardware}, of the family {family}, "
                f"but the proposal is for {proposal.family}.json; move the entry to another proposal"
            )
        flaw = absurd_entry(entry)
        if flaw is not None:
            raise BadInput(
                f"{entry.label} has {flaw.observed}; expected {flaw.expected}; {flaw.remedy}"
            )


def distrust_reasons(key: Key, work: Work, reference: Reference | None) -> tuple[Reason, ...]:
    """Return why a reference must not be used for a comparison.

    It is empty where the reference is plausible, or where there is none.
    """
    if reference is None:
        return ()
    flaw = absurd(key, work, reference.medians_s, reference.achieved)
    if flaw is None:
        return ()
    texts = {"observed": flaw.observed, "expected": flaw.expected, "remedy": flaw.remedy}
    return (Reason(ReasonCode.ABSURD_BASELINE, texts={"label": key.label} | texts),)


def _roof(key: Key, work: Work) -> tuple[float, float] | None:
    """Return the lowest and highest peak that may apply, or None.

    They are in bytes or FLOP per second. None where no peak applies to the work.
    """
    hardware, is_cpu = key.hardware, key.hardware.is_cpu
    is_single = hardware.devices in (None, 1)
    product = product_like(hardware.product, hardware.memory)
    if product is not None:
        peak = _peak_of(product, key, work)
        return None if peak is None else (peak.value, _highest_rate(peak))
    # The arithmetic of a CPU may be emulated, and data between its ranks crosses no link, so neither has a peak.
    if not is_single or (is_cpu and rate_suffix(key.metric) != "traffic_GBps"):
        return None
    # An unknown GPU lies within the range of its vendor's products, a CPU within that of all products.
    vendor = vendor_of(hardware.product or "")
    products = [
        candidate
        for candidate in catalogue().products
        if is_cpu or vendor_of(candidate.product) == vendor
    ]
    peaks = [
        peak
        for candidate in products
        if (peak := product_ceiling(candidate, work, key.metric)) is not None
    ]
    if not peaks:
        return None
    # A CPU may be limited to a part of its memory bandwidth.
    lowest = min(peak.value for peak in peaks) * (LEAST_OF_A_CPU if is_cpu else 1.0)
    return lowest, max(_highest_rate(peak) for peak in peaks)


def _peak_of(product: Product, key: Key, work: Work) -> Ceiling | None:
    """Return the peak of a known product.

    It is that of a single device, else of the link between devices.
    """
    if key.hardware.devices in (None, 1):
        return product_ceiling(product, work, key.metric)
    if rate_suffix(key.metric) == "busbw_GBps":
        operation = str(key.parameters.get("operation", key.benchmark))
        return collective_ceiling(product, key.hardware, work, key.metric, operation)
    return link_ceiling(product, key.hardware, key.metric)


def _highest_rate(peak: Ceiling) -> float:
    """Return the highest rate possible under a peak, in its unit.

    It is more than the peak where the peak bounds nothing.
    """
    return (peak.limit or peak.value) * (1.0 if peak.bounds else BEYOND_DOUBT)


def vendor_of(product: str) -> str:
    """Return the vendor of an unknown product.

    It is guessed from the first letters of the name, and is NVIDIA for all other names.
    """
    return "amd" if product.startswith(("mi", "amd")) else "nvidia"


def _saturates(key: Key, work: Work) -> bool:
    """Return True where work must come near the peak on any sound machine.

    That is a large copy by a device, or a large matrix product.
    """
    # A partition of a GPU has only a part of the peak. (A CPU's partition names its cores.)
    if key.hardware.partition not in (None, "none") and not key.hardware.is_cpu:
        return False
    intensity = work.operational_intensity or 0.0
    if rate_suffix(key.metric) == "TFLOPS":
        return work.flops >= LARGE_PRODUCT_FLOPS and intensity >= LARGE_PRODUCT_INTENSITY
    copies = intensity < LEAST_ARITHMETIC and not key.metric.startswith("pageable_")
    return copies and moved_bytes(work) >= SATURATES_FROM_BYTES
