"""The files of the cases: written anew where `python -m tests.golden` asks for it, else compared."""

import difflib
import os
import shutil
from pathlib import Path

RENEW = "GOLDEN_RENEW"
HERE = Path(__file__).parent


def renewing() -> bool:
    """Whether the files are written rather than compared."""
    return bool(os.environ.get(RENEW))


def renew(name: str, now: dict[str, str]) -> None:
    """Make these the files of a case, and no others."""
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for file, text in now.items():
        (folder / file).write_text(text, encoding="utf-8")


def differences(name: str, now: dict[str, str]) -> str:
    """What of a case is not as stored, as a unified diff; empty where all is."""
    stored = {path.name: path.read_text(encoding="utf-8") for path in (HERE / name).glob("*")}
    diffs = (
        _diff(f"{name}/{file}", stored.get(file, ""), now.get(file, ""))
        for file in sorted(stored | now)
    )
    return "\n".join(filter(None, diffs))


def _diff(name: str, stored: str, now: str) -> str:
    ends = (stored.splitlines(), now.splitlines(), f"stored/{name}", f"now/{name}")
    return "\n".join(difflib.unified_diff(*ends, lineterm=""))


def strangers(names: set[str]) -> list[Path]:
    """Folders that belong to no case."""
    return [
        path
        for path in sorted(HERE.iterdir())
        if path.is_dir() and path.name not in {*names, "__pycache__"}
    ]
