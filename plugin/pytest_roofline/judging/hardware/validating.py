"""Whether data of hardware can be true: names, sources and fields here, rated figures in `rates.py`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...core.errors import BadInput
from ...core.units import printable
from ..storage import check_name
from .mistakes import Mistake
from .rated import LEAST_SHARE, Architecture, Catalogue, LinkType, MemoryType, Name, Need, Peak, Product
from .rates import arithmetic, chip, links, memory

PEAKS = (
    "memory_GBps", "pcie_GBps", "nvlinks", "nvlink_GBps", "xgmi_GBps", "xgmi_link_GBps", "xgmi_total_GBps",
    "bf16_TFLOPS", "fp16_TFLOPS", "tf32_TFLOPS", "fp8_TFLOPS", "fp32_TFLOPS", "fp32_matrix_TFLOPS",
)  # fmt: skip
FACTS = (
    "units", "clock_MHz", "memory_GB", "memory_bus_bits", "memory_Gbps", "l2_MiB", "llc_MiB", "pcie_lanes",
    "nvlink_ports", "xgmi_ports",
)  # fmt: skip
COUNTS = ("nvlinks", "units", "memory_bus_bits", "pcie_lanes", "nvlink_ports", "xgmi_ports")
Type = Architecture | MemoryType | LinkType


def mistakes(own: Catalogue, base: Catalogue | None = None) -> list[Mistake]:
    """Everything in a file that cannot be, and what could not be checked for want of data.

    Args:
        own: the file.
        base: what it adds to, whose architectures, memories and links it may use.
    """
    known = own.over(base) if base is not None else own
    found = [*_types(own), *_hidden_types(own, base or own), *_shared_names(own.products, known.products)]
    for product in own.products:
        found += _product(product, known)
    return found


def without_unchecked_bounds(own: Catalogue, base: Catalogue) -> Catalogue:
    """The file, where peaks that could not be checked for want of data are shown and bound nothing."""
    known = own.over(base)
    return replace(own, products=tuple(_unbound(product, known) for product in own.products))


def _unbound(product: Product, known: Catalogue) -> Product:
    names = {name for mistake in _product(product, known) for name in mistake.unchecked}
    note = "not checked for want of data, see `roofline hardware check`"
    return replace(
        product,
        peaks={
            name: replace(peak, bounds=False, note=note) if name in names and peak.bounds else peak
            for name, peak in product.peaks.items()
        },
    )


def _types(own: Catalogue) -> Iterator[Mistake]:
    for what, rows in (
        ("architectures", own.architectures), ("memory_types", own.memory_types), ("links", own.links)
    ):  # fmt: skip
        for name, count in Counter(row.name for row in rows).items():
            if count > 1:
                yield Mistake(f"{what} {name}", f"there {count} times", "each name once")
        for row in rows:
            if not row.source.strip():
                yield Mistake(f"{what} {row.name} source", "empty", "who says so")
    for chip_of in own.architectures:
        figures = {**chip_of.flops_per_clock, "most_units": chip_of.most_units, "most_l2_MiB": chip_of.most_l2_MiB}
        figures |= {} if chip_of.llc_MiB is None else {"llc_MiB": chip_of.llc_MiB}
        yield from _above_zero(f"architectures {chip_of.name}", figures)
    for kind in own.memory_types:
        figures = {"most_Gbps": kind.most_Gbps, "part_bits": kind.part_bits, "least_GB": kind.least_GB}
        yield from _above_zero(f"memory_types {kind.name}", figures)
        if kind.most_GB < kind.least_GB:
            yield Mistake(f"memory_types {kind.name} most_GB", f"{kind.most_GB:g}", f"{kind.least_GB:g} or more")
    for link in own.links:
        yield from _above_zero(f"links {link.name}", {"GBps": link.GBps})


def _hidden_types(own: Catalogue, base: Catalogue) -> Iterator[Mistake]:
    """Types that hide others with other figures, from all of the products that are made of these."""
    pairs: tuple[tuple[str, Sequence[Type], Sequence[Type]], ...] = (
        ("architectures", own.architectures, base.architectures),
        ("memory_types", own.memory_types, base.memory_types),
        ("links", own.links, base.links),
    )
    for what, mine, theirs in pairs:
        known = {row.name: row for row in theirs}
        for row in mine:
            other = known.get(row.name)
            if other is not None and replace(row, source=other.source, confidence=other.confidence) != other:
                expected = f"a name of its own, such as {row.name}-reduced, unless what is known of it is wrong"
                yield Mistake(f"{what} {row.name}", "other than what is known by that name", expected, hint=True)


def _above_zero(where: str, figures: dict[str, float]) -> Iterator[Mistake]:
    for name, value in figures.items():
        if not value > 0:
            yield Mistake(f"{where} {name}", f"{value!r}", "a number above zero")


def _shared_names(own: Sequence[Product], known: Sequence[Product]) -> Iterator[Mistake]:
    """Products under one key, or under one name that nothing tells apart; of all that are known only what is their own.

    Args:
        own: of the file.
        known: these, and then all others that they stand beside.
    """
    for key, count in Counter(product.key for product in own).items():
        if count > 1:
            yield Mistake(f"product {' '.join(key)}", f"there {count} times", "each product and memory once")
    called: dict[str, list[tuple[Product, Name]]] = {}
    for product in known:
        for name in product.names:
            called.setdefault(name.name, []).append((product, name))
    for text in dict.fromkeys(name.name for product in own for name in product.names):
        owners = called[text]
        if len(owners) > 1 and not all(name.needs for _, name in owners):
            keys = " and of ".join(" ".join(product.key) for product, _ in owners)
            yield Mistake(f"name {text!r}", f"that of {keys}", "one; or `needs` in each, which tell them apart")
    for index, first in enumerate(own):
        for second in known[index + 1 :]:
            yield from _alike(first, second)


def _alike(first: Product, second: Product) -> Iterator[Mistake]:
    theirs = {name.name: name for name in second.names if name.needs}
    for name in first.names:
        other = theirs.get(name.name)
        if name.needs and other is not None and not _differ(first, second, {*name.needs} & {*other.needs}):
            yield Mistake(
                f"name {name.name!r}",
                f"that of {' '.join(first.key)} and of {' '.join(second.key)}, alike in {', '.join(name.needs)}",
                "`needs` in which they differ",
            )


def _differ(first: Product, second: Product, needs: set[Need]) -> bool:
    units = [product.facts["units"].value for product in (first, second) if "units" in product.facts]
    mine, theirs = first.memory_bytes or 0.0, second.memory_bytes or 0.0
    return (
        ("architecture" in needs and first.architecture.split("-")[0] != second.architecture.split("-")[0])
        or ("units" in needs and len(set(units)) == 2)
        or ("memory" in needs and min(mine, theirs) <= LEAST_SHARE * max(mine, theirs))
    )


def _product(product: Product, known: Catalogue) -> Iterator[Mistake]:
    where = f"{product.product} {product.memory}"
    yield from _identity(product, where)
    for what, allowed in (("peaks", PEAKS), ("facts", FACTS)):
        for name, figure in getattr(product, what).items():
            yield from _figure(f"{where} {what}.{name}", name, figure, allowed)
    architecture = known.architecture(product.architecture)
    if architecture is None:
        expected = f"one of {', '.join(one.name for one in known.architectures)}, or an entry in `architectures`"
        yield Mistake(f"{where} architecture", repr(product.architecture), expected)
    else:
        yield from chip(product, architecture, where)
        yield from arithmetic(product, architecture, where)
    yield from memory(product, known, where)
    yield from links(product, known, where)


def _identity(product: Product, where: str) -> Iterator[Mistake]:
    for what in ("family", "product"):
        text = getattr(product, what)
        try:
            check_name(text, what)
        except BadInput:
            yield Mistake(f"{where} {what}", repr(text), "letters, digits and ._+-, as in a file name")
    if product.memory_bytes is None:
        yield Mistake(f"{where} memory", repr(product.memory), "a whole number of GB, such as 80gb")
    if not product.variant.strip():
        yield Mistake(f"{where} variant", "empty", "which one of its name it is, such as SXM4-80GB")
    if not product.names:
        yield Mistake(f"{where} names", "empty", "the name that its driver prints")
    for name in product.names:
        if not name.name or name.name != name.name.strip() or printable(name.name) != name.name:
            yield Mistake(f"{where} names", repr(name.name), "a name exactly as printed, with no blanks around it")
        if not name.source.strip():
            yield Mistake(f"{where} name {name.name!r} source", "empty", "where it was printed so")
        if "units" in name.needs and "units" not in product.facts:
            expected = "facts.units, without which no device agrees"
            yield Mistake(f"{where} name {name.name!r}", "one that needs units", expected)


def _figure(where: str, name: str, figure: Peak, allowed: tuple[str, ...]) -> Iterator[Mistake]:
    if name not in allowed:
        yield Mistake(where, "no field of ours", f"one of {', '.join(allowed)}")
    if not figure.source.strip():
        yield Mistake(f"{where} source", "empty", "who says so: an address, or `recalled` with that confidence")
    if name in COUNTS and figure.value != int(figure.value):
        yield Mistake(where, f"{figure.value:g}", "a whole number")
