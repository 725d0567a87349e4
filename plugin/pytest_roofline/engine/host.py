"""The facts of the host: processor, memory, cgroup limits and software.

It also limits the memory of this process. On Linux all facts are known, on other systems those that Python knows.
"""

import contextlib
import functools
import os
import platform
import re
import resource
import subprocess
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from ..core.facts import DeviceFacts, Environment, HostFacts
from .devices.base import Device

# The last-level cache of a machine that does not report it (macOS virtual machines, some hypervisors).
ASSUMED_CACHE_BYTES = 64 * 2**20
_UNLIMITED = 2**60
# Variables that profilers set in the processes that they start, or that name a library of theirs to load.
PROFILER_VARIABLES = {
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems",
    "CUDA_INJECTION64_PATH": "a profiler injected into CUDA",
    "ROCP_TOOL_LIB": "rocprof",
    "ROCP_TOOL_LIBRARIES": "rocprofv3",
    "ROCPROFILER_LIBRARY_CTOR": "rocprofv3",
    "HSA_TOOLS_LIB": "a tool of the HSA runtime",
}
# Variables that set torch's allocator, which changes peaks of memory. The newest name comes first.
_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
# Device files of an accelerator's driver. They exist whether this build of torch supports it or not.
ACCELERATOR_NODES = (Path("/dev/nvidiactl"), Path("/dev/kfd"))
# The limit on memory leaves this to other processes, since the kernel's figure of free memory is an estimate.
MARGIN_SHARE = 0.05
LEAST_MARGIN_BYTES = 256 * 2**20
# The size of an operation that is large enough to make torch start its threads.
_PARALLEL = 1 << 20
ROOT = Path("/")


def read(path: Path) -> str | None:
    """Return the text of a file, stripped; None if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _cpuinfo(field: str) -> str | None:
    """Return a field of /proc/cpuinfo, of the first core that has it."""
    match = re.search(
        rf"^{re.escape(field)}[ \t]*:[ \t]*(.+)$", read(ROOT / "proc/cpuinfo") or "", re.MULTILINE
    )
    return match[1].strip() if match else None


def _sysctl(name: str) -> str | None:
    """Return a setting of the macOS kernel; None on another system."""
    if platform.system() != "Darwin":
        return None
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return (
            subprocess.run(
                ["sysctl", "-n", name], capture_output=True, text=True, timeout=5
            ).stdout.strip()
            or None
        )
    return None


def cpu_model() -> str:
    """Return the processor's name as the system prints it."""
    name = _cpuinfo("model name") or _sysctl("machdep.cpu.brand_string") or platform.processor()
    return name or platform.machine() or "unknown"


def cpu_family() -> str | None:
    """Return the processor's family and model, `f26m2`.

    Virtual machines print the same name for processors of different years; these tell them apart.
    """
    family, model = _cpuinfo("cpu family"), _cpuinfo("model")
    return f"f{family}m{model}" if family and model else None


def clock_mhz() -> float | None:
    """Return the present clock of the first core; None if it is unknown."""
    try:
        return float(_cpuinfo("cpu MHz") or "")
    except ValueError:
        return None


def last_level_cache_bytes() -> int:
    """Return the size of all last-level caches together; 64 MiB if it is unknown.

    A threaded copy uses the caches of all dies, so all of them must be evicted.
    """
    # By level and the cores that share it, so that a cache counts once.
    caches: dict[tuple[int, str], int] = {}
    for index in (ROOT / "sys/devices/system/cpu").glob("cpu[0-9]*/cache/index*"):
        size_bytes = _cache_bytes(read(index / "size") or "")
        level = read(index / "level") or index.name.removeprefix("index")
        if size_bytes is not None and level.isdigit():
            sharing_cores = read(index / "shared_cpu_list") or ""
            caches[int(level), sharing_cores] = size_bytes
    last = max((level for level, _ in caches), default=0)
    mac_bytes = _sysctl("hw.l3cachesize") or _sysctl("hw.perflevel0.l2cachesize")
    linux_bytes = sum(size for (level, _), size in caches.items() if level == last)
    return (
        linux_bytes
        or (int(mac_bytes) if mac_bytes and mac_bytes.isdigit() else 0)
        or ASSUMED_CACHE_BYTES
    )


