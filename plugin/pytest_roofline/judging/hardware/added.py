"""A user's own hardware: `hardware.json` beside their baselines, of the same form as what ships, read before it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import BadFile
from ...core.facts import HARDWARE_FILE
from ..storage import check_schema, decode_json, read_bytes, to_record
from .mistakes import Mistake
from .products import _IN_USE, Known, shipped
from .rated import Catalogue
from .validating import mistakes, without_unchecked_bounds


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
    read = layers(paths)
    for layer in reversed(read):
        _refuse_mistakes(layer)
    return Known(read[0].together)


@dataclass(frozen=True, slots=True)
class Layer:
    """A file of hardware, and what it is laid over.

    Args:
        base: every file after it in the order of use, over what ships.
    """

    path: Path
    own: Catalogue
    base: Catalogue

    @property
    def mistakes(self) -> list[Mistake]:
        """What in it cannot be, or cannot be checked."""
        return mistakes(self.own, self.base)

    @property
    def together(self) -> Catalogue:
        """All of it, where what could not be checked bounds nothing."""
        return without_unchecked_bounds(self.own, self.base).over(self.base)


def layers(paths: Sequence[Path]) -> list[Layer]:
    """Files in the order of use, each with what it is laid over.

    Raises:
        BadFile: one cannot be read.
    """
    found: list[Layer] = []
    base = shipped().catalogue
    for path in reversed(paths):
        found.insert(0, Layer(path, read_hardware(path), base))
        base = found[0].together
    return found


def layer_of(path: Path, in_use: Sequence[Path]) -> Layer:
    """One file over those in use that come after it; over all of them where it is none of them."""
    same = (at for at, other in enumerate(in_use) if other.resolve() == path.resolve())
    return layers([path, *in_use[next(same, -1) + 1 :]])[0]


def _refuse_mistakes(layer: Layer) -> None:
    path, found = layer.path, [mistake for mistake in layer.mistakes if not mistake.hint]
    if found:
        more = f" (and {len(found) - 1} more: `roofline hardware check {path}` lists them)" if len(found) > 1 else ""
        raise BadFile(f"hardware {path}: {found[0]}{more}")


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
