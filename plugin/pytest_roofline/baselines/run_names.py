"""What a run is called beside others: one name, in tables, plots, files and sentences."""

from collections.abc import Sequence
from pathlib import Path

from ..core.units import printable
from .runs import Run


def run_names(runs: Sequence[Run]) -> dict[Path, str]:
    """By path, the name of each run's file, with as many folders ahead as tell it from the others: `nightly`, `a/n`."""
    paths = list(dict.fromkeys(run.path for run in runs))
    parts = {path: path.absolute().with_name(path.stem).parts for path in paths}
    names: dict[Path, str] = {}
    for path in paths:
        own, others = parts[path], [parts[other] for other in paths if other != path]
        depth = next((n for n in range(1, len(own)) if all(own[-n:] != other[-n:] for other in others)), 1)
        names[path] = _unused(printable("/".join(own[-depth:])), set(names.values()))
    return names


def _unused(name: str, taken: set[str]) -> str:
    # Folders do not tell `n.json` from `n.jsonl`, nor does what can be printed of two names always differ.
    numbered = [name, *(f"{name} ({number})" for number in range(2, len(taken) + 2))]
    return next(one for one in numbered if one not in taken)
