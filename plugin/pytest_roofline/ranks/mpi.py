"""Whether an MPI can take buffers on a device: what happens when it is done.

Neither a build flag nor an environment variable proves that the transport in use can do it, and where it cannot it
often hangs or crashes without a word. So the answer comes from ranks that may die of it. mpi4py is imported only in
ranks: a process that imported `mpi4py.MPI` cannot start mpirun any more.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..core.errors import BadInput
from ..core.units import printable
from .worlds import Rank

SIZES_BYTES = (4096, 4 * 2**20)
TIMEOUT_S = 20.0
_TAG = 11


def world(size: int) -> Any:
    """mpi4py's `COMM_WORLD` in a rank that was started by mpirun or `srun --mpi=pmix`.

    Args:
        size: how many ranks were asked for.

    Raises:
        BadInput: the world is of another size: its times would be those of another test.
        ImportError: mpi4py is not installed here.
    """
    from mpi4py import MPI

    check_world(MPI.COMM_WORLD.size, size)
    return MPI.COMM_WORLD


def check_world(found: int, size: int) -> None:
    """Refuse a world of `found` ranks where `size` were asked for."""
    if found == size:
        return
    why = (
        "the mpirun in use belongs to another MPI than the one that mpi4py was built for, which then makes a world of "
        f"one of every rank (mpi4py uses {version()}); call the mpirun of that one"
        if found == 1
        else "start as many ranks as the test asks for"
    )
    raise BadInput(f"MPI's COMM_WORLD has {found} rank{'s' * (found != 1)}; expected {size}: {why}")


def version() -> str:
    """What the MPI that mpi4py uses says of itself, in a line."""
    from mpi4py import MPI

    return str(MPI.Get_library_version()).strip("\0 ,\n").partition("\n")[0].strip(" ,")


def probe(rank: Rank) -> dict[str, Any]:
    """Send device buffers from rank 0 to rank 1 and back, in a world that may die of it; see `gpu_awareness`."""
    comm = world(rank.size)
    wrong = [size for size in SIZES_BYTES if not survives(comm, int(rank), rank.device, size)]
    return {"wrong": wrong, "device": str(rank.device), "version": version()}


def survives(comm: Any, rank: int, device: torch.device, size_bytes: int) -> bool:
    """Whether a buffer on a device comes to the other of two ranks, and back, byte by byte."""
    # Knuth's multiplicative hash of the position, so that no two stretches are alike.
    pattern = (torch.arange(size_bytes, device=device) * 2_654_435_761 >> 24).to(torch.uint8)
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
    """Whether MPI takes device buffers here, and why that is believed."""

    aware: bool
    reason: str


def gpu_awareness(run: Callable[..., Sequence[dict[str, Any]]]) -> Awareness:
    """Whether MPI takes device buffers here, by doing it in ranks that are given up afterwards.

    Args:
        run: runs a rank function in a world of its own and returns the results by rank, as `distributed.run` does;
            whatever it raises says that the ranks died or hung.
    """
    try:
        found = run(probe, world_size=2, timeout=TIMEOUT_S)
    except Exception as error:
        first, *_ = str(error).splitlines() or [type(error).__name__]
        return Awareness(
            False, f"not GPU-aware: its ranks did not survive a device buffer: {first}"
        )
    if any(not result["device"].startswith("cuda") for result in found):
        return Awareness(False, f"no device buffers: a rank is on {found[0]['device']}")
    library, wrong = (
        printable(found[0]["version"]),
        sorted({size for result in found for size in result["wrong"]}),
    )
    if wrong:
        sizes = ", ".join(map(str, wrong))
        return Awareness(
            False, f"not GPU-aware: device buffers of {sizes} bytes arrived wrong ({library})"
        )
    return Awareness(True, f"GPU-aware: device buffers arrived whole ({library})")
