"""Which files are meant: names, paths, folders and patterns, thousands of them, in one order."""

import glob
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..core.errors import BadInput
from .runs import resolve_run

SUFFIX = ".jsonl"


def expand(arguments: Sequence[str], folder: Path, listed: Iterable[str] = ()) -> list[str]:
    """Absolute paths of the run files that arguments name, sorted, each once.

    Args:
        arguments: saved names, paths, folders (every `.jsonl` below them) and patterns (`nodes/*/nightly-*.jsonl`);
            `-` stands for `listed`.
        folder: where saved runs lie, as `--dir` says.
        listed: arguments from a list, one a line; empty lines do not count.

    Raises:
        BadInput: a folder or a pattern without a run file, or a name of none.
    """
    found: dict[str, None] = {}
    for argument in _all(arguments, listed):
        for path in paths_of(argument, folder):
            # Of a pattern nobody expects a file in particular; of a name everybody does.
            if not os.path.exists(path):  # noqa: PTH110
                raise BadInput(f"run file {path} does not exist")
            found[os.path.abspath(path)] = None  # noqa: PTH100
    if not found:
        raise BadInput("the list of run files is empty; expected names, paths, folders or patterns")
    return sorted(found)


def _all(arguments: Sequence[str], listed: Iterable[str]) -> Iterable[str]:
    for argument in arguments:
        if argument == "-":
            yield from filter(None, (line.strip() for line in listed))
        else:
            yield argument


def paths_of(argument: str, folder: Path) -> list[str]:
    """The files that a saved name, a path, a folder or a pattern means, as written; one that is named may not exist.

    Raises:
        BadInput: a folder or a pattern without a run file, or nothing is saved under a name.
    """
    if os.path.isdir(argument) and not (folder / "runs" / f"{argument}{SUFFIX}").exists():  # noqa: PTH112
        return _below(argument)
    # A file may have brackets in its name; only what is no file is a pattern.
    if any(sign in argument for sign in "*?[") and not os.path.exists(argument):  # noqa: PTH110
        matched = [path for path in glob.glob(argument, recursive=True) if path.endswith(SUFFIX)]  # noqa: PTH207
        if not matched:
            raise BadInput(f"no run file matches {argument}; expected some that end in {SUFFIX}")
        return sorted(matched)
    return [str(resolve_run(argument, folder))]


def _below(folder: str) -> list[str]:
    found = [
        os.path.join(where, name)  # noqa: PTH118
        for where, _, names in os.walk(folder)
        for name in names
        if name.endswith(SUFFIX)
    ]
    if not found:
        raise BadInput(f"{folder} holds no run file; expected some that end in {SUFFIX}")
    return sorted(found)
