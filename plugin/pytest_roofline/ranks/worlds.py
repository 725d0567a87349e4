"""On a rank: the world that a test runs in is the default process group, so a plain `dist.all_reduce(x)` works.

A world is kept until one of another size or back end is asked for; entering another takes some 30 ms with Gloo.
"""

import contextlib
import socket
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from ..core.errors import BadInput
from ..engine.devices import Device
from .blame import OUT_OF_STEP
from .context import Rank
from .identity import Identity
from .messages import World


class Worlds:
    """Enters and leaves worlds on one rank.

    Args:
        identity: of this rank, whatever its world.
        meter: its device.
        address: of the host whose store the members meet in.
        port: of that store.
    """

    def __init__(self, identity: Identity, meter: Device, address: str, port: int) -> None:
        self._identity, self._meter = identity, meter
        self._address, self._port = address, port
        self._store: Any = None
        self._world: World | None = None
        self._rank: Rank | None = None

    def enter(self, world: World) -> Rank:
        """This rank in a world; every member must enter it."""
        if self._rank is None or self._world != world:
            self.leave()
            self._rank, self._world = self._enter(world), world
        return self._rank

    def leave(self) -> None:
        """Let go of the present world and its communicators."""
        self._rank = self._world = None
        if dist.is_initialized():
            with contextlib.suppress(Exception):
                dist.destroy_process_group()

    def _enter(self, world: World) -> Rank:
        timeout = timedelta(seconds=world.timeout_s)
        if self._store is None:
            self._store = TCPStore(self._address, self._port, None, False, timeout=timeout)
        dist.init_process_group(
            group_backend(world.backend),
            store=PrefixStore(world.name, self._store),
            rank=self._identity.rank,
            world_size=world.size,
            timeout=timeout,
        )
        rank = Rank.make(
            self._identity.rank,
            size=world.size,
            local_rank=self._identity.local_rank,
            host=socket.gethostname(),
            backend=world.backend,
            meter=self._meter,
            side=dist.new_group(backend="gloo", timeout=timeout),
            timeout=timeout,
        )
        if rank.size > 1 and rank.device.type != "cpu":
            # A library builds its communicator, which takes seconds, within the task's own time-out.
            dist.all_reduce(torch.zeros(1, device=rank.device))
            rank.meter.synchronize()
        return rank

    def in_step(self, number: int) -> None:
        """Make sure that every member has come to the end of the same task, with no collective left over.

        Args:
            number: of the task.

        Raises:
            RuntimeError: what met is another task's, or another operation.
        """
        rank = self._rank
        if rank is None or rank.size == 1:
            return
        own = torch.tensor([number], dtype=torch.int64, device=rank.device)
        rows = [torch.zeros_like(own) for _ in range(rank.size)]
        dist.all_gather(rows, own)
        seen = [int(row.item()) for row in rows]
        if set(seen) != {number}:
            raise RuntimeError(f"{OUT_OF_STEP}: at the end of task {number} they hold {seen}")

    @property
    def collectives(self) -> int | None:
        """Operations that this rank has submitted to the default group; None where its back end does not count."""
        count = getattr(dist.group.WORLD, "_get_sequence_number_for_group", None)
        with contextlib.suppress(RuntimeError):
            return int(count()) if count is not None else None
        return None


def group_backend(backend: str) -> str:
    """The back ends of a default group: beside one for an accelerator, Gloo serves tensors on the host."""
    device = {"nccl": "cuda", "xccl": "xpu"}.get(backend)
    return f"cpu:gloo,{device}:{backend}" if device else backend


def default_backend(kind: str) -> str:
    """The back end for a kind of device; NCCL's name stands for RCCL too."""
    return {"cuda": "nccl", "xpu": "xccl"}.get(kind, "gloo")


def backend_of(kind: str, asked: str | None) -> str:
    """The back end that a world over a kind of device is to have: the one asked for, or the device's own.

    Raises:
        BadInput: this torch was built without the device's own.
    """
    name = asked or default_backend(kind)
    if asked is None and not dist.is_backend_available(name):
        raise BadInput(
            f"torch {torch.__version__} was built without {name}, by which ranks on {kind} devices work together; "
            "install a torch that has it, or name another back end with backend="
        )
    return name


def backends(kind: str) -> tuple[str, ...]:
    """Back ends of this torch that can serve a kind of device, the default first."""
    known = {"nccl": dist.is_nccl_available, "mpi": dist.is_mpi_available, "gloo": dist.is_gloo_available}
    usable = [name for name in (default_backend(kind), "mpi", "gloo") if name == "xccl" or known[name]()]
    # Gloo carries an accelerator's tensors through host memory, which is another thing than to be measured there.
    return tuple(dict.fromkeys(name for name in usable if kind == "cpu" or name != "gloo"))


def check_backend(backend: str | None) -> str | None:
    """A back end as a user names it; None is the device's own.

    Raises:
        BadInput: this torch has none of that name.
    """
    if backend is not None and not (isinstance(backend, str) and dist.is_backend_available(backend)):
        known = [name for name in dist.Backend.backend_list if name not in ("undefined", "fake")]
        there = ", ".join(name for name in known if dist.is_backend_available(name))
        raise BadInput(f"backend is {backend!r}; this torch has {there}")
    return backend
