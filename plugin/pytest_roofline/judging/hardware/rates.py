"""Rated figures against what makes them.

Arithmetic follows from units, clock and what a unit does in a clock; memory from its bus and data rate; a link from its
lanes. A sparse rate, a rate of both directions, or a value off by a power of ten does not.
"""

from collections.abc import Iterator
from itertools import pairwise

from ...core.units import three_digits
from .mistakes import Mistake, between, unchecked
from .rated import Architecture, Catalogue, MemoryType, Product

# Vendors rate matrix units at less than the highest clock: an H100 PCIe at 1620 of 1755 MHz, an H100 NVL at 87 %.
ARITHMETIC = (0.8, 1.05)
# Types of the same matrix units stand in whole ratios, but for rounding: an L4 is rated at 60 and 121.
SIBLINGS = (0.985, 1.015)
# A data rate is told in two or three digits, a bandwidth rounded: an A100 has 2.4 Gbit/s and 1555 GB/s.
MEMORY = (0.95, 1.05)
# No board runs its memory at less than half of what its kind can do: a T4 at 10 of 20 Gbit/s, a V100 at 1.75 of 2.4.
MEMORY_TYPE = (0.45, 1.02)
# Of 96 GB in six stacks an H100 NVL uses 94; of 192 in eight a B200 180.
USED = 0.9
# PCIe is rated with and without a part of its overhead: 31 or 31.5 GB/s.
LINK = (0.97, 1.02)
# A product has a part of its architecture's largest chip; none has less than a fifth, be it of units or of cache.
LEAST_OF_CHIP = 0.2
CLOCK_MHZ = (500.0, 4000.0)
LANES = (1, 2, 4, 8, 16)
# Types that matrix units share, so that their rates stand in the ratio of what a unit does in a clock.
MATRIX = ("bf16", "fp16", "tf32", "fp8")


def _value(product: Product, name: str) -> float | None:
    figure = product.facts.get(name) or product.peaks.get(name)
    return figure.value if figure else None


def chip(product: Product, architecture: Architecture, where: str) -> Iterator[Mistake]:
    """Units and caches against those of the architecture's largest chip."""
    for name, most in (("units", architecture.most_units), ("l2_MiB", architecture.most_l2_MiB)):
        yield from between(f"{where} facts.{name}", _value(product, name), LEAST_OF_CHIP * most, 1.0 * most)
    behind = _value(product, "llc_MiB")
    if behind is not None and behind != architecture.llc_MiB:
        expected = "none, as its architecture has none" if architecture.llc_MiB is None else f"{architecture.llc_MiB:g}"
        yield Mistake(f"{where} facts.llc_MiB", f"{behind:g}", expected)
    yield from between(f"{where} facts.clock_MHz", _value(product, "clock_MHz"), *CLOCK_MHZ)


def arithmetic(product: Product, architecture: Architecture, where: str) -> Iterator[Mistake]:
    """FLOP/s against what all units do at the highest clock, and types against each other."""
    units, clock = _value(product, "units"), _value(product, "clock_MHz")
    rates = {name.removesuffix("_TFLOPS"): peak.value for name, peak in product.peaks.items() if "TFLOPS" in name}
    if units is None or clock is None:
        missing = [name for name, value in (("units", units), ("clock_MHz", clock)) if value is None]
        needed = "them" if len(missing) == 2 else "it"
        observed = f"without {' and '.join(missing)}"
        yield from unchecked(f"{where} facts", observed, needed, (f"{dtype}_TFLOPS" for dtype in rates))
    believed: dict[str, float] = {}
    for dtype, rate in rates.items():
        found = list(_by_units(f"{where} peaks.{dtype}_TFLOPS", dtype, rate, architecture, (units, clock)))
        believed |= {} if found else {dtype: rate}
        yield from found
    # A good figure beside a wrong one is not to be made wrong too.
    yield from _siblings(believed, architecture, where)


