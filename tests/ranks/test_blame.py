"""Who is to blame: the first line of a report names the guilty rank, its host and the cause, whoever else suffered.

And where a stuck rank is, read from real stacks and from stacks as torch leads to them.
"""

import dataclasses
import faulthandler
import tempfile
import threading
from itertools import permutations
from pathlib import Path

import torch

import pytest_roofline.ranks
from pytest_roofline.ranks.blame import RankEnd, main_frames, main_text, position, report

OURS = Path(pytest_roofline.ranks.__file__).parent
TORCH = Path(torch.__file__).parent
C10D = TORCH / "distributed/distributed_c10d.py"
SERVE = (
    *((OURS / "execution.py", name) for name in ("_run_task", "do")),
    *((OURS / "worker.py", name) for name in ("serve", "main")),
    ("<frozen runpy>", "_run_module_as_main"),
)
LISTEN = (
    (OURS / "worker.py", "_listen"),
    (threading.__file__, "run"),
    (threading.__file__, "_bootstrap"),
)
STEP = ("/home/me/perf/steps.py", "step")
WRAPPER = (TORCH / "distributed/c10d_logger.py", "wrapper")

PEER_GONE = (
    "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:17838"
)
PEER_RESET = "RuntimeError: [gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:128: Connection reset by peer"
NCCL_GONE = "DistBackendError: NCCL error: remote process exited or there was a network error"
NCCL = "DistBackendError: NCCL error: unhandled system error, could not open a queue pair"
TRACEBACK = "Traceback (most recent call last):\n  File 'steps.py', line 3\nValueError: mine\n"


def thread(*frames, current=False):
    """One thread of a dump; frames are (file, name), innermost first, each at line 12."""
    head = "Current thread" if current else "Thread"
    lines = [f'  File "{file}", line 12 in {name}' for file, name in frames]
    return "\n".join([f"{head} 0x00007f0123456789 (most recent call first):", *lines, ""])


def dump(*frames):
    """A rank in a function of the user's: its listening thread wrote the dump."""
    return thread(*LISTEN, current=True) + "\n" + thread(*frames, *SERVE)


def end(rank, how, text="", **changes):
    facts = {"host": f"n{rank // 2}", "pid": 4000 + rank, "order": rank, "text": text}
    return RankEnd(rank, how=how, **(facts | changes))


def lost(rank, text="killed by SIGKILL", **changes):
    return end(rank, "lost", text, **changes)


def raised(rank, text="ValueError: mine", **changes):
    return end(
        rank, "raised", text, **({"details": TRACEBACK.replace("ValueError: mine", text)} | changes)
    )


def waiting(rank, collective="all_reduce"):
    return end(rank, "stuck", details=dump((C10D, collective), WRAPPER, STEP))


def stuck(rank):
    return end(rank, "stuck", details=dump(("/home/me/perf/steps.py", "spin")))


def closing(rank, collectives=1, **changes):
    return end(rank, "closing", collectives=collectives, **changes)


def told(*ends, tails=None):
    return report(ends, 30.0, tails or {})


def first(*ends):
    return told(*ends).splitlines()[0]