def _kilobytes(file: str, field: str) -> int | None:
    """Return a field of a file of the kernel, in bytes. The file states it in kB."""
    match = re.search(rf"^{field}:\s+(\d+) kB$", read(ROOT / file) or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _cache_bytes(text: str) -> int | None:
    """Return the bytes of a size such as `512K`; None for another text."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text)
    if match is None:
        return None
    number, unit = match.groups()
    return int(number) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[unit]


def memory_bytes() -> int:
    """Return the physical memory of the machine."""
    total_bytes = _kilobytes("proc/meminfo", "MemTotal")
    return (
        total_bytes
        if total_bytes is not None
        else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    )


def _cgroup_folders(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's cgroup of a controller, and of its parents.

    The innermost comes first. In version 1 every controller has a tree of its own.
    """
    base = ROOT / "sys/fs/cgroup"
    for line in (read(ROOT / "proc/self/cgroup") or "").splitlines():
        # A line is `4:cpu,cpuacct:/path`; in version 2 there is one, `0::/path`, for all controllers.
        _, names, path = line.split(":", 2)
        if names == "" or controller in names.split(","):
            top = base if names == "" else base / controller
            folder = top / path.lstrip("/")
            yield folder
            yield from (parent for parent in folder.parents if parent.is_relative_to(top))


def _numbers(controller: str, *names: str) -> list[tuple[Path, int]]:
    """Return the numbers in files of these names, each with its cgroup's folder.

    A number that means no limit is left out.
    """
    numbers = []
    for folder in _cgroup_folders(controller):
        for name in names:
            text = read(folder / name)
            if text is not None and text.isdigit() and int(text) < _UNLIMITED:
                numbers.append((folder, int(text)))
    return numbers


def cgroup_memory_bytes() -> int | None:
    """Return the lowest memory limit of this process's cgroups.

    None if there is none below the memory of the machine.
    """
    limits = [limit for _, limit in _numbers("memory", "memory.max", "memory.limit_in_bytes")]
    tightest = min(limits, default=_UNLIMITED)
    return tightest if tightest < memory_bytes() else None


def cgroup_cpus() -> float | None:
    """Return the lowest processor quota of this process's cgroups, in cores; None without one."""
    quotas = []
    for folder in _cgroup_folders("cpu"):
        words = (read(folder / "cpu.max") or "").split()
        if not words:
            words = [
                read(folder / "cpu.cfs_quota_us") or "",
                read(folder / "cpu.cfs_period_us") or "",
            ]
        # Both are in microseconds. The word `max`, or -1 in version 1, means no quota.
        if len(words) == 2 and all(word.isdigit() for word in words):
            quota_us, period_us = map(int, words)
            if period_us > 0:
                quotas.append(quota_us / period_us)
    return min(quotas, default=None)


def data_bytes() -> int | None:
    """Return the private writable memory of this process, which RLIMIT_DATA limits.

    Memory counts even if it was never touched. None if the system does not report it.
    """
    return _kilobytes("proc/self/status", "VmData")


def _data_headroom_bytes() -> int | None:
    """Return the bytes that this process may still get under RLIMIT_DATA; None without a limit."""
    used_bytes = data_bytes()
    if used_bytes is None:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY else soft - used_bytes


def free_memory_bytes() -> int:
    """Return the bytes that an allocation can still get.

    It is the least that the machine, each cgroup and the limit of the process allow.
    """
    available = _kilobytes("proc/meminfo", "MemAvailable")
    free = [memory_bytes() if available is None else available]
    if (headroom := _data_headroom_bytes()) is not None:
        free.append(headroom)
    for folder, limit in _numbers("memory", "memory.max", "memory.limit_in_bytes"):
        used = read(folder / "memory.current") or read(folder / "memory.usage_in_bytes") or "0"
        # The page cache counts as used, but the kernel frees it on demand, so it is added again.
        stat = read(folder / "memory.stat") or ""
        # In version 1 the figure of the whole subtree, which the usage is also of, has a name of its own.
        cache = re.search(r"^total_inactive_file (\d+)$", stat, re.M) or re.search(
            r"^inactive_file (\d+)$", stat, re.M
        )
        cached = int(cache[1]) if cache else 0
        if used.isdigit():
            free.append(limit - int(used) + cached)
    return max(0, min(free))


def usable_cpus() -> set[int]:
    """Return the numbers of the cores that this process may use."""
    every_core = set(range(os.cpu_count() or 1))
    # OpenMP may have bound the main thread to one core and its other threads to the others. The affinity of the main
    # thread is then not that of the process.
    is_bound = os.environ.get("OMP_PROC_BIND", "false").lower() not in ("", "false")
    return (
        every_core if is_bound or not hasattr(os, "sched_getaffinity") else os.sched_getaffinity(0)
    )


def usable_cores() -> int:
    """Return the number of cores that this process may run on."""
    return len(usable_cpus())


def affinity() -> str:
    """Return the cores that this process may use, in the kernel's form: `0-3,8`."""
    usable = usable_cpus()
    starts = sorted(number for number in usable if number - 1 not in usable)
    ends = sorted(number for number in usable if number + 1 not in usable)
    return ",".join(
        f"{low}" if low == high else f"{low}-{high}" for low, high in zip(starts, ends, strict=True)
    )


def numbers_of(ranges: str) -> set[int]:
    """Return the numbers of `0-3,8`."""
    numbers: set[int] = set()
    for part in filter(None, ranges.split(",")):
        low, _, high = part.partition("-")
        numbers |= set(range(int(low), int(high or low) + 1))
    return numbers


def _torch_threads() -> int | None:
    """Return torch's number of threads; None if it is not installed."""
    try:
        import torch
    except ModuleNotFoundError:
        return None
    return torch.get_num_threads()


@functools.cache
def host_facts(*, asks_torch: bool = True) -> HostFacts:
    """The host as this process sees it; read once. Torch's threads are unknown without torch."""
    nodes = len(list((ROOT / "sys/devices/system/node").glob("node[0-9]*")))
    limit = cgroup_memory_bytes()
    return HostFacts(
        name=platform.node(),
        cpu_model=cpu_model(),
        cores=os.cpu_count() or 1,
        usable_cores=usable_cores(),
        memory_bytes=memory_bytes(),
        usable_memory_bytes=min(memory_bytes(), limit or _UNLIMITED),
        kernel=platform.release(),
        threads=_torch_threads() if asks_torch else None,
        numa_nodes=nodes or None,
        cgroup_cpus=cgroup_cpus(),
        cgroup_memory_bytes=limit,
        governor=read(ROOT / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        affinity=affinity(),
    )


def processor_facts(facts: HostFacts) -> DeviceFacts:
    """Return the processor of a host as a device: what its key is made of."""
    return DeviceFacts(
        type="cpu",
        product=facts.cpu_model,
        architecture=cpu_family(),
        memory_bytes=facts.usable_memory_bytes,
        units=facts.usable_cores,
    )


def gather(device: Device) -> Environment:
    """Return the environment of a run on a device.

    It has the facts of device, host and software.
    """
    return Environment(device=device.facts(), host=host_facts(), software=software())


def software() -> dict[str, str]:
    """Return the versions of software that may change times, and the setting of torch's allocator."""
    import torch

    versions = {"python": platform.python_version(), "torch": str(torch.__version__)}
    versions["allocator"] = next(
        (setting for name in _ALLOCATOR if (setting := os.environ.get(name))), "default"
    )
    built_for = {"cuda": torch.version.cuda, "hip": torch.version.hip}
    versions |= {name: setting for name, setting in built_for.items() if isinstance(setting, str)}
    for distribution in ("triton", "pytorch-triton-rocm", "pytorch-triton-xpu", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[distribution] = metadata.version(distribution)
    return versions


def unused_accelerator(device: Device) -> str:
    """Return a warning about an accelerator that this torch cannot use; empty without one.

    Otherwise a CI on a GPU machine could pass for years while it measures only the CPU.
    """
    import torch

    present = [str(node) for node in ACCELERATOR_NODES if node.exists()]
    if not present or device.facts().type != "cpu" or torch.cuda.is_available():
        return ""
    return (
        f"this machine has an accelerator ({', '.join(present)}), but torch {torch.__version__} cannot use it, so "
        "the CPU is measured. Install a torch that supports the accelerator, or pass --roofline-device=cpu"
    )


def interpreted(device: Device) -> str:
    """Return a warning if Triton interprets its kernels.

    They run on the host then. Empty if it does not.
    """
    setting = os.environ.get("TRITON_INTERPRET", "")
    if device.facts().type == "cpu" or setting.lower() not in ("1", "true", "on", "yes", "y"):
        return ""
    return f"TRITON_INTERPRET={setting}: Triton kernels run on the host, not on {device.name}. Unset TRITON_INTERPRET"


@contextlib.contextmanager
def limit_memory() -> Iterator[int | None]:
    """Limit this process to the memory that is free now, less a margin.

    Yield the limit in bytes; None on another system than Linux, where there is no limit. An allocation beyond it fails
    at once, with its size. Without the limit Linux grants it, and later ends some process by SIGKILL. The limit is
    RLIMIT_DATA, which has counted all private writable memory since Linux 4.7 (setrlimit(2)).
    """
    import torch

    # Let torch start its threads now, since OpenMP ends the process if it cannot get memory for one later.
    torch.ones(_PARALLEL).neg_()
    data_segment_bytes = data_bytes()
    if data_segment_bytes is None:
        yield None
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    free = free_memory_bytes()
    margin = min(max(LEAST_MARGIN_BYTES, int(MARGIN_SHARE * free)), free // 2)
    limit = min(
        [
            data_segment_bytes + free - margin,
            *(limit_bytes for limit_bytes in (soft, hard) if limit_bytes != resource.RLIM_INFINITY),
        ]
    )
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield limit
    finally:
        # The guarded code may have lowered the hard limit, and the soft limit cannot be above it.
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard != resource.RLIM_INFINITY and (soft == resource.RLIM_INFINITY or soft > hard):
            soft = hard
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def attached_profiler(environment: Mapping[str, str]) -> str:
    """Return the profiler of this process and the variable that shows it; empty without one."""
    variable = next((name for name in PROFILER_VARIABLES if environment.get(name)), None)
    return "" if variable is None else f"{PROFILER_VARIABLES[variable]} ({variable} is set)"
