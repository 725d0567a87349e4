"""The faults that are injected, as data: what a rank does, which one does it, and what must be said of it."""

import re
import signal
from dataclasses import dataclass

HANG_S = 1.5
PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Args:
        kind: 1 error, 2 order of operations, 3 loss, 4 hang.
        name: for the table.
        function: in `tests/ranks/rank_functions.py`.
        guilty: the rank that does it.
        cause: what the first line must say, as a pattern.
        size: ranks.
        arguments: beside the guilty rank.
    """

    kind: int
    name: str
    function: str
    guilty: int
    cause: str
    size: int = 2
    arguments: tuple[int | str, ...] = ()

    @property
    def waits(self) -> bool:
        """Whether only the time-out ends it."""
        return self.kind in (2, 4)


FAULTS = (
    *(
        Fault(
            1,
            f"raise {when} the collective, rank {rank}",
            "raise_at",
            rank,
            f"raised ValueError: {when}",
            arguments=(when,),
        )
        for when in ("before", "during", "after")
        for rank in (0, 1)
    ),
    Fault(2, "two collectives swapped", "swap_two", 1, "in all_gather", 3),
    Fault(
        2, "one collective left out", "leave_one_out", 1, "has returned|out of step|all_reduce", 3
    ),
    Fault(2, "one collective left over", "leave_one_over", 1, "out of step", 3),
    Fault(
        3,
        "SIGKILL, rank 0",
        "die_by",
        0,
        "lost: killed by SIGKILL",
        arguments=(int(signal.SIGKILL),),
    ),
    Fault(
        3,
        "SIGKILL, rank 1",
        "die_by",
        1,
        "lost: killed by SIGKILL",
        arguments=(int(signal.SIGKILL),),
    ),
    Fault(3, "SIGSEGV", "segfault", 1, "lost: killed by SIGSEGV"),
    Fault(3, "exit with 0", "exit_with", 1, "lost: exit code 0", arguments=(0,)),
    Fault(3, "exit with 3", "exit_with", 1, "lost: exit code 3", arguments=(3,)),
    Fault(3, "out of memory", "out_of_memory", 1, "raised MemoryError"),
    Fault(4, "hang in Python", "hang", 1, "did not answer.* in sleep_long"),
    Fault(4, "hang in a collective", "hang_in_a_collective", 1, "did not answer.* in recv", 3),
    Fault(4, "hang, SIGTERM ignored", "hang_deaf", 1, "did not answer.* in sleep_long"),
    Fault(
        4, "interpreter held", "hold_the_interpreter", 1, "did not answer.* in hold_the_interpreter"
    ),
    Fault(4, "SIGSTOP", "stop_itself", 1, "did not answer.*SIGSTOP"),
)


def blamed(line: str, fault: Fault, host: str) -> bool:
    """Whether a first line begins with the guilty rank and its host, and says the cause."""
    begins = re.match(rf"rank {fault.guilty} \(pid \d+ on {re.escape(host)}\) ", line)
    return begins is not None and re.search(fault.cause, line) is not None


def blamed_by_spawn(text: str) -> int | None:
    """The rank that `torch.multiprocessing.spawn` names first; None where it names none."""
    found = re.search(r"[Pp]rocess (\d+) terminated", text)
    return int(found[1]) if found else None


def has_stacks(text: str, fault: Fault) -> bool:
    """Whether the report on a hang has the Python stack of every rank that could give one.

    A process that a signal has stopped can give none.
    """
    parts = re.split(r"^  rank (\d+) ", text, flags=re.MULTILINE)[1:]
    shown = {
        int(rank)
        for rank, part in zip(parts[::2], parts[1::2], strict=True)
        if re.search(r'^\s*File "', part, re.M)
    }
    silent = {fault.guilty} if fault.function == "stop_itself" else set()
    return shown | silent >= set(range(fault.size))