def test_of_two_ranks_the_guilty_one_is_named_first_whatever_the_order():
    ok, away = end(0, "ok"), closing(0)
    spins, stopped = (
        "did not answer within 30 s: the rank is at steps.py:12 in spin",
        "the rank was stopped by a signal (SIGSTOP)",
    )
    mine = "raised ValueError: mine"
    for guilty, victim, cause in (
        *(
            (lost(1), other, "was lost: killed by SIGKILL")
            for other in (raised(0, PEER_GONE), waiting(0), away)
        ),
        (lost(1, ""), ok, "was lost: the connection ended"),
        *(
            (raised(1), other, mine)
            for other in (waiting(0), away, end(0, "skipped", "no peer access"))
        ),
        # The victim noticed before the guilty had said why it went.
        *(
            (raised(1, order=1), raised(0, gone, order=0), mine)
            for gone in (PEER_GONE, PEER_RESET, NCCL_GONE)
        ),
        *((stuck(1), other, spins) for other in (waiting(0), away, ok)),
        *((end(1, "stuck", stopped=True), other, stopped) for other in (waiting(0), stuck(0))),
        (end(1, "stuck"), away, "the rank is at an unknown place"),
        (
            end(1, "skipped", "no peer access"),
            waiting(0),
            "skipped the test, but the other ranks did not: no peer access",
        ),
    ):
        for ends in permutations((guilty, victim)):
            line = first(*ends)
            assert line.startswith("rank 1 (pid 4001 on n0) ")
            assert cause in line
    # Of several the earliest, also where all only noticed a peer.
    early = raised(1, "KeyError: early", order=1)
    assert first(raised(0, "ValueError: late", order=2), early, raised(2, PEER_GONE)).startswith(
        early.name
    )
    assert first(lost(0, order=5), lost(5, order=1)).startswith("rank 5 (pid 4005 on n2) was lost")
    assert first(raised(0, PEER_GONE, order=1), raised(1, PEER_RESET, order=0)).startswith(
        "rank 1 "
    )


def test_the_odd_one_out_of_those_that_wait_or_have_returned_is_guilty():
    for odd in range(3):
        ends = [waiting(rank, "all_gather" if rank == odd else "all_reduce") for rank in range(3)]
        line = first(*ends)
        assert line.startswith(
            f"{ends[odd].name} did not answer within 30 s: the rank is in all_gather at steps.py:12"
        )
        assert line.endswith("the ranks are in different operations")
        ends = [closing(rank, 3) if rank == odd else waiting(rank) for rank in range(3)]
        line = first(*ends)
        assert line.startswith(
            f"{ends[odd].name} returned from the function, while other ranks wait: "
        )
        assert "is in all_reduce at steps.py:12 in step" in line
        ends = [closing(rank, 3 if rank == odd else 2) for rank in range(3)]
        assert first(*ends).startswith(
            f"{ends[odd].name} left the function out of step (operations submitted: rank 0:"
        )
    line = first(waiting(0), closing(1), closing(2))
    assert line.startswith(
        "rank 0 (pid 4000 on n0) is in all_reduce at steps.py:12 in step, while rank 1 (pid 4001"
    )
    # Of two nobody is odd, and both are named.
    line = first(waiting(0), closing(1))
    assert line.startswith(
        "rank 1 (pid 4001 on n0) returned from the function, while other ranks wait: rank 0 (pid 4000"
    )
    line = first(closing(0, 2), closing(1, 3))
    assert line.startswith(
        "rank 0 (pid 4000 on n0) and rank 1 (pid 4001 on n0) left the function out of step"
    )
    assert "rank 0: 2, rank 1: 3" in line
    # An error of the step that ends a task is told as what it is; of ranks out of step beside the numbers.
    text = told(closing(0), closing(1, text=NCCL, details=TRACEBACK))
    assert text.startswith(
        f"rank 1 (pid 4001 on n0) raised {NCCL}, after the function had returned"
    )
    assert "rank 1 (pid 4001 on n0): has returned from the function, and then raised" in text
    text = told(closing(0, 2), closing(1, 3, text=NCCL, details=TRACEBACK))
    assert (
        "left the function out of step (operations submitted: rank 0: 2, rank 1: 3)"
        in text.splitlines()[0]
    )
    assert f"and then raised {NCCL}" in text


