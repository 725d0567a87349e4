"""What a product can reach at most, from its datasheet, and which rates are beyond belief."""

from dataclasses import replace

from ...core.facts import DeviceFacts, Environment, HardwareKey
from ...core.records import Ceiling
from ...core.units import MIB, format_flops, format_rate
from ...core.work import RATE_UNITS, Work, rate_suffix
from .products import Peak, Product, products

# Datasheet peaks bound what is believable from here up; smaller sizes may sit in a cache.
BOUNDED_FROM_BYTES = 16 * MIB
# No cache makes arithmetic faster, but a clock's step of 0.5 µs may make it look so: at the highest peak, 2250 TFLOP/s,
# this much takes as long.
BOUNDED_FROM_FLOPS = 10**9
# Clocks and counting differ by a percent or two between datasheet and reality.
UPPER_BOUND = 1.02


def datasheet_ceiling(device: DeviceFacts, work: Work, metric: str) -> Ceiling | None:
    """The roofline of `metric` from the device's datasheet; None where the product or the peak is unknown.

    Traffic is held against the memory's bandwidth; a payload that crosses the host's link against PCIe, one way.
    FLOP/s are held against the peak of the type that the metric names, as `bf16_TFLOPS` does; a plain `TFLOPS` names
    none, and has no roofline.
    """
    convention = rate_suffix(metric)
    if convention == "traffic_GBps":
        name = "memory_GBps"
    elif convention == "payload_GBps" and work.wire_bytes:
        name = "pcie_GBps"
    elif convention == "TFLOPS":
        name = metric
    else:
        return None
    known = products().get(device.product)
    peak = known.peaks.get(name) if known is not None else None
    if peak is None:
        return None
    # Rooflines of several types stand beside each other, so that of arithmetic keeps the type in its name.
    shown = metric if convention == "TFLOPS" else convention
    return Ceiling(shown, peak.value * RATE_UNITS[convention], source="datasheet", origin=peak.source)


def rank_ceiling(environment: Environment | None, work: Work, metric: str) -> Ceiling | None:
    """The roofline of what one rank computes: the datasheet's peak of its device; None of bytes, which cross links.

    Args:
        environment: of rank 0, whose device is like every other rank's; None where it is not known.
        work: of one rank.
        metric: `bf16_TFLOPS`.
    """
    if environment is None or rate_suffix(metric) != "TFLOPS":
        return None
    found = datasheet_ceiling(environment.device, work, metric)
    return found and replace(found, origin=f"{found.origin}, one rank's device, for the work of one rank")


def is_arithmetic(ceiling: Ceiling) -> bool:
    """Whether a roofline is of FLOP/s; every other one is of bytes per second."""
    return rate_suffix(ceiling.metric) == "TFLOPS"


def format_ceiling(ceiling: Ceiling) -> str:
    """The height of a roofline: `4800 GB/s`, `989 TFLOP/s`."""
    return format_flops(ceiling.value) if is_arithmetic(ceiling) else format_rate(ceiling.value)


# The rated figure of one pair, one way, by the class of the link. Where links go from GPU to GPU their number matters,
# which a key does not hold.
_LINK_PEAKS = {"nvlink-switch": "nvlink_GBps", "xgmi": "xgmi_GBps", "pcie": "pcie_GBps"}


def link_peak(product: Product | None, link: str | None) -> Peak | None:
    """What a copy from one device to another can reach at most, one way; None where no source tells."""
    name = _LINK_PEAKS.get(link or "")
    return product.peaks.get(name) if product is not None and name is not None else None


def link_ceiling(device: DeviceFacts, hardware: HardwareKey, metric: str) -> Ceiling | None:
    """The roofline of a copy from one device to one other, by their link; None of anything else between devices."""
    peak = link_peak(products().get(device.product), hardware.link)
    one_way = hardware.devices == 2 and rate_suffix(metric) == "payload_GBps" and "bidir" not in metric
    if peak is None or not one_way:
        return None
    return Ceiling(metric="payload_GBps", value=peak.value * 1e9, source="datasheet", origin=peak.source)


def above_peak(ceiling: Ceiling | None, work: Work, share: float | None, labels: tuple[str, ...]) -> str:
    """Why a rate cannot be true: more than 1.02 times a datasheet peak; else empty.

    Bytes per second are bounded from 16 MiB up and outside caches, FLOP/s from 1 GFLOP up.
    """
    if ceiling is None or ceiling.source != "datasheet" or share is None or share <= UPPER_BOUND:
        return ""
    if not (_computes_enough(work) if is_arithmetic(ceiling) else _moves_enough(work, labels)):
        return ""
    return f"{share:.0%} of the datasheet's peak ({format_ceiling(ceiling)}): the work was not done, or not counted"


def _moves_enough(work: Work, labels: tuple[str, ...]) -> bool:
    size_bytes = max(work.payload_bytes, work.traffic_bytes // 2)
    return size_bytes >= BOUNDED_FROM_BYTES and "cache_resident" not in labels


def _computes_enough(work: Work) -> bool:
    return work.flops >= BOUNDED_FROM_FLOPS
