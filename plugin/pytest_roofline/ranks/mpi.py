"""A test of an MPI with buffers on a device, by using them.

Neither a build flag nor an environment variable proves that the transport in use can take such buffers. Where it
cannot, it often hangs or crashes without a message. So ranks try it, which may die of it. mpi4py is imported only in
ranks, since a process that has imported `mpi4py.MPI` cannot start mpirun any more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..core.errors import BadInput
from ..core.units import count, printable
from .worlds import Rank

SIZES_BYTES = (4096, 4 * 2**20)
TIMEOUT_S = 20.0
_TAG = 11


def world(size: int) -> Any:
    """Return mpi4py's `COMM_WORLD` in a rank. `mpirun` or `srun --mpi=pmix` has started the rank.

    Args:
        size: the expected number of ranks.

    Raises:
        BadInput: the world has another size, so its times would be those of another test.
        ImportError: mpi4py is not installed here.
    """
    from mpi4py import MPI

    check_world(MPI.COMM_WORLD.size, size)
    return MPI.COMM_WORLD


def check_world(actual: int, size: int) -> None:
    """Raise BadInput if MPI's world has `actual` ranks instead of the expected `size`."""
    if actual == size:
        return
    remedy = "start as many ranks as the test needs"
    # Processes that the mpirun of another MPI started do not find each other.
    if actual == 1:
        remedy = (
            f"this mpirun belongs to another MPI than mpi4py ({version()}), so every "
            "rank is a separate world; use the mpirun of mpi4py's MPI"
        )
    raise BadInput(f"MPI's COMM_WORLD has {count(actual, 'rank')}; expected {size}: {remedy}")


def version() -> str:
    """Return the first line of the version of mpi4py's MPI."""
    from mpi4py import MPI

    return str(MPI.Get_library_version()).strip("\0 ,\n").partition("\n")[0].strip(" ,")


def probe(rank: Rank) -> dict[str, Any]:
    """Send device buffers from rank 0 to rank 1 and back.

    Return which arrived wrong. The ranks may crash; see `gpu_awareness`.
    """
    comm = world(rank.size)
    wrong = [size for size in SIZES_BYTES if not survives(comm, int(rank), rank.device, size)]
    return {"wrong": wrong, "device": str(rank.device), "version": version()}


def survives(comm: Any, rank: int, device: torch.device, size_bytes: int) -> bool:
    """Return whether a device buffer survives the way by MPI.

    It goes to the other of two ranks and back. Every byte is compared. Both ranks, 0 and 1, must call this.
    """
    # Knuth's multiplicative hash of the position, so that no two stretches are alike.
    pattern = (torch.arange(size_bytes, device=device) * 2_654_435_761 >> 24).to(torch.uint8)
    # Every byte differs from the pattern, so a byte that does not arrive is noticed.
    received = pattern.bitwise_not()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    if rank == 0:
        comm.Send(pattern, dest=1, tag=_TAG)
        comm.Recv(received, source=1, tag=_TAG)
    else:
        comm.Recv(received, source=0, tag=_TAG)
        comm.Send(received, dest=0, tag=_TAG)
    return torch.equal(received, pattern)


@dataclass(frozen=True, slots=True)
class Awareness:
    """The ability of MPI to take device buffers here, and the reason to believe it."""

    aware: bool
    reason: str


def gpu_awareness(run: Callable[..., Sequence[dict[str, Any]]]) -> Awareness:
    """Return whether MPI takes device buffers here, by using them.

    Args:
        run: runs a rank function in a world of its own, and returns the results by rank, as `distributed.run` does. Any
            exception means that the ranks crashed or hung.
    """
    try:
        answers = run(probe, world_size=2, timeout=TIMEOUT_S)
    except Exception as error:
        first, *_ = str(error).splitlines() or [type(error).__name__]
        return Awareness(False, f"not GPU-aware: the ranks crashed on a device buffer: {first}")
    # Ranks on processors have no device buffers to try.
    if any(not answer["device"].startswith("cuda") for answer in answers):
        return Awareness(False, f"no device buffers: a rank is on {answers[0]['device']}")
    library = printable(answers[0]["version"])
    wrong_sizes = sorted({size for answer in answers for size in answer["wrong"]})
    if wrong_sizes:
        sizes = ", ".join(map(str, wrong_sizes))
        return Awareness(
            False, f"not GPU-aware: device buffers of {sizes} bytes arrived wrong ({library})"
        )
    return Awareness(True, f"GPU-aware: device buffers arrived whole ({library})")
