"""Profilers that watch from outside. One can be told what to do on some devices."""

from collections.abc import Mapping

from ..core.profiles import Tool
from ..engine.host import attached_profiler


def is_bracketed(device: str) -> bool:
    """Return whether a device can mark calls for an external profiler.

    CUDA and ROCm can; torch names the devices of both `cuda`.
    """
    return device.partition(":")[0] == "cuda"


def tool_for(choice: str, environment: Mapping[str, str], device: str) -> tuple[Tool, str]:
    """Return the profiler to use, and a remark if it is not the user's choice.

    Two profilers cannot both use one driver (a rule of CUPTI and ROCprofiler). So under an external profiler, torch's
    is used only for devices without such a driver.
    """
    if choice == "external":
        return "external", ""
    profiler = attached_profiler(environment) if is_bracketed(device) else ""
    if not profiler:
        return "torch", ""
    return "external", (
        f"this process runs under {profiler}, which excludes torch.profiler, so the ranges are set for {profiler} "
        "(--roofline-profile=external)"
    )
