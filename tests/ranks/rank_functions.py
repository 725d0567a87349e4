"""What the tests have real ranks do, right and wrong. Ranks load it by file."""

import ctypes
import importlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

NUMEL = 64
LONG_S = 600.0
# What a rank function left unfinished, which must not end with it.
LEFT = []


# Right.


def tagged(rank, tag):
    """Payloads that tell which task and which rank they are of: a sum and every rank's own."""
    own = torch.full((NUMEL,), float(1000 * tag + rank))
    total = own.clone()
    dist.all_reduce(total)
    rows = [torch.empty_like(own) for _ in range(rank.size)]
    dist.all_gather(rows, own)
    return {
        "pid": os.getpid(),
        "total": total,
        "rows": torch.stack(rows),
        "rank": int(rank),
        "host": rank.host,
    }


def expected(tag, size):
    """What every rank of a world must get from `tagged`: the sum, and the rows."""
    rows = torch.stack([torch.full((NUMEL,), float(1000 * tag + rank)) for rank in range(size)])
    return rows.sum(0), rows


def echo(rank, *values):
    return rank, *values


def elements(rank, values):
    return values.numel()


def environment(rank):
    return {
        "variables": dict(os.environ),
        "threads": torch.get_num_threads(),
        "folder": str(Path.cwd()),
    }


def about_its_process(rank):
    """What a process has of its start: numbers, environment, folder, input, and the beginnings of random numbers."""
    numpy, random = importlib.import_module("numpy"), importlib.import_module("random")
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "session": os.getsid(0),
        "rank": os.environ["RANK"],
        "seen": os.environ.get("OF_THIS_TEST", ""),
        "folder": os.getcwd(),  # noqa: PTH109 - as text, which travels
        "input": sys.stdin.read(),
        "numpy": int(numpy.random.randint(2**31)),
        "python": random.getrandbits(31),
        "torch": torch.initial_seed(),
    }


def gathered(rank):
    """Every rank's number, beside the measured group."""
    rank.barrier()
    return rank.gather([rank, rank * 0.5])


def subgroups(rank):
    """Sums within groups that are asked for again and again."""
    sums = []
    for ranks in [[0, 1], [1, 2], [0, 1], [2]]:
        group = rank.subgroup(ranks)
        if group is None:
            sums.append(None)
            continue
        values = torch.full((NUMEL,), float(rank))
        dist.all_reduce(values, group=group)
        sums.append(values.unique().tolist())
    return sums, rank.subgroup([0, 1]) is rank.subgroup([0, 1])


def starts_a_process(rank):
    return subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LONG_S})"]).pid


# Skips.


def skip_everywhere(rank):
    rank.skip("no peer access")


def skip_on_one(rank, guilty):
    if rank == guilty:
        rank.skip("no peer access")
    dist.all_reduce(torch.full((NUMEL,), -1.0))


def skip_leaving_work(rank, guilty):
    if rank == guilty:
        dist.all_reduce(torch.full((NUMEL,), -1.0), async_op=True)
    rank.skip("not here")


# Errors.


def raise_at(rank, guilty, when):
    """Before a collective, during or after it."""
    if rank == guilty and when == "before":
        raise ValueError("before the collective")
    work = dist.all_reduce(torch.full((NUMEL,), -1.0), async_op=True)
    if rank == guilty and when == "during":
        raise ValueError("during the collective")
    work.wait()
    if rank == guilty:
        raise ValueError("after the collective")
    if when == "during":
        dist.all_reduce(torch.full((NUMEL,), -1.0))


def close_and_raise(rank, guilty):
    """The others notice that their peer is gone before that says why."""
    if rank == guilty:
        dist.destroy_process_group()
        time.sleep(0.3)
        raise ValueError("after its connections were closed")
    dist.all_reduce(torch.full((NUMEL,), -1.0))


def out_of_memory(rank, guilty):
    if rank == guilty:
        bytearray(2**60)
    dist.all_reduce(torch.full((NUMEL,), -1.0))


# Another order of operations.


def swap_two(rank, guilty):
    values, rows = torch.ones(NUMEL), [torch.empty(3) for _ in range(rank.size)]
    if rank == guilty:
        dist.all_gather(rows, torch.ones(3))
        dist.all_reduce(values)
    else:
        dist.all_reduce(values)
        dist.all_gather(rows, torch.ones(3))


def leave_one_out(rank, guilty):
    if rank != guilty:
        dist.all_reduce(torch.full((NUMEL,), -1.0))


def leave_one_over(rank, guilty):
    if rank == guilty:
        LEFT.append(dist.all_reduce(torch.full((NUMEL,), -1.0), async_op=True))


