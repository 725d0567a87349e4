"""What the controller asks of ranks for itself, as ordinary rank functions."""

from collections.abc import Sequence

import torch

from ..measuring import links
from .context import Rank


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
    there = [number for number, host in enumerate(hosts) if host == hosts[rank]]
    indices = [int(row[0]) for row in rank.gather((float(rank.device.index or 0),))]
    if len(there) == 1:
        return "none"
    if torch.cuda.device_count() >= len(there):
        return links.kind_among([f"cuda:{indices[number]}" for number in there])
    # Each was given its own and sees no other; the management library knows them all the same.
    return links.kind_among_uuids([uuids[number] for number in there])
