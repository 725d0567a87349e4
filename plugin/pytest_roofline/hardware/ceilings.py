"""The limits of a product and of links, from datasheets. Also the rates that are beyond belief."""

from collections.abc import Sequence
from dataclasses import replace

from ..core.facts import DeviceFacts, Gpu, HardwareKey
from ..core.records import Ceiling
from ..core.units import MIB, format_flops, format_rate
from ..core.work import RATE_UNITS, Work, rate_suffix
from .keys import is_part
from .lookup import catalogue, product_of
from .specs import Peak, Product

# Datasheet peaks bound what is believable from here up; smaller sizes may sit in a cache.
BOUNDED_FROM_BYTES = 16 * MIB
# No cache makes arithmetic faster, but a clock's step of 0.5 µs may make it look so: at the highest peak, 2250 TFLOP/s,
# this much takes as long.
BOUNDED_FROM_FLOPS = 10**9
# Clocks and counting differ by a percent or two between datasheet and reality.
UPPER_BOUND = 1.02
# A cache is several times as fast as memory, and a measured roofline may be one of few threads. Nothing is this much
# faster than either.
BEYOND_BELIEF = 20
# Vendors rate matrix units at no less than this share of what they do at the highest clock (an H100 NVL: 87 %). What
# is rated at less is another chip, or another architecture, than the data say.
LEAST_RATED = 0.8
# The rated figure of one pair, one way, by the class of the link. Where links go from GPU to GPU their number matters,
# which a key does not hold.
_LINK_PEAKS = {"nvlink-switch": "nvlink_GBps", "xgmi": "xgmi_GBps", "pcie": "pcie_GBps"}
# What one device has in all towards the others, one way.
_DEVICE_PEAKS = {"nvlink-switch": "nvlink_GBps", "nvlink": "nvlink_GBps", "pcie": "pcie_GBps"}
# A rank may keep any share of what it counts.
_UNEVEN = "all_to_all_v"


def datasheet_ceiling(device: DeviceFacts, work: Work, metric: str) -> Ceiling | None:
    """Return the roofline of `metric` from the device's datasheet. None if the product or the peak
    is unknown.

    Traffic is held against the memory's bandwidth; a payload that crosses the host's link against PCIe, one way or two.
    FLOP/s are held against the peak of the type that the metric names, as `bf16_TFLOPS` does; a plain `TFLOPS` names
    none, and has no roofline. A part of a device has none either: what a partition can reach, no datasheet tells.
    """
    product = product_of(device)
    if product is None or is_part(device, product):
        return None
    return product_ceiling(product, work, metric)


def at_generation(link: Ceiling, gpu: Gpu | None) -> Ceiling:
    """Return a link's roofline at the generation that card and host agree on. It has the card's own
    width.

    Each generation of PCIe has twice the rate of the one before. A rate up to the card's own stays believable, since
    virtual machines are known to tell of a slot that they have not.

    Args:
        link: as the card is rated.
        gpu: what the management library tells; None where that is not known.
    """
    if gpu is None or gpu.pcie_generation is None or gpu.pcie_generation_rated is None:
        return link
    behind = gpu.pcie_generation_rated - gpu.pcie_generation
    if behind <= 0:
        return link
    origin = f"{link.origin}, at generation {gpu.pcie_generation} of the card's {gpu.pcie_generation_rated}"
    return replace(
        link, value=link.value / 2**behind, limit=link.limit or link.value, origin=origin
    )


def product_ceiling(product: Product, work: Work, metric: str) -> Ceiling | None:
    """Return the roofline of `metric` on a whole device of a product. See `datasheet_ceiling`."""
    convention = rate_suffix(metric)
    if convention == "traffic_GBps":
        name = "memory_GBps"
    elif convention == "payload_GBps" and work.wire_bytes:
        name = "pcie_GBps"
    elif convention == "TFLOPS":
        name = metric
        if f"{metric.removesuffix('_TFLOPS')}_matrix_TFLOPS" in product.peaks:
            # Libraries multiply in full single precision on the matrix units that have it.
            name = f"{metric.removesuffix('_TFLOPS')}_matrix_TFLOPS"
    else:
        return None
    peak = product.peaks.get(name)
    if peak is None:
        return None
    if name == "pcie_GBps":
        return _of_link(peak, metric)
    # Rooflines of several types stand beside each other, so that of arithmetic keeps the type in its name.
    shown_metric = metric if convention == "TFLOPS" else convention
    ceiling = ceiling_of(peak, shown_metric, RATE_UNITS[convention])
    return (
        replace(ceiling, limit=_at_full_clock(product, name))
        if convention == "TFLOPS" and ceiling.bounds
        else ceiling
    )


