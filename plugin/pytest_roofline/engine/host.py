"""The facts of the host: processor, memory, cgroup limits, governor. Linux in full, elsewhere what Python knows."""

import contextlib
import functools
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.facts import Environment, HostFacts

if TYPE_CHECKING:
    from .devices.base import Device

# Where a machine keeps its last-level cache secret (macOS virtual machines, some hypervisors).
ASSUMED_CACHE_BYTES = 64 * 2**20
_UNLIMITED = 2**60
# What neighbours may take of the usable cores before a measurement is theirs rather than the machine's.
MOST_CORES_TAKEN = 0.25
MOST_SHARE_TAKEN = 0.05
# The kernel counts in hundredths of a second; below this its figure is too coarse.
SHORTEST_WATCH_S = 0.1
_ROOT = Path("/")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _cpuinfo(field: str) -> str | None:
    match = re.search(rf"^{re.escape(field)}[ \t]*:[ \t]*(.+)$", _read(_ROOT / "proc/cpuinfo") or "", re.MULTILINE)
    return match[1].strip() if match else None


def _sysctl(name: str) -> str | None:
    if platform.system() != "Darwin":
        return None
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        return subprocess.run(["sysctl", "-n", name], capture_output=True, text=True, timeout=5).stdout.strip() or None
    return None


def cpu_model() -> str:
    """The processor's name as the system prints it."""
    known = _cpuinfo("model name") or _sysctl("machdep.cpu.brand_string") or platform.processor()
    return known or platform.machine() or "unknown"


def cpu_family() -> str | None:
    """Family and model, `f26m2`: virtual machines print the same name for chips years apart."""
    family, model = _cpuinfo("cpu family"), _cpuinfo("model")
    return f"f{family}m{model}" if family and model else None


def clock_mhz() -> float | None:
    """The clock of the first core right now."""
    try:
        return float(_cpuinfo("cpu MHz") or "")
    except ValueError:
        return None


def last_level_cache_bytes() -> int:
    """Size of the last-level caches of all cores together; 64 MiB is assumed where the machine does not tell.

    A threaded copy spreads over every die, so what must be evicted is the sum and not one die's share.
    """
    caches: dict[tuple[int, str], int] = {}
    for index in (_ROOT / "sys/devices/system/cpu").glob("cpu[0-9]*/cache/index*"):
        match = re.fullmatch(r"(\d+)([KMG]?)", _read(index / "size") or "")
        level = _read(index / "level") or index.name.removeprefix("index")
        if match and level.isdigit():
            shared = _read(index / "shared_cpu_list") or ""
            caches[int(level), shared] = int(match[1]) * {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}[match[2]]
    last = max((level for level, _ in caches), default=0)
    told = _sysctl("hw.l3cachesize") or _sysctl("hw.perflevel0.l2cachesize")
    found = sum(size for (level, _), size in caches.items() if level == last)
    return found or (int(told) if told and told.isdigit() else 0) or ASSUMED_CACHE_BYTES


