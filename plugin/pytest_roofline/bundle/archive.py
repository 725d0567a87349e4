"""The zip file: one folder, entries by name, no time and no owner, so that equal contents are equal files."""

import io
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..core.errors import BadInput, CannotStore

TOP = "roofline-bundle"
# The first moment that a zip file can name.
EPOCH = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_MODE = 0o100644 << 16
# Parts of a path that lead elsewhere, or that Windows does not take: devices, its own separators, ends that it cuts.
_RESERVED = re.compile(r"|.*[\\:*?\"<>|].*|.*[. ]|(?i:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.DOTALL)


def zipped(files: Mapping[str, bytes], top: str = f"{TOP}/") -> bytes:
    """The archive of these files, by their path within its one folder.

    Args:
        files: what is in each.
        top: that folder, with a slash; empty is none.

    Raises:
        BadInput: one of the names means another place, or nothing, on some systems.
    """
    why = unportable(files)
    if why:
        raise BadInput(f"{why}; expected letters, digits and the like, with slashes between folders; rename it")
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{top}{name}", EPOCH)
            entry.create_system, entry.external_attr = _UNIX, _MODE
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return buffer.getvalue()


def unportable(names: Iterable[str]) -> str:
    """Why files of these names cannot all be unpacked everywhere, of the first that cannot; empty where they can."""
    taken: dict[str, str] = {}
    for name in names:
        if any(_RESERVED.fullmatch(part) or not part.isprintable() for part in name.split("/")):
            return f"a file called {name!r} cannot be unpacked on every system"
        other = taken.setdefault(name.casefold(), name)
        if other != name:
            return f"files called {other!r} and {name!r} are the same on some systems"
    return ""


def write_archive(path: Path, data: bytes) -> None:
    """Write it; one that is there is not overwritten.

    Raises:
        BadInput: there is such a file already.
        CannotStore: it cannot be written.
    """
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        if path.is_dir():
            raise BadInput(f"{path} is a folder; expected the archive's own name behind -o, as x.zip in it") from None
        raise BadInput(f"{path} exists already; choose another name with -o, or remove it") from None
    except OSError as error:
        path.unlink(missing_ok=True)
        why = error.strerror or str(error)
        raise CannotStore(f"{path} cannot be written: {why}; choose another place with -o") from None
