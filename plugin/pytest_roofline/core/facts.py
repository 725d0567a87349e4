"""The facts of a machine: its hardware key, device, host and software."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal

from .amounts import Count
from .libraries import folders, versions

# Causes for which a block of samples does not count: the device was not itself.
THERMAL = "thermal slowdown"
HARDWARE = "hardware slowdown"
BRAKE = "power brake"
# A normal state of a busy card. It is recorded, but is no cause to exclude a block.
POWER_CAP = "software power cap"
# The file in a folder of baselines that describes products, and holds no measurement.
HARDWARE_FILE = "hardware.json"


@dataclass(frozen=True, slots=True)
class HardwareKey:
    """The rated facts that must agree before two times compare.

    In an entry's pattern, None means any.

    Args:
        product: exact product, `a100-sxm4` or `amd-epyc-f26m2`.
        memory: rated memory, `80gb`; of a CPU the memory that this process may use, in whole GiB.
        partition: MIG or CPX mode; of a CPU the cores and quota that this process may use.
    """

    product: str | None = None
    memory: str | None = None
    partition: str | None = None
    devices: Count | None = None
    link: str | None = None

    def covers(self, hardware: "HardwareKey") -> bool:
        """Return True if every fact of this key agrees with `hardware`.

        A fact that is None in this key agrees with any.
        """
        return all(
            getattr(self, fact.name) in (None, getattr(hardware, fact.name))
            for fact in fields(self)
        )

    @property
    def alone(self) -> "HardwareKey":
        """The hardware key of a single device of this hardware.

        It is the same for any number of devices and any link.
        """
        return replace(self, devices=1, link="none")

    @property
    def is_cpu(self) -> bool:
        """True for a CPU. Its partition names its cores; no accelerator's does."""
        return "-cores" in (self.partition or "")

    @property
    def complete(self) -> bool:
        """True if every fact is known."""
        return all(getattr(self, fact.name) is not None for fact in fields(self))

    def __str__(self) -> str:
        """Return the facts for people: `h100-sxm, 80gb, nvlink, 8 devices`."""
        parts = [self.product or "any product", self.memory or "any memory"]
        parts += [
            part for part in (self.partition, self.link) if part is not None and part != "none"
        ]
        if self.devices not in (None, 1):
            parts.append(f"{self.devices} devices")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """Facts of a device, as its driver states them. None is unknown, never "fine"."""

    type: str
    product: str
    index: int = 0
    uuid: str | None = None
    memory_bytes: int | None = None
    architecture: str | None = None
    units: int | None = None
    last_level_cache_bytes: int | None = None
    partition: str | None = None
    driver: str | None = None
    firmware: str | None = None
    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_limit_w: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The machine around the device. It states its size, and how much of it this process may use."""

    name: str
    cpu_model: str
    cores: int
    usable_cores: int
    memory_bytes: int
    usable_memory_bytes: int
    kernel: str
    threads: int | None = None
    numa_nodes: int | None = None
    cgroup_cpus: float | None = None
    cgroup_memory_bytes: int | None = None
    governor: str | None = None
    affinity: str | None = None


@dataclass(frozen=True, slots=True)
class Code:
    """A state of code under version control.

    It is the tests' own code, with the name `.`, or that of a package installed from a repository. `changes` is a hash
    of the differences from the commit; empty if there are none. `merge_base` is the commit at which the branch left its
    target branch; empty is unknown.
    """

    name: str
    commit: str
    changes: str = ""
    branch: str = ""
    merge_base: str = ""
    pull_request: str = ""

    def __str__(self) -> str:
        commit = self.commit[:10]
        return f"{commit} with changes {self.changes}" if self.changes else commit


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything that may move a number. The verdict names what differs from the baseline.

    Args:
        code: the tests' own first.
        packages: version by name of every package that was imported. If one was installed from an archive, the
            beginning of the archive's hash follows behind `#`.
        libraries: version by path of every loaded library, as `core.libraries` describes it.
        variables: those that steer such libraries.
        caches: of compilers, `cold` or `warm` when the run began.
    """

    device: DeviceFacts
    host: HostFacts
    software: dict[str, str]
    code: tuple[Code, ...] = ()
    packages: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    caches: dict[str, str] = field(default_factory=dict)

    def everything(self) -> dict[str, str]:
        """Return the comparable facts, every package and each library's folder, as text by name.

        A line of a baseline holds only the comparable ones, since these are too many.
        """
        packages = {f"package {name}": version for name, version in self.packages.items()}
        return self.comparable() | folders(self.libraries) | packages

    def comparable(self) -> dict[str, str]:
        """Return the facts that a verdict names when they changed.

        They are driver, kernel, code, versions and variables, as text by name.
        """
        facts: dict[str, str | None] = {
            # The tests' own code has the name `.`.
            **{
                "code" if state.name == "." else f"code of {state.name}": str(state)
                for state in self.code
            },
            "driver": self.device.driver,
            "firmware": self.device.firmware,
            "power limit": _text(self.device.power_limit_w, " W"),
            "PCIe generation": _text(self.device.pcie_generation),
            "PCIe width": _text(self.device.pcie_width),
            "kernel": self.host.kernel,
            "threads": _text(self.host.threads),
            "governor": self.host.governor,
            "affinity": self.host.affinity,
        }
        facts |= (
            self.software
            | versions(self.libraries)
            | {f"{name} cache": temperature for name, temperature in self.caches.items()}
        )
        facts |= {f"${name}": value for name, value in self.variables.items()}
        return {name: value for name, value in facts.items() if value is not None}


