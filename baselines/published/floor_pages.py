"""The tables of docs/results/floors.md: each floor with what it rests on and notices; cells without one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from cells import (
    COPY,
    H2D,
    ONE_WAY,
    PRODUCTS,
    RANKS,
    link_of,
)
from entries import Account
from floors import Cell, cells, entries, margin_of_method, sources_of, unit_of
from pages import NOTHING, between, row

from pytest_roofline.core.entries import Entry
from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.keys import Scalar
from roofline_kernels import memcpy, peer_copy, stream
from roofline_kernels.work import STREAM, stream_work

# What a time must lie beyond a floor to be red 80 times in 100, as a share: simulated by `benchmarks/day_one.py`.
STATISTICS = 0.022
# A floor that notices less than this wants another figure.
WANTED = 0.15
# Figures that lie so near the lowest agree with it.
_ALIKE = 0.03
# The products of which the page tells how many tests gate on the first day.
COUNTED = ("h100-sxm5-80gb", "a100-sxm4-80gb", "a100-sxm4-40gb")
# The size of the peer copies' matrix.
_MATRIX_BYTES = 2**29


@dataclass(frozen=True, slots=True)
class Case:
    """Tests of the quick tier that are alike: how many, of what, over how much."""

    benchmark: str
    parameters: Mapping[str, Scalar]
    amount: int
    count: int = 1
    hardware: HardwareKey = field(default_factory=HardwareKey)


def filled(text: str, found: Account) -> str:
    """The page with its tables made anew between their markers.

    Raises:
        BadFile: a marker is missing.
    """
    made = cells()
    tables = {"floors": floor_table(made), "empty": empty_table(made), "share": share_table(found)}
    tables["conclusion"] = iter([conclusion(made)])
    return between(text, {**tables, "read": read_lines(made)})


def conclusion(made: Sequence[Cell]) -> str:
    """Return the sentence that the page begins with."""
    floors = [cell for cell in made if cell.share is not None]
    slowdowns = [slowdown for cell in floors if (slowdown := red_from(cell)) is not None]
    products = len({cell.product for cell in floors})
    return (
        f"{len(floors)} floors hold {products} products; by the floor, a call is red once it takes "
        f"{min(slowdowns):.0%} to {max(slowdowns):.0%} longer than is typical of healthy cards."
    )


def floor_table(made: Sequence[Cell]) -> Iterator[str]:
    """One line a floor."""
    heads = "product | resource | floor | of the peak | figures | rests on, lowest first | red from"
    yield f"| {heads} | the figure that would mend it |"
    yield "|---|---|---:|---:|---:|---|---:|---|"
    for cell in made:
        if cell.share is None or cell.peak is None:
            continue
        slowdown = red_from(cell)
        yield row(
            _product(cell),
            cell.resource.name,
            f"{cell.share * cell.peak:.4g} {unit_of(cell)}",
            f"{cell.share:.1%}",
            str(len(cell.sources)),
            ", ".join(sources_of(cell)),
            NOTHING if slowdown is None else f"{slowdown:.0%}",
            _mending(cell) if slowdown is not None and slowdown > WANTED else "",
        )


def red_from(cell: Cell) -> float | None:
    """How much slower than typical a card is from which the floor is missed: 0.2 is a fifth more time."""
    if cell.share is None or cell.peak is None or cell.typical is None:
        return None
    return cell.typical / (cell.share * cell.peak) - 1 + STATISTICS


def _mending(cell: Cell) -> str:
    """Which figure would make a floor notice more, and what its margin leaves even then."""
    first, *others = sources_of(cell)
    margin = margin_of_method(cell.lowest)
    left = 1 / (1 - margin) - 1
    stays = f"; the margin leaves {left:.0%}" if left > WANTED else ""
    best = " that is not the best of several" if cell.lowest.best_of else ""
    if cell.contested:
        return f"one that tells who is right: {first} has {cell.lowest.rate:.4g}, {', '.join(others)} more{stays}"
    if len(cell.sources) == 1:
        return f"one of a second source{best}{stays}"
    if cell.lowest.rate * (1 + _ALIKE) >= (cell.typical or 0) and stays:
        return f"none: its sources agree{stays}"
    return f"one that tells why {first} lies lowest ({cell.lowest.rate:.4g}){stays}"


def empty_table(made: Sequence[Cell]) -> Iterator[str]:
    """The cells without a floor, by product and reason."""
    yield "| product | stays empty | why |"
    yield "|---|---|---|"
    empty = [cell for cell in made if cell.share is None]
    for product, of_product in groupby(empty, key=_product):
        by_reason: dict[str, list[str]] = {}
        for cell in of_product:
            by_reason.setdefault(cell.why, []).append(cell.resource.name)
        for why, names in by_reason.items():
            yield row(product, "; ".join(names), why)


def share_table(found: Account) -> Iterator[str]:
    """How many tests of the quick tier gate on the first day, with eight GPUs and with one."""
    yield f"| product | on one GPU | with {RANKS} GPUs |"
    yield "|---|---:|---:|"
    for product in COUNTED:
        yield row(product, *(_share(*gating(product, found, gpus)) for gpus in (1, RANKS)))


def _share(gate: int, of: int) -> str:
    return f"{gate} of {of} ({gate / of:.0%})"


def gating(product: str, found: Account, gpus: int) -> tuple[int, int]:
    """How many of the quick tier's tests at saturating sizes a floor or a limit holds, and how many there are.

    Counted are those of device memory, of the host's link from pinned memory, and of copies between two GPUs.
    """
    limits = [entry for _, entry in entries()] + [
        one.entry for one in found.entries if one.entry.gates
    ]
    all_cases = list(quick_cases(product, gpus))
    gate = sum(one.count for one in all_cases if any(_holds(entry, one) for entry in limits))
    return gate, sum(one.count for one in all_cases)


def _holds(entry: Entry, case: Case) -> bool:
    mine = entry.benchmark == case.benchmark and entry.hardware.covers(case.hardware)
    return mine and entry.agrees_with(case.parameters) and case.amount >= (entry.from_amount or 0)


def quick_cases(product: str, gpus: int) -> Iterator[Case]:
    """The tests of the quick tier at saturating sizes on a node with so many GPUs of a product."""
    alone = HardwareKey(*PRODUCTS[product], "none", 1, "none")
    for size in memcpy.DECADE_SIZES_BYTES:
        if 2 * size >= COPY.from_amount:
            for name in ("memcpy_d2d", "memcpy_d2d_triton"):
                yield Case(name, {"size_bytes": size}, 2 * size, hardware=alone)
        if size >= H2D.from_amount:
            for name in ("memcpy_h2d", "memcpy_d2h"):
                yield Case(name, {"size_bytes": size, "memory": "pinned"}, size, hardware=alone)
    for name, elements in (("stream", stream.ELEMENTS), ("stream_large", stream.LARGE_ELEMENTS)):
        for operation in STREAM:
            work = stream_work(operation, elements, 8)
            yield Case(
                name,
                {"operation": operation},
                work["read_bytes"] + work["write_bytes"],
                hardware=alone,
            )
    pairs = len(peer_copy.ordered_pairs(gpus)) if gpus > 1 else 0
    pair = HardwareKey(*PRODUCTS[product], "none", 2, link_of(product))
    for size in memcpy.DECADE_SIZES_BYTES:
        if pairs and size >= ONE_WAY.from_amount:
            # The whole matrix at one size; at others the first pair of each class of link, of which there is one.
            count = pairs if size == _MATRIX_BYTES else 1
            yield Case("peer_copy_one_way", {"size_bytes": size}, size, count, pair)
            yield Case(
                "peer_copy_both_ways", {"size_bytes": size}, 2 * size, max(1, count // 2), pair
            )


def read_lines(made: Sequence[Cell]) -> Iterator[str]:
    """Which sources were read again before floors were made of them, and which were not."""
    used = [one.record for cell in made if cell.share is not None for one in cell.sources.values()]
    for said, again in (
        ("Read again", True),
        ("Taken as the surveys have them, not read again", False),
    ):
        names = sorted(
            {record.source for record in used if record.read_again is again}, key=str.lower
        )
        yield f"* {said}:"
        yield from (f"  * {name}" for name in names)


def _product(cell: Cell) -> str:
    return " ".join(PRODUCTS[cell.product])
