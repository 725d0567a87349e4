"""Where a report goes, checked before anything is measured; light, since every run that is configured asks."""

import os
import tempfile
from pathlib import Path

from ..core.errors import BadInput

FILES = ("run.json", "results.csv", "summary.md", "index.html")


def check_folder(folder: Path, setting: str) -> Path:
    """A folder that a report can be written into, or that can be made.

    Raises:
        BadInput: it or a file of the report in it is something else, or it cannot be written; the sentence calls it
            `setting`.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not there.is_dir():
        raise BadInput(f"{setting}={folder}: {there} is no directory; expected one, or a new name")
    try:
        # What its mode says is not all: a mount may be read-only, and nothing can be made below /proc.
        with tempfile.NamedTemporaryFile(dir=there, prefix=".roofline-"):
            pass
    except OSError as error:
        raise BadInput(
            f"{setting}={folder}: nothing can be written into {there} ({error.strerror or error}); "
            "expected a directory that can be"
        ) from None
    directory = next((folder / name for name in FILES if (folder / name).is_dir()), None)
    if directory is not None:
        raise BadInput(
            f"{setting}={folder}: {directory} is a directory; expected room for a file of that name"
        )
    return folder
