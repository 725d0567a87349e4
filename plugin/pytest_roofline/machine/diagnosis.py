"""The limits of trust in a machine's numbers: facts in, findings out."""

from collections.abc import Iterator
from dataclasses import replace

from ..core.facts import Finding, Gpu, HostFacts, Machine
from ..core.units import GIB, MIB, format_amount, listed
from ..engine.devices.cpu import QUIETEN, occupied_text
from .health import degradations

# The least size of /dev/shm, where NCCL and torch's loaders put their buffers. A container's default is 64 MiB.
LEAST_SHM_BYTES = GIB
# The least limit of locked memory, which RDMA and pinned buffers need. The usual limit of a shell is 8 MiB or less.
LEAST_MEMLOCK_BYTES = 64 * MIB
# Memory in use that is no sign of other processes: idle contexts and the driver itself hold as much.
OTHERS_BYTES = 256 * MIB


def diagnose(machine: Machine) -> list[Finding]:
    """Return everything that limits trust in numbers measured here.

    Known faults come first, then facts that the machine does not tell.
    """
    findings = [
        *_accelerators(machine),
        *(finding for gpu in machine.gpus for finding in _gpu(gpu)),
        *_sharing(machine),
        *_host(machine),
        *_limits(machine),
    ]
    return sorted(findings, key=lambda finding: finding.kind != "limit")


def _accelerators(machine: Machine) -> Iterator[Finding]:
    """Yield findings on torch, on libraries for accelerators, and on profilers."""
    if machine.torch_devices is None:
        yield Finding(
            "limit",
            "torch",
            "torch is not installed",
            "nothing can be measured here",
            "pip install 'pytest-roofline[torch]' installs PyPI's torch; for a vendor's torch, use the vendor's Python",
        )
    if machine.accelerator_nodes and machine.torch_devices == 0:
        yield Finding(
            "limit",
            "torch",
            f"an accelerator is here ({', '.join(machine.accelerator_nodes)}), but torch uses none",
            "the CPU would be measured instead",
            "install a torch that supports the accelerator; check the driver's version",
        )
    if machine.accelerator_nodes and not machine.libraries:
        yield Finding(
            "unknown",
            "management library",
            "; ".join(machine.silent) or "neither NVML nor amdsmi answers",
            "clocks, throttling, other processes and link width stay unknown",
            "install the library of this accelerator; in a container, enable the driver's utilities "
            "(NVIDIA_DRIVER_CAPABILITIES=compute,utility)",
        )
    if machine.profiler:
        yield Finding(
            "limit",
            "profiler",
            f"{machine.profiler} is set",
            "a profiler inside the process slows and serialises launches",
            f"unset {machine.profiler}",
        )


def _gpu(gpu: Gpu) -> Iterator[Finding]:
    """Yield findings on one GPU: its use, its health and its settings."""
    yield from _gpu_use(gpu)
    # There is no run, so the facts are the same at both ends, and there are no measurements.
    for finding in degradations(before=gpu, after=gpu, measurements=()):
        yield replace(finding, kind="limit")
    yield from _withheld_facts(gpu)
    yield from _gpu_settings(gpu)


def _gpu_use(gpu: Gpu) -> Iterator[Finding]:
    """Yield findings on throttling and on other processes of a GPU."""
    if not gpu.throttle_known:
        yield Finding(
            "unknown",
            gpu.label,
            "throttle counters are withheld",
            "a hot device and a slow device look the same",
            "run on the whole device (not MIG or vGPU), or let this user read the counters",
        )
    if gpu.others_bytes is None:
        yield Finding(
            "unknown",
            gpu.label,
            "memory in use is withheld",
            "other processes on the device would not be noticed",
            "run on the whole device, with the management library installed",
        )
    elif gpu.others_bytes > OTHERS_BYTES:
        yield Finding(
            "limit",
            gpu.label,
            f"other processes hold {format_amount(gpu.others_bytes)} of the device's memory",
            "other processes make times longer and noisier",
            "ask the scheduler for the whole device, or end these processes",
        )


def _withheld_facts(gpu: Gpu) -> Iterator[Finding]:
    """Yield a finding if the driver withholds facts.

    They are on power, PCIe or memory errors.
    """
    withheld = [name for name, fact in (
        ("power limit", gpu.power_limit_w), ("PCIe generation", gpu.pcie_generation), ("PCIe width", gpu.pcie_width),
        ("ECC errors", gpu.ecc_errors if gpu.ecc is not False else 0),
    ) if fact is None]  # fmt: skip
    if withheld:
        yield Finding(
            "unknown",
            gpu.label,
            f"{', '.join(withheld)} withheld",
            "a lowered limit, a narrow link or faulty memory would not be noticed",
            "check these values on the host; a virtual GPU does not report them",
        )


