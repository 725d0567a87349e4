"""What several devices can reach at most over their links: a copy between two, a collective among all of a node."""

from dataclasses import replace

from ...core.facts import DeviceFacts, HardwareKey
from ...core.records import Ceiling
from ...core.work import Work, rate_suffix
from .ceilings import ceiling_of
from .products import product_of
from .rated import Peak, Product

# The rated figure of one pair, one way, by the class of the link. Where links go from GPU to GPU their number matters,
# which a key does not hold.
_LINK_PEAKS = {"nvlink-switch": "nvlink_GBps", "xgmi": "xgmi_GBps", "pcie": "pcie_GBps"}
# What one device has in all towards the others, one way.
_DEVICE_PEAKS = {"nvlink-switch": "nvlink_GBps", "nvlink": "nvlink_GBps", "pcie": "pcie_GBps"}
# What moves every byte from rank to rank. NVLS and kernels for symmetric memory let the switch add up and copy.
_BY_RANKS = ("RING", "TREE")
# A rank may keep any share of what it counts.
_UNEVEN = "all_to_all_v"


def link_peak(product: Product | None, link: str | None) -> Peak | None:
    """What a copy from one device to another can reach at most, one way; None where no source tells."""
    name = _LINK_PEAKS.get(link or "")
    return product.peaks.get(name) if product is not None and name is not None else None


def link_ceiling(device: DeviceFacts, hardware: HardwareKey, metric: str) -> Ceiling | None:
    """The roofline of a copy between two devices, one way or both, by their link; None of anything else."""
    return pair_ceiling(product_of(device), hardware, metric)


def pair_ceiling(known: Product | None, hardware: HardwareKey, metric: str) -> Ceiling | None:
    """The same by the product of both devices."""
    peak = link_peak(known, hardware.link)
    if peak is None or hardware.devices != 2 or rate_suffix(metric) != "payload_GBps":
        return None
    if "bidir" not in metric:
        return ceiling_of(peak, "payload_GBps", 1e9)
    both = ceiling_of(peak, "payload_GBps", 1e9, value=2 * peak.value)
    return replace(both, origin=f"both ways added up: {both.origin}")


def collective_ceiling(
    known: Product | None, hardware: HardwareKey, work: Work, metric: str, algorithm: str = "", operation: str = ""
) -> Ceiling | None:
    """The roofline of a collective among the devices of one node; None of anything else.

    The bus bandwidth is what the links of every device carry in one direction, whoever adds up and copies: its factors
    are those of the least that must be moved (nccl-tests, PERFORMANCE.md). So it is at most what a device's links are
    rated at. Only where the switch itself adds up does an all_reduce need less: algbw (n+1)/n on the links of n devices
    (NVLS), so that its bus bandwidth may be 2(n-1)/(n+1) of their rate.

    Args:
        known: the product of every device.
        work: of the whole collective.
        metric: `busbw_GBps`.
        algorithm: as the library tells it, `RING`; empty is unknown, so that the higher rate may be true.
        operation: as the caller names it; empty is unknown.
    """
    ranks = hardware.devices or 0
    if known is None or ranks < 2 or rate_suffix(metric) != "busbw_GBps" or operation == _UNEVEN:
        return None
    found = _links_of_one(known, hardware.link, ranks)
    if found is None:
        return None
    peak, rate, said = found
    # Of all operations only this one has a factor above 1, beyond two ranks.
    everywhere = work.busbw_bytes > work.algbw_bytes
    ceiling = ceiling_of(peak, "busbw_GBps", 1e9, value=rate)
    if hardware.link != "nvlink-switch" or not everywhere or algorithm in _BY_RANKS:
        return replace(ceiling, origin=f"{said}: {ceiling.origin}")
    most = 2 * (ranks - 1) / (ranks + 1) * ceiling.value
    if not algorithm:
        return replace(ceiling, origin=f"{said}, unless the switch adds up (NVLS): {ceiling.origin}", limit=most)
    return replace(
        ceiling, value=most, origin=f"{said}, of which {algorithm} needs (n+1)/n of the size: {ceiling.origin}"
    )


def _links_of_one(known: Product, link: str | None, ranks: int) -> tuple[Peak, float, str] | None:
    """What one device sends at most to the others: whose peak, GB/s, and in words."""
    if link == "xgmi" and (pair := known.peaks.get("xgmi_GBps")) is not None:
        return pair, (ranks - 1) * pair.value, f"{ranks - 1} links of one device, one way"
    name = _DEVICE_PEAKS.get(link or "")
    peak = known.peaks.get(name) if name is not None else None
    return None if peak is None else (peak, peak.value, "the links of one device, one way")
