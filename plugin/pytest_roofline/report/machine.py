"""A machine and products in lines that a person reads.

They tell its limits and proven properties, and the products on record.
"""

import textwrap
from collections.abc import Iterator, Sequence

from ..core.facts import Finding, Gpu, Machine, Property, Unexpected
from ..core.units import count, format_amount, printable
from ..hardware import Peak, Product
from .tables import TextTable, render


def machine_lines(machine: Machine) -> list[str]:
    """Return the processor, memory and every GPU."""
    host = machine.host
    is_limited = host.usable_memory_bytes < host.memory_bytes
    usable_text = (
        f", of which {format_amount(host.usable_memory_bytes)} usable" if is_limited else ""
    )
    gpus_text = count(len(machine.gpus), "GPU") if machine.gpus else "no GPUs"
    torch_text = "" if machine.torch_devices is None else f"; torch uses {machine.torch_devices}"
    return [
        f"host {printable(host.name)}: {printable(host.cpu_model)}, {host.usable_cores} of {host.cores} cores, "
        f"{format_amount(host.memory_bytes)} memory{usable_text}, kernel {printable(host.kernel)}",
        *(printable(_gpu_line(gpu)) for gpu in machine.gpus),
        f"{gpus_text} seen{torch_text}",
    ]


def _gpu_line(gpu: Gpu) -> str:
    """Return the known facts of one GPU."""
    has_pcie = gpu.pcie_generation is not None or gpu.pcie_width is not None
    facts = [
        None if gpu.memory_bytes is None else format_amount(gpu.memory_bytes),
        gpu.partition,
        None if gpu.driver is None else f"driver {gpu.driver}",
        None if gpu.power_limit_w is None else f"{gpu.power_limit_w:g} W",
        f"PCIe {gpu.pcie_generation or '?'} × {gpu.pcie_width or '?'}" if has_pcie else None,
        None if gpu.links is None else f"{gpu.links} links up",
        None if gpu.ecc is None else f"ECC {'on' if gpu.ecc else 'off'}",
    ]
    return f"{gpu.label}: {', '.join(fact for fact in facts if fact) or 'reports no facts'}"


def finding_lines(findings: Sequence[Finding], width: int) -> list[str]:
    """Return each fault of the machine with its remedy.

    Lines are wrapped to `width` columns.
    """
    if not findings:
        return ["no fault was found that makes numbers unreliable"]
    texts = (
        f"{finding.kind.upper():8}{finding.subject}: {finding.observed}: {finding.effect}. Remedy: {finding.remedy}."
        for finding in findings
    )
    return [line for text in texts for line in _wrap(text, width, 8)]


def _wrap(text: str, width: int, indent: int) -> list[str]:
    """Return a text in lines of at most `width` columns.

    All lines but the first begin with `indent` blanks.
    """
    return textwrap.wrap(
        printable(text), width, subsequent_indent=" " * indent, break_on_hyphens=False
    )


def difference_lines(differences: Sequence[Unexpected], expectations: str) -> list[str]:
    """Return every unexpected fact, and their number."""
    if not differences:
        return [f"no difference from {printable(expectations)}"]
    lines = [
        printable(
            f"{fact.subject}: {fact.fact} is {fact.observed}, expected {fact.expected}; remedy: {fact.remedy}"
        )
        for fact in differences
    ]
    return [*lines, f"{count(len(differences), 'difference')} from {printable(expectations)}"]


def property_line(proven: Property, width: int) -> str:
    """Return one property with its outcome and observation.

    The expectation follows where the property does not hold.
    """
    text = f"{proven.outcome:15}{proven.name}: {proven.observed}"
    if proven.outcome == "FAILS":
        text += f"; expected {proven.expected}"
    return "\n".join(_wrap(text, width, 15))


# Peaks in the table of products by heading: those that most tests are compared with.
_SHOWN = {
    "GB/s": "memory_GBps", "PCIe": "pcie_GBps", "NVLink": "nvlink_GBps",
    "bf16": "bf16_TFLOPS", "fp16": "fp16_TFLOPS", "tf32": "tf32_TFLOPS", "fp32": "fp32_TFLOPS",
}  # fmt: skip
LEGEND = (
    "Memory, PCIe and NVLink in GB/s, links in one direction. Arithmetic in TFLOP/s, for dense matrices. A figure in "
    "brackets limits no result."
)


def product_table(products: Sequence[Product], width: int, colour: bool) -> str:
    """Return a row a product, with its main peaks."""
    table = TextTable(("product", "left"), ("of", "left"), *((head, "right") for head in _SHOWN))
    for product in products:
        figures = (peak_text(product.peaks.get(name)) for name in _SHOWN.values())
        table.add_row(product.product, product.memory, *figures)
    return f"{render(table, width, colour)}\n{LEGEND}"


def peak_text(figure: Peak | None) -> str:
    """Return a peak as `989`, in brackets where it limits nothing.

    It is empty where the peak is unknown.
    """
    if figure is None:
        return ""
    return f"{figure.value:g}" if figure.trusted else f"({figure.value:g})"


def product_lines(product: Product) -> Iterator[str]:
    """Yield the lines on one product.

    They are its components, the names that drivers print, and its figures, each with its source.
    """
    parts = (product.architecture, product.memory_type, product.pcie, product.nvlink, product.xgmi)
    components = ", ".join(part for part in parts if part)
    yield printable(
        f"{product.product} {product.memory} ({product.variant}; {components}), family {product.family}"
    )
    for name in product.names:
        # Two products may share a name; then these facts of the device decide.
        needs = f", where {', '.join(name.needs)} agree" if name.needs else ""
        yield printable(f'  printed as "{name.name}"{needs}: {name.source}')
    for label, figure in (*product.peaks.items(), *product.facts.items()):
        unbound = "" if figure.trusted else "; bounds nothing"
        note = f"; {figure.note}" if figure.note else ""
        yield printable(
            f"  {label} {figure.value:g} ({figure.confidence}{unbound}{note}): {figure.source}"
        )