def fact_text(facts: Mapping[str, str], name: str) -> str:
    """Return a comparable fact. Without it the text is `unset` for a variable, else `unknown`."""
    return facts.get(name, "unset" if name.startswith("$") else "unknown")


def _text(value: float | None, unit: str = "") -> str | None:
    """Return a number with its unit; None if it is unknown."""
    return None if value is None else f"{value:g}{unit}"


@dataclass(frozen=True, slots=True)
class Gpu:
    """Facts of one GPU, as its driver states them now. None is unknown.

    Args:
        index: as the management library counts, which is every GPU of the machine.
        power_default_w: the power limit that it was shipped with.
        pcie_generation: what card and slot agree on; an idle link is slower on purpose.
        pcie_generation_rated: the most that the card can do; `pcie_width_rated` likewise.
        links: NVLink or xGMI links that are up.
        others_bytes: memory in use that is not this process's.
        throttle_known: whether the device reports thermal slowdown at all.
        compute_mode: `default`, `exclusive process` or `prohibited`.
        ecc_errors: uncorrected errors of its memories since the driver was loaded.
        remap_pending: whether memory that gave errors waits to be replaced by spare rows (or its pages to be retired).
        active: what slows it right now, sorted: the causes above, and the power cap.
    """

    index: int
    product: str
    uuid: str | None = None
    memory_bytes: int | None = None
    driver: str | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    pcie_generation: int | None = None
    pcie_generation_rated: int | None = None
    pcie_width: int | None = None
    pcie_width_rated: int | None = None
    links: int | None = None
    ecc: bool | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    partition: str | None = None
    others_bytes: int | None = None
    throttle_known: bool = False
    ecc_errors: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    active: tuple[str, ...] | None = None

    @property
    def label(self) -> str:
        """The GPU in a sentence: `GPU 3 (NVIDIA H100 80GB HBM3)`."""
        return f"GPU {self.index} ({self.product})"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as this process sees it.

    Args:
        gpus: every GPU that a management library knows, visible to torch or not.
        torch_devices: how many accelerators torch can use; None where torch is not installed.
        accelerator_nodes: device files that an accelerator's driver left.
        no_peers: pairs of GPUs without access to each other's memory; None is unknown.
        memlock_bytes: how much memory may be locked; None is unknown or without limit: see `memlock_known`.
        mps: whether a daemon shares the GPUs between processes (CUDA MPS).
        profiler: the variable that injects a profiler into CUDA programs, if one is set.
        cores_taken: cores that other processes kept busy during a watch; None if the system does not report it.
        taken_by: the busiest of these processes, `python3 (812) 0.9`, as far as they may be read.
    """

    host: HostFacts
    gpus: tuple[Gpu, ...] = ()
    torch_devices: int | None = None
    accelerator_nodes: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    no_peers: tuple[tuple[int, int], ...] | None = None
    shm_bytes: int | None = None
    memlock_bytes: int | None = None
    memlock_known: bool = False
    mps: bool | None = None
    profiler: str = ""
    cores_taken: float | None = None
    taken_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A weakness of a machine, its effect on numbers, and its remedy.

    Kinds: `limit` reduces trust in the numbers, `unknown` is what the machine withholds, `degraded` is a device that
    runs below its rated facts.
    """

    kind: Literal["limit", "unknown", "degraded"]
    subject: str
    observed: str
    effect: str
    remedy: str


# The remedy by fact. Without an entry here, the expectation is that of another node.
_REMEDIES = {
    "power_limit_w": "set the power limit with nvidia-smi -pl (amd-smi set --power-cap)",
    "pcie_generation": "check the settings of the slot and the riser; the card may be in a different slot on this node",
    "pcie_width": "reseat the card or the riser; check the settings of the slot, and `dmesg` for link errors",
    "ecc": "switch ECC with nvidia-smi -e 0 or 1, then reset the GPU",
    "links": "find the links that are down with nvidia-smi nvlink --status; check `dmesg` for Xid 74, "
    "and the fabric manager",
    "partition": "set the partition with nvidia-smi -mig 0 or 1 (amd-smi set --compute-partition), or ask for another "
    "node",
    "version": "install the expected driver",
    "usable_cores": "ask for all cores (taskset, srun --cpus-per-task); check the container's CPU set",
    "memory_bytes": "check the container's memory limit and partitions, and look for a missing memory module",
}


@dataclass(frozen=True, slots=True)
class Unexpected:
    """One fact that is not as expected."""

    subject: str
    fact: str
    expected: str
    observed: str

    @property
    def remedy(self) -> str:
        """The remedy for a fact of a node that differs from the expectation.

        If the fact has no remedy, it is the advice to write a new file of expectations.
        """
        # The number of an expected product differs. A product of which 0 are expected is of another kind of node.
        if self.subject == "GPUs" and self.expected != "0":
            return (
                "list the GPUs with nvidia-smi -L (amd-smi list); check `dmesg` for a GPU that "
                "fell off the bus (Xid 79), and the GPUs of the container"
            )
        return _REMEDIES.get(
            self.fact,
            "the expectation is for another kind of node; write a new FILE from a good node of this kind",
        )


@dataclass(frozen=True, slots=True)
class Property:
    """One property of timing, as checked on a device.

    It holds the observation, the expectation and the figures.
    """

    name: str
    outcome: Literal["holds", "FAILS", "does not apply"]
    observed: str
    expected: str
    figures: dict[str, float] = field(default_factory=dict)
