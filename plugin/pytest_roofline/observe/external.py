"""Profilers that watch from outside. One can be told what to do on some devices."""

from collections.abc import Mapping

from ..core.profiles import Tool
from ..engine.host import attached_profiler


def is_bracketed(device: str) -> bool:
    """Return whether an external profiler can be told where to look. That goes through CUDA or
    ROCm, by device.
    """
    return device.partition(":")[0] == "cuda"


def tool_for(choice: str, environment: Mapping[str, str], device: str) -> tuple[Tool, str]:
    """Return the profiler to use, and a remark. The remark is about a profiler that is not the one
    asked for.

    Two tools cannot both listen to one driver (CUPTI's and ROCprofiler's rule); on the host nobody is in the way.
    """
    if choice == "external":
        return "external", ""
    profiler = attached_profiler(environment) if is_bracketed(device) else ""
    if not profiler:
        return "torch", ""
    return "external", (
        f"this process runs under {profiler}, which excludes torch.profiler: the ranges are set for that profiler "
        "(--roofline-profile=external)"
    )
