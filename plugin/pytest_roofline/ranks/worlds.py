"""A rank's view of itself and of the world that it is in.

The world of a test is the default process group, so a plain `dist.all_reduce(x)` works. It is kept until a test needs
another size or back end; to enter another takes some 30 ms with Gloo.
"""

import contextlib
import socket
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from ..core.errors import BadInput
from ..engine.devices import Device, torch_device
from .blame import OUT_OF_STEP
from .identity import Identity
from .tasks import World


class Skipped(Exception):
    """A rank function found that its test cannot run here."""


class Rank(int):
    """The number of a rank in its world, with its device and group.

    Attributes:
        size: ranks in this world.
        local_rank: its number among the ranks of its host.
        host: name of its host.
        backend: of the default group: `gloo`, `nccl` …
        device: the torch device that this rank owns.
        meter: the same device as the timing engine sees it.
    """

    size: int
    local_rank: int
    host: str
    backend: str
    device: torch.device
    meter: "Device"
    _side: dist.ProcessGroup | None
    _timeout: timedelta | None
    _subgroups: dict[tuple[int, ...], dist.ProcessGroup | None]

    @classmethod
    def make(
        cls,
        number: int,
        *,
        size: int,
        local_rank: int,
        host: str,
        backend: str,
        meter: "Device",
        side: dist.ProcessGroup | None,
        timeout: timedelta | None = None,
    ) -> "Rank":
        """Return a rank with its device and groups.

        Args:
            number: of the rank in its world.
            meter: the device as the timing engine sees it.
            side: a Gloo group of the same ranks for what is not measured; None without a process group.
            timeout: of the groups of some ranks that a test makes.
        """
        rank = cls(number)
        rank.size, rank.local_rank, rank.host, rank.backend = size, local_rank, host, backend
        rank.meter, rank._side, rank._timeout = meter, side, timeout
        rank.device = torch_device(meter)
        rank._subgroups = {}
        return rank

    @property
    def group(self) -> dist.ProcessGroup:
        """The default group: every rank of this world, over `backend`."""
        assert dist.group.WORLD is not None
        return dist.group.WORLD

    def barrier(self) -> None:
        """Wait on the host for every rank of this world. This goes beside the measured group, and
        without its device.
        """
        if self._side is not None:
            dist.barrier(group=self._side)

    def gather(self, values: Sequence[float]) -> list[tuple[float, ...]]:
        """Return the numbers of every rank, by rank. They are exchanged beside the measured group.

        Args:
            values: this rank's numbers; every rank must give as many.
        """
        numbers = torch.tensor(list(values), dtype=torch.float64)
        if self._side is None or self.size == 1:
            return [tuple(numbers.tolist())]
        rows = [torch.empty_like(numbers) for _ in range(self.size)]
        dist.all_gather(rows, numbers, group=self._side)
        return [tuple(row.tolist()) for row in rows]

    def subgroup(self, ranks: Sequence[int]) -> dist.ProcessGroup | None:
        """Return a group of some of the ranks. Every rank of the world must call this with the same
        list. The group is kept for the next test.

        Args:
            ranks: numbers in this world, ascending.

        Returns:
            The group; None on a rank that is not in it.

        Raises:
            BadInput: the list is empty, not ascending, or names a rank that this world has not.
        """
        members = tuple(ranks)
        if (
            not members
            or list(members) != sorted(set(members))
            or not 0 <= members[0] <= members[-1] < self.size
        ):
            raise BadInput(
                f"subgroup got the ranks {list(ranks)}; expected ascending ranks from 0 to {self.size - 1}"
            )
        if members not in self._subgroups:
            group = dist.new_group(list(members), timeout=self._timeout)
            self._subgroups[members] = group if int(self) in members else None
        return self._subgroups[members]

    def skip(self, reason: str) -> NoReturn:
        """Skip the test for a reason that only this rank knows.

        Raises:
            Skipped: always.
        """
        raise Skipped(reason)


# Rank functions of this package.


def free_bytes(rank: Rank) -> int:
    """Return the bytes that an allocation on this rank's device can get."""
    rank.meter.release()
    return rank.meter.free_bytes()


def link_kind(rank: Rank, hosts: Sequence[str], uuids: Sequence[str | None]) -> str:
    """Return the kind of the links of this host's ranks.

    The links are among their accelerators. The kind is the word of a hardware key, such as `nvlink`; `none` where this
    host has one rank only.

    Args:
        rank: this rank.
        hosts: the host of every rank.
        uuids: the accelerator of every rank.
    """
    from ..engine import inventory

    ranks_here = [number for number, host in enumerate(hosts) if host == hosts[rank]]
    # Every rank must take part in the exchange, so it comes before the return below.
    indices = [int(index) for (index,) in rank.gather((float(rank.device.index or 0),))]
    if len(ranks_here) == 1:
        return "none"
    if torch.cuda.device_count() >= len(ranks_here):
        return inventory.kind_among([f"cuda:{indices[number]}" for number in ranks_here])
    # Each rank sees only its own accelerator, but the management library sees them all.
    return inventory.kind_among_uuids([uuids[number] for number in ranks_here])


