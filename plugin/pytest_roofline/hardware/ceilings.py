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

# From this size on a datasheet's peak bounds a rate in bytes; smaller data may stay in a cache.
BOUNDED_FROM_BYTES = 16 * MIB
# From this work on a datasheet's peak bounds a rate in FLOP/s. At the highest peak, 2250 TFLOP/s, it takes 0.5 µs,
# which is the step of a clock: a shorter call may look faster than it is.
BOUNDED_FROM_FLOPS = 10**9
# Clocks and counting differ by a percent or two between datasheet and reality.
UPPER_BOUND = 1.02
# A cache is several times as fast as memory, and a measured roofline may be that of a few threads. Nothing is faster
# than either by this factor.
BEYOND_BELIEF = 20
# Vendors rate matrix units at no less than this share of their rate at the highest clock (an H100 NVL: 87 %). With a
# lower rating, the data are of another chip or another architecture.
LEAST_RATED = 0.8
# The peak between two devices, one way, by the class of their link. "nvlink" is missing: there the rate depends on the
# number of links between the two, which a hardware key does not hold.
_LINK_PEAKS = {"nvlink-switch": "nvlink_GBps", "xgmi": "xgmi_GBps", "pcie": "pcie_GBps"}
# The peak from one device to all others together, one way, by the class of their links.
_DEVICE_PEAKS = {"nvlink-switch": "nvlink_GBps", "nvlink": "nvlink_GBps", "pcie": "pcie_GBps"}
# The operation without a roofline: a rank may send itself any share of the bytes that count.
_UNEVEN = "all_to_all_v"


def datasheet_ceiling(device: DeviceFacts, work: Work, metric: str) -> Ceiling | None:
    """Return the roofline of `metric` from the device's datasheet.

    For traffic it is the bandwidth of the memory; for a payload over the link to the host, that of PCIe, one way or
    both. For FLOP/s it is the peak of the type that the metric names, as `bf16_TFLOPS` does. None for a plain
    `TFLOPS`, which names no type; for a part of a device, whose peaks no datasheet gives; and where the product or the
    peak is unknown.
    """
    product = product_of(device)
    if product is None or is_part(device, product):
        return None
    return product_ceiling(product, work, metric)


def at_generation(link: Ceiling, gpu: Gpu | None) -> Ceiling:
    """Return the roofline of a PCIe link as it runs now.

    It is that of the generation that the card and its host use. Each generation of PCIe has twice the rate of the one
    before. The limit of a believable rate stays that of the card, since some virtual machines report a slower slot than
    the card really has.

    Args:
        link: the roofline at the generation of the card.
        gpu: the facts from the management library; None where they are unknown.
    """
    if gpu is None or gpu.pcie_generation is None or gpu.pcie_generation_rated is None:
        return link
    generations_behind = gpu.pcie_generation_rated - gpu.pcie_generation
    if generations_behind <= 0:
        return link
    origin = f"{link.origin}, at PCIe generation {gpu.pcie_generation}, rated {gpu.pcie_generation_rated}"
    return replace(
        link,
        value=link.value / 2**generations_behind,
        limit=link.limit or link.value,
        origin=origin,
    )


def product_ceiling(product: Product, work: Work, metric: str) -> Ceiling | None:
    """Return the roofline of `metric` on a whole device of a product.

    The rules are those of `datasheet_ceiling`. `work` tells whether a payload goes over the link to the host.
    """
    convention = rate_suffix(metric)
    if convention == "traffic_GBps":
        name = "memory_GBps"
    elif convention == "payload_GBps" and work.wire_bytes:
        name = "pcie_GBps"
    elif convention == "TFLOPS":
        name = metric
        if f"{metric.removesuffix('_TFLOPS')}_matrix_TFLOPS" in product.peaks:
            # Libraries use the matrix units for full single precision too, where these support it.
            name = f"{metric.removesuffix('_TFLOPS')}_matrix_TFLOPS"
    else:
        return None
    peak = product.peaks.get(name)
    if peak is None:
        return None
    if name == "pcie_GBps":
        # PCIe carries as much in each direction, so that a copy both ways may reach twice the peak.
        return _of_link(peak, metric)
    # A report shows rooflines of several types side by side, so that of arithmetic is named with its type.
    shown_metric = metric if convention == "TFLOPS" else convention
    ceiling = ceiling_of(peak, shown_metric, RATE_UNITS[convention])
    return (
        replace(ceiling, limit=_at_full_clock(product, name))
        if convention == "TFLOPS" and ceiling.bounds
        else ceiling
    )