def _gpu_settings(gpu: Gpu) -> Iterator[Finding]:
    """Yield findings on the settings of a GPU.

    They are its compute mode, its partition and its persistence mode.
    """
    if gpu.compute_mode not in (None, "default"):
        yield Finding(
            "limit",
            gpu.label,
            f"compute mode is {gpu.compute_mode}",
            "a second process of the run (a rank, a round) cannot use the GPU",
            f"nvidia-smi -i {gpu.index} -c DEFAULT",
        )
    if gpu.partition:
        yield Finding(
            "limit",
            gpu.label,
            f"partitioned ({gpu.partition})",
            "a partition of the GPU is measured, and the other partitions share its memory",
            "compare with baselines of the same partition only",
        )
    if gpu.persistence is False:
        yield Finding(
            "limit",
            gpu.label,
            "persistence mode is off",
            "the driver unloads between runs; first calls are slow and settings are lost",
            "type nvidia-smi -pm 1, or run nvidia-persistenced",
        )


def _sharing(machine: Machine) -> Iterator[Finding]:
    """Yield findings on peer access and on GPUs that processes share.

    Some cannot reach each other's memory; others serve several processes.
    """
    if machine.no_peers:
        pairs = listed([f"{first}–{second}" for first, second in machine.no_peers], 6)
        yield Finding(
            "limit",
            "peer access",
            f"GPUs {pairs} cannot reach each other's memory",
            "copies between these GPUs go through the host",
            "check IOMMU and ACS settings; in a VM, check how GPUs are passed through",
        )
    if machine.mps:
        yield Finding(
            "limit",
            "CUDA MPS",
            "a daemon shares the GPUs between processes",
            "kernels of other processes run at the same time",
            "type echo quit | nvidia-cuda-mps-control, or ask for a node without MPS",
        )
    if machine.gpus:
        yield Finding(
            "unknown",
            "time slicing",
            "no driver reports whether several containers share a GPU in turns",
            "other containers show only as a clock that varies between samples, and as memory in use",
            "ask the cluster's operator; `roofline doctor --measure` shows the spread",
        )


def _host(machine: Machine) -> Iterator[Finding]:
    """Yield findings on the processor.

    They are on its load, its clocks and its usable cores.
    """
    host = machine.host
    if busy_text := occupied_text(machine.cores_taken, host.usable_cores, machine.taken_by):
        yield Finding(
            "limit",
            "busy machine",
            busy_text,
            "measurements of a CPU, also over ranks, become INVALID, and a host that submits late slows a GPU",
            QUIETEN,
        )
    yield from _governor(host)
    yield from _core_limits(host)


def _governor(host: HostFacts) -> Iterator[Finding]:
    """Yield a finding if clocks may change with the load."""
    if host.governor is None:
        yield Finding(
            "unknown",
            "frequency governor",
            "not readable, as in most virtual machines",
            "the clocks may change with the load",
            "inside a virtual machine the governor cannot be set; compare only runs of this machine",
        )
    elif host.governor != "performance":
        yield Finding(
            "limit",
            "frequency governor",
            f"the governor is {host.governor}",
            "clocks change with the load; launches and CPU copies vary",
            "cpupower frequency-set -g performance",
        )


def _core_limits(host: HostFacts) -> Iterator[Finding]:
    """Yield findings on limits of the cores that this process may use."""
    if host.usable_cores == 1 and host.cores > 1:
        yield Finding(
            "limit",
            "affinity",
            f"this process may use 1 of {host.cores} cores",
            "host threads wait for each other",
            "start the process with all cores (taskset, srun --cpus-per-task, or a launcher's binding options)",
        )
    if host.cgroup_cpus is not None and host.cgroup_cpus < host.usable_cores:
        yield Finding(
            "limit",
            "cgroup",
            f"the limit is the time of {host.cgroup_cpus:g} cores, on {host.usable_cores} cores",
            "the kernel stops the process for the rest of every period",
            "raise or remove the container's CPU limit",
        )


def _limits(machine: Machine) -> Iterator[Finding]:
    """Yield findings on limits of memory."""
    host = machine.host
    if machine.shm_bytes is not None and machine.shm_bytes < LEAST_SHM_BYTES:
        yield Finding(
            "limit",
            "/dev/shm",
            f"{format_amount(machine.shm_bytes)}",
            "collectives on one node fail or take a slower path",
            "start the container with docker run --shm-size=16g (or --ipc=host); in Kubernetes mount an emptyDir with "
            "medium Memory",
        )
    if machine.gpus or machine.accelerator_nodes:
        yield from _memlock(machine)
    if host.cgroup_memory_bytes is not None:
        yield Finding(
            "limit",
            "cgroup",
            f"{format_amount(host.cgroup_memory_bytes)} of {format_amount(host.memory_bytes)} memory",
            "large host buffers are skipped",
            "raise the container's memory limit for the full sweep",
        )


def _memlock(machine: Machine) -> Iterator[Finding]:
    """Yield a finding on the limit of locked memory.

    It may be too small for an accelerator, or unknown.
    """
    if machine.memlock_bytes is not None and machine.memlock_bytes < LEAST_MEMLOCK_BYTES:
        yield Finding(
            "limit",
            "memlock",
            f"a process may lock {format_amount(machine.memlock_bytes)} of memory",
            "RDMA and pinned buffers are refused",
            "raise the limit with ulimit -l unlimited, or docker run --ulimit memlock=-1",
        )
    if not machine.memlock_known:
        yield Finding(
            "unknown",
            "memlock",
            "this system does not report the limit",
            "RDMA and pinned buffers may be refused",
            "none on this system",
        )
