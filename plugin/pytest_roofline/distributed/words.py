"""What launchers print, as text by rank and as the fates of ranks that they tell of."""

import re
import signal

from .placement import TAIL_COLUMNS, TAIL_LINES, ending

# How each launcher labels what ranks print, as it is asked to: the rank is the group.
_LABELS = {
    "openmpi": re.compile(r"\[(?:\d+|[^\s\[\],]+@\d+),(\d+)\]<std(?:out|err)>:"),
    "mpich": re.compile(r"^\[(\d+)\] ", re.MULTILINE),
    "intel": re.compile(r"^\[(\d+)\] ", re.MULTILINE),
    "srun": re.compile(r"^(\d+): ?", re.MULTILINE),
    "torchrun": re.compile(r"^\[default(\d+)\]:", re.MULTILINE),
}
_OPENMPI_SIGNAL = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on signal (\d+)")
# Since its version 5, Open MPI names a process by its daemon.
_OPENMPI_EXIT = re.compile(r"Process name: \[(?:\[\d+,\d+\]|\S+@\d+),(\d+)\]\s+Exit code:\s+(\d+)")
_TORCHRUN = re.compile(r"^\s*rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+)", re.MULTILINE)
_SRUN = re.compile(r"^srun: error: \S+: tasks? ([\d,-]+): (.+?)\s*$", re.MULTILINE)
_SIGNALS = {signal.strsignal(number): number for number in signal.valid_signals()}


def by_rank(text: str, dialect: str) -> dict[int | None, str]:
    """What each rank printed, and under None what the launcher itself said.

    Args:
        text: the launcher's whole output.
        dialect: `openmpi`, `mpich`, `intel`, `srun` or `torchrun`.
    """
    label = _LABELS[dialect]
    found: dict[int | None, list[str]] = {}
    for line in text.splitlines():
        # Open MPI may change from one rank to another within a line, so there a label is where a text begins.
        start, owner = 0, None
        for match in label.finditer(line):
            if line[start : match.start()] or owner is not None:
                found.setdefault(owner, []).append(line[start : match.start()])
            start, owner = match.end(), int(match.group(1))
        found.setdefault(owner, []).append(line[start:] + "\n")
    return {owner: "".join(pieces) for owner, pieces in found.items()}


def fates(text: str, dialect: str) -> dict[int, str]:
    """How ranks ended, as far as the launcher tells; of several reports on a rank the first counts.

    Args:
        text: what the launcher itself said.
        dialect: `openmpi`, `srun` or `torchrun`; others name no rank.
    """
    found: dict[int, str] = {}
    if dialect == "openmpi":
        told = [(int(rank), -int(number)) for rank, number in _OPENMPI_SIGNAL.findall(text)]
        told += [(int(rank), int(code)) for rank, code in _OPENMPI_EXIT.findall(text)]
        found = {rank: ending(status) for rank, status in reversed(told)}
    elif dialect == "torchrun":
        found = {int(rank): ending(int(status)) for rank, status in reversed(_TORCHRUN.findall(text))}
    elif dialect == "srun":
        for ranks, how in reversed(_SRUN.findall(text)):
            found |= dict.fromkeys(_numbers(ranks), _of_slurm(how))
    return found


def last_words(text: str) -> str:
    """The last lines that say something."""
    lines = [line[:TAIL_COLUMNS] for line in text.splitlines() if line.strip(" -=")]
    return "\n".join(lines[-TAIL_LINES:])


def _numbers(text: str) -> list[int]:
    """`0,2-3` as numbers."""
    numbers: list[int] = []
    for piece in filter(None, text.split(",")):
        first, _, last = piece.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _of_slurm(how: str) -> str:
    exited = re.fullmatch(r"Exited with exit code (\d+)", how)
    if exited:
        return ending(int(exited.group(1)))
    plain = how.removesuffix(" (core dumped)")
    return ending(-_SIGNALS[plain]) if plain in _SIGNALS else f"as srun says: {how}"
