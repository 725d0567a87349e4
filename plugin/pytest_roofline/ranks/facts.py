"""What every rank says of itself at boot, and what must agree between ranks before anything runs on them."""

import contextlib
import math
import os
import platform
import socket
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NoReturn

import torch

from ..core.errors import DeviceError, RanksFailed, RanksSkipped
from ..core.facts import DeviceFacts, Environment, Gpu
from ..core.groups import grouped
from ..engine.devices import Device, amd, nvidia
from ..engine.devices.base import RealDevice, Traits
from ..engine.host import affinity, cgroup_cpus, numbers_of, unused_accelerator, usable_cores
from ..version import __version__


@dataclass(frozen=True, slots=True)
class RankFacts:
    """What a rank says of itself.

    Args:
        devices: of each accelerator that it can see, in torch's order, what tells it from every other: the UUID.
        affinity: the cores that it may run on: `0-3,8`.
        threads: that it computes with.
        quota: cores that its control groups leave it; None without a limit.
    """

    rank: int
    local_rank: int
    host: str
    pid: int
    devices: tuple[str, ...]
    versions: dict[str, str]
    affinity: str
    cores: int
    threads: int | None = None
    quota: float | None = None


def gather(rank: int, local_rank: int, kind: str) -> RankFacts:
    """The facts of this process."""
    return RankFacts(
        rank=rank,
        local_rank=local_rank,
        host=socket.gethostname(),
        pid=os.getpid(),
        devices=visible_devices(kind),
        versions=versions(kind),
        affinity=affinity(),
        cores=usable_cores(),
        threads=torch.get_num_threads(),
        quota=cgroup_cpus(),
    )


def best_kind() -> str:
    """The kind of device that ranks own where nobody asks for one: an accelerator that serves several processes.

    Apple's GPU does not, so ranks take the CPU there.
    """
    if torch.cuda.is_available():
        return "cuda"
    return "xpu" if torch.xpu.is_available() else "cpu"


def device_count(kind: str) -> int:
    """How many accelerators of a kind this process can see."""
    return int(getattr(torch, kind).device_count())


def visible_devices(kind: str) -> tuple[str, ...]:
    """What tells each visible accelerator from every other of its host, in torch's order; none for a CPU."""
    module = getattr(torch, kind, None) if kind != "cpu" else None
    if module is None or not module.is_available():
        return ()
    names = [
        _name(index, module.get_device_properties(index)) for index in range(module.device_count())
    ]
    # Partitions of one device share its place.
    return tuple(
        f"{name} part {names[:i].count(name)}" if name in names[:i] else name
        for i, name in enumerate(names)
    )


def _name(index: int, properties: Any) -> str:
    uuid, bus = str(getattr(properties, "uuid", "") or ""), getattr(properties, "pci_bus_id", None)
    # ROCm tells some devices' UUID as all zeros; the place on the bus tells as much within a host.
    if uuid.strip("GPU0-") or bus is None:
        return uuid if uuid.strip("GPU0-") else f"#{index}"
    return f"PCI {getattr(properties, 'pci_domain_id', 0):04x}:{bus:02x}:{getattr(properties, 'pci_device_id', 0):02x}"


