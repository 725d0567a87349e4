"""Floors: the least share of a datasheet's peak that a healthy card reaches, by rule from what others measured.

Of each source the lowest figure of a cell; of those the lowest, less a margin. It is no more than any healthy figure of
the cell, also those whose source cannot be named, and holds when any one source is left out.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from cells import (
    ALL_REDUCE,
    PRODUCTS,
    RESOURCES,
    Figure,
    Resource,
    Target,
    figures,
    is_rocm,
    known,
    link_of,
)
from entries import MADE_BY
from healthy import Healthy, records

from pytest_roofline.core.entries import SHARE, Entry
from pytest_roofline.core.facts import HardwareKey

# What is taken off the lowest figure: programs, drivers and boards differ by this much among healthy machines.
MARGINS = {
    "own kernel": 0.05,
    "copy engine": 0.08,
    # Whether the reader's machine is a virtual one, whose IOMMU costs more, is not known.
    "host link": 0.20,
    "NVLink": 0.10,
    "xGMI": 0.15,
    "GEMM": 0.15,
    "GEMM, ROCm": 0.25,
    "all_reduce": 0.10,
    # No figure of a library's dot product is published: a kernel of a benchmark's own, and five points more.
    "library": 0.10,
    "library, ROCm": 0.20,
}
# Taken off once more: of a single source, of sources that contradict each other, and of the best of several.
MORE = 0.05
# Shares are kept so exactly, and rounded down.
_DIGITS = 4


@dataclass(frozen=True, slots=True)
class Cell:
    """A product and a resource: its figures, and the floor that they make.

    Args:
        peak: the datasheet's, GB/s or TFLOP/s, in what the resource counts; None where no source is known.
        sources: of each source that a floor may rest on, its lowest figure.
        witnesses: every healthy figure, also those on which no floor may rest.
        margin: what is taken off the lowest; None without a floor.
        contested: sources of which one lies below what the others alone would ask for.
        rate: of the floor, in what the resource counts; None without one.
        why: why there is none.
    """

    product: str
    resource: Resource
    peak: float | None
    sources: Mapping[str, Figure]
    witnesses: tuple[Figure, ...]
    margin: float | None = None
    contested: bool = False
    rate: float | None = None
    why: str = ""

    @property
    def share(self) -> float | None:
        """The floor as a share of the peak, rounded down; None without one."""
        if self.rate is None or self.peak is None:
            return None
        return math.floor(self.rate / self.peak * 10**_DIGITS) / 10**_DIGITS

    @property
    def lowest(self) -> Figure:
        """The figure that the floor rests on."""
        return min(self.sources.values(), key=lambda one: one.rate)

    @property
    def typical(self) -> float | None:
        """The median of all healthy figures; None without any."""
        return median(one.rate for one in self.witnesses) if self.witnesses else None


def cells(found: Sequence[Healthy] | None = None) -> list[Cell]:
    """Every cell, with its floor or why it has none."""
    used, _ = figures(list(records() if found is None else found))
    by_cell: dict[tuple[str, str], list[Figure]] = {}
    for one in used:
        by_cell.setdefault((one.product, one.resource.name), []).append(one)
    return [
        cell_of(product, resource, by_cell.get((product, resource.name), []))
        for product in PRODUCTS
        for resource in RESOURCES
    ]


def cell_of(product: str, resource: Resource, used: Sequence[Figure]) -> Cell:
    """One cell by the rule: without figures, or without a peak that has a source, it stays empty."""
    witnesses = tuple(one for one in used if one.record.healthy)
    sources = lowest_of_each(one for one in used if one.record.makes_floors)
    cell = Cell(product, resource, _peak(product, resource), sources, witnesses)
    if cell.peak is None:
        return replace(cell, why=_no_peak(product, resource))
    if not sources:
        return replace(cell, why=_no_figures(used))
    contested = is_contested(sources)
    margin = margin_of(sources.values(), extra=contested)
    rate = cell.lowest.rate * (1 - margin)
    return replace(
        cell, margin=margin, contested=contested, rate=min(rate, *(one.rate for one in witnesses))
    )


def lowest_of_each(used: Iterable[Figure]) -> dict[str, Figure]:
    """The lowest figure of every source, the lowest source first."""
    lowest: dict[str, Figure] = {}
    for one in sorted(used, key=lambda one: one.rate):
        lowest.setdefault(one.record.group, one)
    return lowest


def margin_of(used: Iterable[Figure], *, extra: bool = False) -> float:
    """What is taken off the lowest of these figures, one of each source."""
    used = list(used)
    lowest = min(used, key=lambda one: one.rate)
    more = (len(used) == 1 or extra) + lowest.best_of
    return round(margin_of_method(lowest) + MORE * more, 2)


def margin_of_method(one: Figure) -> float:
    """What is taken off a figure of its method where a second source stands beside it."""
    return MARGINS[_method(one)]


def _method(one: Figure) -> str:
    method = one.resource.method
    if method == "peer link":
        return "xGMI" if link_of(one.product) == "xgmi" else "NVLink"
    return f"{method}, ROCm" if is_rocm(one.product) and f"{method}, ROCm" in MARGINS else method


def is_contested(sources: Mapping[str, Figure]) -> bool:
    """Whether some source lies below the floor that the others alone would make: they are not of one population."""
    return any(
        one.rate < _alone(other for name, other in sources.items() if name != left_out)
        for left_out, one in sources.items()
    )


def _alone(used: Iterable[Figure]) -> float:
    used = list(used)
    return min(one.rate for one in used) * (1 - margin_of(used)) if used else 0.0


def _peak(product: str, resource: Resource) -> float | None:
    peaks, link = known(product).peaks, link_of(product)
    names = [name for name in resource.peaks if name in peaks]
    if resource.devices > 1:
        names = (
            [] if link is None else [{"xgmi": "xgmi_GBps", "nvlink-switch": "nvlink_GBps"}[link]]
        )
    # One that some cards go beyond is reached all the more easily.
    if not names or peaks[names[0]].confidence not in ("high", "medium"):
        return None
    # A device has a link of its own to every other one, where no switch is between them.
    links = resource.devices - 1 if resource is ALL_REDUCE and link == "xgmi" else resource.ways
    return peaks[names[0]].value * links


def _no_peak(product: str, resource: Resource) -> str:
    if resource.devices > 1:
        return "no peak, since how many links join two of them is not known"
    names = [name for name in resource.peaks if name in known(product).peaks]
    return "no source is known for its peak" if names else "its datasheet has no peak of it"


def _no_figures(used: Sequence[Figure]) -> str:
    if not used:
        return "no figure"
    faults = {
        "the source of a figure cannot be named": any(not one.record.citable for one in used),
        "nobody says whether a machine was healthy": any(
            one.record.healthy is None for one in used
        ),
        "a machine was not healthy": any(one.record.healthy is False for one in used),
        "a figure is only read off a plot, or from a digest": any(
            one.record.confidence == "low" for one in used
        ),
    }
    return "; ".join(why for why, is_so in faults.items() if is_so)


def left_out_one_by_one(found: Sequence[Healthy] | None = None) -> list[str]:
    """Healthy figures that a floor would fail, were it made without their source; there must be none.

    Where sources contradict each other, the others alone do not tell what a healthy machine reaches: such a floor has
    the margin of a single source, and is held against all of its figures.
    """
    return [text for cell in cells(found) for text in _failing(cell)]


def _failing(cell: Cell) -> Iterable[str]:
    for one in cell.witnesses:
        rest = {name: other for name, other in cell.sources.items() if name != one.record.group}
        floor = (cell.rate or 0.0) if cell.contested else _alone(rest.values())
        if one.rate < floor:
            yield f"{cell.product}, {cell.resource.name}: {one.rate:g} ({one.record.source}) is below {floor:.4g}"


def entries(found: Sequence[Healthy] | None = None) -> list[tuple[str, Entry]]:
    """The floors as entries, with the family of their file."""
    made = [cell for cell in cells(found) if cell.share is not None]
    return [
        (known(cell.product).family, _entry(cell, target))
        for cell in made
        for target in cell.resource.targets
        if target.rocm in (None, is_rocm(cell.product))
    ]


def _entry(cell: Cell, target: Target) -> Entry:
    return Entry(
        benchmark=target.benchmark,
        name=target.name,
        metric=cell.resource.metric,
        kind="floor",
        hardware=hardware_of(cell),
        parameters=dict(target.parameters),
        provenance={"made_by": MADE_BY, "record": cell.lowest.record.id},
        value=cell.share,
        unit=SHARE,
        source=", ".join(sources_of(cell)),
        note=note_of(cell),
        figures=len(cell.sources),
        from_amount=cell.resource.from_amount,
    )


def hardware_of(cell: Cell) -> HardwareKey:
    """Whole devices of the product; of links those of the class whose peak is known."""
    product, memory = PRODUCTS[cell.product]
    devices = cell.resource.devices
    return HardwareKey(
        product, memory, "none", devices, link_of(cell.product) if devices > 1 else None
    )


def sources_of(cell: Cell) -> list[str]:
    """Whose figures they are, in a few words, the lowest first."""
    return list(dict.fromkeys(short(one.record.source) for one in cell.sources.values()))


def short(source: str) -> str:
    """A repository or a thread, without its path: `NVIDIA/nccl#1264`."""
    text = (
        source.removeprefix("https://github.com/").replace("/issues/", "#").replace("/pull/", "#")
    )
    return text.split(":")[0] if not text.startswith("http") else text


def note_of(cell: Cell) -> str:
    """From which figure, with its setting, and by which margin."""
    assert cell.margin is not None
    record = cell.lowest.record
    contested = "; sources contradict each other" if cell.contested else ""
    return f"{cell.lowest.rate:g} {unit_of(cell)} less {cell.margin:.0%}: {record.size}; {record.setting}{contested}"


def unit_of(cell: Cell) -> str:
    """The unit of a cell's rates."""
    return "TFLOP/s" if "TFLOPS" in cell.resource.metric else "GB/s"
