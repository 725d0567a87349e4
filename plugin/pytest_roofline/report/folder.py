"""The folder of a report, checked before a measurement; light, as every configured run asks."""

from pathlib import Path

from ..core.errors import BadInput
from ..core.writing import check_writable

FILES = ("run.json", "results.csv", "summary.md", "index.html")


def check_folder(folder: Path, setting: str) -> Path:
    """Return a folder that a report can be written into.

    Raises:
        BadInput: it or a file of the report in it is something else, or it cannot be written; the sentence calls it
            `setting`.
    """
    check_writable(folder, f"{setting}={folder}")
    directory = next((folder / name for name in FILES if (folder / name).is_dir()), None)
    if directory is not None:
        raise BadInput(
            f"{setting}={folder}: {directory} is a directory; remove it, or name another folder"
        )
    return folder
