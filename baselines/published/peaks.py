"""What a published figure can be at most: by the datasheets of every product, and every link, that it may be of."""

from collections.abc import Iterator
from dataclasses import replace

from pytest_roofline.baselines.plausible import BEYOND_DOUBT
from pytest_roofline.core.entries import Entry
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.work import Work, rate_suffix
from pytest_roofline.hardware import (
    BOUNDED_FROM_BYTES,
    UPPER_BOUND,
    Product,
    catalogue,
    collective_ceiling,
    product_ceiling,
)
from pytest_roofline.hardware.ceilings import ceiling_of

HOST_LINK, BOTH_WAYS = ("memcpy_h2d", "memcpy_d2h"), "memcpy_both_ways"
# The collective that a switch can do with fewer bytes on the links.
ALL = "all_reduce"
# A rank may keep any share of what it counts.
UNEVEN = "all_to_all_v"
# Beyond a node a network takes part, which no datasheet of a device rates.
NODE = 8
_BY_LINK = {
    "nvlink-switch": "nvlink_GBps",
    "nvlink": "nvlink_GBps",
    "xgmi": "xgmi_GBps",
    "pcie": "pcie_GBps",
    "staged": "pcie_GBps",
}


def published_ceiling(entry: Entry, family: str = "") -> Ceiling | None:
    """The highest peak that a published rate can be held against; None where no datasheet says one.

    Of an open variant that of the fastest, of an open link that of the fastest, so that nothing is doubted that could
    be true. A peak that is not to be trusted is one here too: see `most_share`.

    Args:
        family: of the file, for an entry that leaves its product open.
    """
    found = [
        ceiling
        for product in _products(entry.hardware, family)
        for ceiling in _ceilings(entry, product)
    ]
    return max(found, key=lambda ceiling: most_share(ceiling) * ceiling.value, default=None)


def most_share(ceiling: Ceiling) -> float:
    """The largest share of a peak that may be true: 1.02, more where a clock or a switch allows it; 5 if doubtful."""
    factor = UPPER_BOUND if ceiling.bounds else BEYOND_DOUBT
    return factor * (ceiling.limit or ceiling.value) / ceiling.value


def _products(hardware: HardwareKey, family: str) -> Iterator[Product]:
    for product in catalogue().products:
        mine = (
            product.family == family
            if hardware.product is None
            else product.product == hardware.product
        )
        if mine and hardware.memory in (None, product.memory):
            yield product


def _ceilings(entry: Entry, product: Product) -> Iterator[Ceiling]:
    suffix, devices = rate_suffix(entry.metric), entry.hardware.devices
    if suffix in ("busbw_GBps", "algbw_GBps", "wirebw_GBps"):
        yield from _of_collective(entry, product, suffix)
    elif suffix == "payload_GBps" and devices == 2:
        yield from _of_pair(entry, product)
    elif devices in (None, 1) and (work := entry.work or _work_of_one(entry, suffix)) is not None:
        found = product_ceiling(product, work, entry.metric)
        if found is not None:
            yield found


def _work_of_one(entry: Entry, suffix: str | None) -> Work | None:
    """Some work of the kind that a published figure of one device speaks of; None where it may be of several kinds."""
    if suffix in ("traffic_GBps", "TFLOPS"):
        return Work(read_bytes=BOUNDED_FROM_BYTES)
    if suffix == "payload_GBps" and entry.benchmark in HOST_LINK:
        return Work(payload_bytes=BOUNDED_FROM_BYTES, wire_bytes=BOUNDED_FROM_BYTES)
    if suffix == "payload_GBps" and entry.benchmark == BOTH_WAYS:
        # Each way has a wire of its own.
        return Work(payload_bytes=2 * BOUNDED_FROM_BYTES, wire_bytes=BOUNDED_FROM_BYTES)
    return None


def _of_pair(entry: Entry, product: Product) -> Iterator[Ceiling]:
    """Of a copy between two devices, or of both ways added up: at most what all links of one device carry."""
    ways = 2 if "bidir" in entry.metric else 1
    for name in dict.fromkeys(_BY_LINK[link] for link in _links(entry, product)):
        if peak := product.peaks.get(name):
            yield ceiling_of(peak, "payload_GBps", 1e9, amount=ways * peak.value)


def _links(entry: Entry, product: Product) -> tuple[str, ...]:
    """The classes of link that an entry may be of; none where the data do not tell how many join two devices."""
    link = entry.hardware.link
    if link is not None:
        return (link,) if link in _BY_LINK else ()
    uncounted = "xgmi_link_GBps" in product.peaks and "xgmi_GBps" not in product.peaks
    return () if uncounted else ("nvlink-switch", "xgmi", "pcie")


def _of_collective(entry: Entry, product: Product, suffix: str) -> Iterator[Ceiling]:
    """Of a collective within one node: what its links carry, and in an all_reduce what a switch makes of that."""
    operation, ranks = operation_of(entry), entry.hardware.devices or 0
    if not 2 <= ranks <= NODE or operation == UNEVEN:
        return
    # What crosses a wire is no more than the wire carries, whoever adds up.
    factor = _factor(operation, ranks) if suffix != "wirebw_GBps" else 1.0
    size = BOUNDED_FROM_BYTES * ranks
    work = Work(algbw_bytes=size, busbw_bytes=round(size * factor))
    scale = factor if suffix == "algbw_GBps" else 1.0
    for link in _links(entry, product):
        one = collective_ceiling(
            product, replace(entry.hardware, link=link), work, "busbw_GBps", operation
        )
        if one is not None:
            limit = None if one.limit is None else one.limit / scale
            yield replace(one, metric=suffix, value=one.value / scale, limit=limit)


def operation_of(entry: Entry) -> str:
    """The collective, by the names that the tests of this project give it."""
    return (
        entry.benchmark
        if "operation" not in entry.parameters
        else str(entry.parameters["operation"])
    )


def _factor(operation: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth (nccl-tests, PERFORMANCE.md)."""
    if operation == ALL:
        return 2 * (ranks - 1) / ranks
    return 1.0 if operation in ("broadcast", "reduce") else (ranks - 1) / ranks
