"""The folder of a report, checked before a measurement. Every run imports this, so it imports little."""

from pathlib import Path

from ..core.errors import BadInput
from ..core.writing import check_writable

FILES = ("run.json", "results.csv", "summary.md", "index.html")


def check_folder(folder: Path, setting: str) -> Path:
    """Return a folder that a report can be written into.

    Raises:
        BadInput: the folder is no directory or cannot be written, or a file of the report in it is a directory. The
            message names the folder by `setting`, the option that it comes from.
    """
    check_writable(folder, f"{setting}={folder}")
    directory = next((folder / name for name in FILES if (folder / name).is_dir()), None)
    if directory is not None:
        raise BadInput(
            f"{setting}={folder}: {directory} is a directory; expected a file. Remove the directory, or name another "
            "folder"
        )
    return folder
