"""The facts of a product: its names and its rated figures. They are data with sources."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from msgspec import Meta

from ..core.facts import DeviceFacts

Confidence = Literal["high", "medium", "low", "recalled"]
Need = Literal["architecture", "units", "memory"]

# Drivers and error correction keep some of the rated memory; a partition keeps half or more of it away.
LEAST_SHARE = 0.8
# A whole one shows its memory within so much of what it is rated at, in GB and built in GiB, less what a driver keeps:
# an MI300X of 192 GB 206e9 bytes.
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
        confidence: how sure it is; `recalled` is what nobody could look up.
        bounds: whether no true measurement can be above it; not so of a rate at a clock that boards exceed.
        note: what else a reader must know.
    """

    value: Rated
    source: str
    confidence: Confidence
    bounds: bool = True
    note: str = ""

    @property
    def trusted(self) -> bool:
        """Return whether to call a result above it wrong. The same holds for a baseline."""
        return self.bounds and self.confidence in ("high", "medium")


@dataclass(frozen=True, slots=True)
class Name:
    """One name that a driver or a library prints for a product. The library is one of management,
    or torch.

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
    """The work of one multiprocessor (or compute unit) in a clock.

    Args:
        name: as torch tells it: `sm_90`, `gfx942`; with a suffix where boards of it differ, `sm_89-geforce`.
        flops_per_clock: of one unit, by type, dense; a fused multiply-add counts as two.
        most_units: of its largest chip; as are `most_l2_MiB` and `llc_MiB`, the cache behind L2. Tests of what ships
            read them.
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
    """One exact product, as torch sees it. A device that is one of two dies of a board is a product
    of its own.

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
        architecture: as torch tells it; `memory_type`, `pcie`, `nvlink` and `xgmi` are what else it is made of.
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
        """Return product and memory, which no other product has."""
        return self.product, self.memory

    @property
    def memory_bytes(self) -> float | None:
        """Rated memory; None where `memory` is no number of GB."""
        digits = self.memory.removesuffix("gb")
        return int(digits) * 1e9 if digits.isdecimal() and digits != self.memory else None

    def is_like(self, device: DeviceFacts, needs: Iterable[Need]) -> bool:
        """Return whether a device agrees in every fact of `needs`. A fact that the device does not
        tell disagrees.
        """
        units, rated_bytes, visible_bytes = (
            self.facts.get("units"),
            self.memory_bytes,
            device.memory_bytes,
        )
        agrees = {
            "architecture": (device.architecture or "").split(":")[0]
            == self.architecture.split("-")[0],
            "units": units is not None and device.units == units.value,
            "memory": rated_bytes is not None
            and visible_bytes is not None
            and ALIKE[0] * rated_bytes < visible_bytes < ALIKE[1] * rated_bytes,
        }
        return all(agrees[need] for need in needs)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A file of hardware, or several merged.

    Args:
        architectures: what their units do in a clock, which tells how far a rate may stand above a rated one.
        memory_types: what kinds of memory, and with `links` what lanes, can carry; tests of what ships read them.
    """

    schema: int
    products: tuple[Product, ...] = ()
    architectures: tuple[Architecture, ...] = ()
    memory_types: tuple[dict[str, str | float], ...] = ()
    links: tuple[dict[str, str | float], ...] = ()

    def over(self, base: "Catalogue") -> "Catalogue":
        """Return both catalogues, where this one hides the base's entries. Products and
        architectures of the same name are hidden.
        """
        ours, chips = (
            {product.key for product in self.products},
            {chip.name for chip in self.architectures},
        )
        return replace(
            self,
            products=(
                *self.products,
                *(product for product in base.products if product.key not in ours),
            ),
            architectures=(
                *self.architectures,
                *(chip for chip in base.architectures if chip.name not in chips),
            ),
        )

    def architecture(self, name: str) -> Architecture | None:
        """Return an architecture by its name."""
        return next((chip for chip in self.architectures if chip.name == name), None)
