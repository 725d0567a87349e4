"""The known products, by the exact name that a driver prints, never by a part of it: "H200" contains "H20".

The hardware that ships is in `specs.json`; the entries of a user's `hardware.json`, of the same form, come before it.
The checks here find figures that are impossible, not those that are wrong: a test compares the figures that ship with
those that they follow from.
"""

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from importlib import resources
from pathlib import Path

from ..core.errors import BadFile, BadInput, Flaw
from ..core.facts import HARDWARE_FILE, DeviceFacts
from ..core.storage import check_name, read_record, to_record
from ..core.units import printable
from .specs import Catalogue, Name, Product

PEAKS = (
    "memory_GBps", "pcie_GBps", "nvlinks", "nvlink_GBps", "xgmi_GBps", "xgmi_link_GBps", "xgmi_total_GBps",
    "bf16_TFLOPS", "fp16_TFLOPS", "tf32_TFLOPS", "fp8_TFLOPS", "fp32_TFLOPS", "fp32_matrix_TFLOPS",
)  # fmt: skip
FACTS = (
    "units", "clock_MHz", "memory_GB", "memory_bus_bits", "memory_Gbps", "l2_MiB", "llc_MiB", "pcie_lanes",
    "nvlink_ports", "xgmi_ports",
)  # fmt: skip
# The possible values by the unit that a name ends in, wide enough for ten years of devices. A value outside of them is
# in another unit.
RANGES = {
    "GBps": (1.0, 1e5),
    "TFLOPS": (0.1, 1e5),
    "MHz": (100.0, 1e4),
    "Gbps": (0.5, 100.0),
    "GB": (1.0, 1e4),
}


def mistakes(hardware: Catalogue) -> list[Flaw]:
    """Return every mistake in a catalogue."""
    return [
        mistake
        for product in hardware.products
        for mistake in (*_text_mistakes(product), *_figure_mistakes(product))
    ]


def _mistake(where: str, observed: str, expected: str) -> Flaw:
    return Flaw(observed, expected, "correct the file; until then no run uses it", entry=where)


def _text_mistakes(product: Product) -> Iterator[Flaw]:
    """Yield the mistakes in the names, sources and other texts of a product."""
    where = " ".join(product.key)
    for field in ("family", "product"):
        try:
            check_name(getattr(product, field), field)
        except BadInput:
            yield _mistake(
                f"{where} {field}",
                repr(getattr(product, field)),
                "letters, digits and ._+-, as in a file name",
            )
    if product.memory_bytes is None:
        yield _mistake(
            f"{where} memory", repr(product.memory), "a whole number of GB, such as 80gb"
        )
    if not product.names:
        yield _mistake(f"{where} names", "empty", "the name that the driver prints")
    for name in product.names:
        if not name.name or name.name != name.name.strip() or printable(name.name) != name.name:
            yield _mistake(
                f"{where} names",
                repr(name.name),
                "a name exactly as printed, with no blanks around it",
            )
    sources = {f"name {name.name!r} source": name.source for name in product.names}
    texts = {"variant": product.variant, "architecture": product.architecture, **sources}
    empty_fields = [field for field, text in texts.items() if not text.strip()]
    for field in empty_fields:
        yield _mistake(
            f"{where} {field}",
            "empty",
            "a text, such as SXM4-80GB, sm_80, or the place where the name was printed",
        )


def _figure_mistakes(product: Product) -> Iterator[Flaw]:
    """Yield the mistakes in the peaks and facts of a product."""
    for part, allowed in (("peaks", PEAKS), ("facts", FACTS)):
        for name, figure in getattr(product, part).items():
            where = f"{' '.join(product.key)} {part}.{name}"
            if name not in allowed:
                yield _mistake(where, "an unknown field", f"one of {', '.join(allowed)}")
            if not figure.source.strip():
                yield _mistake(
                    f"{where} source",
                    "empty",
                    "an address, or `recalled` where the confidence is recalled too",
                )
            # The name of a figure ends in its unit: `memory_GBps`.
            _, _, unit = name.rpartition("_")
            least, most = RANGES.get(unit, (0.0, 1e5))
            if not least <= figure.value <= most:
                yield _mistake(where, f"{figure.value:g}", f"{least:g} to {most:g}")


