"""Commands as a user types them, with their time and the most memory that they held."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Done:
    """What a command printed, its exit status, seconds by the wall's clock and of CPU, and peak of memory in bytes."""

    out: str
    status: int
    seconds: float
    cpu_s: float
    peak_bytes: int


def run(command: Sequence[str]) -> Done:
    """One command from start to end, its interpreter's start included."""
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8", cwd=HERE) as process:
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    # Linux counts in KiB, macOS in bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    cpu_s = usage.ru_utime + usage.ru_stime
    return Done(out, process.returncode, time.perf_counter() - begun, cpu_s, usage.ru_maxrss * unit)


def roofline(name: str, runs: Path, folder: Path) -> Done:
    """`roofline fleet` or `history` over a folder of runs."""
    code = "from pytest_roofline.cli import main; main()"
    return run([sys.executable, "-c", code, name, str(runs), "--json", "--dir", str(folder)])


def peer(kind: str, runs: Path) -> Done:
    """One of `peers.py`."""
    return run([sys.executable, "-m", "many.peers", kind, str(runs)])