def leave_a_gather_over(rank, guilty):
    """What it leaves looks like the last step of every task, with another number."""
    if rank == guilty:
        rows = [torch.empty(1, dtype=torch.int64) for _ in range(rank.size)]
        LEFT.append(dist.all_gather(rows, torch.tensor([-1]), async_op=True))


# Losses.


def leave_a_child_and_die(rank, guilty):
    if rank == guilty:
        # It holds all that the rank had open.
        if os.fork() == 0:
            time.sleep(LONG_S)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.full((NUMEL,), -1.0))


def kill_its_parent(rank, number):
    """Rank 1 ends what has forked it, and waits for its own end."""
    if rank == 1:
        os.kill(os.getppid(), number)
    signal.pause()


def die_by(rank, guilty, number):
    if rank == guilty:
        print("the last words of rank", int(rank))
        os.kill(os.getpid(), number)
    dist.all_reduce(torch.full((NUMEL,), -1.0))


def segfault(rank, guilty):
    if rank == guilty:
        ctypes.string_at(0)
    dist.all_reduce(torch.full((NUMEL,), -1.0))


def exit_with(rank, guilty, status):
    if rank == guilty:
        os._exit(status)
    dist.all_reduce(torch.full((NUMEL,), -1.0))


def babble_and_die(rank, guilty):
    if rank == guilty:
        os.write(1, b"caf\xe9 \xff\xfe\x00 and more\n" + bytes(range(256)) + b"\nthe end\n")
        os._exit(3)
    dist.all_reduce(torch.full((NUMEL,), -1.0))


# Hangs.


def sleep_long(seconds=LONG_S):
    time.sleep(seconds)


def hang(rank, guilty):
    if rank == guilty:
        print("about to hang")
        sleep_long()
    dist.all_reduce(torch.full((NUMEL,), -1.0))


def hang_in_a_collective(rank, guilty):
    """The guilty waits for a message that nobody sends."""
    if rank == guilty:
        dist.recv(torch.empty(1), src=(guilty + 1) % rank.size)
    dist.all_reduce(torch.full((NUMEL,), -1.0))


def hang_deaf(rank, guilty):
    if rank == guilty:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        sleep_long()
    dist.all_reduce(torch.full((NUMEL,), -1.0))


def hang_deep(rank, guilty, depth=150):
    if rank == guilty and depth:
        return hang_deep(rank, guilty, depth - 1)
    if rank == guilty:
        sleep_long()
    return dist.all_reduce(torch.full((NUMEL,), -1.0))


def stop_itself(rank, guilty):
    if rank == guilty:
        os.kill(os.getpid(), signal.SIGSTOP)
    dist.all_reduce(torch.full((NUMEL,), -1.0))


def hold_the_interpreter(rank, guilty):
    """In a C function that never gives the interpreter's lock back, as often as a signal ends it."""
    if rank == guilty:
        asleep = ctypes.PyDLL(None).sleep
        while True:
            asleep(int(LONG_S))
    dist.all_reduce(torch.full((NUMEL,), -1.0))


def hold_the_interpreter_once(rank, guilty):
    """The same, where the signal that asks for its stack also sets it free."""
    if rank == guilty:
        ctypes.PyDLL(None).sleep(int(LONG_S))
    dist.all_reduce(torch.full((NUMEL,), -1.0))


def stuck_in_every_way(rank, started):
    """Rank 0 waits in a collective, rank 1 holds the interpreter, rank 2 is stopped."""
    (Path(started) / str(int(rank))).touch()
    if rank == 1:
        hold_the_interpreter(rank, 1)
    if rank == 2:
        stop_itself(rank, 2)
    dist.all_reduce(torch.full((NUMEL,), -1.0))


# Results and errors that cannot travel.


def results_that_cannot_travel(rank, numel):
    result = {"times": [lambda: 1]} if rank == 0 else torch.zeros(numel)
    # Both have what they return, so neither is still at work when the other's is refused.
    dist.barrier()
    return result


class Hostile(Exception):
    """Can be neither pickled nor printed."""

    def __init__(self):
        super().__init__(lambda: 1)

    def __str__(self):
        raise RuntimeError("no text")

    __repr__ = __str__

    def __reduce__(self):
        raise TypeError("no pickle")


def errors_that_cannot_be_told(rank):
    raise Hostile if rank == 0 else ValueError("caf\udce9 " + "x" * 100_000)


STEERING = "\x1b[2J\u202e::error::\r##vso[task.complete]"


def end_with_text_that_steers(rank, how):
    """Rank 0 raises, skips or dies, and what it says would clear a terminal or be a command of a CI."""
    if rank == 0 and how == "raised":
        raise ValueError(f"a line\n{STEERING}")
    if rank == 0 and how == "skipped":
        rank.skip(STEERING)
    if rank == 0:
        print(STEERING, flush=True)
        os._exit(3)