def test_a_report_shows_stacks_tracebacks_and_last_words_once():
    tails = {rank: f"words of {rank}\nmore of {rank}" for rank in range(4)}
    trace = "    Traceback (most recent call last):\n      File 'steps.py', line 3\n    ValueError: mine"
    spin = '      File "/home/me/perf/steps.py", line 12 in spin'
    reduce = f"""\
      File "{C10D}", line 12 in all_reduce
      File "{WRAPPER[0]}", line 12 in wrapper
      File "/home/me/perf/steps.py", line 12 in step"""
    for ends, expected in (
        (
            [lost(0), stuck(1), raised(2, PEER_GONE), raised(3), end(4, "ok")],
            f"""\
rank 0 (pid 4000 on n0) was lost: killed by SIGKILL
  rank 0 (pid 4000 on n0): lost
    the last lines of the rank's log:
    | words of 0
    | more of 0
  rank 3 (pid 4003 on n1): raised
{trace}
  rank 2 (pid 4002 on n1): raised: {PEER_GONE}
  rank 1 (pid 4001 on n0): blocked on a peer, at steps.py:12 in spin
{spin}
    the last lines of the rank's log:
    | words of 1
    | more of 1""",
        ),
        (
            [stuck(3), waiting(4)],
            f"""\
rank 3 (pid 4003 on n1) did not answer within 30 s: the rank is at steps.py:12 in spin
  rank 3 (pid 4003 on n1): stuck, at steps.py:12 in spin
{spin}
    the last lines of the rank's log:
    | words of 3
    | more of 3
  rank 4 (pid 4004 on n2): stuck, in all_reduce at steps.py:12 in step
{reduce}""",
        ),
        (
            [raised(rank) for rank in range(4)],
            f"rank 0 (pid 4000 on n0) raised ValueError: mine\n  ranks 0, 1, 2, 3: raised\n{trace}",
        ),
    ):
        assert told(*ends, tails=tails) == expected
    text = told(
        dataclasses.replace(
            raised(1), details="\n".join(f"line {number}" for number in range(1000))
        )
    )
    assert "line 0\n" in text
    assert "… 960 lines …" in text
    assert text.endswith("line 999")


# Stacks.


def test_a_position_names_the_users_own_line_and_the_collective():
    outer, wait = ("/home/me/perf/steps.py", "outer"), (threading.__file__, "wait")
    for frames, expected in (
        ([STEP], "at steps.py:12 in step"),
        ([wait, STEP, outer], "at steps.py:12 in step, in wait"),
        # What the user called, not what that calls, and not what was called further out.
        (
            [(C10D, "all_gather"), WRAPPER, (C10D, "all_gather_object"), WRAPPER, STEP],
            "in all_gather_object at steps.py:12 in step",
        ),
        ([(C10D, "recv"), WRAPPER, STEP, (C10D, "other"), outer], "in recv at steps.py:12 in step"),
        ([(TORCH / "nn/functional.py", "linear"), STEP], "at steps.py:12 in step, in linear"),
        ([("/home/me/src/torch/perf/steps.py", "step")], "at steps.py:12 in step"),
        (
            [(C10D, "all_reduce"), WRAPPER, (TORCH.parent / "roofline_kernels/steps.py", "step")],
            "in all_reduce at steps.py:12 in step",
        ),
        ([(C10D, "all_gather"), WRAPPER, (OURS / "worlds.py", "in_step")], "in all_gather"),
    ):
        assert str(position(dump(*frames))) == expected
    for text in ("", "nothing that is a stack", thread()):
        assert str(position(text)) == "at an unknown place"
    # A stack of more than a hundred frames is cut off before it comes to what leads to them.
    text = thread(*LISTEN, current=True) + "\n" + thread(*[STEP] * 100) + "  ...\n"
    assert str(position(text)) == "at steps.py:12 in step"
    other = thread(("/home/me/perf/loader.py", "load"), (threading.__file__, "run"))
    for text in (other + dump(STEP), dump(STEP) + other):
        assert main_frames(text)[0].name == "step"
    text = main_text(dump((C10D, "all_reduce"), WRAPPER, STEP))
    assert [line.rpartition(" in ")[2] for line in text.splitlines()] == [
        "all_reduce",
        "wrapper",
        "step",
    ]


def test_a_real_stack_of_a_real_thread_is_understood():
    release, waiting_now = threading.Event(), threading.Event()

    def wait_for_the_end():
        waiting_now.set()
        release.wait()

    blocked = threading.Thread(target=wait_for_the_end)
    blocked.start()
    waiting_now.wait()
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        release.set()
        file.seek(0)
        (own,) = (part for part in file.read().split("\n\n") if "wait_for_the_end" in part)
    blocked.join()
    assert position(own).place.startswith("test_blame.py:")
    assert position(own).place.endswith("in wait_for_the_end")
    assert position(own).inside == "wait"
