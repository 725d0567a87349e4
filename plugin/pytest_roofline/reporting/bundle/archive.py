"""The zip file: one folder, entries by name, no time and no owner, so that equal contents are equal files."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

from ...core.errors import BadInput, CannotStore

TOP = "roofline-bundle"
# The first moment that a zip file can name.
EPOCH = (1980, 1, 1, 0, 0, 0)
_UNIX = 3
_MODE = 0o100644 << 16


def zipped(files: Mapping[str, bytes], top: str = f"{TOP}/") -> bytes:
    """The archive of these files, by their path within its one folder.

    Args:
        files: what is in each.
        top: that folder, with a slash; empty is none.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(f"{top}{name}", EPOCH)
            entry.create_system, entry.external_attr = _UNIX, _MODE
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return buffer.getvalue()


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
        raise BadInput(f"{path} exists already; choose another name with -o, or remove it") from None
    except OSError as error:
        path.unlink(missing_ok=True)
        why = error.strerror or str(error)
        raise CannotStore(f"{path} cannot be written: {why}; choose another place with -o") from None
