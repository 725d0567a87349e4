"""Of which commit a page of results is: a line below its title, so that nobody takes it for the program of today."""

import datetime
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# What is measured, and what measures.
PROGRAM = ("plugin", "kernels", "perf_tests", "benchmarks")


def stamped(page: str) -> str:
    """The page of a program that has just measured or simulated, with commit and day below the title."""
    commit, changed = _git("rev-parse", "--short=7", "HEAD"), _git("status", "--porcelain", "--", *PROGRAM)
    title, _, rest = page.partition("\n")
    more = " with changes" * bool(changed)
    return f"{title}\n\nOf commit `{commit}`{more}, {datetime.datetime.now(datetime.UTC):%Y-%m-%d}.\n{rest}"


def _git(*words: str) -> str:
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True, check=True).stdout.strip()