def versions(kind: str) -> dict[str, str]:
    """Versions, in this process, of what must agree between ranks of a kind of device, and with their controller."""
    found = {
        "pytest-roofline": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    if kind == "cuda":
        found["cuda or hip"] = str(torch.version.cuda or torch.version.hip)
        if torch.distributed.is_nccl_available():
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def check(facts: Sequence[RankFacts], own: Mapping[str, str]) -> None:
    """Refuse ranks whose versions differ, or are others than the controller's, by the names of their nodes."""
    for name in dict.fromkeys([*own, *(name for rank in facts for name in rank.versions)]):
        holders: dict[str, list[str]] = defaultdict(list)
        holders[own.get(name, "none")].append(f"pytest on {socket.gethostname()}")
        for rank in facts:
            holders[rank.versions.get(name, "none")].append(f"rank {rank.rank} on {rank.host}")
        if len(holders) > 1:
            seen = "; ".join(f"{version}: {', '.join(who)}" for version, who in holders.items())
            raise RanksFailed(
                f"pytest and its ranks have different versions of {name} ({seen}); expected one"
            )


def check_products(products: Mapping[int, tuple[str, str]]) -> None:
    """Refuse ranks that own different products: what is measured over them would be neither's."""
    first: dict[str, str] = {}
    for rank, (host, product) in sorted(products.items()):
        first.setdefault(product, f"rank {rank} on {host} has {product}")
    if len(first) > 1:
        raise RanksFailed(
            f"{', '.join(first.values())}; expected one product: choose nodes and devices of one kind"
        )


def unwanted_cpu(device: Device) -> str:
    """Why ranks should not take the CPU of this host where nobody asked for it; empty where all is well."""
    if not torch.cuda.is_available():
        return unused_accelerator(device)
    return (
        "this machine has an accelerator, but pytest's own host has none that torch can use, so the CPU is measured; "
        "ask for --roofline-device=cuda, or for --roofline-device=cpu"
    )


def assign(facts: Sequence[RankFacts]) -> dict[int, int]:
    """Which of its visible accelerators each rank owns, as an index there: no two ranks of a host the same.

    A rank that sees several takes the one with its local number where that is free, so that neighbours stay
    neighbours; who has the least choice comes first.
    """
    for host, ranks in grouped(facts, key=attrgetter("host")).items():
        there = {uuid for one in ranks for uuid in one.devices}
        if len(there) < len(ranks):
            raise RanksSkipped(f"needs {len(ranks)} GPUs, found {len(there)} on {host}")
    owners: dict[tuple[str, str], RankFacts] = {}
    owned: dict[int, int] = {}
    for one in sorted(facts, key=lambda one: (len(one.devices), one.rank)):
        free = [index for index, uuid in enumerate(one.devices) if (one.host, uuid) not in owners]
        if not free:
            raise RanksFailed(_no_device(one, owners))
        owned[one.rank] = one.local_rank if one.local_rank in free else free[0]
        owners[one.host, one.devices[owned[one.rank]]] = one
    return owned


def _no_device(one: RankFacts, owners: Mapping[tuple[str, str], RankFacts]) -> str:
    taken = "; ".join(f"{uuid} is rank {owners[one.host, uuid].rank}'s" for uuid in one.devices)
    return (
        f"rank {one.rank} on {one.host} has no accelerator of its own: it sees {len(one.devices)} ({taken}); "
        "expected a different one for every rank: start fewer ranks on that host, or let each see its own or all"
    )


def cores_of(facts: Sequence[RankFacts]) -> int:
    """Cores that the ranks of one host have together, at least 1."""
    # Where a launcher pins each rank to cores of its own, these are not shared.
    usable = len({core for one in facts for core in numbers_of(one.affinity)}) or max(
        one.cores for one in facts
    )
    quota = min((one.quota for one in facts if one.quota is not None), default=math.inf)
    return max(1, math.floor(min(usable, quota)))


def threads(facts: Sequence[RankFacts]) -> dict[int, int]:
    """Threads that each rank should compute with: its host's share, the same under every launcher."""
    shares: dict[int, int] = {}
    for ranks in grouped(facts, key=attrgetter("host")).values():
        share = cores_of(ranks) // len(ranks)
        shares |= {rank.rank: max(1, min(rank.cores, share)) for rank in ranks}
    return shares


class SeenDevice(RealDevice):
    """What the device of rank 0 is, for a header, a key and a look at its health."""

    def __init__(self, environment: Environment) -> None:
        self._facts = environment.device
        self.name = environment.device.type
        self.traits = Traits(tick_s=0.0, shortest_span_s=0.0)

    def facts(self) -> DeviceFacts:
        """What rank 0 told."""
        return self._facts

    def gpu(self) -> Gpu | None:
        """What the vendor's management library tells of it, which needs no context; None where it tells nothing."""
        # Whatever a library does, a run must not end for its health.
        with contextlib.suppress(Exception):
            found = nvidia.gpu(self._facts.uuid)
            return None if found is None else replace(found, others_bytes=None)
        return None

    def silent_library(self) -> str:
        """Why the vendor's management library tells nothing on this host; empty where it does."""
        return amd.silent() if torch.version.hip else nvidia.silent()

    def release(self) -> None:
        """Nothing is held."""

    def synchronize(self) -> None:
        """Nothing was submitted from here."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise DeviceError(
            f"{self.name} is open in the ranks only, since every test of this run uses the fixture distributed; "
            "measure over ranks, with roofline.measure_ranks, and ask for memory by distributed.free_bytes()"
        )

    stamp = elapsed_s = flusher = free_bytes = _refuse