def ceiling_of(peak: Peak, metric: str, unit: float, amount: float | None = None) -> Ceiling:
    """Return a peak as a roofline. It says of itself if it bounds nothing.

    Args:
        unit: of the metric, in bytes or FLOP per second.
        amount: in that unit; the peak's own by default.
    """
    origin = peak.source
    if not peak.trusted:
        why = peak.note if not peak.bounds else f"confidence {peak.confidence}"
        origin += f" ({why}; it limits nothing)"
    rate = (peak.value if amount is None else amount) * unit
    return Ceiling(
        metric, rate, "datasheet", origin, confidence=peak.confidence, bounds=peak.trusted
    )


def _at_full_clock(product: Product, name: str) -> float | None:
    """Return the FLOP/s of all units at the highest clock. None unless that is more than they are
    rated at.

    NVIDIA rates matrix units of an H100 at 1.83 GHz, and lets them run at 1.98 GHz where power allows. Where it is more
    than the check allows, units, clock or architecture are not those of this peak.
    """
    architecture = catalogue().architecture(product.architecture)
    flops = (
        architecture.flops_per_clock.get(name.removesuffix("_TFLOPS"))
        if architecture is not None
        else None
    )
    units, clock = product.facts.get("units"), product.facts.get("clock_MHz")
    if flops is None or units is None or clock is None:
        return None
    rated, most = (
        product.peaks[name].value * RATE_UNITS["TFLOPS"],
        units.value * clock.value * 1e6 * flops,
    )
    return most if LEAST_RATED * most <= rated < most else None


def is_arithmetic(ceiling: Ceiling) -> bool:
    """Return whether a roofline is of FLOP/s. Every other one is of bytes per second."""
    return rate_suffix(ceiling.metric) == "TFLOPS"


def format_ceiling(ceiling: Ceiling) -> str:
    """The height of a roofline: `4800 GB/s`, `989 TFLOP/s`."""
    return format_flops(ceiling.value) if is_arithmetic(ceiling) else format_rate(ceiling.value)


def above_peak(
    ceiling: Ceiling | None, work: Work, share: float | None, labels: tuple[str, ...]
) -> str:
    """Return why a rate cannot be true; empty if it can. It is more than 1.02 times a datasheet
    peak that bounds.

    Bytes per second are bounded from 16 MiB up and outside caches, FLOP/s from 1 GFLOP up.
    """
    if ceiling is None or ceiling.source != "datasheet" or not ceiling.bounds or share is None:
        return ""
    if share <= UPPER_BOUND * (ceiling.limit or ceiling.value) / ceiling.value:
        return ""
    if not is_large(work, labels, computes=is_arithmetic(ceiling)):
        return ""
    return (
        f"{share:.0%} of the datasheet's peak ({format_ceiling(ceiling)}): the work was not done, or "
        "was counted wrongly"
    )


def beyond_belief(ceiling: Ceiling, amount: float, seconds: float) -> str:
    """Return why a rate cannot be true, whatever caches there are. It is twenty times a roofline or
    more; else empty.

    Args:
        ceiling: in bytes or FLOP per second.
        amount: bytes or FLOPs of one call.
        seconds: that it takes.
    """
    rate = amount / seconds
    if not ceiling.bounds or rate <= BEYOND_BELIEF * (ceiling.limit or ceiling.value):
        return ""
    rate_text = format_flops(rate) if is_arithmetic(ceiling) else format_rate(rate)
    peak_text = (
        "the datasheet's peak" if ceiling.source == "datasheet" else "the rate measured here"
    )
    return (
        f"{rate_text} is {rate / ceiling.value:,.0f} times {peak_text} ({format_ceiling(ceiling)}); check that `work` "
        "is right and that the function does it"
    )


