"""Profilers that watch from outside. One may be attached to this process, and can be told what to
do on some devices.
"""

from collections.abc import Mapping

from ..core.profiles import Tool

# Variables that profilers set in the processes that they start, or that name a library of theirs to load.
PROFILER_VARIABLES = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems",
    "CUDA_INJECTION64_PATH": "a profiler injected into CUDA",
    "ROCP_TOOL_LIB": "rocprof",
    "ROCP_TOOL_LIBRARIES": "rocprofv3",
    "ROCPROFILER_LIBRARY_CTOR": "rocprofv3",
    "HSA_TOOLS_LIB": "a tool of the HSA runtime",
}


def attached_profiler(environment: Mapping[str, str]) -> str:
    """Return the profiler that this process runs under, and its variable. Empty if there is none."""
    variable = next((name for name in PROFILER_VARIABLES if environment.get(name)), None)
    return "" if variable is None else f"{PROFILER_VARIABLES[variable]} ({variable} is set)"


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
