"""Whether data of hardware are fit for use: every field known, named and sourced, every figure in its range.

Whether a figure is *right* no file can tell: of what ships, a test holds each against the figures that it follows from
(`tests/hardware/test_hardware_data.py`).
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..core.errors import BadInput
from ..core.storage import check_name
from ..core.units import printable
from .specs import Catalogue, Peak, Product

PEAKS = (
    "memory_GBps", "pcie_GBps", "nvlinks", "nvlink_GBps", "xgmi_GBps", "xgmi_link_GBps", "xgmi_total_GBps",
    "bf16_TFLOPS", "fp16_TFLOPS", "tf32_TFLOPS", "fp8_TFLOPS", "fp32_TFLOPS", "fp32_matrix_TFLOPS",
)  # fmt: skip
FACTS = (
    "units", "clock_MHz", "memory_GB", "memory_bus_bits", "memory_Gbps", "l2_MiB", "llc_MiB", "pcie_lanes",
    "nvlink_ports", "xgmi_ports",
)  # fmt: skip
COUNTS = ("nvlinks", "units", "memory_bus_bits", "pcie_lanes", "nvlink_ports", "xgmi_ports")
# By the unit that a name ends in, wide enough for ten years of devices: what lies outside was read in another unit.
RANGES = {"GBps": (1.0, 1e5), "TFLOPS": (0.1, 1e5), "MHz": (100.0, 1e4), "Gbps": (0.5, 100.0), "GB": (1.0, 1e4)}


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something in data of hardware that cannot be.

    Args:
        where: product and field.
    """

    where: str
    observed: str
    expected: str

    def __str__(self) -> str:
        return printable(f"{self.where} is {self.observed}; expected {self.expected}")


def mistakes(own: Catalogue, base: Catalogue) -> list[Mistake]:
    """Everything in a file that cannot be.

    Args:
        own: the file.
        base: what it is laid over, whose names it may not take.
    """
    found = list(_shared_names(own.products, own.over(base).products))
    for chip in own.architectures:
        for dtype, flops in chip.flops_per_clock.items():
            if not flops > 0:
                found.append(Mistake(f"architectures {chip.name} {dtype}", f"{flops!r}", "a number above zero"))
    for product in own.products:
        found += _identity(product)
        for part, allowed in (("peaks", PEAKS), ("facts", FACTS)):
            for name, figure in getattr(product, part).items():
                found += _figure(f"{' '.join(product.key)} {part}.{name}", name, figure, allowed)
    return found


def _shared_names(own: Sequence[Product], known: Sequence[Product]) -> Iterator[Mistake]:
    """Products under one key, or under one name that nothing is said to tell apart."""
    for key, count in Counter(product.key for product in own).items():
        if count > 1:
            yield Mistake(f"product {' '.join(key)}", f"there {count} times", "each product and memory once")
    for text in dict.fromkeys(name.name for product in own for name in product.names):
        owners = [(product, name) for product in known for name in product.names if name.name == text]
        if len(owners) > 1 and not all(name.needs for _, name in owners):
            keys = " and of ".join(" ".join(product.key) for product, _ in owners)
            yield Mistake(f"name {text!r}", f"that of {keys}", "one; or `needs` in each, which tell them apart")


def _identity(product: Product) -> Iterator[Mistake]:
    where = " ".join(product.key)
    for what in ("family", "product"):
        text = getattr(product, what)
        try:
            check_name(text, what)
        except BadInput:
            yield Mistake(f"{where} {what}", repr(text), "letters, digits and ._+-, as in a file name")
    if product.memory_bytes is None:
        yield Mistake(f"{where} memory", repr(product.memory), "a whole number of GB, such as 80gb")
    for what in ("variant", "architecture"):
        if not getattr(product, what).strip():
            yield Mistake(f"{where} {what}", "empty", "which it is, such as SXM4-80GB of architecture sm_80")
    if not product.names:
        yield Mistake(f"{where} names", "empty", "the name that its driver prints")
    for name in product.names:
        if not name.name or name.name != name.name.strip() or printable(name.name) != name.name:
            yield Mistake(f"{where} names", repr(name.name), "a name exactly as printed, with no blanks around it")
        if not name.source.strip():
            yield Mistake(f"{where} name {name.name!r} source", "empty", "where it was printed so")


def _figure(where: str, name: str, figure: Peak, allowed: tuple[str, ...]) -> Iterator[Mistake]:
    if name not in allowed:
        yield Mistake(where, "no field of ours", f"one of {', '.join(allowed)}")
    if not figure.source.strip():
        yield Mistake(f"{where} source", "empty", "who says so: an address, or `recalled` with that confidence")
    if name in COUNTS and figure.value != int(figure.value):
        yield Mistake(where, f"{figure.value:g}", "a whole number")
    least, most = RANGES.get(name.rpartition("_")[2], (0.0, 1e5))
    if not least <= figure.value <= most:
        yield Mistake(where, f"{figure.value:g}", f"{least:g} to {most:g}")
