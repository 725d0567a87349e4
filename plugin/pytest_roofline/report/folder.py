"""Where a report goes, checked before anything is measured; light, since every run that is configured asks."""

from pathlib import Path

from ..core.errors import BadInput
from ..core.writing import check_writable

FILES = ("run.json", "results.csv", "summary.md", "index.html")


def check_folder(folder: Path, setting: str) -> Path:
    """A folder that a report can be written into, or that can be made.

    Raises:
        BadInput: it or a file of the report in it is something else, or it cannot be written; the sentence calls it
            `setting`.
    """
    check_writable(folder, f"{setting}={folder}")
    directory = next((folder / name for name in FILES if (folder / name).is_dir()), None)
    if directory is not None:
        raise BadInput(
            f"{setting}={folder}: {directory} is a directory; expected room for a file of that name"
        )
    return folder
