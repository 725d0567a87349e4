"""The facts of every rank at boot, and those that must agree."""

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
from ..core.groups import group_by
from ..engine.devices import Device, amd, nvidia
from ..engine.devices.base import RealDevice, Traits
from ..engine.host import affinity, cgroup_cpus, numbers_of, unused_accelerator, usable_cores
from ..version import __version__


@dataclass(frozen=True, slots=True)
class RankFacts:
    """The facts that a rank tells of itself.

    Args:
        devices: a unique name of each accelerator that it can see, in torch's order; the UUID, where there is one.
        affinity: the cores that it may run on: `0-3,8`.
        cores: the number of cores that it may use.
        threads: the number of threads that it computes with.
        quota: the number of cores that its control groups allow; None without a limit.
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
    """Return the facts of this process."""
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
    """Return the kind of device that ranks own by default. It is an accelerator that serves several
    processes.

    Apple's GPU does not, so ranks take the CPU there.
    """
    if torch.cuda.is_available():
        return "cuda"
    return "xpu" if torch.xpu.is_available() else "cpu"


def device_count(kind: str) -> int:
    """Return how many accelerators of a kind are visible here."""
    return int(getattr(torch, kind).device_count())


def visible_devices(kind: str) -> tuple[str, ...]:
    """Return a name for each visible accelerator, unique on its host. They are in torch's order; a
    CPU has none.
    """
    module = getattr(torch, kind, None) if kind != "cpu" else None
    if module is None or not module.is_available():
        return ()
    names = [
        _name(index, module.get_device_properties(index)) for index in range(module.device_count())
    ]
    # Partitions of one device may share its name, so all but the first get a number.
    unique_names = []
    for index, name in enumerate(names):
        earlier_count = names[:index].count(name)
        unique_names.append(f"{name} part {earlier_count}" if earlier_count else name)
    return tuple(unique_names)


def _name(index: int, properties: Any) -> str:
    """Return the UUID of an accelerator, else its place on the bus, else its index."""
    uuid = str(getattr(properties, "uuid", "") or "")
    # ROCm reports the UUID of some devices as zeros: nothing is left of `GPU-0000-…` then.
    if uuid.strip("GPU0-"):
        return uuid
    bus = getattr(properties, "pci_bus_id", None)
    if bus is None:
        return f"#{index}"
    # Within a host, the place on the bus is unique too.
    domain, slot = getattr(properties, "pci_domain_id", 0), getattr(properties, "pci_device_id", 0)
    return f"PCI {domain:04x}:{bus:02x}:{slot:02x}"


def versions(kind: str) -> dict[str, str]:
    """Return the versions that must agree between ranks of a kind. They must also agree with those
    of the controller.
    """
    by_name = {
        "pytest-roofline": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    if kind == "cuda":
        by_name["cuda or hip"] = str(torch.version.cuda or torch.version.hip)
        if torch.distributed.is_nccl_available():
            by_name["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return by_name


def check(facts: Sequence[RankFacts], controllers: Mapping[str, str]) -> None:
    """Raise RanksFailed if versions of software differ between ranks, or from the controller's.

    The error names their nodes. `controllers` has the controller's versions by the name of the software.
    """
    for name in dict.fromkeys([*controllers, *(name for rank in facts for name in rank.versions)]):
        names_by_version: dict[str, list[str]] = defaultdict(list)
        names_by_version[controllers.get(name, "none")].append(f"pytest on {socket.gethostname()}")
        for rank in facts:
            version = rank.versions.get(name, "none")
            names_by_version[version].append(f"rank {rank.rank} on {rank.host}")
        if len(names_by_version) > 1:
            versions_text = "; ".join(
                f"{version}: {', '.join(names)}" for version, names in names_by_version.items()
            )
            raise RanksFailed(
                f"pytest and its ranks have different versions of {name} ({versions_text}); expected the same version"
            )


def check_products(products: Mapping[int, tuple[str, str]]) -> None:
    """Raise RanksFailed if ranks own devices of different products.

    `products` has the host and the product of each rank. A measurement over them would be valid for neither product.
    """
    text_by_product: dict[str, str] = {}
    for rank, (host, product) in sorted(products.items()):
        text_by_product.setdefault(product, f"rank {rank} on {host} has {product}")
    if len(text_by_product) > 1:
        raise RanksFailed(
            f"{', '.join(text_by_product.values())}; expected one product; choose nodes and devices of one kind"
        )


def unwanted_cpu(device: Device) -> str:
    """Return why a rank must not use the CPU, which the user did not choose.

    A GPU of this machine would stay unused. The text is empty if the rank may use the CPU.
    """
    if not torch.cuda.is_available():
        return unused_accelerator(device)
    return (
        "this node has an accelerator, but the node of pytest has no accelerator for torch, so the CPU is measured. "
        "Pass --roofline-device=cuda or --roofline-device=cpu"
    )


def assign(facts: Sequence[RankFacts]) -> dict[int, int]:
    """Return the index of the accelerator that each rank owns.

    The index is among those that the rank can see. No two ranks of a host own the same accelerator.
    Ranks that see the fewest accelerators choose first. A rank takes the accelerator with its local number, if
    that is free, so that neighbouring ranks have neighbouring accelerators.

    Raises:
        RanksSkipped: a host has fewer accelerators than ranks.
        RanksFailed: all accelerators that a rank can see are owned by others.
    """
    for host, ranks in group_by(facts, key=attrgetter("host")).items():
        devices_of_host = {uuid for rank in ranks for uuid in rank.devices}
        if len(devices_of_host) < len(ranks):
            raise RanksSkipped(f"needs {len(ranks)} GPUs, found {len(devices_of_host)} on {host}")
    owners: dict[tuple[str, str], RankFacts] = {}
    index_of_rank: dict[int, int] = {}
    for rank in sorted(facts, key=lambda rank: (len(rank.devices), rank.rank)):
        free = [index for index, uuid in enumerate(rank.devices) if (rank.host, uuid) not in owners]
        if not free:
            raise RanksFailed(_no_device(rank, owners))
        index = rank.local_rank if rank.local_rank in free else free[0]
        index_of_rank[rank.rank] = index
        owners[rank.host, rank.devices[index]] = rank
    return index_of_rank


def _no_device(rank: RankFacts, owners: Mapping[tuple[str, str], RankFacts]) -> str:
    """Return the error of a rank whose accelerators are all owned by others."""
    owner_names = "; ".join(
        f"{uuid} belongs to rank {owners[rank.host, uuid].rank}" for uuid in rank.devices
    )
    return (
        f"rank {rank.rank} on {rank.host} has no accelerator of its own; visible accelerators: {len(rank.devices)} "
        f"({owner_names}). Expected a different accelerator for every rank. Start fewer ranks on {rank.host}, or make "
        "all devices visible"
    )


def cores_of(facts: Sequence[RankFacts]) -> int:
    """Return the number of cores that one host's ranks share, at least 1."""
    # Ranks may be pinned to different cores, so the cores of all ranks count.
    pinned_cores = {core for rank in facts for core in numbers_of(rank.affinity)}
    # Where the affinity is unknown, the set is empty.
    core_count = len(pinned_cores) or max(rank.cores for rank in facts)
    quota = min((rank.quota for rank in facts if rank.quota is not None), default=math.inf)
    return max(1, math.floor(min(core_count, quota)))


