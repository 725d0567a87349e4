"""Everything a machine has, for `roofline doctor`: GPUs by their management library, and the limits of the host."""

import contextlib
import os
from itertools import combinations
from pathlib import Path
from typing import Any

from ..core.machine import Gpu, Machine
from .devices import amd, nvidia
from .devices.own import OWN_CONTEXT_BYTES
from .environment import ACCELERATOR_NODES
from .host import host_facts

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
