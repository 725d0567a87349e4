"""The facts of a machine: its hardware key, and what device, host and software say of themselves."""

from dataclasses import dataclass, fields, replace

from .checks import require_amounts

# In a folder of baselines the file that describes products, and holds no measurement.
HARDWARE_FILE = "hardware.json"


@dataclass(frozen=True, slots=True)
class HardwareKey:
    """The rated facts that must agree before two times may be compared. In an entry's pattern, None means any.

    Args:
        product: exact product, `a100-sxm4` or `amd-epyc-f26m2`.
        memory: rated memory, `80gb`; of a CPU the memory that this process may use, in whole GiB.
        partition: MIG or CPX mode; of a CPU the cores and quota that this process may use.
        devices: how many devices the test uses.
        link: class of the link between them.
    """

    product: str | None = None
    memory: str | None = None
    partition: str | None = None
    devices: int | None = None
    link: str | None = None

    def __post_init__(self) -> None:
        require_amounts(self, above_zero=("devices",))

    def covers(self, other: "HardwareKey") -> bool:
        """Whether every fact that this key names agrees with `other`."""
        return all(getattr(self, f.name) in (None, getattr(other, f.name)) for f in fields(self))

    @property
    def alone(self) -> "HardwareKey":
        """The same as of a single device: what stays of it however many a test uses, and whatever links them."""
        return replace(self, devices=1, link="none")

    @property
    def complete(self) -> bool:
        """Whether no fact is left open."""
        return all(getattr(self, f.name) is not None for f in fields(self))

    def __str__(self) -> str:
        parts = [self.product or "any product", self.memory or "any memory"]
        parts += [part for part in (self.partition, self.link) if part is not None and part != "none"]
        if self.devices not in (None, 1):
            parts.append(f"{self.devices} devices")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a device says of itself, as running. None is unknown, never "fine"."""

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

    def __post_init__(self) -> None:
        require_amounts(
            self,
            from_zero=(
                "index", "memory_bytes", "units", "last_level_cache_bytes", "clock_mhz", "memory_clock_mhz",
                "power_limit_w", "pcie_generation", "pcie_width",
            ),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The machine around the device: what it has, and how much of it this process may use.

    `affinity` lists the cores that it may run on: `0-3,8`.
    """

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

    def __post_init__(self) -> None:
        require_amounts(
            self,
            from_zero=(
                "cores", "usable_cores", "memory_bytes", "usable_memory_bytes", "threads", "numa_nodes", "cgroup_cpus",
                "cgroup_memory_bytes",
            ),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything beside the code that may move a number; what differs from the baseline is named in the verdict."""

    device: DeviceFacts
    host: HostFacts
    software: dict[str, str]

    def comparable(self) -> dict[str, str]:
        """The facts worth naming when they changed, as text by name: driver, kernel, power limit, versions."""
        facts = {
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
        return {name: value for name, value in (facts | self.software).items() if value is not None}


def _text(value: float | None, unit: str = "") -> str | None:
    return None if value is None else f"{value:g}{unit}"
