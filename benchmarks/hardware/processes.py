"""Questions to a device in processes of their own: one that hangs or dies loses what it was asked, and nothing else."""

import sys
import time
from collections.abc import Sequence

from . import probe, stages
from .facts import Fact, Facts
from .running import run
from .stages import ROOT, Machine

HUNG = "its process was ended after {seconds:.0f} s, while it was asked"
DIED = "the process ended with status {status} while it was asked; {said}"


def command(machine: Machine, *arguments: str) -> list[str]:
    """Return the command of this program in a process of its own."""
    program = str(ROOT / "benchmarks/on_hardware.py")
    options = ["--out", str(machine.out), "--device", machine.device]
    return [sys.executable, program, *options, *arguments]


def ask_probes(machine: Machine, facts: Facts, names: Sequence[str], seconds: float) -> bool:
    """Ask these probes; return whether all of them were asked."""
    began_s = time.monotonic()
    together = [name for name in names if name not in probe.ALONE]
    finished = True
    for group in (together, *([name] for name in names if name in probe.ALONE)):
        # Half of what is left: one that hangs must leave time for the others.
        left_s = seconds - (time.monotonic() - began_s)
        finished &= ask(machine, facts, probe.STAGE, group, left_s, share=0.5)
    return finished


def ask(
    machine: Machine,
    facts: Facts,
    stage: str,
    names: Sequence[str],
    seconds: float,
    share: float = 1.0,
) -> bool:
    """Ask what a stage has not asked yet; return whether all of it was.

    Args:
        machine: to ask on.
        facts: to add to.
        stage: its name.
        names: of the facts with which the questions end.
        seconds: for all of them.
        share: of the time that is left, for a process.
    """
    began_s = time.monotonic()
    while True:
        left = [name for name in names if name not in facts.asked(stage)]
        left_s = seconds - (time.monotonic() - began_s)
        if not left or left_s <= 0:
            return not left
        said = machine.out / "said" / f"{stage}-{len(facts.all)}.txt"
        child = command(machine, "--ask", stage, *left)
        ended = run(child, said, share * left_s, machine.environment, ROOT)
        facts.reload()
        unasked = [name for name in left if name not in facts.asked(stage)]
        if unasked:
            words = DIED.format(status=ended.status, said=stages.last_words(said))
            words = HUNG.format(seconds=ended.seconds) if ended.status is None else words
            facts.add(Fact(stage, unasked[0], error=words))
