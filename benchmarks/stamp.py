"""The commit and day of a line that names them, as no digest of sources stands beside it."""

import datetime
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What is measured, and what measures.
PROGRAM = ("plugin", "kernels", "perf_tests", "benchmarks")


def stamp() -> str:
    """Return commit and day as a sentence."""
    changed = _git("status", "--porcelain", "--", *PROGRAM)
    more = " with changes" * bool(changed)
    return f"Of commit `{commit()}`{more}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}."


def commit() -> str:
    """Return the short name of the checkout's commit."""
    return _git("rev-parse", "--short=7", "HEAD")


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", "-C", ROOT, *words], capture_output=True, text=True, check=True
    ).stdout.strip()