class Worlds:
    """Enters and leaves worlds on one rank."""

    def __init__(self, identity: Identity, meter: Device, address: str, port: int) -> None:
        """Prepare to enter worlds with this rank's device.

        `meter` is the device. The store is at an address and port.
        """
        self._identity, self._meter = identity, meter
        self._address, self._port = address, port
        self._store: Any = None
        self._world: World | None = None
        self._rank: Rank | None = None

    def enter(self, world: World) -> Rank:
        """Return this rank in a world; every member must enter it."""
        if self._rank is None or self._world != world:
            self.leave()
            self._rank, self._world = self._enter(world), world
        return self._rank

    def leave(self) -> None:
        """Leave the present world, and free its communicators."""
        self._rank = self._world = None
        if dist.is_initialized():
            with contextlib.suppress(Exception):
                dist.destroy_process_group()

    def _enter(self, world: World) -> Rank:
        """Return this rank in a new world, after its process groups are made."""
        timeout = timedelta(seconds=world.timeout_s)
        if self._store is None:
            # No number of ranks, since worlds have several; and not the server, which the controller runs.
            self._store = TCPStore(self._address, self._port, None, False, timeout=timeout)
        device = {"nccl": "cuda", "xccl": "xpu"}.get(world.backend)
        dist.init_process_group(
            # Beside the back end of an accelerator, Gloo serves tensors on the host.
            f"cpu:gloo,{device}:{world.backend}" if device else world.backend,
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
            # The library builds its communicator at the first collective. It takes seconds, which should not be
            # measured.
            dist.all_reduce(torch.zeros(1, device=rank.device))
            rank.meter.synchronize()
        return rank

    def in_step(self, number: int) -> None:
        """Raise RuntimeError unless every rank of the world has ended the task with this number.

        Ranks exchange the number by a collective. If one rank has submitted a collective more than the others, theirs
        would be paired with that, and the numbers would differ.
        """
        rank = self._rank
        if rank is None or rank.size == 1:
            return
        task_number = torch.tensor([number], dtype=torch.int64, device=rank.device)
        rows = [torch.zeros_like(task_number) for _ in range(rank.size)]
        dist.all_gather(rows, task_number)
        task_numbers = [int(row.item()) for row in rows]
        if set(task_numbers) != {number}:
            raise RuntimeError(
                f"{OUT_OF_STEP}: after task {number} the ranks report tasks {task_numbers}; expected task {number} of "
                "every rank"
            )

    @property
    def collectives(self) -> int | None:
        """Return the number of operations that this rank submitted to the default group.

        It is None if the back end does not count them.
        """
        read_count = getattr(dist.group.WORLD, "_get_sequence_number_for_group", None)
        with contextlib.suppress(RuntimeError):
            return int(read_count()) if read_count is not None else None
        return None


def default_backend(kind: str) -> str:
    """Return the back end for a kind of device. NCCL's name stands for RCCL too."""
    return {"cuda": "nccl", "xpu": "xccl"}.get(kind, "gloo")


def backend_of(kind: str, backend: str | None) -> str:
    """Return the back end of a world over a kind of device. It is `backend`, or with None the
    device's own.
    """
    name = backend or default_backend(kind)
    if backend is None and not dist.is_backend_available(name):
        raise BadInput(
            f"torch {torch.__version__} was built without {name}, the back end for {kind} devices; "
            f"install a torch with {name}, or name another back end with backend="
        )
    return name


def backends(kind: str) -> tuple[str, ...]:
    """Return torch's back ends for a kind of device, the default first."""
    # Gloo would carry an accelerator's tensors through host memory, so it is none of the accelerator's back ends.
    candidates = ("gloo", "mpi") if kind == "cpu" else (default_backend(kind), "mpi")
    return tuple(name for name in candidates if dist.is_backend_available(name))


def check_backend(backend: str | None) -> str | None:
    """Return a user's back end if torch has it. None is the device's own."""
    is_available = isinstance(backend, str) and dist.is_backend_available(backend)
    if backend is not None and not is_available:
        names = ", ".join(
            name
            for name in dist.Backend.backend_list
            if name not in ("undefined", "fake") and dist.is_backend_available(name)
        )
        raise BadInput(f"backend is {backend!r}; expected a back end of this torch: {names}")
    return backend
