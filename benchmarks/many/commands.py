"""Commands as a user types them, with their time and the most memory that they held."""

import json
import subprocess
import sys
import tempfile
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


# What a process held most includes what its parent held when it was started, so the parent is a small one.
_STARTER = """
import json, os, subprocess, sys, time
begun = time.perf_counter()
_, status, usage = os.wait4(subprocess.Popen(sys.argv[2:]).pid, 0)
seconds, cpu_s = time.perf_counter() - begun, usage.ru_utime + usage.ru_stime
with open(sys.argv[1], "w") as file:
    json.dump([os.waitstatus_to_exitcode(status), seconds, cpu_s, usage.ru_maxrss], file)
"""


def run(command: Sequence[str]) -> Done:
    """One command from start to end, its interpreter's start included."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "told.json"
        starter = [sys.executable, "-I", "-S", "-c", _STARTER, str(told), *command]
        out = subprocess.run(
            starter, stdout=subprocess.PIPE, text=True, encoding="utf-8", cwd=HERE, check=True
        ).stdout
        status, seconds, cpu_s, most = json.loads(told.read_text(encoding="utf-8"))
    # Linux counts in KiB, macOS in bytes.
    return Done(out, status, seconds, cpu_s, most * (1 if sys.platform == "darwin" else 1024))


_MAIN = "from pytest_roofline.cli.main import main; main()"


def roofline(name: str, runs: Path) -> Done:
    """`roofline fleet` or `history` over a folder of runs."""
    return run([sys.executable, "-c", _MAIN, name, str(runs), "--json"])


def rollout(folder: Path, nodes: int) -> Done:
    """`roofline rollout` over the logs that `logs.write_logs` wrote."""
    sides = [str(folder / side) for side in ("before", "after")]
    changed = f"gpu[0001-{nodes // 2:04}]"
    return run([sys.executable, "-c", _MAIN, "rollout", *sides, "--changed", changed, "--json"])


def peer(kind: str, runs: Path) -> Done:
    """One of `peers.py`."""
    return run([sys.executable, "-m", "many.peers", kind, str(runs)])