def device_bounds(device: DeviceFacts) -> list[Ceiling]:
    """Return the datasheet's bounds of a device, for any metric. They are its memory, and its
    fastest arithmetic.
    """
    product = product_of(device)
    if product is None:
        return []
    flops = [
        name for name, peak in product.peaks.items() if name.endswith("_TFLOPS") and peak.trusted
    ]
    peak_names = [("memory_GBps", "traffic_GBps")] if "memory_GBps" in product.peaks else []
    if flops:
        peak_names.append((max(flops, key=lambda name: product.peaks[name].value), "TFLOPS"))
    return [
        ceiling_of(product.peaks[name], metric, RATE_UNITS[metric]) for name, metric in peak_names
    ]


def moved_bytes(work: Work) -> int:
    """Return the most bytes that one call moves. It is a payload, a copy that reads and writes, or
    a collective's size.
    """
    return max(work.payload_bytes, work.traffic_bytes // 2, work.algbw_bytes)


def is_large(work: Work, labels: Sequence[str], *, computes: bool) -> bool:
    """Return whether a peak bounds this work. No clock's step or cache flatters it: FLOP/s from 1
    GFLOP, bytes from 16 MiB.
    """
    if computes:
        return work.flops >= BOUNDED_FROM_FLOPS
    return moved_bytes(work) >= BOUNDED_FROM_BYTES and "cache_resident" not in labels


def link_peak(product: Product | None, link: str | None) -> Peak | None:
    """Return the peak of a copy between two devices, one way. None if no source tells."""
    name = _LINK_PEAKS.get(link or "")
    return product.peaks.get(name) if product is not None and name is not None else None


def link_ceiling(product: Product | None, hardware: HardwareKey, metric: str) -> Ceiling | None:
    """Return the roofline of a copy between two devices, by their link. One way or both; None of
    other work.
    """
    peak = link_peak(product, hardware.link)
    if peak is None or hardware.devices != 2 or rate_suffix(metric) != "payload_GBps":
        return None
    return _of_link(peak, metric)


def _of_link(peak: Peak, metric: str) -> Ceiling:
    """Return a link's peak one way, or both added up. The metric says which."""
    if "bidir" not in metric or "per_dir" in metric:
        return ceiling_of(peak, "payload_GBps", 1e9)
    both_ways = ceiling_of(peak, "payload_GBps", 1e9, amount=2 * peak.value)
    return replace(both_ways, origin=f"both ways added up: {both_ways.origin}")


def collective_ceiling(
    product: Product | None, hardware: HardwareKey, work: Work, metric: str, operation: str = ""
) -> Ceiling | None:
    """Return the roofline of a collective among one node's devices. None of anything else.

    The bus bandwidth is what the links of every device carry in one direction, whoever adds up and copies: its factors
    are those of the least that must be moved (nccl-tests, PERFORMANCE.md). So it is at most what a device's links are
    rated at. Only where the switch itself adds up does an all_reduce need less: algbw (n+1)/n on the links of n devices
    (NVLS), so that its bus bandwidth may be 2(n-1)/(n+1) of their rate.
    """
    ranks = hardware.devices or 0
    if product is None or ranks < 2 or rate_suffix(metric) != "busbw_GBps" or operation == _UNEVEN:
        return None
    links = _links_of_one(product, hardware.link, ranks)
    if links is None:
        return None
    peak, rate, words = links
    # Of all operations only this one has a factor above 1, beyond two ranks.
    everywhere = work.busbw_bytes > work.algbw_bytes
    ceiling = ceiling_of(peak, "busbw_GBps", 1e9, amount=rate)
    if hardware.link != "nvlink-switch" or not everywhere:
        return replace(ceiling, origin=f"{words}: {ceiling.origin}")
    most = 2 * (ranks - 1) / (ranks + 1) * ceiling.value
    return replace(
        ceiling, origin=f"{words}, unless the switch adds up (NVLS): {ceiling.origin}", limit=most
    )


def _links_of_one(product: Product, link: str | None, ranks: int) -> tuple[Peak, float, str] | None:
    """Return what one device sends at most: the peak, GB/s, and words."""
    if link == "xgmi" and (pair := product.peaks.get("xgmi_GBps")) is not None:
        return pair, (ranks - 1) * pair.value, f"{ranks - 1} links of one device, one way"
    name = _DEVICE_PEAKS.get(link or "")
    peak = product.peaks.get(name) if name is not None else None
    return None if peak is None else (peak, peak.value, "the links of one device, one way")
