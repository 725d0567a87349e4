"""What is known of a product: its names, its rated figures, and what they are checked against. Data with sources."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from ...core.errors import BadInput
from ...core.facts import DeviceFacts

Confidence = Literal["high", "medium", "low", "recalled"]
Need = Literal["architecture", "units", "memory"]

# Drivers and error correction keep some of the rated memory; a partition keeps half or more of it away.
LEAST_SHARE = 0.8
# A whole one shows its memory within so much of what it is rated at, in GB and built in GiB, less what a driver keeps:
# an MI300X of 192 GB 206e9 bytes.
ALIKE = (0.9, 1.1)


@dataclass(frozen=True, slots=True)
class Peak:
    """A rated figure in the unit that its name ends in, with its source.

    GB/s is 1e9 bytes per second, TFLOP/s (`_TFLOPS`) 1e12 floating-point operations per second.

    Args:
        value: above zero.
        source: who says so: an address, or a repository and a path in it.
        confidence: how sure it is; `recalled` is what nobody could look up.
        bounds: whether no true measurement can be above it; not so of a rate at a clock that boards exceed.
        note: what else a reader must know.
    """

    value: float
    source: str
    confidence: Confidence
    bounds: bool = True
    note: str = ""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value > 0):
            raise BadInput(
                f"value is {self.value!r}; expected a finite number above zero; what is not there is left out"
            )

    @property
    def trusted(self) -> bool:
        """Whether a result, or a baseline, may be called wrong for being above it."""
        return self.bounds and self.confidence in ("high", "medium")


@dataclass(frozen=True, slots=True)
class Name:
    """One name that a driver, a management library or torch prints for a product.

    Args:
        name: exactly as printed.
        source: where it was printed so.
        needs: what else must agree with the product, for a name that others share.
    """

    name: str
    source: str
    needs: tuple[Need, ...] = ()


@dataclass(frozen=True, slots=True)
class Architecture:
    """What one multiprocessor (or compute unit) does in a clock, and how large its chips are.

    Args:
        name: as torch tells it: `sm_90`, `gfx942`; with a suffix where boards of it differ, `sm_89-geforce`.
        flops_per_clock: of one unit, by type, dense; a fused multiply-add counts as two.
        most_units: of its largest chip.
        most_l2_MiB: of its largest chip.
        llc_MiB: the cache behind L2, where there is one.
    """

    name: str
    flops_per_clock: dict[str, float]
    most_units: int
    most_l2_MiB: float
    source: str
    confidence: Confidence
    llc_MiB: float | None = None


@dataclass(frozen=True, slots=True)
class MemoryType:
    """What a kind of memory can do: its fastest data rate, and how much one part (stack or chip) holds.

    Args:
        most_Gbps: the highest data rate of a pin, 1e9 bits per second.
        part_bits: pins of one part.
        least_GB: capacity of the smallest part in use.
        most_GB: capacity on those pins, at most.
    """

    name: str
    most_Gbps: float
    part_bits: int
    least_GB: float
    most_GB: float
    source: str
    confidence: Confidence


@dataclass(frozen=True, slots=True)
class LinkType:
    """One lane of PCIe, or one link of NVLink or Infinity Fabric: `GBps` in one direction."""

    name: str
    GBps: float
    source: str
    confidence: Confidence


@dataclass(frozen=True, slots=True)
class Product:
    """One exact product, as torch sees it: a device that is one of two dies of a board is a product of its own.

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
        variant: which one of its name it is, as people say it: `SXM4-80GB`.
        architecture: key into the architectures; `memory_type`, `pcie`, `nvlink`, `xgmi` into memories and links.
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
        """What tells it from every other product: product and memory."""
        return self.product, self.memory

    @property
    def memory_bytes(self) -> float | None:
        """Rated memory; None where `memory` is no number of GB."""
        digits = self.memory.removesuffix("gb")
        return int(digits) * 1e9 if digits.isdecimal() and digits != self.memory else None

    def is_like(self, device: DeviceFacts, needs: Iterable[Need]) -> bool:
        """Whether a device agrees in every fact of `needs`; what the device does not tell disagrees."""
        units, rated, seen = self.facts.get("units"), self.memory_bytes, device.memory_bytes
        agrees = {
            "architecture": (device.architecture or "").split(":")[0] == self.architecture.split("-")[0],
            "units": units is not None and device.units == units.value,
            "memory": rated is not None and seen is not None and ALIKE[0] * rated < seen < ALIKE[1] * rated,
        }
        return all(agrees[need] for need in needs)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A file of hardware, or several merged: products, and what they are checked against."""

    schema: int
    products: tuple[Product, ...] = ()
    architectures: tuple[Architecture, ...] = ()
    memory_types: tuple[MemoryType, ...] = ()
    links: tuple[LinkType, ...] = ()

    def over(self, other: "Catalogue") -> "Catalogue":
        """Both, where this one's products, names and types hide the other's of the same name."""
        ours = {product.key for product in self.products}
        return Catalogue(
            schema=self.schema,
            products=(*self.products, *(product for product in other.products if product.key not in ours)),
            architectures=_over(self.architectures, other.architectures),
            memory_types=_over(self.memory_types, other.memory_types),
            links=_over(self.links, other.links),
        )

    def architecture(self, name: str) -> Architecture | None:
        """By its name."""
        return next((one for one in self.architectures if one.name == name), None)

    def memory_type(self, name: str | None) -> MemoryType | None:
        """By its name."""
        return next((one for one in self.memory_types if one.name == name), None)

    def link(self, name: str | None) -> LinkType | None:
        """By its name."""
        return next((one for one in self.links if one.name == name), None)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


_Type = TypeVar("_Type", bound=_Named)


def _over(ours: tuple[_Type, ...], others: tuple[_Type, ...]) -> tuple[_Type, ...]:
    names = {one.name for one in ours}
    return (*ours, *(one for one in others if one.name not in names))
