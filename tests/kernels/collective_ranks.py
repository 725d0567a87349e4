"""Starts ranks over Gloo on loopback, runs every collective and every faulty one, and prints what their checks said.

`python collective_ranks.py RANKS` forks so many ranks and prints one JSON object: cases and, by case, each member's
answer. It is started once for all tests, since a rank that imports torch anew takes seconds.
"""

import json
import sys

import torch
import torch.distributed as dist
from forked_ranks import answers_of

from roofline_kernels.collective_layout import IN_PLACE
from roofline_kernels.collectives import Collective

CPU = torch.device("cpu")
# Groups of two and of four that are no prefix of the world, so that numbers in the group and in the world differ.
GROUPS = {2: [1, 4], 4: [0, 2, 3, 5]}
# Less than a part, odd, unaligned; and more than a tile of 2,097,169 elements.
KINDS = [("float32", 1), ("bfloat16", 1_000), ("float16", 65_548), ("float32", 65_548)]
LARGE = ("float32", 12_000_004)


def correct(group, ranks, answers):
    """Every operation: after one call, after a refill alone, and after a call again."""
    for operation, places in IN_PLACE.items():
        for place in places:
            for dtype, size_bytes in [
                *(KINDS if ranks < 6 else KINDS[1:2]),
                *([LARGE] if ranks == 2 else []),
            ]:
                one = collective(operation, group, dtype, size_bytes, place, root=ranks - 1)
                answers[f"{operation}-{place}-{dtype}-{size_bytes}-{ranks}"] = three_answers(one)


def three_answers(one):
    buffers = one.make()
    one.call(buffers)
    first = one.verify(buffers)
    if one.as_timed:
        one.call(buffers)
        first = first and one.verify(buffers)
    one.refill(buffers)
    idle = one.verify(buffers)
    one.call(buffers)
    return [first, idle, one.verify(buffers)]


def collective(operation, group, dtype="float32", size_bytes=40_000, place=None, root=0):
    return Collective(
        operation, size_bytes, getattr(torch, dtype), group, CPU, in_place=place, root=root
    )


def faulty(group, ranks, answers):
    """Every operation with every fault that it can have."""
    for operation, places in IN_PLACE.items():
        for place in places:
            for fault, operations in FAULTS.items():
                if operation in (operations or IN_PLACE):
                    one = collective(operation, group, place=place)
                    # The second set, so that there is an iteration before.
                    one.make()
                    buffers = one.make()
                    fault(one, buffers)
                    answers[f"{fault.__name__}-{operation}-{place}-{ranks}"] = one.verify(buffers)


def no_op(one, buffers):
    pass


def done_once(one, buffers):
    """Right when it is first called, and nothing after the refill."""
    one.call(buffers)
    one.refill(buffers)


def end_missing(one, buffers):
    """The last 16 bytes of the result are left as they were."""
    end = buffers.receive.view(torch.uint8)[-16:]
    before = end.clone()
    one.call(buffers)
    end.copy_(before)


def chunks_swapped(one, buffers):
    """Two quarters of the result have changed places."""
    one.call(buffers)
    if buffers.receive.numel():
        first, second, *_ = buffers.receive.chunk(4)
        first_before = first.clone()
        first.copy_(second)
        second.copy_(first_before)


def stale_rank(one, buffers):
    """One rank, the root where there is one that sends, contributes the data of the iteration before."""
    sender = 0 if one.operation in ("broadcast", "scatter") else 1
    if one.rank == sender:
        fill(one, buffers, buffers.iteration - 1)
    one.call(buffers)
    if one.rank == sender and one.layout.intact:
        # The others must see it: its own data are put back.
        received = buffers.receive.clone()
        fill(one, buffers, buffers.iteration)
        if not one.in_place:
            buffers.receive.copy_(received)


def fill(one, buffers, iteration):
    for part in one.layout.sent:
        one.data.fill(
            buffers.send[part.start : part.start + part.count], part.rank, iteration, part.first
        )


def wrong_root(one, buffers):
    """Another rank takes the part of the root."""
    other = collective(one.operation, one.group, place=one.in_place, root=1)
    theirs = other.make()
    if one.operation in ("broadcast", "reduce"):
        theirs.send = theirs.receive = buffers.send
    other.call(theirs)
    if theirs.receive.numel() == buffers.receive.numel():
        buffers.receive.copy_(theirs.receive)


def order_reversed(one, buffers):
    """What came from the ranks stands in reverse order."""
    one.call(buffers)
    if buffers.receive.numel():
        parts = buffers.receive.view(one.ranks, -1)
        parts.copy_(parts.flip(0).clone())


def neighbour_left_out(one, buffers):
    """A sum that leaves one rank out, which then has the right one."""
    if one.rank == 1:
        buffers.send.zero_()
    one.call(buffers)


# By fault the operations that can have it; None: all.
FAULTS = {
    **dict.fromkeys((no_op, done_once, end_missing, chunks_swapped, stale_rank)),
    wrong_root: ("broadcast", "reduce", "gather", "scatter"),
    order_reversed: ("all_gather", "gather", "all_to_all"),
    neighbour_left_out: ("all_reduce",),
}


def answers_on(rank, ranks):
    """What a rank's checks say, by case."""
    answers = {}
    groups = {size: dist.new_group(members) for size, members in GROUPS.items()} | {
        ranks: dist.group.WORLD
    }
    for size, group in groups.items():
        if rank in GROUPS.get(size, range(ranks)):
            correct(group, size, answers)
            if size < ranks:
                faulty(group, size, answers)
    return answers


def main(ranks):
    """Print the answers of all ranks, by case and then by rank."""
    found = answers_of(ranks, lambda rank: answers_on(rank, ranks))
    cases = dict.fromkeys(case for answers in found for case in answers)
    print(
        json.dumps(
            {case: [answers[case] for answers in found if case in answers] for case in cases}
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]))
