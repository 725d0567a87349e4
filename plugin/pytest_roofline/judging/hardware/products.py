"""The known products and their datasheet peaks, as data with sources.

Products are found by the exact name that the driver prints, never by a part of it: "H200" contains "H20".
"""

import functools
import json
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True, slots=True)
class Peak:
    """A datasheet figure in the unit that its name ends in, with its source.

    GB/s is 1e9 bytes per second, TFLOP/s (`_TFLOPS`) 1e12 floating-point operations per second.
    """

    value: float
    source: str
    confidence: str


@dataclass(frozen=True, slots=True)
class Product:
    """One exact product: the names that drivers print for it, and its datasheet peaks.

    Peaks: `memory_GBps` (read + write), `pcie_GBps` (one direction), `nvlinks` (a count: links that every board wires),
    `nvlink_GBps` (all of them, one direction), `xgmi_GBps` (the link to one other device, one direction, raw);
    `bf16_TFLOPS`, `fp16_TFLOPS`, `tf32_TFLOPS` (matrix units, dense: never the rate for sparse matrices), `fp32_TFLOPS`
    (vector units). GeForce boards have no TFLOPS: they boost beyond the clock that theirs are rated at.
    """

    family: str
    product: str
    memory: str
    names: tuple[str, ...]
    peaks: dict[str, Peak]
    last_level_cache_bytes: int | None = None


@functools.cache
def products() -> dict[str, Product]:
    """Every known product, by each name that a driver prints for it."""
    text = resources.files(__package__).joinpath("specs.json").read_text(encoding="utf-8")
    known: dict[str, Product] = {}
    for raw in json.loads(text)["products"]:
        peaks = {name: Peak(**peak) for name, peak in raw.pop("peaks").items()}
        product = Product(peaks=peaks, **{**raw, "names": tuple(raw["names"])})
        known.update(dict.fromkeys(product.names, product))
    return known
