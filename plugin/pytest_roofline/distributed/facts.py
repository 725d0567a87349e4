"""What every rank says of itself at boot, and what must agree between ranks before anything runs on them."""

import os
import platform
import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ..core.errors import RanksFailed
from ..measuring.host import affinity, usable_cores
from ..version import __version__


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What a rank says of itself.

    Args:
        rank: its number among all that were started.
        local_rank: its number on its host.
        host: name of its host.
        pid: of its process.
        devices: of each accelerator that it can see, in torch's order, what tells it from every other: the UUID.
        versions: of what must agree between ranks.
        affinity: the cores that it may run on: `0-3,8`.
        cores: how many these are.
    """

    rank: int
    local_rank: int
    host: str
    pid: int
    devices: tuple[str, ...]
    versions: dict[str, str]
    affinity: str
    cores: int


def gather(rank: int, local_rank: int, kind: str) -> RankFacts:
    """The facts of this process.

    Args:
        rank: its number.
        local_rank: its number on its host.
        kind: of the devices that ranks are to own: `cpu`, `cuda` or `xpu`.
    """
    return RankFacts(
        rank=rank,
        local_rank=local_rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        devices=visible_devices(kind),
        versions=_versions(kind),
        affinity=affinity(),
        cores=usable_cores(),
    )


def best_kind() -> str:
    """The kind of device that ranks own where nobody asks for one: an accelerator that serves several processes.

    Apple's GPU does not, so ranks take the CPU there.
    """
    if torch.cuda.is_available():
        return "cuda"
    return "xpu" if hasattr(torch, "xpu") and torch.xpu.is_available() else "cpu"


def device_count(kind: str) -> int:
    """How many accelerators of a kind this process can see."""
    return int(getattr(torch, kind).device_count())


def visible_devices(kind: str) -> tuple[str, ...]:
    """What tells each visible accelerator from every other of its host, in torch's order; none for a CPU."""
    if kind == "cpu":
        return ()
    module = getattr(torch, kind)
    found = []
    for index in range(module.device_count() if module.is_available() else 0):
        properties = module.get_device_properties(index)
        bus = getattr(properties, "pci_bus_id", None)
        # Without a UUID its place on the bus tells as much within a host; a bare number would not.
        found.append(str(getattr(properties, "uuid", "") or (f"PCI bus {bus}" if bus is not None else f"#{index}")))
    return tuple(found)


def _versions(kind: str) -> dict[str, str]:
    versions = {
        "pytest-roofline": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    if kind == "cuda":
        versions["cuda or hip"] = str(torch.version.cuda or torch.version.hip)
        if torch.distributed.is_nccl_available():
            versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return versions


def check(facts: Sequence[RankFacts]) -> None:
    """Refuse ranks that do not fit together.

    Raises:
        RanksFailed: versions differ between ranks, naming the nodes.
    """
    for name in dict.fromkeys(name for one in facts for name in one.versions):
        hosts: dict[str, list[RankFacts]] = defaultdict(list)
        for one in facts:
            hosts[one.versions.get(name, "none")].append(one)
        if len(hosts) > 1:
            seen = "; ".join(
                f"{version} on {', '.join(sorted({one.host for one in ranks}))} (ranks "
                f"{', '.join(str(one.rank) for one in ranks)})"
                for version, ranks in hosts.items()
            )
            raise RanksFailed(
                f"the ranks have different versions of {name}: {seen}; expected one, bring the nodes into line"
            )


def assign(facts: Sequence[RankFacts]) -> dict[int, int]:
    """Which of its visible accelerators each rank owns, as an index there: no two ranks of a host the same.

    A rank that sees several takes the one with its local number where that is free, so that neighbours stay
    neighbours; one that was given a single one takes that, whatever its number.

    Raises:
        RanksFailed: there are not enough, or two ranks were given the same.
    """
    # Only the controller assigns, so ranks are spared these imports.
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    # What no rank can have costs more than all wishes together; a device's name tells it apart only within its host.
    devices = list(dict.fromkeys((one.host, uuid) for one in facts for uuid in one.devices))
    never = float(2 * (len(facts) + 1) * (len(devices) + 1))
    costs = np.full((len(facts), max(len(devices), len(facts))), never)
    for row, one in enumerate(facts):
        for index, uuid in enumerate(one.devices):
            other = 1.0 + index * (len(facts) - row) / never**2
            costs[row, devices.index((one.host, uuid))] = 0.0 if index == one.local_rank else other
    rows, columns = linear_sum_assignment(costs)
    owned = {int(row): devices[column] for row, column in zip(rows, columns, strict=True) if costs[row, column] < never}
    for row, one in enumerate(facts):
        if row not in owned:
            raise RanksFailed(_no_device(one, {device: facts[row] for row, device in owned.items()}))
    return {facts[row].rank: facts[row].devices.index(uuid) for row, (_, uuid) in owned.items()}


def _no_device(one: RankFacts, owners: Mapping[tuple[str, str], RankFacts]) -> str:
    if not one.devices:
        return f"rank {one.rank} on {one.host} sees no accelerator; expected one for every rank"
    taken = "; ".join(f"{uuid} is rank {owners[one.host, uuid].rank}'s" for uuid in one.devices)
    return (
        f"rank {one.rank} on {one.host} has no accelerator of its own: it sees {len(one.devices)}, and {taken}; "
        "expected a different one for every rank: start fewer ranks on that host, or let each see its own or all"
    )


def threads(facts: Sequence[RankFacts]) -> dict[int, int]:
    """Threads that each rank should compute with: its host's share, the same under every launcher."""
    ranks_on = defaultdict(list)
    for one in facts:
        ranks_on[one.host].append(one)
    shares = {}
    for ranks in ranks_on.values():
        # Where a launcher pins each rank to cores of its own, these are not shared.
        cores = len({core for one in ranks for core in _cores(one.affinity)}) or max(one.cores for one in ranks)
        for one in ranks:
            shares[one.rank] = max(1, min(one.cores, cores // len(ranks)))
    return shares


def _cores(affinity: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, affinity.split(",")):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return found
