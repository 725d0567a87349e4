"""What each of two ranks of MPI does in `test_mpi_copy.py`: messages of every kind; rank 0 prints what came of them."""

import json
import sys

import torch
from mpi4py import MPI

from pytest_roofline.ranks import mpi
from roofline_kernels import mpi_copy
from roofline_kernels.messages import Message

CPU = torch.device("cpu")
COMM = MPI.COMM_WORLD
RANK = COMM.rank


def exchanged(size_bytes, exchange, returns):
    """Whether three passes of a message arrived on this rank, and whether it knew before each that they had not."""
    message, found = Message(RANK, size_bytes, CPU, number=5, returns=returns), []
    for _ in range(3):
        before = message.arrived() and (message.incoming is not None)
        exchange(message)
        found.append(message.arrived() and not before)
        message.fill()
    return all(found)


def by_mpi(message):
    mpi_copy.exchange(COMM, RANK, message)


def by_staging(message):
    mpi_copy.exchange_staged(COMM, RANK, message, mpi_copy.staging(message.outgoing.numel(), CPU))


def nothing(message):
    """A mutant: no message at all."""


def without_the_last(message):
    """A mutant: the last bytes are left out."""
    if RANK == 0:
        mpi_copy.send(COMM, message.outgoing[:-16], to=1)
    else:
        mpi_copy.receive(COMM, message.incoming[:-16], sender=0)


def first_again(message):
    """A mutant: the data of the first pass, again and again."""
    if RANK == 0:
        message.first = getattr(message, "first", message.outgoing.clone())
        mpi_copy.send(COMM, message.first, to=1)
    else:
        mpi_copy.receive(COMM, message.incoming, sender=0)


def typed(dtype):
    """Whether a tensor of a type that MPI does not know comes through."""
    sent = torch.arange(1000, dtype=torch.float32).to(dtype)
    if RANK == 0:
        mpi_copy.send(COMM, sent, to=1)
        return True
    received = torch.zeros(1000, dtype=dtype)
    mpi_copy.receive(COMM, received, sender=0)
    return torch.equal(received, sent)


def main():
    mpi.check_world(COMM.size, 2)
    ways = [(by_mpi, size, back) for size in (1, 4096, 65_537, 2**20) for back in (False, True)]
    ways += [(by_staging, size, back) for _, size, back in ways]
    ways += [(mutant, 65_537, False) for mutant in (nothing, without_the_last, first_again)]
    found = {
        way.__name__ if way in MUTANTS else f"{way.__name__} {size} {back}": exchanged(
            size, way, back
        )
        for way, size, back in ways
    }
    found |= {str(dtype): typed(dtype) for dtype in (torch.float16, torch.bfloat16)}
    found["survives"] = all(mpi.survives(COMM, RANK, CPU, size) for size in mpi.SIZES_BYTES)
    every = COMM.gather([found, mpi.version()])
    if RANK == 0:
        json.dump(every, sys.stdout)


MUTANTS = (nothing, without_the_last, first_again)

if __name__ == "__main__":
    main()
