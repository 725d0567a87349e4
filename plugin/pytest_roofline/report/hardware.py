"""Known products as a table, and one product with every figure and where it comes from."""

from collections.abc import Iterable, Iterator, Sequence

from ..core.units import printable
from ..hardware import Peak, Product
from .layout import new_table, render

# What most tests are held against.
_SHOWN = {
    "GB/s": "memory_GBps", "PCIe": "pcie_GBps", "NVLink": "nvlink_GBps",
    "bf16": "bf16_TFLOPS", "fp16": "fp16_TFLOPS", "tf32": "tf32_TFLOPS", "fp32": "fp32_TFLOPS",
}  # fmt: skip
LEGEND = (
    "Memory, PCIe and NVLink in GB/s, links one way; arithmetic in TFLOP/s, dense. A figure in brackets is shown, and "
    "bounds nothing."
)


def product_table(products: Sequence[Product], width: int, colour: bool) -> str:
    """A row a product, with its main peaks."""
    table = new_table(("product", "left"), ("of", "left"), *((head, "right") for head in _SHOWN))
    for product in products:
        figures = (figure_text(product.peaks.get(name)) for name in _SHOWN.values())
        table.add_row(product.product, product.memory, *figures)
    return f"{render(table, width, colour)}\n{LEGEND}"


def figure_text(figure: Peak | None) -> str:
    """`989`, or in brackets where it bounds nothing; empty where there is none."""
    if figure is None:
        return ""
    return f"{figure.value:g}" if figure.trusted else f"({figure.value:g})"


def product_lines(product: Product) -> Iterator[str]:
    """One product: what it is, how drivers call it, and every figure with its source."""
    parts = (product.memory_type, product.pcie, product.nvlink, product.xgmi)
    made_of = ", ".join(part for part in (product.architecture, *parts) if part)
    yield printable(f"{product.product} {product.memory} ({product.variant}; {made_of}), family {product.family}")
    for name in product.names:
        needs = f", where {', '.join(name.needs)} agree" if name.needs else ""
        yield printable(f'  printed as "{name.name}"{needs}: {name.source}')
    yield from _figure_lines(product.peaks.items())
    yield from _figure_lines(product.facts.items())


def _figure_lines(figures: Iterable[tuple[str, Peak]]) -> Iterator[str]:
    for name, figure in figures:
        unbound = "" if figure.trusted else "; bounds nothing"
        note = f"; {figure.note}" if figure.note else ""
        yield printable(f"  {name} {figure.value:g} ({figure.confidence}{unbound}{note}): {figure.source}")
