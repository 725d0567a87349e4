"""Figure 6: how soon no rank runs any more when pytest is killed or interrupted while its ranks hang."""

import os
import signal
import sys
import time
from pathlib import Path

from .page import Figure, Goal, table
from .runs import POLL_S, PYTEST, prepared, running, started, wait_for

MOST_S = {signal.SIGKILL: 1.0, signal.SIGINT: 2.0}
WORDS = {signal.SIGKILL: "SIGKILL", signal.SIGINT: "Ctrl-C"}
GIVEN_UP_S = 20.0
# Ranks, and what those on processors are forked from.
RANK = "pytest_roofline.ranks."
MODULES = (RANK, "pytest_roofline.processes.")
SERVER = "pytest_roofline.ranks.rank_server"
SUITE = """
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist


def hangs(rank):
    if rank == 1:
        Path("hanging.new").write_text("")
        Path("hanging.new").rename("hanging")
        time.sleep(600)
    dist.all_reduce(torch.ones(4))


def test_hangs(distributed):
    Path("controller").write_text(str(os.getpid()))
    distributed.run(hangs, world_size=2)
"""
ATTACHED = (
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--standalone",
    "--nproc-per-node=2",
    *PYTEST[1:],
)
LAUNCHES = {
    "local": PYTEST,
    "mpirun": (*PYTEST, "--roofline-launcher=mpirun"),
    "torchrun": (*PYTEST, "--roofline-launcher=torchrun"),
    "srun, two nodes": (*PYTEST, "--roofline-launcher=srun", "--roofline-launcher-args=-N2"),
    "attached under torchrun": ATTACHED,
    "attached under srun, two nodes": ("srun", "-N2", "-n2", *PYTEST),
}


def measure(folder: Path, slurm: dict[str, str]) -> Figure:
    """End a run in every way.

    Args:
        folder: to run in.
        slurm: the environment of two nodes.
    """
    seconds: dict[tuple[str, int], float | None] = {}
    for number, (name, command) in enumerate(LAUNCHES.items()):
        for how in MOST_S:
            place = prepared(folder / f"{number}-{WORDS[how]}", SUITE)
            seconds[name, how] = _seconds(place, command, slurm, how)
            print(name, WORDS[how], shown(seconds[name, how]), flush=True)
    rows = [(name, *(shown(seconds[name, how]) for how in MOST_S)) for name in LAUNCHES]
    goals = tuple(_goal(how, [seconds[name, how] for name in LAUNCHES]) for how in MOST_S)
    text = f"""Rank 1 sleeps, rank 0 waits for it in a collective, and pytest (in a launch: rank 0's) gets the signal.
Seconds until no rank of the run is alive, as `/proc` tells every {POLL_S * 1e3:g} ms; one run of each.

{table(("ranks", *(f"after {WORDS[how]}" for how in MOST_S)), rows)}"""
    return Figure("Clean ends", goals, text)


def _goal(how: int, found: list[float | None]) -> Goal:
    longest = None if None in found else max(value for value in found if value is not None)
    reached = longest is not None and longest <= MOST_S[how]
    return Goal(
        f"no rank runs after {WORDS[how]} of pytest, longest",
        f"≤ {MOST_S[how]:g} s",
        shown(longest),
        reached,
    )


def shown(seconds: float | None) -> str:
    """A time, or that it never came."""
    return f"more than {GIVEN_UP_S:g} s" if seconds is None else f"{seconds:.2f} s"


def _seconds(
    folder: Path, command: tuple[str, ...], environ: dict[str, str], how: int
) -> float | None:
    with started(folder, command, environ) as (child, mark):
        wait_for(folder / "hanging", child)
        controller = int((folder / "controller").read_text())
        # The other one comes to the collective, and waits there.
        time.sleep(0.5)
        assert len(_ranks(mark)) >= 2, "not all ranks of this run could be found"
        began_s = time.monotonic()
        os.kill(controller, how)
        while _ranks(mark):
            if time.monotonic() - began_s > GIVEN_UP_S:
                return None
            time.sleep(POLL_S)
        return time.monotonic() - began_s


def _ranks(mark: str) -> list[int]:
    """The ranks of a run that have not ended; their launcher has their command in its own."""
    return [
        pid
        for pid, line in running(mark, RANK).items()
        if _is_rank(line) and not _is_server(pid, line)
    ]


def _is_rank(line: str) -> bool:
    program, *words = line.split()
    return (
        "python" in program and "-m" in words and words[words.index("-m") + 1].startswith(MODULES)
    )


def _is_server(pid: int, line: str) -> bool:
    """Whether ranks are forked from it, and it from none: it ends with pytest, not with its ranks."""
    if SERVER not in line:
        return False
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return SERVER.encode() not in Path(f"/proc/{parent}/cmdline").read_bytes()
    except OSError:
        return True
