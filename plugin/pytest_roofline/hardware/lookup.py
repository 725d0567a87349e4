"""The known products, found by the exact name that a driver prints, never by a part of it: "H200" contains "H20".

What ships stands in `specs.json`; a user's own `hardware.json`, of the same form, is read before it.
"""

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from importlib import resources
from pathlib import Path

from ..core.errors import BadFile
from ..core.facts import HARDWARE_FILE, DeviceFacts
from ..core.storage import check_schema, decode_json, read_bytes, to_record
from .checks import Mistake, mistakes
from .specs import Catalogue, Name, Product


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


def read_hardware(path: Path) -> Catalogue:
    """A file of hardware, its form checked, and not yet what is in it.

    Raises:
        BadFile: missing, damaged, another schema, an unknown field, a value that is none.
    """
    where = f"hardware {path}"
    raw = decode_json(read_bytes(path, "hardware"), where)
    check_schema(raw, where)
    return to_record(raw, Catalogue, where)


def hardware_files(folders: Iterable[Path]) -> list[Path]:
    """The files of hardware in folders of baselines, the first first."""
    return [path for folder in folders if (path := folder / HARDWARE_FILE).exists()]


def merged(paths: Sequence[Path]) -> Known:
    """Several files over what ships, an earlier one over a later.

    Raises:
        BadFile: one cannot be read, or holds what cannot be.
    """
    if not paths:
        return shipped()
    base = shipped().catalogue
    for path in reversed(paths):
        own = read_hardware(path)
        if found := mistakes(own, base):
            more = f" (and {len(found) - 1} more: `roofline hardware check {path}` lists them)" * (len(found) > 1)
            raise BadFile(f"hardware {path}: {found[0]}{more}")
        base = own.over(base)
    return Known(base)


def mistakes_in(path: Path, in_use: Sequence[Path]) -> list[Mistake]:
    """What cannot be in one file, held beside every other file that is in use, and beside what ships.

    Raises:
        BadFile: one cannot be read.
    """
    base = shipped().catalogue
    for other in reversed(in_use):
        if other.resolve() != path.resolve():
            base = read_hardware(other).over(base)
    return mistakes(read_hardware(path), base)


# What this run added; every run sets it anew, so that none sees another's.
_IN_USE: ContextVar[Known | None] = ContextVar("hardware in use", default=None)


def use_hardware(folders: Iterable[Path]) -> Callable[[], None]:
    """Use the hardware of these folders before what ships, until the function that this returns is called.

    Raises:
        BadFile: a file cannot be read, or holds what cannot be.
    """
    before, now = _IN_USE.get(), merged(hardware_files(folders))
    _IN_USE.set(now)

    def restore() -> None:
        # A value and no token: the end of a run may come in another context than its start.
        _IN_USE.set(before)

    return restore


def known() -> Known:
    """What is in use: a run's own hardware before what ships."""
    return _IN_USE.get() or shipped()


def catalogue() -> Catalogue:
    """Every product and architecture that is in use."""
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
