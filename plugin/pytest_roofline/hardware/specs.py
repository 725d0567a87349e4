"""The facts of a product: its names and its rated figures, each with its source."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from msgspec import Meta

from ..core.facts import DeviceFacts

Confidence = Literal["high", "medium", "low", "recalled"]
Need = Literal["architecture", "units", "memory"]

# Drivers and error correction keep some of the rated memory. A device that shows a smaller share is a partition, which
# has half or less.
LEAST_SHARE = 0.8
# The memory that a whole device shows, as a share of the rated one. Memory is rated in GB but built in GiB, and a
# driver keeps some of it: an MI300X of 192 GB shows 206e9 bytes.
ALIKE = (0.9, 1.1)
Rated = Annotated[
    float,
    Meta(gt=0, description="a finite number above zero; leave out unknown values"),
]


@dataclass(frozen=True, slots=True)
class Peak:
    """A rated figure in the unit of its name, with its source.

    GB/s is 1e9 bytes per second, TFLOP/s (`_TFLOPS`) 1e12 floating-point operations per second.

    Args:
        value: above zero.
        source: who says so: an address, or a repository and a path in it.
        confidence: how sure it is; `recalled` is a figure that nobody could look up.
        bounds: whether no true measurement can be above it. A rate at a clock that boards exceed does not bound.
        note: a remark for the reader.
    """

    value: Rated
    source: str
    confidence: Confidence
    bounds: bool = True
    note: str = ""

    @property
    def trusted(self) -> bool:
        """Return True where a result or a baseline above the peak is wrong."""
        return self.bounds and self.confidence in ("high", "medium")


@dataclass(frozen=True, slots=True)
class Name:
    """One name that a driver, a management library or torch prints for a product.

    Args:
        name: exactly as printed.
        source: where it was printed so.
        needs: the facts that must agree with the product, too, for a name that several products share.
    """

    name: str
    source: str
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True, slots=True)
class Architecture:
    """The work of one multiprocessor (or compute unit) in a clock.

    Args:
        name: as torch reports it: `sm_90`, `gfx942`; with a suffix where boards differ in their rates, `sm_89-geforce`.
        flops_per_clock: of one unit, by type, dense; a fused multiply-add counts as two.
        most_units: of the largest chip; `most_l2_MiB` and `llc_MiB` (the cache behind L2) are of that chip, too. Only
            the tests of the data that ship read them.
    """

    name: str
    flops_per_clock: dict[str, float]
    source: str
    confidence: Confidence
    most_units: int | None = None
    most_l2_MiB: float | None = None
    llc_MiB: float | None = None


@dataclass(frozen=True, slots=True)
class Product:
    """One exact product, as torch sees it.

    Where torch sees each of two dies of a board as a device, the die is the product.

    Peaks: `memory_GBps` (read + write), `pcie_GBps` (one direction), `nvlinks` (a count: links that every board wires),
    `nvlink_GBps` (all of them, one direction), `xgmi_GBps` (the link to one other device, one direction, raw),
    `xgmi_link_GBps` (one link, where several may join two devices), `xgmi_total_GBps` (all links, one direction);
    `bf16_TFLOPS`, `fp16_TFLOPS`, `tf32_TFLOPS`, `fp8_TFLOPS` (matrix units, dense: never the rate for sparse matrices),
    `fp32_TFLOPS` (vector units), `fp32_matrix_TFLOPS` (matrix units in full single precision).

    Facts: `units` (multiprocessors or compute units), `clock_MHz` (the highest that it is rated at), `memory_GB`,
    `memory_bus_bits`, `memory_Gbps` (data rate of a pin), `l2_MiB`, `llc_MiB` (the cache behind it), `pcie_lanes`,
    `nvlink_ports`, `xgmi_ports` (links that the chip has, wired or not).

    Args:
        family: the name of its baseline file.
        product: as in a hardware key.
        memory: rated, as in a hardware key: `80gb`.
        variant: the usual name of the variant: `SXM4-80GB`.
        architecture: the name of its architecture; `memory_type`, `pcie`, `nvlink` and `xgmi` name its memory and
            links.
    """

    family: str
    product: str
    memory: str
    variant: str
    architecture: str
    names: tuple[Name, ...]
    peaks: dict[str, Peak] = field(default_factory=dict)
    facts: dict[str, Peak] = field(default_factory=dict)
    memory_type: str | None = None
    pcie: str | None = None
    nvlink: str | None = None
    xgmi: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Return product and memory, which identify a product."""
        return self.product, self.memory

    @property
    def memory_bytes(self) -> float | None:
        """Return the rated memory; None where `memory` is no number of GB."""
        digits = self.memory.removesuffix("gb")
        return int(digits) * 1e9 if digits.isdecimal() and digits != self.memory else None

    def is_like(self, device: DeviceFacts, needs: Iterable[Need]) -> bool:
        """Return True where a device agrees with this product in every fact of `needs`.

        They tell products apart that share a name. A fact that the device does not report disagrees.
        """
        units = self.facts.get("units")
        # Architectures are compared without a suffix: torch's `gfx942:sramecc+`, and our `sm_89-geforce`.
        device_architecture, _, _ = (device.architecture or "").partition(":")
        own_architecture, _, _ = self.architecture.partition("-")
        agrees = {
            "architecture": device_architecture == own_architecture,
            "units": units is not None and device.units == units.value,
            "memory": _is_alike(self.memory_bytes, device.memory_bytes),
        }
        return all(agrees[need] for need in needs)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A file of hardware, or several merged.

    Args:
        architectures: the work of their units in a clock, from which the highest possible rates follow.
        memory_types: the rates of kinds of memory; `links` are the rates of kinds of links. Only the tests of the data
            that ship read them.
    """

    schema: int
    products: tuple[Product, ...] = ()
    architectures: tuple[Architecture, ...] = ()
    memory_types: tuple[dict[str, str | float], ...] = ()
    links: tuple[dict[str, str | float], ...] = ()

    def over(self, base: "Catalogue") -> "Catalogue":
        """Return both catalogues joined.

        Products and architectures of this catalogue hide those of the base with the same name.
        """
        product_keys = {product.key for product in self.products}
        chip_names = {chip.name for chip in self.architectures}
        return replace(
            self,
            products=(
                *self.products,
                *(product for product in base.products if product.key not in product_keys),
            ),
            architectures=(
                *self.architectures,
                *(chip for chip in base.architectures if chip.name not in chip_names),
            ),
        )

    def architecture(self, name: str) -> Architecture | None:
        """Return an architecture by its name."""
        return next((chip for chip in self.architectures if chip.name == name), None)


def _is_alike(rated_bytes: float | None, visible_bytes: int | None) -> bool:
    """Return True where a device shows about the rated memory of a whole product."""
    if rated_bytes is None or visible_bytes is None:
        return False
    least, most = ALIKE
    return least * rated_bytes < visible_bytes < most * rated_bytes
