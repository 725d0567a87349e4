"""What a machine has, as `roofline doctor` reads it; what is expected of it; and what was found out about it."""

from dataclasses import dataclass, field
from typing import Literal

from .errors import BadInput
from .facts import HostFacts
from .records import SCHEMA

# Causes for which a block of samples does not count: the device was not itself.
THERMAL = "thermal slowdown"
HARDWARE = "hardware slowdown"
BRAKE = "power brake"
# A normal state of a busy card: recorded, never a cause.
POWER_CAP = "software power cap"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as its driver tells of it, now. None is unknown.

    Args:
        index: as the management library counts, which is every GPU of the machine.
        power_default_w: the limit that it was shipped with.
        pcie_generation: what card and slot agree on; links that idle go below it on purpose.
        pcie_generation_rated: the most that the card can do; `pcie_width_rated` likewise.
        links: NVLink or xGMI links that are up.
        others_bytes: memory in use that is not this process's.
        throttle_known: whether the device tells of thermal slowdown at all.
        partition: MIG, CPX and the like; None is the whole device.
        compute_mode: `default`, `exclusive process` or `prohibited`.
        ecc_errors: uncorrected errors of its memories since the driver was loaded.
        remap_pending: whether memory that gave errors waits to be replaced by spare rows (or its pages to be retired).
        remap_failed: whether such memory could not be replaced.
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
        """`GPU 3 (NVIDIA H100 80GB HBM3)`."""
        return f"GPU {self.index} ({self.product})"


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as this process sees it.

    Args:
        host: processor, memory, cgroup.
        gpus: every GPU that a management library knows, visible to torch or not.
        torch_devices: how many accelerators torch can use; None where torch was not asked.
        accelerator_nodes: device files that an accelerator's driver left.
        libraries: the management libraries that answered.
        silent: why each of the others did not.
        no_peers: pairs of GPUs without access to each other's memory; None is unknown.
        shm_bytes: size of /dev/shm.
        memlock_bytes: how much memory may be locked; None is unknown or without limit: see `memlock_known`.
        mps: whether a daemon shares the GPUs between processes (CUDA MPS).
        profiler: the variable that injects a profiler into CUDA programs, if one is set.
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


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a machine: what was seen, what it does to numbers, and what would mend it.

    Kinds: `limit` reduces trust in the numbers, `unknown` is what the machine withholds, `degraded` is a device that
    runs below its rated facts.
    """

    kind: Literal["limit", "unknown", "degraded"]
    subject: str
    observed: str
    effect: str
    remedy: str


@dataclass(frozen=True, slots=True)
class ExpectedGpus:
    """So many GPUs of one product, with the facts that each must have; what is omitted may be anything.

    `partition` is `none` for a whole device.
    """

    product: str
    count: int
    memory_bytes: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    power_limit_w: float | None = None
    ecc: bool | None = None
    links: int | None = None
    partition: str | None = None

    def __post_init__(self) -> None:
        if self.count < 0:
            raise BadInput(f"count is {self.count}; expected 0 or more GPUs of a product")
        _require_above_zero(self, "memory_bytes", "pcie_generation", "pcie_width", "power_limit_w")
        if self.links is not None and self.links < 0:
            raise BadInput(f"links is {self.links}; expected 0 or more")


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a good node has. Written by `roofline doctor --write-expect`, edited by people; omitted means any."""

    gpus: tuple[ExpectedGpus, ...]
    driver: str | None = None
    cpu_model: str | None = None
    usable_cores: int | None = None
    memory_bytes: int | None = None
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        products = [group.product for group in self.gpus]
        if len(set(products)) < len(products):
            twice = next(product for product in products if products.count(product) > 1)
            raise BadInput(f"gpus names {twice!r} twice; expected one group a product, with its count")
        _require_above_zero(self, "usable_cores", "memory_bytes")


def _require_above_zero(expected: object, *names: str) -> None:
    for name in names:
        value = getattr(expected, name)
        if value is not None and not value > 0:
            raise BadInput(f"{name} is {value}; expected a number above zero, or leave it out")


# By fact; where nothing is said, it is another node.
_REMEDIES = {
    "power_limit_w": "nvidia-smi -pl sets it (amd-smi set --power-cap)",
    "pcie_generation": "look at the slot's settings and at the riser; the card may sit in another slot than elsewhere",
    "pcie_width": "reseat the card or the riser; look at the slot's settings and at `dmesg` for link errors",
    "ecc": "nvidia-smi -e 0 or 1 switches it, from the next reset on",
    "links": "nvidia-smi nvlink --status names those that are down; look at `dmesg` for Xid 74, at the fabric manager",
    "partition": "nvidia-smi -mig 0 or 1 (amd-smi set --compute-partition), or ask for another node",
    "version": "install the driver that is expected",
    "usable_cores": "ask for all cores (taskset, srun --cpus-per-task); look at the container's CPU set",
    "memory_bytes": "look at the container's memory limit, at partitions, and for a memory module that is missing",
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
        """What would mend it; where nothing would, another expectation."""
        if self.subject == "GPUs" and self.expected != "0":
            return (
                "nvidia-smi -L (amd-smi list) names those that are there; look at `dmesg` for one that fell off the "
                "bus (Xid 79), and at which GPUs the container was given"
            )
        return _REMEDIES.get(
            self.fact, "this is another node than the file is for: write one from a good node of its kind"
        )


@dataclass(frozen=True, slots=True)
class Property:
    """One property of timing, held against a device: what was seen, what must be, and the figures behind it."""

    name: str
    outcome: Literal["holds", "FAILS", "does not apply"]
    observed: str
    expected: str
    figures: dict[str, float] = field(default_factory=dict)