def _by_units(
    where: str, dtype: str, rate: float, architecture: Architecture, made_by: tuple[float | None, float | None]
) -> Iterator[Mistake]:
    """One rate against units and clock; what is not told of these, against all that they can be."""
    flops, (units, clock) = architecture.flops_per_clock.get(dtype), made_by
    if flops is None:
        yield Mistake(where, f"{rate:g}", f"none: {architecture.name} has no units for {dtype}")
    elif units is None or clock is None:
        largest = architecture.most_units
        fewest, most = (units, units) if units is not None else (LEAST_OF_CHIP * largest, 1.0 * largest)
        slowest, fastest = (clock, clock) if clock is not None else CLOCK_MHZ
        why = f", what {three_digits(fewest)} to {most:g} units at {slowest:g} to {fastest:g} MHz can do"
        least, highest = fewest * slowest * flops / 1e6, most * fastest * flops / 1e6
        yield from between(where, rate, ARITHMETIC[0] * least, ARITHMETIC[1] * highest, why)
    else:
        made = units * clock * flops / 1e6
        why = f", since {units:g} units at {clock:g} MHz do {three_digits(made)} TFLOP/s, dense"
        least, highest = ARITHMETIC[0] * made, ARITHMETIC[1] * made
        yield from between(where, rate, least, highest, f"{why}; a sparse rate is twice that")


def _siblings(rates: dict[str, float], architecture: Architecture, where: str) -> Iterator[Mistake]:
    """Rates of the matrix units against each other: bf16 as fp16, tf32 half of it, fp8 twice."""
    per_clock = architecture.flops_per_clock
    types = [dtype for dtype in MATRIX if dtype in rates and dtype in per_clock]
    for first, second in pairwise(types):
        expected = rates[first] * per_clock[second] / per_clock[first]
        least, most = (share * expected for share in SIBLINGS)
        why = f", as {first} is {rates[first]:g} and its units do {per_clock[second] / per_clock[first]:g} times that"
        yield from between(f"{where} peaks.{second}_TFLOPS", rates[second], least, most, why)


def memory(product: Product, known: Catalogue, where: str) -> Iterator[Mistake]:
    """Bandwidth and size against the bus, its data rate, and what its kind of memory can do."""
    size, rate, bits = (_value(product, name) for name in ("memory_GB", "memory_GBps", "memory_bus_bits"))
    data_rate, rated = _value(product, "memory_Gbps"), product.memory_bytes
    if size is not None and rated is not None and size * 1e9 != rated:
        yield Mistake(f"{where} facts.memory_GB", f"{size:g}", f"{rated / 1e9:g}, as its memory is {product.memory}")
    checked = bits is not None and data_rate is not None
    if rate is not None and bits is not None and data_rate is not None:
        made = bits * data_rate / 8
        why = f", since {bits:g} bit at {data_rate:g} Gbit/s carry {three_digits(made)} GB/s"
        yield from between(f"{where} peaks.memory_GBps", rate, MEMORY[0] * made, MEMORY[1] * made, why)
    kind = known.memory_type(product.memory_type)
    if kind is not None:
        # One that cannot be is told of itself.
        if min(kind.most_Gbps, kind.part_bits, kind.least_GB, kind.most_GB) > 0:
            yield from _of_its_kind(product, kind, where)
    elif product.memory_type is not None:
        expected = f"one of {', '.join(one.name for one in known.memory_types)}, or an entry in `memory_types`"
        yield Mistake(f"{where} memory_type", repr(product.memory_type), expected)
    elif rate is not None and not checked:
        yield from unchecked(f"{where} memory_type", "not given", "it", ["memory_GBps"])