def ceiling_of(peak: Peak, metric: str, unit: float, amount: float | None = None) -> Ceiling:
    """Return a datasheet's peak as a roofline.

    Its origin says so if no rate is refused for being above it.

    Args:
        peak: the rated figure, with its source and the confidence in it.
        metric: that the roofline is shown for.
        unit: one unit of the metric, in bytes or FLOP per second.
        amount: the height of the roofline in that unit; by default the value of the peak.
    """
    origin = peak.source
    if not peak.trusted:
        why = peak.note if not peak.bounds else f"confidence {peak.confidence}"
        origin += f" ({why}; not used as a limit)"
    rate = (peak.value if amount is None else amount) * unit
    return Ceiling(
        metric, rate, "datasheet", origin, confidence=peak.confidence, bounds=peak.trusted
    )


def _at_full_clock(product: Product, name: str) -> float | None:
    """Return the FLOP/s of all units at the highest clock.

    They are the most that is possible. `name` is that of the rated peak. NVIDIA rates the
    matrix units of an H100 at 1.83 GHz, and lets them run at 1.98 GHz where power allows. None where the rate is no
    higher than the rated one, or far higher: then units, clock or architecture are not those of this peak.
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
    rated = product.peaks[name].value * RATE_UNITS["TFLOPS"]
    clock_hz = clock.value * 1e6
    at_full_clock = units.value * clock_hz * flops
    # Vendors rate a product somewhat below its highest clock, never far below.
    is_plausible = LEAST_RATED * at_full_clock <= rated < at_full_clock
    return at_full_clock if is_plausible else None


def is_arithmetic(ceiling: Ceiling) -> bool:
    """Return True for a roofline in FLOP/s; all others are in bytes per second."""
    return rate_suffix(ceiling.metric) == "TFLOPS"


def format_ceiling(ceiling: Ceiling) -> str:
    """Return the height of a roofline as text: `4800 GB/s`, `989 TFLOP/s`."""
    return format_flops(ceiling.value) if is_arithmetic(ceiling) else format_rate(ceiling.value)


def above_peak(
    ceiling: Ceiling | None, work: Work, share: float | None, labels: tuple[str, ...]
) -> str:
    """Return why a rate above the datasheet's peak cannot be true; empty if it can.

    A rate cannot be true if it is more than 1.02 times a datasheet's peak that bounds it. Peaks bound bytes per second
    from 16 MiB on and outside of caches, FLOP/s from 1 GFLOP on.

    Args:
        ceiling: the roofline; None where it is unknown.
        work: of one call, whose size decides whether the peak bounds it.
        share: the rate, as a share of the ceiling; None where it has none.
        labels: of the measurement, which tell whether its data stayed in a cache.
    """
    if ceiling is None or ceiling.source != "datasheet" or not ceiling.bounds or share is None:
        return ""
    # `limit` is the highest rate that is possible, where that is above the rated one.
    possible_share = (ceiling.limit or ceiling.value) / ceiling.value
    if share <= UPPER_BOUND * possible_share:
        return ""
    if not is_large(work, labels, computes=is_arithmetic(ceiling)):
        return ""
    return (
        f"{share:.0%} of the datasheet's peak ({format_ceiling(ceiling)}): the work was not done, or "
        "was counted wrongly"
    )


def beyond_belief(ceiling: Ceiling, amount: float, seconds: float) -> str:
    """Return why a rate cannot be true even with a cache; empty if it can.

    A rate cannot be true if it is more than twenty times a roofline.

    Args:
        ceiling: the roofline, in bytes or FLOP per second.
        amount: the bytes or FLOPs of one call.
        seconds: the time of one call.
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
        "is right and that the function does this work"
    )


def device_bounds(device: DeviceFacts) -> list[Ceiling]:
    """Return the datasheet's bounds of a device, for any metric.

    They are the bandwidth of its memory, and its fastest arithmetic, whatever the type. Empty for an unknown product.
    """
    product = product_of(device)
    if product is None:
        return []
    arithmetic_names = [
        name for name, peak in product.peaks.items() if name.endswith("_TFLOPS") and peak.trusted
    ]
    metric_by_peak = {}
    if "memory_GBps" in product.peaks:
        metric_by_peak["memory_GBps"] = "traffic_GBps"
    if arithmetic_names:
        fastest = max(arithmetic_names, key=lambda name: product.peaks[name].value)
        metric_by_peak[fastest] = "TFLOPS"
    return [
        ceiling_of(product.peaks[name], metric, RATE_UNITS[metric])
        for name, metric in metric_by_peak.items()
    ]


