"""Devices behind one small protocol: CPU, CUDA and ROCm, MPS, XPU, and a fake with a scripted clock."""

import re
from typing import TYPE_CHECKING

from ...core.errors import NO_TORCH, BadInput, DeviceError
from .base import AllocatedBytes, Counters, Device, Stamp, Traits, answering, stopped_answering

if TYPE_CHECKING:
    import torch

__all__ = [
    "AllocatedBytes",
    "Counters",
    "Device",
    "Stamp",
    "Traits",
    "answering",
    "check_device_name",
    "open_device",
    "require_torch",
    "stopped_answering",
    "torch_device",
]

# The option that the user gave the name by, for messages.
OPTION = "--roofline-device"
_NAMES = re.compile(r"(cpu|mps|(cuda|xpu)(:(\d{1,3}))?)")


def check_device_name(name: str, option: str = OPTION) -> str:
    """Return a name of a device. Raise BadInput if it names none. `option` is for the message."""
    if not _NAMES.fullmatch(name):
        raise BadInput(f"{option} is {name!r}; expected cpu, cuda, cuda:N, mps, xpu or xpu:N")
    return name


def require_torch() -> None:
    """Raise DeviceError, with what to type, if torch is not installed."""
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise DeviceError(NO_TORCH) from None


def open_device(name: str | None, option: str = OPTION) -> Device:
    """Return the device with a name; without a name, the best that there is.

    The best is CUDA or ROCm, then XPU, MPS and the CPU. `option` is for messages.

    Raises:
        BadInput: the name is not one of a device.
        DeviceError: torch is not installed, or there is no such device.
    """
    require_torch()
    chosen_name = check_device_name(name, option) if name else _best()
    kind, _, index = chosen_name.partition(":")
    # A module is imported only to open its device, since a build of torch may lack what it needs.
    if kind == "cuda":
        from .cuda import open_cuda

        return open_cuda(int(index or 0), option)
    if kind == "xpu":
        from .xpu import open_xpu

        return open_xpu(int(index or 0), option)
    if kind == "mps":
        from .mps import open_mps

        return open_mps(option)
    from .cpu import CpuDevice

    return CpuDevice()


def torch_device(device: Device) -> "torch.device":
    """Return the torch device on which tensors for a device are made.

    For the fake device, which computes nothing, it is the CPU.
    """
    import torch

    return torch.device("cpu" if device.name == "fake" else device.name)


def _best() -> str:
    """Return the name of the best device that torch can use."""
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if torch.xpu.is_available():
        return "xpu"
    return "mps" if torch.backends.mps.is_available() else "cpu"