def _of_its_kind(product: Product, kind: MemoryType, where: str) -> Iterator[Mistake]:
    rate, bits, rated = _value(product, "memory_GBps"), _value(product, "memory_bus_bits"), product.memory_bytes
    data_rate, at = _value(product, "memory_Gbps"), f"{where} peaks.memory_GBps"
    least, most = (share * kind.most_Gbps for share in MEMORY_TYPE)
    yield from between(f"{where} facts.memory_Gbps", data_rate, least, most, f" for {kind.name}")
    if bits is None:
        if rate is not None:
            yield from unchecked(f"{where} facts", "without memory_bus_bits", "it", ["memory_GBps"])
        if rated is not None:
            # So much memory stands on so many parts, each with its pins.
            narrow, wide = (rated / 1e9 / size * kind.part_bits for size in (kind.most_GB, USED * kind.least_GB))
            why = (
                f", what {rated / 1e9:g} GB of {kind.name} carry at {kind.most_Gbps:g} Gbit/s on {wide:.0f} bit at most"
            )
            yield from between(at, rate, least * narrow / 8, most * wide / 8, why)
        return
    if data_rate is None:
        why = f", of what {bits:g} bit of {kind.name} carry at {kind.most_Gbps:g} Gbit/s"
        yield from between(at, rate, least * bits / 8, most * bits / 8, why)
    parts = bits / kind.part_bits
    why = f" GB, what {parts:g} parts of {kind.name} hold"
    yield from between(
        f"{where} memory", rated and rated / 1e9, USED * parts * kind.least_GB, parts * kind.most_GB, why
    )


# Of every kind of link: the peak, the links or lanes that make it, and the field that names the generation.
_LINKS = (
    ("pcie_GBps", "pcie_lanes", "pcie"),
    ("nvlink_GBps", "nvlink_ports", "nvlink"),
    ("xgmi_total_GBps", "xgmi_ports", "xgmi"),
    ("xgmi_GBps", None, "xgmi"),
    ("xgmi_link_GBps", None, "xgmi"),
)


def links(product: Product, known: Catalogue, where: str) -> Iterator[Mistake]:
    """Rates of PCIe, NVLink and Infinity Fabric against their generation and how many links there are."""
    for peak, counted, generation in _LINKS:
        rate, name = _value(product, peak), getattr(product, generation)
        count, kind = _count(product, counted), known.link(name)
        if name is not None and kind is None:
            expected = f"one of {', '.join(one.name for one in known.links)}, or an entry in `links`"
            yield Mistake(f"{where} {generation}", repr(name), expected)
        elif rate is not None and (kind is None or count is None):
            missing = generation if kind is None else counted
            yield from unchecked(f"{where} {missing}", "not given", "it", [peak])
        elif rate is not None and kind is not None and count is not None:
            made = count * kind.GBps
            why = f", since {count:g} of {kind.name} carry {three_digits(made)} GB/s, one way"
            yield from between(f"{where} peaks.{peak}", rate, LINK[0] * made, LINK[1] * made, why)
    lanes = _value(product, "pcie_lanes")
    if lanes is not None and lanes not in LANES:
        yield Mistake(f"{where} facts.pcie_lanes", f"{lanes:g}", f"one of {', '.join(map(str, LANES))}")
    yield from _wired(product, known, where)


def _count(product: Product, counted: str | None) -> float | None:
    """How many links or lanes make a peak; of NVLinks those that every board wires, where the chip's are not told."""
    if counted is None:
        return 1.0
    return _value(product, counted) or (_value(product, "nvlinks") if counted == "nvlink_ports" else None)


def _wired(product: Product, known: Catalogue, where: str) -> Iterator[Mistake]:
    """How many NVLinks every board wires, against those of the chip, or against the rate that they make."""
    wired, ports = _value(product, "nvlinks"), _value(product, "nvlink_ports")
    if wired is None:
        return
    if ports is not None and wired != ports:
        yield Mistake(f"{where} peaks.nvlinks", f"{wired:g}", f"{ports:g}, as nvlink_ports says")
    if ports is None and (known.link(product.nvlink) is None or _value(product, "nvlink_GBps") is None):
        yield from unchecked(f"{where} facts", "without nvlink_ports", "it", ["nvlinks"])
