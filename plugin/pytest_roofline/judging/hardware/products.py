"""The known products, found by the exact name that a driver prints, never by a part of it: "H200" contains "H20".

What ships stands in `specs.json`; a user's own `hardware.json` is read before it (`added.py`).
"""

import functools
import json
from contextvars import ContextVar
from importlib import resources

from ...core.facts import DeviceFacts
from ..storage import to_record
from .rated import Catalogue, Name, Product


class Known:
    """A catalogue with its products by name; the first of a name wins."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.by_name: dict[str, Product] = {}
        self._shared: dict[str, list[tuple[Product, Name]]] = {}
        for product in catalogue.products:
            for name in product.names:
                if name.needs:
                    self._shared.setdefault(name.name, []).append((product, name))
                else:
                    self.by_name.setdefault(name.name, product)

    def product_of(self, device: DeviceFacts) -> Product | None:
        """The product of a device; of several that share its name the one that it agrees with, None where none does."""
        shared = [
            product for product, name in self._shared.get(device.product, ()) if product.is_like(device, name.needs)
        ]
        if len(shared) == 1:
            return shared[0]
        return self.by_name.get(device.product)


@functools.cache
def shipped() -> Known:
    """What comes with the package."""
    text = resources.files(__package__).joinpath("specs.json").read_text(encoding="utf-8")
    return Known(to_record(json.loads(text), Catalogue, "hardware that comes with pytest-roofline"))


# What this run added; every run sets it anew (`added.py`), so that none sees another's.
_IN_USE: ContextVar[Known | None] = ContextVar("hardware in use", default=None)


def known() -> Known:
    """What is in use: a run's own hardware before what ships."""
    return _IN_USE.get() or shipped()


def catalogue() -> Catalogue:
    """Everything that is in use, products and what they are checked against."""
    return known().catalogue


def products() -> dict[str, Product]:
    """Every known product, by each name that a driver prints for it and for no other."""
    return known().by_name


def product_of(device: DeviceFacts) -> Product | None:
    """The product of a device, by the exact name that its driver prints; None is unknown hardware."""
    return known().product_of(device)


def product_like(product: str | None, memory: str | None) -> Product | None:
    """The product of a hardware key, any of its memories where the key leaves that open."""
    fits = (one for one in known().catalogue.products if one.product == product and memory in (None, one.memory))
    return next(fits, None)
