"""What a rank function gets: the rank's number, with the world that it is in."""

from collections import OrderedDict
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from ..core.errors import BadInput

if TYPE_CHECKING:
    from ..engine.devices import Device

# Communicators hold device memory, so only so many sub-groups are kept.
MOST_SUBGROUPS = 8


class Skipped(Exception):
    """A rank function found that its test cannot run here."""


class Rank(int):
    """A rank: its number in its world, as a plain int, and what belongs to it.

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
    _subgroups: "OrderedDict[tuple[int, ...], dist.ProcessGroup | None]"

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
        """A rank.

        Args:
            number: of the rank, 0 … size − 1.
            size: ranks in its world.
            local_rank: its number on its host.
            host: name of its host.
            backend: of the default group.
            meter: the device that it owns.
            side: a Gloo group of the same ranks, for what is not measured; None without a process group.
            timeout: of the default group's operations, for those of sub-groups; None is torch's own.
        """
        rank = cls(number)
        rank.size, rank.local_rank, rank.host, rank.backend = size, local_rank, host, backend
        rank.meter, rank._side, rank._timeout = meter, side, timeout
        rank.device = torch.device("cpu" if meter.name == "fake" else meter.name)
        rank._subgroups = OrderedDict()
        return rank

    @property
    def group(self) -> dist.ProcessGroup:
        """The default group: every rank of this world, over `backend`."""
        assert dist.group.WORLD is not None
        return dist.group.WORLD

    def barrier(self) -> None:
        """Wait on the host for every rank of this world; beside the measured group, and without its device."""
        if self._side is not None:
            dist.barrier(group=self._side)

    def gather(self, values: Sequence[float]) -> list[tuple[float, ...]]:
        """What every rank holds, by rank: as many numbers from each, exchanged beside the measured group.

        Args:
            values: this rank's numbers; every rank must give as many.
        """
        own = torch.tensor(list(values), dtype=torch.float64)
        if self._side is None or self.size == 1:
            return [tuple(own.tolist())]
        rows = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(rows, own, group=self._side)
        return [tuple(row.tolist()) for row in rows]

    def subgroup(self, ranks: Sequence[int]) -> dist.ProcessGroup | None:
        """A group of some of the ranks; every rank of the world must ask, with the same list. Kept for the next test.

        Args:
            ranks: numbers in this world, ascending.

        Returns:
            The group; None on a rank that is not in it.

        Raises:
            BadInput: the list is empty, not ascending, or names a rank that this world has not.
        """
        members = tuple(ranks)
        if not members or list(members) != sorted(set(members)) or not 0 <= members[0] <= members[-1] < self.size:
            raise BadInput(f"subgroup of {list(ranks)}; expected ascending ranks from 0 to {self.size - 1}")
        if members not in self._subgroups:
            while len(self._subgroups) >= MOST_SUBGROUPS:
                _, oldest = self._subgroups.popitem(last=False)
                if oldest is not None:
                    dist.destroy_process_group(oldest)
            made = dist.new_group(list(members), timeout=self._timeout)
            self._subgroups[members] = made if int(self) in members else None
        self._subgroups.move_to_end(members)
        return self._subgroups[members]

    def skip(self, reason: str) -> None:
        """End the test as skipped, for what only this rank can know.

        Raises:
            Skipped: always.
        """
        raise Skipped(reason)


# Rank functions of ours.


def free_bytes(rank: Rank) -> int:
    """Memory that an allocation on this rank's device can still get."""
    rank.meter.release()
    return rank.meter.free_bytes()


def link_kind(rank: Rank, hosts: Sequence[str], uuids: Sequence[str | None]) -> str:
    """The class of the links among the accelerators of this rank's host, as a hardware key has it.

    Args:
        rank: this one.
        hosts: of every rank.
        uuids: of every rank's device.
    """
    from ..engine import inventory

    there = [number for number, host in enumerate(hosts) if host == hosts[rank]]
    indices = [int(row[0]) for row in rank.gather((float(rank.device.index or 0),))]
    if len(there) == 1:
        return "none"
    if torch.cuda.device_count() >= len(there):
        return inventory.kind_among([f"cuda:{indices[number]}" for number in there])
    # Each was given its own and sees no other; the management library knows them all the same.
    return inventory.kind_among_uuids([uuids[number] for number in there])
