"""What surrounds a number: device, host and software, gathered once a run."""

import os
import platform
from importlib import metadata
from pathlib import Path

import torch

from ..core.facts import Environment
from .devices.base import Device
from .host import host_facts

# How torch is told to cut and to keep memory, which moves a peak; the newest name first.
_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
# An accelerator's driver leaves one of these behind, whatever torch was built for.
ACCELERATOR_NODES = (Path("/dev/nvidiactl"), Path("/dev/kfd"))


def gather(device: Device) -> Environment:
    """The environment of a run on `device`."""
    return Environment(device=device.facts(), host=host_facts(), software=software())


def software() -> dict[str, str]:
    """Versions of everything that may move a number, where installed, and the settings of torch's allocator."""
    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    versions["allocator"] = next((value for name in _ALLOCATOR if (value := os.environ.get(name))), "default")
    versions |= {
        name: value
        for name, value in (("cuda", torch.version.cuda), ("hip", torch.version.hip))
        if isinstance(value, str)
    }
    for distribution in ("triton", "pytorch-triton-rocm", "pytorch-triton-xpu", "numpy"):
        try:
            versions[distribution] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return versions


def unused_accelerator(device: Device) -> str:
    """A warning where the machine has an accelerator that this torch cannot use; empty where all is well.

    Measuring the CPU green on a GPU runner is the worst mistake there is.
    """
    present = [str(node) for node in ACCELERATOR_NODES if node.exists()]
    if not present or device.facts().type != "cpu" or torch.cuda.is_available():
        return ""
    return (
        f"this machine has an accelerator ({', '.join(present)}), but torch {torch.__version__} cannot use it, "
        "so the CPU is measured; install a torch for it, or ask for --roofline-device=cpu"
    )