def moved_bytes(work: Work) -> int:
    """Return the size of the data that one call moves, in bytes.

    It is the largest of the payload, half of the traffic (a copy reads and writes), and the size of a collective.
    """
    return max(work.payload_bytes, work.traffic_bytes // 2, work.algbw_bytes)


def is_large(work: Work, labels: Sequence[str], *, computes: bool) -> bool:
    """Return True where work is large enough to be bounded by a peak.

    That is 1 GFLOP for FLOP/s (`computes`), and 16 MiB outside of caches for bytes.
    """
    if computes:
        return work.flops >= BOUNDED_FROM_FLOPS
    return moved_bytes(work) >= BOUNDED_FROM_BYTES and "cache_resident" not in labels


def link_peak(product: Product | None, link: str | None) -> Peak | None:
    """Return the peak of a copy between two devices, one way; None if it is unknown."""
    name = _LINK_PEAKS.get(link or "")
    return product.peaks.get(name) if product is not None and name is not None else None


def link_ceiling(product: Product | None, hardware: HardwareKey, metric: str) -> Ceiling | None:
    """Return the roofline of a copy between two devices, one way or both.

    None for other work, or where the peak of their link is unknown.
    """
    peak = link_peak(product, hardware.link)
    if peak is None or hardware.devices != 2 or rate_suffix(metric) != "payload_GBps":
        return None
    return _of_link(peak, metric)


def _of_link(peak: Peak, metric: str) -> Ceiling:
    """Return a link's peak one way, or the sum of both ways; the metric decides."""
    is_one_way = "bidir" not in metric or "per_dir" in metric
    if is_one_way:
        return ceiling_of(peak, "payload_GBps", 1e9)
    both_ways = ceiling_of(peak, "payload_GBps", 1e9, amount=2 * peak.value)
    return replace(both_ways, origin=f"sum of both directions: {both_ways.origin}")


def collective_ceiling(
    product: Product | None, hardware: HardwareKey, work: Work, metric: str, operation: str = ""
) -> Ceiling | None:
    """Return the roofline of a collective among the devices of one node.

    The bus bandwidth is the rate at which the links of each device carry data in one direction, whichever device adds
    and copies: its factors are those of the least data that must be moved (nccl-tests, PERFORMANCE.md). So it is at
    most the rated bandwidth of a device's links. An all_reduce needs less only where the switch itself adds (NVLS):
    algbw (n+1)/n on the links of n devices, so that its bus bandwidth may be 2(n-1)/(n+1) of their rate, which is
    `limit`. None for other metrics, for one device, and where the links are unknown.
    """
    ranks = hardware.devices or 0
    # In `_UNEVEN` a rank may send itself any share of the bytes that count, so no rate is too high.
    if product is None or ranks < 2 or rate_suffix(metric) != "busbw_GBps" or operation == _UNEVEN:
        return None
    links = _links_of_one(product, hardware.link, ranks)
    if links is None:
        return None
    peak, amount, description = links
    # Only an all_reduce of more than two ranks has a larger bus bandwidth than algorithm bandwidth.
    is_all_reduce = work.busbw_bytes > work.algbw_bytes
    ceiling = ceiling_of(peak, "busbw_GBps", 1e9, amount=amount)
    # Only a switch of NVLink can do the sums of an all_reduce itself, so only that may exceed the roofline.
    if hardware.link != "nvlink-switch" or not is_all_reduce:
        return replace(ceiling, origin=f"{description}: {ceiling.origin}")
    limit = 2 * (ranks - 1) / (ranks + 1) * ceiling.value
    return replace(
        ceiling,
        origin=f"{description}, unless the switch does the sums (NVLS): {ceiling.origin}",
        limit=limit,
    )


def _links_of_one(product: Product, link: str | None, ranks: int) -> tuple[Peak, float, str] | None:
    """Return the most that one device sends to all others.

    It goes over its links among so many devices (`ranks`); None if it is unknown. It is given as the peak behind it,
    the rate in GB/s, and a description.
    """
    if link == "xgmi" and (pair := product.peaks.get("xgmi_GBps")) is not None:
        return pair, (ranks - 1) * pair.value, f"{ranks - 1} links of one device, one way"
    name = _DEVICE_PEAKS.get(link or "")
    peak = product.peaks.get(name) if name is not None else None
    return None if peak is None else (peak, peak.value, "the links of one device, one way")
