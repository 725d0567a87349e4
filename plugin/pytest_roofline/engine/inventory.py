"""Everything a machine has, for `roofline doctor`: GPUs by their management library, and the limits of the host."""

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

from ..core.facts import Gpu, Machine
from .devices import amd, nvidia
from .devices.amd import pci_address, started_amdsmi
from .devices.base import OWN_CONTEXT_BYTES
from .host import ACCELERATOR_NODES, host_facts

# Variables through which profilers load themselves into CUDA programs (NVIDIA's tools, and those of NVTX).
INJECTIONS = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "ROCP_TOOL_LIB", "HSA_TOOLS_LIB")
# Where CUDA MPS puts its pipes unless told otherwise.
MPS_PIPES = "/tmp/nvidia-mps"
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
_MOST_LINKS = 18
# nvml.h: NVML_MEMORY_ERROR_TYPE_UNCORRECTED, and NVML_VOLATILE_ECC for what was counted since the driver was loaded.
_UNCORRECTED, _VOLATILE = 1, 0
_SHM = Path("/dev/shm")


def take_stock() -> Machine:
    """The machine as this process sees it; a question that nobody answers stays unknown."""
    nvidia_gpus, amd_gpus = _nvidia_gpus(), _amd_gpus()
    devices = _torch_devices()
    memlock_bytes, memlock_known = _memlock()
    return Machine(
        host=host_facts(),
        gpus=(*(nvidia_gpus or ()), *(amd_gpus or ())),
        torch_devices=devices,
        accelerator_nodes=tuple(str(node) for node in ACCELERATOR_NODES if node.exists()),
        libraries=tuple(
            name for name, gpus in (("NVML", nvidia_gpus), ("amdsmi", amd_gpus)) if gpus is not None
        ),
        silent=tuple(why for why in (nvidia.silent(), amd.silent()) if why),
        no_peers=_no_peers(devices),
        shm_bytes=_shm_bytes(),
        memlock_bytes=memlock_bytes,
        memlock_known=memlock_known,
        mps=_mps() if nvidia_gpus else None,
        profiler=next((name for name in INJECTIONS if os.environ.get(name)), ""),
    )  # fmt: skip


def _nvidia_gpus() -> list[Gpu] | None:
    """Every NVIDIA GPU; None where NVML does not answer."""
    with nvidia.opened() as nvml:
        if nvml is None:
            return None
        try:
            count = nvml.nvmlDeviceGetCount()
        except nvml.NVMLError:
            return None
        return [_nvidia_gpu(nvml, index) for index in range(count)]


def nvidia_gpu(uuid: str | None) -> Gpu | None:
    """The NVIDIA GPU with this UUID; None where NVML does not answer or does not know it."""
    with nvidia.opened() as nvml:
        if nvml is None:
            return None
        try:
            handle = nvidia.handle_of(nvml, uuid)
            return _nvidia_facts(nvml, handle, nvml.nvmlDeviceGetIndex(handle))
        except nvml.NVMLError:
            return None


def _nvidia_gpu(nvml: Any, index: int) -> Gpu:
    try:
        return _nvidia_facts(nvml, nvml.nvmlDeviceGetHandleByIndex(index), index)
    except nvml.NVMLError:
        # A lost GPU is listed all the same: it is the first thing to know of this machine.
        return Gpu(index=index, product="unknown")


def _nvidia_facts(nvml: Any, handle: Any, index: int) -> Gpu:
    facts = nvidia.answers(
        nvml,
        {
            "product": lambda: nvml.nvmlDeviceGetName(handle),
            "uuid": lambda: nvml.nvmlDeviceGetUUID(handle),
            "memory_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            "others_bytes": lambda: max(0, nvidia.used_bytes(nvml, handle) - OWN_CONTEXT_BYTES),
            "driver": nvml.nvmlSystemGetDriverVersion,
            "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
            "power_default_w": lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000,
            "pcie_generation_rated": lambda: nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration(handle),
            "pcie_width_rated": lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
            "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
            # What card and slot agree on; the current one falls on purpose when nothing is copied.
            "pcie_generation": lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
            "ecc": lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
            "persistence": lambda: bool(nvml.nvmlDeviceGetPersistenceMode(handle)),
            "compute_mode": lambda: _COMPUTE_MODES.get(nvml.nvmlDeviceGetComputeMode(handle)),
            "partition": lambda: "mig" if nvml.nvmlDeviceGetMigMode(handle)[0] else None,
            "ecc_errors": lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, _UNCORRECTED, _VOLATILE)),
            "remap_pending": lambda: bool(nvml.nvmlDeviceGetRemappedRows(handle)[2]),
            "remap_failed": lambda: bool(nvml.nvmlDeviceGetRemappedRows(handle)[3]),
            "pages_pending": lambda: bool(nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)),
            "active": lambda: tuple(sorted(nvidia.causes(nvml, handle))),
            "violations": lambda: nvml.nvmlDeviceGetViolationStatus(handle, 1).violationTime,
        },
    )
    # The engine takes either.
    throttle_known = facts.pop("violations", None) is not None or "active" in facts
    # GPUs before Ampere retire pages where later ones remap rows.
    retired = {"remap_pending": facts.pop("pages_pending", None)}
    told = {"product": "unknown", **retired, **facts}
    return Gpu(index, links=_links(nvml, handle), throttle_known=throttle_known, **told)


