"""Whether an MPI can take buffers on a device: what the library says of itself, and what happens when it is done.

Neither a build flag nor an environment variable proves that the transport in use can do it, and where it cannot it
often hangs or crashes without a word. So the answer comes from ranks that may die of it. mpi4py is imported only in
ranks: a process that imported `mpi4py.MPI` cannot start mpirun any more.
"""

import ctypes
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..core.errors import BadInput
from .context import Rank

SIZES_BYTES = (4096, 4 * 2**20)
TIMEOUT_S = 20.0
_TAG = 11
_MAPS = Path("/proc/self/maps")
# MPICH and Cray name theirs by compiler too; the bindings beside it (`libmpi_cxx`, `libmpi_mpifh`) are other files.
_LIBRARY = re.compile(r"/\S*/libmpi(?:ch|_abi|(?:ch)?_(?:cray|gnu|intel|nvidia|amd|aocc)[^/\s]*)?\.so[\d.]*(?=\s|$)")
# Of MPICH's mpi_proto.h: MPIX_GPU_SUPPORT_CUDA and MPIX_GPU_SUPPORT_HIP.
_MPICH_CUDA, _MPICH_HIP = 0, 2


@dataclass(frozen=True, slots=True)
class Hints:
    """What a loaded MPI says of itself; None is no answer, and none of it is a proof.

    Args:
        library: its file; empty where no MPI is loaded.
        version: the first line of its own description.
        cuda: whether it was built for CUDA buffers.
        rocm: the same for ROCm.
        memory_kinds: the value of MPI 4.1's `mpi_memory_alloc_kinds`: `system,mpi,cuda:device`.
    """

    library: str = ""
    version: str = ""
    cuda: bool | None = None
    rocm: bool | None = None
    memory_kinds: str | None = None


def hints(world: Any = None) -> Hints:
    """What the MPI in this process says of itself.

    Args:
        world: mpi4py's `COMM_WORLD`, for what only a running MPI tells; None asks the library alone.
    """
    path = loaded_library(_MAPS.read_text(encoding="utf-8")) if _MAPS.exists() else ""
    if not path:
        return Hints()
    library = ctypes.CDLL(path)
    return Hints(
        library=path,
        version=_version(library),
        cuda=_says(library, "MPIX_Query_cuda_support", _MPICH_CUDA),
        rocm=_says(library, "MPIX_Query_rocm_support", _MPICH_HIP),
        memory_kinds=None if world is None else world.Get_info().get("mpi_memory_alloc_kinds"),
    )


def loaded_library(maps: str) -> str:
    """The file of the MPI that a process has mapped, from the text of its `/proc/self/maps`; empty without one."""
    found = _LIBRARY.search(maps)
    return found[0] if found else ""


def _version(library: ctypes.CDLL) -> str:
    ask = getattr(library, "MPI_Get_library_version", None)
    if ask is None:
        return ""
    # mpi.h: MPI_MAX_LIBRARY_VERSION_STRING is 256 in Open MPI and 8192 in MPICH.
    text, length = ctypes.create_string_buffer(8193), ctypes.c_int()
    ask(text, ctypes.byref(length))
    return text.value.decode(errors="replace").strip().partition("\n")[0].strip("\0 ,")


def _says(library: Any, of_open_mpi: str, of_mpich: int) -> bool | None:
    """Whether an MPI says that it was built for a kind of device, asked as Open MPI and as MPICH want it."""
    ask = getattr(library, of_open_mpi, None)
    if ask is not None:
        return bool(ask())
    ask = getattr(library, "MPIX_GPU_query_support", None)
    answer = ctypes.c_int(0)
    if ask is None or ask(of_mpich, ctypes.byref(answer)) != 0:
        return None
    return bool(answer.value)


def check_world(comm: Any, size: int) -> None:
    """Refuse a world of another size: its times would be those of another test.

    Args:
        comm: mpi4py's `COMM_WORLD`.
        size: how many ranks were asked for.

    Raises:
        BadInput: it has fewer or more ranks.
    """
    if comm.size == size:
        return
    own = hints().version or "one that does not tell its name"
    why = (
        "the mpirun in use belongs to another MPI than the one that mpi4py was built for, which then makes a world of "
        f"one of every rank (mpi4py uses {own}); call the mpirun of that one"
        if comm.size == 1
        else "start as many ranks as the test asks for"
    )
    raise BadInput(f"MPI's COMM_WORLD has {comm.size} rank{'s' * (comm.size != 1)}; expected {size}: {why}")


def world(size: int) -> Any:
    """mpi4py's `COMM_WORLD` in a rank that was started by mpirun or `srun --mpi=pmix`.

    Args:
        size: how many ranks were asked for.

    Raises:
        BadInput: the world is of another size.
        ImportError: mpi4py is not installed here.
    """
    from mpi4py import MPI

    check_world(MPI.COMM_WORLD, size)
    return MPI.COMM_WORLD


def probe(rank: Rank) -> dict[str, Any]:
    """Send device buffers from rank 0 to rank 1 and back, in a world that may die of it; see `gpu_awareness`.

    Returns:
        What the library says of itself, and `wrong`: the sizes in bytes that did not arrive as they were sent.
    """
    comm = world(rank.size)
    wrong = [size for size in SIZES_BYTES if not survives(comm, int(rank), rank.device, size)]
    return {"wrong": wrong, "device": str(rank.device), **asdict(hints(comm))}


def survives(comm: Any, rank: int, device: torch.device, size_bytes: int) -> bool:
    """Whether a buffer on a device comes to the other of two ranks, and back, byte by byte.

    Args:
        comm: of two ranks.
        rank: this rank's number.
        device: where the buffers are.
        size_bytes: of the buffer.
    """
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
        return Awareness(False, f"not GPU-aware: its ranks did not survive a device buffer: {first}")
    return verdict(found)


def verdict(found: Sequence[dict[str, Any]]) -> Awareness:
    """What the ranks of a probe found, in a sentence."""
    first = found[0]
    if any(not result["device"].startswith("cuda") for result in found):
        return Awareness(False, f"no device buffers: a rank is on {first['device']}")
    wrong = sorted({size for result in found for size in result["wrong"]})
    told = f"{first['version'] or 'MPI'}, which says CUDA {_word(first['cuda'])}, ROCm {_word(first['rocm'])}"
    if wrong:
        sizes = ", ".join(str(size) for size in wrong)
        return Awareness(False, f"not GPU-aware: device buffers of {sizes} bytes arrived wrong ({told})")
    return Awareness(True, f"GPU-aware: device buffers arrived whole ({told})")


def _word(said: bool | None) -> str:
    return {True: "yes", False: "no", None: "nothing"}[said]
