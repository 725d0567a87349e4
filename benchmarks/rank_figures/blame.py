"""Figures 2, 3 and 5: faults put into ranks of one pool, whom the report names, and what the next task meets."""

import json
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from .faults import FAULTS, HANG_S, PATIENCE_S, Fault, blamed, blamed_by_spawn, has_stacks
from .page import Figure, Goal, table

PEER = Path(__file__).with_name("spawn_peer.py")
# torch's own time-out of a collective is half an hour by default, so the peer is given a shorter one.
PEER_GROUP_S, PEER_PATIENCE_S = 8.0, 45.0
MOST_REPORT_S = 2.0


@dataclass(frozen=True, slots=True)
class Found:
    """What came of a fault.

    Args:
        fault: that was put in.
        line: the first line of the report.
        right: whether that names the guilty, its host and the cause.
        seconds: from the task to its report.
        stacks: whether the stack of every stuck rank is in it.
        own_payloads: whether the next task met its own payloads only.
        peer: the rank that the peer named; None where it named none.
        peer_s: how long it took; None where it had to be killed.
    """

    fault: Fault
    line: str
    right: bool
    seconds: float
    stacks: bool
    own_payloads: bool
    peer: int | None
    peer_s: float | None


def inject() -> list[Found]:
    """Every fault, into our ranks and into the peer's."""
    from pytest_roofline.ranks.local import Local
    from pytest_roofline.ranks.pool import Pool

    pools = {size: Pool(Local(), size, "cpu") for size in sorted({fault.size for fault in FAULTS})}
    found = []
    for number, fault in enumerate(FAULTS):
        found.append(_one(pools[fault.size], fault, 2 * number))
        pools[fault.size].stop()
        print(fault.name, "|", found[-1].line, flush=True)
    return found


def _one(pool, fault: Fault, tag: int) -> Found:
    from tests.ranks import rank_functions

    from pytest_roofline.core.errors import RanksFailed
    from pytest_roofline.ranks.tasks import reference

    before = _tagged(pool, fault.size, tag)
    timeout_s = HANG_S if fault.waits else PATIENCE_S
    function = reference(getattr(rank_functions, fault.function))
    began_s = time.perf_counter()
    try:
        pool.run(function, (fault.guilty, *fault.arguments), fault.size, timeout_s=timeout_s)
        text = "no failure was reported"
    except RanksFailed as error:
        text = str(error)
    seconds = time.perf_counter() - began_s
    line, *_ = text.splitlines()
    peer, peer_s = _peer(fault)
    return Found(
        fault, line, blamed(line, fault, socket.gethostname()), seconds, has_stacks(text, fault),
        before and _tagged(pool, fault.size, tag + 1), peer, peer_s,
    )  # fmt: skip


def _tagged(pool, size: int, tag: int) -> bool:
    """Whether a task's collectives carry its own payloads and no other's."""
    from tests.ranks import rank_functions

    from pytest_roofline.ranks.tasks import reference

    total, rows = rank_functions.expected(tag, size)
    answers = pool.run(reference(rank_functions.tagged), (tag,), size, timeout_s=PATIENCE_S)
    return all(bool(one["total"].equal(total)) and bool(one["rows"].equal(rows)) for one in answers)


def _peer(fault: Fault) -> tuple[int | None, float | None]:
    asked = {
        "function": fault.function,
        "guilty": fault.guilty,
        "arguments": fault.arguments,
        "size": fault.size,
        "group_s": PEER_GROUP_S,
    }
    began_s = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, str(PEER), json.dumps(asked)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        text, _ = child.communicate(timeout=PEER_PATIENCE_S)
    except subprocess.TimeoutExpired:
        _end_group(child)
        return None, None
    return blamed_by_spawn(text), time.perf_counter() - began_s


def _end_group(child: subprocess.Popen) -> None:
    import os
    import signal

    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


def blame_figure(found: list[Found]) -> Figure:
    """Who is named first."""
    right, peer_right = (
        sum(one.right for one in found),
        sum(one.peer == one.fault.guilty for one in found),
    )
    count = len(found)
    goal = Goal(
        "first line names guilty rank, host and cause",
        f"{count} of {count}",
        f"{right} of {count}",
        right == count,
    )
    rows = [
        (
            str(one.fault.kind),
            one.fault.name,
            "yes" if one.right else f"**no**: {one.line[:90]}",
            f"{one.seconds:.2f} s",
            _peer_text(one),
            f"{one.peer_s:.1f} s"
            if one.peer_s is not None
            else f"killed after {PEER_PATIENCE_S:g} s",
        )
        for one in found
    ]
    head = (
        "kind",
        "fault",
        "guilty, host and cause first",
        "after",
        "spawn names the guilty",
        "after",
    )
    text = f"""Each of {count} faults of the kinds 1 (error), 2 (order of operations), 3 (loss) and 4 (hang) once;
those of kinds 2 and 4 end by the time-out of {HANG_S:g} s. The peer's ranks do the same in processes of
`torch.multiprocessing.spawn`, whose collectives give up after {PEER_GROUP_S:g} s instead of the default half hour; it
names the rank alone, and does so in {peer_right} of {count}. Its time is that of a whole process.

{table(head, rows)}"""
    return Figure("Blame", (goal,), text)


def _peer_text(one: Found) -> str:
    if one.peer == one.fault.guilty:
        return "yes"
    return "no, none" if one.peer is None else f"no, rank {one.peer}"


def hang_figure(found: list[Found]) -> Figure:
    """How soon a hang is told, with what."""
    hangs = [one for one in found if one.fault.waits]
    late = [one.seconds - HANG_S for one in hangs]
    stacks = sum(one.stacks for one in hangs if one.fault.kind == 4)
    count = sum(one.fault.kind == 4 for one in hangs)
    on = sum(one.own_payloads for one in hangs)
    longest = max(late)
    goals = (
        Goal(
            "report after the time-out of a hang, longest",
            f"≤ {MOST_REPORT_S:g} s",
            f"{longest:.2f} s",
            longest <= MOST_REPORT_S,
        ),
        _all("hangs with the stack of every stuck rank", stacks, count),
        _all("hangs after which the next test passes", on, len(hangs)),
    )
    text = f"""The {len(hangs)} faults above that only the time-out ends: the report came {min(late):.2f} to
{max(late):.2f} s after it (median {median(late):.2f} s), all ranks ended by then. A process that SIGSTOP has stopped
can give no stack, and is told as stopped."""
    return Figure("Hangs", goals, text)


def _all(what: str, found: int, count: int) -> Goal:
    return Goal(what, f"{count} of {count}", f"{found} of {count}", found == count)