def _links(nvml: Any, handle: Any) -> int | None:
    """NVLinks that are up; None where there are none to ask for."""
    states = []
    for link in range(_MOST_LINKS):
        try:
            states.append(bool(nvml.nvmlDeviceGetNvLinkState(handle, link)))
        except (nvml.NVMLError, AttributeError):
            continue
    return sum(states) if states else None


def _amd_gpus() -> list[Gpu] | None:
    """Every AMD GPU; None where amdsmi does not answer."""
    with contextlib.suppress(Exception):
        amdsmi = amd.started_amdsmi()
        return [_amd_gpu(amdsmi, index, handle) for index, handle in enumerate(amdsmi.amdsmi_get_processor_handles())]
    return None


def _amd_gpu(smi: Any, index: int, handle: Any) -> Gpu:
    try:
        device = amd.Amdsmi(smi.amdsmi_get_gpu_device_bdf(handle))
    except Exception:  # The library has a tree of its own exceptions.
        return Gpu(index=index, product="unknown")
    return Gpu(index=index, **device.inventory())


def _torch_devices() -> int | None:
    with contextlib.suppress(ImportError):
        import torch

        return torch.accelerator.device_count()
    return None


def _no_peers(devices: int | None) -> tuple[tuple[int, int], ...] | None:
    """Pairs of CUDA or ROCm devices that cannot reach each other's memory."""
    import torch

    if devices is None or devices < 2 or not torch.cuda.is_available():
        return None
    pairs = combinations(range(torch.cuda.device_count()), 2)
    return tuple(pair for pair in pairs if not torch.cuda.can_device_access_peer(*pair))


def _shm_bytes() -> int | None:
    with contextlib.suppress(OSError):
        stat = os.statvfs(_SHM)
        return stat.f_frsize * stat.f_blocks
    return None


def _memlock() -> tuple[int | None, bool]:
    """The soft limit, None without one; and whether the system tells."""
    try:
        import resource
    except ImportError:
        return None, False
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return (None if limit == resource.RLIM_INFINITY else limit), True


def _mps() -> bool:
    """Whether the control daemon of CUDA MPS listens."""
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", MPS_PIPES))
    return (pipes / "control").exists()


Kind = Literal["nvlink", "nvlink-switch", "xgmi", "pcie", "staged", "unknown"]
# More than any product wires (nvml.h: NVML_NVLINK_MAX_LINKS); a device withholds those that it has not.
MOST_LINKS = 36
# nvml.h. As numbers, since the library's own name for reading holds a tuple in some versions of it.
_READ, _WRITE, _NVLINK = 0, 1, 2
_OK = 0


@dataclass(frozen=True, slots=True)
class Link:
    """A way between two GPUs.

    Args:
        kind: `nvlink` from one to the other, `nvlink-switch` through a switch, `xgmi`, `pcie`, `staged` through the
            host's memory since peer access is impossible, or `unknown`.
        count: how many links carry it; None where nobody tells.
    """

    kind: Kind
    count: int | None = None


STAGED, UNKNOWN = Link("staged"), Link("unknown")


def between(first: int, second: int) -> Link:
    """The way between two GPUs, by their indices in torch."""
    import torch

    if not (torch.cuda.can_device_access_peer(first, second) and torch.cuda.can_device_access_peer(second, first)):
        return STAGED
    if torch.version.hip is not None:
        return _amd(*(pci_address(torch.cuda.get_device_properties(index)) for index in (first, second)))
    uuids = [str(getattr(torch.cuda.get_device_properties(index), "uuid", "")) or None for index in (first, second)]
    with nvidia.opened() as nvml:
        return UNKNOWN if nvml is None else of_nvidia(nvml, uuids[0], uuids[1])


def kind_among(names: Sequence[str]) -> str:
    """The class of the links among devices, as a hardware key has it: one kind, or `mixed`.

    Args:
        names: `cuda:0` …; devices of another kind are `unknown` to each other.
    """
    if not all(name.startswith("cuda:") for name in names):
        return "unknown"
    indices = [int(name.removeprefix("cuda:")) for name in names]
    kinds = {between(first, second).kind for first, second in combinations(indices, 2)}
    return next(iter(kinds)) if len(kinds) == 1 else "mixed"


