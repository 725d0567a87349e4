"""A user's own hardware: `hardware.json` beside their baselines, of the same form as what ships, read before it."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ...core.errors import BadFile
from ..storage import check_schema, decode_json, read_bytes, to_record
from .products import _IN_USE, Known, shipped
from .rated import Catalogue
from .validating import mistakes

FILE = "hardware.json"


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
    return [path for folder in folders if (path := folder / FILE).exists()]


def merged(paths: Sequence[Path]) -> Known:
    """Several files over what ships, an earlier one over a later.

    Raises:
        BadFile: one cannot be read, or holds what cannot be.
    """
    if not paths:
        return shipped()
    files = [(path, read_hardware(path)) for path in paths]
    base = shipped().catalogue
    for path, own in reversed(files):
        _refuse_mistakes(path, own, base)
        base = own.over(base)
    return Known(base)


def _refuse_mistakes(path: Path, own: Catalogue, base: Catalogue) -> None:
    found = [mistake for mistake in mistakes(own, base) if not mistake.hint]
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
