"""The equipment of a machine, for `roofline doctor`, and the links between GPUs.

A fact that no library states is unknown, never guessed.
"""

import contextlib
import os
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from ..core.facts import Machine
from .devices import amd, nvidia
from .devices.cpu import Neighbours
from .devices.nvidia import ask
from .host import ACCELERATOR_NODES, host_facts

# Variables through which profilers load themselves into CUDA programs (NVIDIA's tools, and those of NVTX).
INJECTIONS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "ROCP_TOOL_LIB", "HSA_TOOLS_LIB")
# Where CUDA MPS puts its pipes unless told otherwise.
MPS_PIPES = "/tmp/nvidia-mps"
_SHM = Path("/dev/shm")
# nvml.h. As numbers, since the library's own name for reading holds a tuple in some versions of it.
_READ, _WRITE, _NVLINK = 0, 1, 2
_OK = 0

Kind = Literal["nvlink", "nvlink-switch", "xgmi", "pcie", "staged", "unknown"]


def take_stock(watch_s: float = 0.0) -> Machine:
    """Return the machine as this process sees it.

    Other processes are watched for `watch_s` seconds; at 0 they are unknown.
    """
    neighbours = Neighbours(named=watch_s > 0)
    time.sleep(watch_s)
    cores_taken, taken_by = neighbours.cores_taken(), neighbours.taken_by()
    gpus_by_library = {"NVML": nvidia.gpus(), "amdsmi": amd.gpus()}
    return Machine(
        host=host_facts(),
        gpus=tuple(gpu for gpus in gpus_by_library.values() for gpu in gpus or ()),
        torch_devices=_torch_devices(),
        accelerator_nodes=tuple(str(node) for node in ACCELERATOR_NODES if node.exists()),
        libraries=tuple(name for name, gpus in gpus_by_library.items() if gpus is not None),
        silent=tuple(why for why in (nvidia.silent(), amd.silent()) if why),
        no_peers=_no_peers(),
        shm_bytes=_shm_bytes(),
        memlock_bytes=_memlock_bytes(),
        memlock_known=True,
        mps=_mps() if gpus_by_library["NVML"] else None,
        profiler=next((name for name in INJECTIONS if os.environ.get(name)), ""),
        cores_taken=cores_taken,
        taken_by=taken_by,
    )


def _torch_devices() -> int | None:
    """Return torch's number of accelerators; None if torch is not installed."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    return torch.accelerator.device_count()


def _no_peers() -> tuple[tuple[int, int], ...] | None:
    """Return the pairs of GPUs that cannot reach each other's memory; None without two GPUs."""
    if (_torch_devices() or 0) < 2:
        return None
    import torch

    if not torch.cuda.is_available():
        return None
    pairs = combinations(range(torch.cuda.device_count()), 2)
    return tuple(pair for pair in pairs if not torch.cuda.can_device_access_peer(*pair))


def _shm_bytes() -> int | None:
    """Return the size of the shared memory at /dev/shm; None if there is none."""
    with contextlib.suppress(OSError):
        stat = os.statvfs(_SHM)
        return stat.f_frsize * stat.f_blocks
    return None


def _memlock_bytes() -> int | None:
    """Return how many bytes may be locked; None without a limit."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft_limit == resource.RLIM_INFINITY else soft_limit


def _mps() -> bool:
    """Return whether the control daemon of CUDA MPS listens."""
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", MPS_PIPES))
    return (pipes / "control").exists()


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two GPUs.

    Args:
        kind: `nvlink` from one to the other, `nvlink-switch` through a switch, `xgmi`, `pcie`, `staged` through the
            host's memory since peer access is impossible, or `unknown`.
        count: how many links carry it; None where nobody tells.
    """

    kind: Kind
    count: int | None = None


STAGED, UNKNOWN = Link("staged"), Link("unknown")


def link_between(first: int, second: int) -> Link:
    """Return the link between two GPUs, by their indices in torch."""
    import torch

    if not (
        torch.cuda.can_device_access_peer(first, second)
        and torch.cuda.can_device_access_peer(second, first)
    ):
        return STAGED
    properties: list[Any] = [torch.cuda.get_device_properties(index) for index in (first, second)]
    if torch.version.hip is not None:
        with contextlib.suppress(Exception):
            return amd_link(amd.start_amdsmi(), *map(amd.pci_address, properties))
        return UNKNOWN
    first_uuid, second_uuid = (
        str(getattr(gpu_properties, "uuid", "")) or None for gpu_properties in properties
    )
    with nvidia.open_nvml() as nvml:
        return UNKNOWN if nvml is None else nvidia_link(nvml, first_uuid, second_uuid)