def kind_among_uuids(uuids: Sequence[str | None]) -> str:
    """The same for NVIDIA GPUs of this host that this process need not see."""
    with nvidia.opened() as nvml:
        pairs = combinations(uuids, 2) if nvml is not None else ()
        kinds = {of_nvidia(nvml, first, second).kind for first, second in pairs}
    return next(iter(kinds), "unknown") if len(kinds) <= 1 else "mixed"


def of_nvidia(nvml: Any, first_uuid: str | None, second_uuid: str | None) -> Link:
    """The way between two NVIDIA GPUs that can reach each other, by what NVML answers.

    Args:
        nvml: the library, open.
        first_uuid: of one of them.
        second_uuid: of the other.
    """
    try:
        first, second = nvidia.handle_of(nvml, first_uuid), nvidia.handle_of(nvml, second_uuid)
    except nvml.NVMLError:
        return UNKNOWN
    mine, theirs = _nvlinks(nvml, first), _nvlinks(nvml, second)
    address = _bus(_ask(nvml, "nvmlDeviceGetPciInfo", second))
    direct = sum(address is not None and remote == address for remote in mine)
    if direct:
        return Link("nvlink", direct)
    if "switch" in mine and "switch" in theirs:
        return Link("nvlink-switch", min(mine.count("switch"), theirs.count("switch")))
    if _ask(nvml, "nvmlDeviceGetP2PStatus", first, second, _NVLINK) == _OK:
        # A virtual machine hides what is at the other end.
        return Link("nvlink")
    crosses_pcie = any(_ask(nvml, "nvmlDeviceGetP2PStatus", first, second, cap) == _OK for cap in (_READ, _WRITE))
    known = crosses_pcie or _ask(nvml, "nvmlDeviceGetTopologyCommonAncestor", first, second) is not None
    return Link("pcie") if known else UNKNOWN


def _nvlinks(nvml: Any, handle: Any) -> list[str]:
    """What is at the other end of every link that is up: a GPU's PCI address, `switch`, or nothing that is known."""
    ends = []
    for link in range(MOST_LINKS):
        if _ask(nvml, "nvmlDeviceGetNvLinkState", handle, link) != 1:
            continue
        kind = _ask(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
        if kind is not None and kind == getattr(nvml, "NVML_NVLINK_DEVICE_TYPE_SWITCH", 2):
            ends.append("switch")
        else:
            ends.append(_bus(_ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link)) or "")
    return ends


def _bus(info: Any) -> str | None:
    """`00000000:1b:00.0`, in lower case; None of nothing."""
    if info is None:
        return None
    text = info.busId.decode() if isinstance(info.busId, bytes) else str(info.busId)
    return text.lower()


def _ask(nvml: Any, question: str, *arguments: Any) -> Any:
    """An answer; None where it is withheld or the library does not know the question."""
    try:
        return getattr(nvml, question)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None


def _amd(first: str | None, second: str | None) -> Link:
    with contextlib.suppress(Exception):
        return of_amd(started_amdsmi(), first, second)
    return UNKNOWN


def of_amd(smi: Any, first: str | None, second: str | None) -> Link:
    """The way between two AMD GPUs that can reach each other, by what amdsmi answers.

    Args:
        smi: the library, open.
        first: PCI address of one of them.
        second: of the other.

    Raises:
        Exception: what the library raises; it has a tree of its own.
    """
    handles = {smi.amdsmi_get_gpu_device_bdf(handle).lower(): handle for handle in smi.amdsmi_get_processor_handles()}
    if first is None or second is None or not {first.lower(), second.lower()} <= handles.keys():
        return UNKNOWN
    told = smi.amdsmi_topo_get_link_type(handles[first.lower()], handles[second.lower()])["type"]
    xgmi, pcie = _amd_types(smi)
    # The number of hops is told, that of the links is not.
    return Link("xgmi") if told == xgmi else Link("pcie") if told == pcie else UNKNOWN


def _amd_types(smi: Any) -> tuple[int | None, int | None]:
    """The numbers of xGMI and PCIe in this version of the library: releases have swapped and renamed them."""
    older = getattr(smi, "AmdSmiIoLinkType", None)
    if older is not None:
        return int(older.XGMI), int(older.PCIEXPRESS)
    newer = getattr(smi, "AmdSmiLinkType", None)
    if newer is None:
        return None, None
    return int(newer.AMDSMI_LINK_TYPE_XGMI), int(newer.AMDSMI_LINK_TYPE_PCIE)
