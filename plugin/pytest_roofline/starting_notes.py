"""What `roofline init` says of the files for CI: what to change in a part of a repository, and after an upgrade."""

import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from .starting import CI

# By whose CI it is, what has to change in a file whose suite is in a folder below the top of a repository.
BELOW = {
    "github": (
        "add `working-directory: {folder}` under the `run:` of `defaults:`, and write {folder}/ before every `path:`, "
        "those of the cache and of the report"
    ),
    "gitlab": (
        "begin before_script and after_script with `cd {quoted}`, and write {folder}/ before the paths of cache and "
        "artifacts, also that of junit"
    ),
}


def root_notes(folder: Path, asked: Iterable[str]) -> list[str]:
    """Where a CI does not look into this folder, since it is a part of a repository."""
    path = folder.resolve()
    if (path / ".git").exists():
        return []
    root = next((parent for parent in path.parents if (parent / ".git").exists()), None)
    if root is None:
        return []
    below = str(path.relative_to(root))
    return [
        f"{CI[name][1]} is read at the top of a repository, which is {root}: move it there, "
        + remedy.format(folder=below, quoted=shlex.quote(below))
        for name, remedy in BELOW.items()
        if name in asked
    ]


def pin_notes(folder: Path, changed: Iterable[str], version: str) -> list[str]:
    """Which files for CI install another version than this one, and are not renewed since the user has changed them."""
    targets = {target for _, target in CI.values()}
    return [
        f"{name} asks for pytest-roofline=={pin}, and this is {version}: write it there, since what you have changed "
        "is not renewed"
        for name in changed
        if name in targets
        for pin in re.findall(
            r"pytest-roofline(?:\[.*?\])?==([\w.!+-]+)", (folder / name).read_text(encoding="utf-8", errors="replace")
        )
        if pin != version
    ]
