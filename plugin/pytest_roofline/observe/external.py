"""Profilers that watch from outside: whether one is attached to this process, and where it can be told what to do."""

from collections.abc import Mapping

from ..core.profiles import Tool

# Variables that profilers set in the processes that they start, or that name a library of theirs to load.
ATTACHED = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems",
    "CUDA_INJECTION64_PATH": "a profiler injected into CUDA",
    "ROCP_TOOL_LIB": "rocprof",
    "ROCP_TOOL_LIBRARIES": "rocprofv3",
    "ROCPROFILER_LIBRARY_CTOR": "rocprofv3",
    "HSA_TOOLS_LIB": "a tool of the HSA runtime",
}


def attached(environment: Mapping[str, str]) -> str:
    """The profiler that this process runs under, with the variable that tells; empty where none does."""
    found = next((name for name in ATTACHED if environment.get(name)), None)
    return "" if found is None else f"{ATTACHED[found]} ({found} is set)"


def is_bracketed(device: str) -> bool:
    """Whether an external profiler can be told what to look at on a device: through CUDA or ROCm."""
    return device.partition(":")[0] == "cuda"


def tool_for(wanted: str, environment: Mapping[str, str], device: str) -> tuple[Tool, str]:
    """Which profiler to use, and what to say where it is not the one asked for.

    Two tools cannot both listen to one driver (CUPTI's and ROCprofiler's rule); on the host nobody is in the way.
    """
    if wanted == "external":
        return "external", ""
    found = attached(environment) if is_bracketed(device) else ""
    if not found:
        return "torch", ""
    return "external", (
        f"this process runs under {found}, which excludes torch.profiler: its ranges are set for that one "
        "(--roofline-profile=external)"
    )