def threads(facts: Sequence[RankFacts]) -> dict[int, int]:
    """Return the number of threads that each rank should compute with.

    It is an equal share of its host's cores, under every launcher.
    """
    shares: dict[int, int] = {}
    for ranks in group_by(facts, key=attrgetter("host")).values():
        share = cores_of(ranks) // len(ranks)
        shares |= {rank.rank: max(1, min(rank.cores, share)) for rank in ranks}
    return shares


class SeenDevice(RealDevice):
    """The device of rank 0, for a header, a key and a check of its health."""

    def __init__(self, environment: Environment) -> None:
        self._facts = environment.device
        self.name = environment.device.type
        self.traits = Traits(tick_s=0.0, shortest_span_s=0.0)

    def facts(self) -> DeviceFacts:
        """Return the facts that rank 0 told."""
        return self._facts

    def gpu(self) -> Gpu | None:
        """Return the facts from the vendor's management library.

        It is None if the library tells nothing. No context is opened on the device.
        """
        # A fault in the library must not end the run.
        with contextlib.suppress(Exception):
            gpu = nvidia.gpu(self._facts.uuid)
            # The ranks themselves use the memory, which is no sign of others.
            return None if gpu is None else replace(gpu, others_bytes=None)
        return None

    def silent_library(self) -> str:
        """Return why the management library tells nothing here. Empty if it tells something."""
        return amd.silent() if torch.version.hip else nvidia.silent()

    def release(self) -> None:
        """Do nothing, since this process holds no memory of the device."""

    def synchronize(self) -> None:
        """Do nothing, since this process submits no work to the device."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        """Raise for every method that needs an open device, whatever its arguments."""
        raise DeviceError(
            f"{self.name} is open in the ranks only, since every test uses the fixture distributed. "
            "Measure with roofline.measure_ranks, and read memory with distributed.free_bytes()"
        )

    stamp = elapsed_s = flusher = free_bytes = _refuse