class ProductIndex:
    """A catalogue with its products by name. Of several with one name the first counts."""

    def __init__(self, catalogue: Catalogue) -> None:
        """Sort the products of a catalogue by each name under which a driver shows them."""
        self.catalogue = catalogue
        self.by_name: dict[str, Product] = {}
        # Names that several products share, each of which needs more facts to agree.
        self._shared: dict[str, list[tuple[Product, Name]]] = {}
        for product in catalogue.products:
            for name in product.names:
                if name.needs:
                    self._shared.setdefault(name.name, []).append((product, name))
                else:
                    self.by_name.setdefault(name.name, product)

    def product_of(self, device: DeviceFacts) -> Product | None:
        """Return the product of a device, or None.

        Of several products that share its name it is the only one whose facts agree with the device. Otherwise it is
        the product that has this name alone.
        """
        candidates = [
            product
            for product, name in self._shared.get(device.product, ())
            if product.is_like(device, name.needs)
        ]
        if len(candidates) == 1:
            return candidates[0]
        return self.by_name.get(device.product)


@functools.cache
def shipped_hardware() -> ProductIndex:
    """Return the hardware that comes with the package."""
    text = resources.files(__package__).joinpath("specs.json").read_text(encoding="utf-8")
    return ProductIndex(
        to_record(json.loads(text), Catalogue, "hardware that comes with pytest-roofline")
    )


def read_hardware(path: Path) -> Catalogue:
    """Return a file of hardware.

    Its form is checked, not its content: see `mistakes`.
    """
    return read_record(path, Catalogue, "hardware")


def hardware_files(folders: Iterable[Path]) -> list[Path]:
    """Return the files of hardware in folders of baselines, in their order."""
    return [path for folder in folders if (path := folder / HARDWARE_FILE).exists()]


def merge_hardware(paths: Sequence[Path]) -> ProductIndex:
    """Return the known products: those of several `hardware.json` files, and those that ship with this package.

    An entry of an earlier file hides that of a later one, and both hide what ships.

    Raises:
        BadFile: a file holds a mistake.
    """
    if not paths:
        return shipped_hardware()
    base = shipped_hardware().catalogue
    for path in reversed(paths):
        hardware = read_hardware(path)
        if all_mistakes := mistakes(hardware):
            first = all_mistakes[0]
            text = printable(f"{first.entry} is {first.observed}; expected {first.expected}")
            raise BadFile(
                f"hardware {path}: {text}; `roofline baseline check {path}` lists all errors"
            )
        base = hardware.over(base)
    return ProductIndex(base)


# The hardware of this run. Each run sets it, so that no run sees that of another in the same process.
_IN_USE: ContextVar[ProductIndex | None] = ContextVar("hardware in use", default=None)


def use_hardware(folders: Iterable[Path]) -> Callable[[], None]:
    """Let the hardware files of these folders go before what ships.

    Of a product in both, the entry of the file counts. Return a function that restores what was in use before.
    """
    before = _IN_USE.get()
    _IN_USE.set(merge_hardware(hardware_files(folders)))

    def restore() -> None:
        # A token of `set` would not do: a run may end in another context than it began in.
        _IN_USE.set(before)

    return restore


def hardware_in_use() -> ProductIndex:
    """Return the hardware in use: that of the run, else that which ships."""
    return _IN_USE.get() or shipped_hardware()


def catalogue() -> Catalogue:
    """Return every product and architecture in use."""
    return hardware_in_use().catalogue


def products() -> dict[str, Product]:
    """Return every known product by each of its names.

    Names that several products share are left out.
    """
    return hardware_in_use().by_name


def product_of(device: DeviceFacts) -> Product | None:
    """Return the product of a device by its exact driver name; None if it is unknown."""
    return hardware_in_use().product_of(device)


def product_like(product: str | None, memory: str | None) -> Product | None:
    """Return the known product with the name and the memory of a hardware key, or None.

    If the key leaves the memory open, the first product of that name is returned.
    """
    matches = (
        candidate
        for candidate in hardware_in_use().catalogue.products
        if candidate.product == product and memory in (None, candidate.memory)
    )
    return next(matches, None)