def _meminfo(field: str) -> int | None:
    match = re.search(rf"^{field}:\s+(\d+) kB$", _read(_ROOT / "proc/meminfo") or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def memory_bytes() -> int:
    """Physical memory of the machine."""
    told = _meminfo("MemTotal")
    return told if told is not None else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cgroup_folders(controller: str) -> Iterator[Path]:
    """This process's cgroup of a controller and its parents, innermost first; of v2, or of v1 in its own tree."""
    base = _ROOT / "sys/fs/cgroup"
    for line in (_read(_ROOT / "proc/self/cgroup") or "").splitlines():
        _, names, path = line.split(":", 2)
        if names == "" or controller in names.split(","):
            top = base if names == "" else base / controller
            folder = top / path.lstrip("/")
            while True:
                yield folder
                if folder in (top, _ROOT) or top not in folder.parents:
                    break
                folder = folder.parent


def _numbers(controller: str, *names: str) -> list[tuple[Path, int]]:
    found = []
    for folder in _cgroup_folders(controller):
        for name in names:
            text = _read(folder / name)
            if text is not None and text.isdigit() and int(text) < _UNLIMITED:
                found.append((folder, int(text)))
    return found


def cgroup_memory_bytes() -> int | None:
    """The tightest memory limit of this process's cgroups; None without one."""
    limits = [limit for _, limit in _numbers("memory", "memory.max", "memory.limit_in_bytes")]
    tightest = min(limits, default=None)
    return tightest if tightest is not None and tightest < memory_bytes() else None


def cgroup_cpus() -> float | None:
    """The tightest processor quota of this process's cgroups, in cores; None without one."""
    quotas = []
    for folder in _cgroup_folders("cpu"):
        words = (_read(folder / "cpu.max") or "").split()
        if not words:
            words = [_read(folder / "cpu.cfs_quota_us") or "", _read(folder / "cpu.cfs_period_us") or ""]
        if len(words) == 2 and words[0].isdigit() and words[1].isdigit() and int(words[1]) > 0:
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def data_bytes() -> int | None:
    """Private writable memory of this process, touched or not, as RLIMIT_DATA counts it; None where nobody tells."""
    match = re.search(r"^VmData:\s+(\d+) kB$", _read(_ROOT / "proc/self/status") or "", re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _data_headroom_bytes() -> int | None:
    """What the limit of this process's data segment still allows; None where it has none."""
    held = data_bytes()
    if held is None:
        return None
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_DATA)
    return None if soft == resource.RLIM_INFINITY else soft - held


def free_memory_bytes() -> int:
    """What an allocation can still get: the least of what the machine, the cgroup and the process's limit allow."""
    available, allowed = _meminfo("MemAvailable"), _data_headroom_bytes()
    free = [memory_bytes() if available is None else available, *([] if allowed is None else [allowed])]
    for folder, limit in _numbers("memory", "memory.max", "memory.limit_in_bytes"):
        used = _read(folder / "memory.current") or _read(folder / "memory.usage_in_bytes") or "0"
        # Page cache counts as used but is given back on demand.
        stat = _read(folder / "memory.stat") or ""
        # Version 1 counts the subtree under another name, and its usage is the subtree's.
        cache = re.search(r"^total_inactive_file (\d+)$", stat, re.M) or re.search(r"^inactive_file (\d+)$", stat, re.M)
        if used.isdigit():
            free.append(limit - int(used) + (int(cache[1]) if cache else 0))
    return max(0, min(free))


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(_usable_cpus())


def _usable_cpus() -> set[int]:
    everything = set(range(os.cpu_count() or 1))
    # OpenMP binds the main thread alone when it loads; the others get the other cores, so its affinity is not ours.
    bound = os.environ.get("OMP_PROC_BIND", "false").lower() not in ("", "false")
    return everything if bound or not hasattr(os, "sched_getaffinity") else os.sched_getaffinity(0)


def affinity() -> str:
    """The cores that this process may run on: `0-3,8`."""
    return _ranges(sorted(_usable_cpus()))


def preemptions() -> int | None:
    """How often the scheduler took a core from this process against its will; None where the system does not tell."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _ranges(numbers: list[int]) -> str:
    """Ascending numbers as the kernel writes them: `0-3,8`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def numbers_of(ranges: str) -> set[int]:
    """The numbers of `0-3,8`."""
    found: set[int] = set()
    for part in filter(None, ranges.split(",")):
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    return found


class Neighbours:
    """How busy other processes keep the cores that this one uses, from its making until `cores_taken` is asked.

    Programs that this process ran meanwhile and waited for, such as a compiler, are no others.
    """

    def __init__(self) -> None:
        self._busy_s, self._own_s, self._wall_s = _busy_s(), _own_s(), time.perf_counter()

    def cores_taken(self) -> float | None:
        """Cores that others kept busy on average; None where the machine does not tell or the time was too short."""
        busy_s, wall_s = _busy_s(), time.perf_counter() - self._wall_s
        if busy_s is None or self._busy_s is None or wall_s < SHORTEST_WATCH_S:
            return None
        return max(0.0, busy_s - self._busy_s - (_own_s() - self._own_s)) / wall_s


def others_core_s() -> float | None:
    """Seconds that others than this process have kept its cores busy, counted from any one moment; None is unknown."""
    busy_s = _busy_s()
    return None if busy_s is None else busy_s - time.process_time()


def _own_s() -> float:
    """Seconds that this process has worked, and those that it started and that have ended."""
    told = os.times()
    return time.process_time() + told.children_user + told.children_system


def _busy_s() -> float | None:
    """Seconds that the usable cores have worked since boot, for anybody."""
    total, usable = 0, {f"cpu{number}" for number in _usable_cpus()}
    seen = False
    for line in (_read(_ROOT / "proc/stat") or "").splitlines():
        words = line.split()
        if words and words[0] in usable and len(words) > 7:
            # user, nice, system, irq, softirq; not idle, waiting for disks, or stolen by the hypervisor.
            total += sum(int(words[column]) for column in (1, 2, 3, 6, 7))
            seen = True
    return total / os.sysconf("SC_CLK_TCK") if seen else None


def too_busy(cores_taken: float | None) -> str:
    """Why a CPU measurement beside such neighbours tells nothing of the machine; empty where it does.

    A threaded copy that has to wait for one core waits for whole slices of the scheduler, so a little is too much.
    """
    usable = usable_cores()
    if cores_taken is None or cores_taken <= max(MOST_CORES_TAKEN, MOST_SHARE_TAKEN * usable):
        return ""
    return (
        f"other processes kept {cores_taken:.1f} of {usable} cores busy while it was timed; run it on a quiet machine"
    )


@functools.cache
def host_facts() -> HostFacts:
    """The host as this process sees it; read once."""
    nodes = len(list((_ROOT / "sys/devices/system/node").glob("node[0-9]*")))
    limit = cgroup_memory_bytes()
    return HostFacts(
        name=platform.node(),
        cpu_model=cpu_model(),
        cores=os.cpu_count() or 1,
        usable_cores=usable_cores(),
        memory_bytes=memory_bytes(),
        usable_memory_bytes=min(memory_bytes(), limit or _UNLIMITED),
        kernel=platform.release(),
        threads=_torch_threads(),
        numa_nodes=nodes or None,
        cgroup_cpus=cgroup_cpus(),
        cgroup_memory_bytes=limit,
        governor=_read(_ROOT / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        affinity=affinity(),
    )


def _torch_threads() -> int:
    import torch

    return torch.get_num_threads()


# How torch is told to cut and to keep memory, which moves a peak; the newest name first.
_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
# An accelerator's driver leaves one of these behind, whatever torch was built for.
ACCELERATOR_NODES = (Path("/dev/nvidiactl"), Path("/dev/kfd"))


def gather(device: "Device") -> Environment:
    """The environment of a run on `device`."""
    return Environment(device=device.facts(), host=host_facts(), software=software())


def software() -> dict[str, str]:
    """Versions of everything that may move a number, where installed, and the settings of torch's allocator."""
    import torch

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


def unused_accelerator(device: "Device") -> str:
    """A warning where the machine has an accelerator that this torch cannot use; empty where all is well.

    Measuring the CPU green on a GPU runner is the worst mistake there is.
    """
    import torch

    present = [str(node) for node in ACCELERATOR_NODES if node.exists()]
    if not present or device.facts().type != "cpu" or torch.cuda.is_available():
        return ""
    return (
        f"this machine has an accelerator ({', '.join(present)}), but torch {torch.__version__} cannot use it, "
        "so the CPU is measured; install a torch for it, or ask for --roofline-device=cpu"
    )


# What the guarded code must leave to everybody else: the kernel's figure of free memory is an estimate.
MARGIN_SHARE = 0.05
LEAST_MARGIN_BYTES = 256 * 2**20
# Enough for torch to start its threads, whose stacks it could not get later.
_PARALLEL = 1 << 20


@contextlib.contextmanager
def limited() -> Iterator[int | None]:
    """Let this process get the memory that is free now, less a margin; restored afterwards.

    A lower limit that is set already stays. Children started meanwhile inherit the limit, each for itself.

    Yields:
        The limit of the data segment, in bytes; None where there is none, as on every system but Linux.
    """
    try:
        import resource
    except ImportError:
        yield None
        return
    _start_threads()
    held = data_bytes()
    if held is None:
        yield None
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    free = free_memory_bytes()
    margin = min(max(LEAST_MARGIN_BYTES, int(MARGIN_SHARE * free)), free // 2)
    limit = min([held + free - margin, *(known for known in (soft, hard) if known != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield limit
    finally:
        _restore(soft)


def _start_threads() -> None:
    """Make torch's threads now: OpenMP ends the process where it cannot start one."""
    import torch

    torch.ones(_PARALLEL).neg_()


def _restore(soft: int) -> None:
    """Set the soft limit, but not above the hard one, which the guarded code may have lowered."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY and (soft == resource.RLIM_INFINITY or soft > hard):
        soft = hard
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