def kind_among(names: Sequence[str]) -> str:
    """Return the kind of all links among devices, for a hardware key.

    `mixed` if the links are of several kinds, `unknown` unless all names are `cuda:0` ….
    """
    if not all(name.startswith("cuda:") for name in names):
        return "unknown"
    indices = [int(name.removeprefix("cuda:")) for name in names]
    kinds = {link_between(first, second).kind for first, second in combinations(indices, 2)}
    return next(iter(kinds)) if len(kinds) == 1 else "mixed"


def kind_among_uuids(uuids: Sequence[str | None]) -> str:
    """Return the kind of all links among NVIDIA GPUs of this host.

    `mixed` if they are of several kinds. CUDA_VISIBLE_DEVICES may hide the GPUs from this process.
    """
    with nvidia.open_nvml() as nvml:
        pairs = combinations(uuids, 2) if nvml is not None else ()
        kinds = {nvidia_link(nvml, first, second).kind for first, second in pairs}
    return next(iter(kinds), "unknown") if len(kinds) <= 1 else "mixed"


def nvidia_link(nvml: Any, first_uuid: str | None, second_uuid: str | None) -> Link:
    """Return the link between two NVIDIA GPUs that can reach each other's memory.

    `nvml` is the library, opened.
    """
    first, second = (ask(nvml, nvidia.handle_of, nvml, uuid) for uuid in (first_uuid, second_uuid))
    if first is None or second is None:
        return UNKNOWN
    first_ends, second_ends = _nvlinks(nvml, first), _nvlinks(nvml, second)
    address = _bus(ask(nvml, "nvmlDeviceGetPciInfo", second))
    direct_count = sum(address is not None and end == address for end in first_ends)
    if direct_count:
        return Link("nvlink", direct_count)
    if "switch" in first_ends and "switch" in second_ends:
        return Link("nvlink-switch", min(first_ends.count("switch"), second_ends.count("switch")))
    if ask(nvml, "nvmlDeviceGetP2PStatus", first, second, _NVLINK) == _OK:
        # A virtual machine hides the far ends, so the number of links is unknown.
        return Link("nvlink")
    crosses_pcie = any(
        ask(nvml, "nvmlDeviceGetP2PStatus", first, second, cap) == _OK for cap in (_READ, _WRITE)
    )
    is_reachable = (
        crosses_pcie or ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", first, second) is not None
    )
    return Link("pcie") if is_reachable else UNKNOWN


def _nvlinks(nvml: Any, handle: Any) -> list[str]:
    """Return the far end of every NVLink of a GPU that is up.

    It is a GPU's PCI address, `switch`, or empty if it is unknown.
    """
    ends = []
    for link in range(nvidia.MOST_LINKS):
        if ask(nvml, "nvmlDeviceGetNvLinkState", handle, link) != 1:
            continue
        kind = ask(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        if kind is not None and kind == getattr(nvml, "NVML_NVLINK_DEVICE_TYPE_SWITCH", 2):
            ends.append("switch")
        else:
            ends.append(_bus(ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link)) or "")
    return ends


def _bus(info: Any) -> str | None:
    """Return the PCI address in NVML's record, `00000000:1b:00.0`; None without a record."""
    if info is None:
        return None
    return (info.busId.decode() if isinstance(info.busId, bytes) else str(info.busId)).lower()


def amd_link(smi: Any, first: str | None, second: str | None) -> Link:
    """Return the link between two AMD GPUs that can reach each other's memory.

    `smi` is the library, started; `first` and `second` are PCI addresses.
    """
    handles = {
        smi.amdsmi_get_gpu_device_bdf(handle).lower(): handle
        for handle in smi.amdsmi_get_processor_handles()
    }
    if first is None or second is None or not {first.lower(), second.lower()} <= handles.keys():
        return UNKNOWN
    link = smi.amdsmi_topo_get_link_type(handles[first.lower()], handles[second.lower()])
    xgmi, pcie = _amd_types(smi)
    # The library states the number of hops, but not the number of links.
    if link["type"] == xgmi:
        return Link("xgmi")
    return Link("pcie") if link["type"] == pcie else UNKNOWN


def _amd_types(smi: Any) -> tuple[int | None, int | None]:
    """Return the numbers that mean xGMI and PCIe in this version of the library.

    Releases have swapped the numbers and renamed their class. None if a version has neither class.
    """
    older, newer = getattr(smi, "AmdSmiIoLinkType", None), getattr(smi, "AmdSmiLinkType", None)
    if older is not None:
        return int(older.XGMI), int(older.PCIEXPRESS)
    if newer is None:
        return None, None
    return int(newer.AMDSMI_LINK_TYPE_XGMI), int(newer.AMDSMI_LINK_TYPE_PCIE)
