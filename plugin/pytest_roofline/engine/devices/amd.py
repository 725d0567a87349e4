"""Facts, throttle counters and neighbours of AMD GPUs, from the management library and the driver."""

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ...core.facts import BRAKE, POWER_CAP, THERMAL, Gpu
from .. import host
from .base import OWN_CONTEXT_BYTES, Counters, Silent, others_bytes

# Fields of `amdsmi_get_gpu_metrics_info` that count how long a cause was active, with the cause. They need version 1.6
# of its table: MI300 and newer, and amdsmi of ROCm 6.3 and newer. PROCHOT is a signal from outside of the GPU.
_RESIDENCIES = {
    "socket_thm_residency_acc": THERMAL,
    "vr_thm_residency_acc": THERMAL,
    "hbm_thm_residency_acc": THERMAL,
    "prochot_residency_acc": BRAKE,
    "ppt_residency_acc": POWER_CAP,
}
# These fields count in cycles of the firmware, of about a millisecond. This field counts all cycles, so it grows
# whenever the firmware renews the table.
_CYCLES, _CYCLE_S = "accumulation_counter", 1e-3
# Fields of `amdsmi_get_violation_status`, which waits 100 ms between two readings of the same table: not while timing.
_VIOLATIONS = {
    "socket_thrm": THERMAL,
    "vr_thrm": THERMAL,
    "hbm_thrm": THERMAL,
    "prochot_thrm": BRAKE,
    "ppt_pwr": POWER_CAP,
}
# The PCIe generation by the speed of a lane, in GT/s (PCI-SIG).
_GENERATIONS = {2.5: 1, 5: 2, 8: 3, 16: 4, 32: 5, 64: 6}
NOT_INSTALLED = "amdsmi is not installed (ROCm ships it: pip install /opt/rocm/share/amd_smi)"
NO_DRIVER = "amdsmi finds no driver ({}; in a container, pass /dev/kfd and /dev/dri through)"
UNKNOWN_DEVICE = "amdsmi does not know this device"
# amdsmi.h: the memory controllers' bit of the blocks with ECC, and what may become of a page that gave errors.
_MEMORY_BLOCK = 1
_PAGE_PENDING, _PAGE_UNRESERVABLE = 1, 2
_ROOT = Path("/")


def start_amdsmi() -> Any:
    """Return the library, started. It is the installed package, else the copy that ROCm ships.

    The package loads the driver's library when it is imported. Without a driver it fails in many ways and prints to
    standard output, so that output is dropped.
    """
    with contextlib.redirect_stdout(io.StringIO()):
        amdsmi = _import_package()
        amdsmi.amdsmi_init()
    return amdsmi


def _import_package() -> Any:
    """Return the package `amdsmi`, if need be from the folder of ROCm."""
    try:
        import amdsmi
    except ModuleNotFoundError as error:
        folder = next(_shipped_folders(), None)
        if error.name != "amdsmi" or folder is None:
            raise
        sys.path.append(str(folder))
        try:
            import amdsmi
        finally:
            sys.path.remove(str(folder))
    return amdsmi


def _shipped_folders() -> Iterator[Path]:
    """Yield the folders in which ROCm ships the package.

    A ROCm that a variable names comes first. (CMakeLists.txt of amdsmi: `share/amd_smi`.)
    """
    user_roots = [os.environ[name] for name in ("ROCM_HOME", "ROCM_PATH") if os.environ.get(name)]
    for root in (
        *map(Path, user_roots),
        _ROOT / "opt/rocm",
        *sorted(_ROOT.glob("opt/rocm-*"), reverse=True),
    ):
        folder = root / "share/amd_smi"
        if (folder / "amdsmi/__init__.py").is_file():
            yield folder


def _every_gpu() -> "list[Amdsmi]":
    """Return all GPUs of this machine, in the library's order.

    Raise Silent, with the reason, if the library cannot be asked.
    """
    try:
        smi = start_amdsmi()
        handles = list(smi.amdsmi_get_processor_handles())
        return [Amdsmi(smi, handle, index) for index, handle in enumerate(handles)]
    except Exception as error:  # The library has a tree of its own exceptions.
        if isinstance(error, ModuleNotFoundError) and error.name == "amdsmi":
            raise Silent(NOT_INSTALLED) from error
        raise Silent(
            NO_DRIVER.format(" ".join(str(error).split()) or type(error).__name__)
        ) from error


def silent() -> str:
    """Return why the library answers nothing; empty if it answers."""
    try:
        _every_gpu()
    except Silent as why:
        return str(why)
    return ""


def gpu_at(pci_address: str | None) -> "Amdsmi":
    """Return the GPU with a PCI address.

    If the library cannot be asked or does not know it, return one that answers nothing and has the reason.
    """
    try:
        matching = [gpu for gpu in _every_gpu() if gpu.is_at(pci_address)]
    except Silent as why:
        return Amdsmi(silent=str(why))
    return matching[0] if matching else Amdsmi(silent=UNKNOWN_DEVICE)


class Amdsmi:
    """One GPU behind amdsmi. `silent` is why it answers no question at all; empty if it may answer.

    A single question may remain without an answer too, which is None then.
    """

    def __init__(
        self, smi: Any = None, handle: Any = None, index: int = 0, *, silent: str = ""
    ) -> None:
        self._smi, self._handle, self._index, self.silent = smi, handle, index, silent

    def is_at(self, pci_address: str | None) -> bool:
        """Return whether this GPU has the PCI address, in upper or lower case."""
        return (
            bool(pci_address)
            and str(self._ask("amdsmi_get_gpu_device_bdf")).lower() == str(pci_address).lower()
        )

    def counters(self, own_bytes: int) -> Counters:
        """Return the present state. `own_bytes` are allocated by torch in this process."""
        metrics = self._ask("amdsmi_get_gpu_metrics_info") or {}
        seconds: dict[str, float] = {}
        # Each field counts the cycles in which a cause slowed the device down; several fields may count one cause.
        for field, cause in _RESIDENCIES.items():
            count = _number(metrics.get(field))
            if count is not None:
                seconds[cause] = seconds.get(cause, 0.0) + count * _CYCLE_S
        cycles = _number(metrics.get(_CYCLES))
        used = _number((self._ask("amdsmi_get_gpu_vram_usage") or {}).get("vram_used"))
        return Counters(
            seconds=seconds,
            others_bytes=None if used is None else others_bytes(int(used * 2**20), own_bytes, {}),
            renewals=None if cycles is None or not seconds else int(cycles),
        )

    def _active(self) -> frozenset[str] | None:
        """Return the causes that were active in the 100 ms that asking takes.

        None if the device does not report them.
        """
        status = self._ask("amdsmi_get_violation_status") or {}
        flags = {field: status.get(f"active_{field}") for field in _VIOLATIONS}
        # A flag is True, False or "N/A".
        known_flags = {field: flag for field, flag in flags.items() if isinstance(flag, int)}
        return (
            frozenset(_VIOLATIONS[field] for field, flag in known_flags.items() if flag)
            if known_flags
            else None
        )

    def facts(self) -> dict[str, Any]:
        """Return power limit, PCIe link as running, and partition, without unknown ones."""
        link = (self._ask("amdsmi_get_pcie_info") or {}).get("pcie_metric", {})
        partition = self._ask("amdsmi_get_gpu_compute_partition")
        return _without_unknown(
            power_limit_w=_watts((self._ask("amdsmi_get_power_cap_info") or {}).get("power_cap")),
            pcie_generation=_generation(link.get("pcie_speed")),
            pcie_width=_number(link.get("pcie_width")),
            # SPX means that the device is not partitioned.
            partition=partition.lower()
            if isinstance(partition, str) and partition not in ("SPX", "N/A")
            else None,
        )

    def _inventory(self) -> dict[str, Any]:
        """Return the known facts of the GPU, as arguments of `Gpu`."""
        memory = self._ask("amdsmi_get_gpu_vram_usage") or {}
        static = (self._ask("amdsmi_get_pcie_info") or {}).get("pcie_static", {})
        # Memory is in MiB.
        total, used = _number(memory.get("vram_total")), _number(memory.get("vram_used"))
        active = self._active()
        return self.facts() | _without_unknown(
            product=(self._ask("amdsmi_get_gpu_asic_info") or {}).get("market_name", "unknown"),
            uuid=self._ask("amdsmi_get_gpu_device_uuid"),
            memory_bytes=None if total is None else int(total * 2**20),
            others_bytes=None if used is None else max(0, int(used * 2**20) - OWN_CONTEXT_BYTES),
            driver=driver_version(),
            power_default_w=_watts(
                (self._ask("amdsmi_get_power_cap_info") or {}).get("default_power_cap")
            ),
            pcie_generation_rated=_generation(static.get("max_pcie_speed")),
            pcie_width_rated=_number(static.get("max_pcie_width")),
            throttle_known=active is not None or THERMAL in self.counters(0).seconds,
            active=None if active is None else tuple(sorted(active)),
            **self._memory_errors(),
        )

    def gpu(self, *, working: bool = True) -> Gpu | None:
        """Return the present facts of this GPU; None if the library does not know it.

        amdsmi states only the present speed of the link, which falls while the link idles. While this process is
        `working` on the GPU, a speed below the rated one is therefore left out as unknown.
        """
        if self._ask("amdsmi_get_gpu_device_bdf") is None:
            return None
        facts = self._inventory()
        if working and facts.get("pcie_generation") != facts.get("pcie_generation_rated"):
            facts.pop("pcie_generation", None)
        return Gpu(index=self._index, **facts)

    @property
    def name(self) -> str:
        """The index and UUID of the GPU: `GPU 3 (8c2f…)`."""
        return f"GPU {self._index} ({self._ask('amdsmi_get_gpu_device_uuid')})"

    def busy(self) -> float | None:
        """Return the share of recent time that the GPU worked.

        None if it does not report it.
        """
        percent = _number((self._ask("amdsmi_get_gpu_activity") or {}).get("gfx_activity"))
        return None if percent is None else percent / 100

    def _memory_errors(self) -> dict[str, Any]:
        """Return the facts on memory errors, as arguments of `Gpu`.

        They are whether ECC is on, the uncorrected errors, and whether bad pages could be retired.
        """
        # One bit for each block of the GPU that has ECC on.
        blocks = _number(self._ask("amdsmi_get_gpu_ecc_enabled"))
        pages = self._ask("amdsmi_get_gpu_bad_page_info")
        ecc = None if blocks is None else bool(int(blocks) & _MEMORY_BLOCK)
        counts = self._ask("amdsmi_get_gpu_total_ecc_count") or {}
        # Without bad pages, older versions of the library return a sentence instead of a list.
        states = {page.get("status") for page in pages} if isinstance(pages, list) else None
        return {
            "ecc": ecc,
            # A device without ECC reports zero errors, but counts none.
            "ecc_errors": _number(counts.get("uncorrectable_count")) if ecc else None,
            "remap_pending": None if states is None else _PAGE_PENDING in states,
            "remap_failed": None if states is None else _PAGE_UNRESERVABLE in states,
        }

    def _ask(self, function: str) -> Any:
        """Return the library's answer about this GPU; None if the call fails."""
        try:
            return getattr(self._smi, function)(self._handle)
        except (
            Exception
        ):  # The library has a tree of its own exceptions, and older ones lack functions.
            return None


def gpus() -> list[Gpu] | None:
    """Return every AMD GPU of this machine, a lost one too. None if amdsmi does not answer."""
    try:
        facts_by_index = [gpu.gpu(working=False) for gpu in _every_gpu()]
    except Silent:
        return None
    return [
        facts or Gpu(index=index, product="unknown") for index, facts in enumerate(facts_by_index)
    ]


def busy_others(pci_address: str | None) -> dict[str, float]:
    """Return the share of recent time that every other GPU worked, by its name.

    Empty if no GPU has this PCI address: then it is not known which GPUs are the others.
    """
    gpus = _every_gpu()
    other_gpus = [gpu for gpu in gpus if not gpu.is_at(pci_address)]
    busy = {gpu.name: share for gpu in other_gpus if (share := gpu.busy()) is not None}
    return busy if len(other_gpus) < len(gpus) else {}


def _without_unknown(**facts: Any) -> dict[str, Any]:
    """Return the facts that are not None."""
    return {name: fact for name, fact in facts.items() if fact is not None}


def _number(answer: Any) -> float | int | None:
    """Return a number, or None for the library's "N/A"."""
    return answer if isinstance(answer, int | float) and not isinstance(answer, bool) else None


def _generation(speed: Any) -> int | None:
    """Return the PCIe generation of a lane's speed, in MT/s or in GT/s."""
    rate = _number(speed)
    if rate is None:
        return None
    return _GENERATIONS.get(rate / 1000 if rate > 1000 else rate)


def _watts(cap: Any) -> float | None:
    """Return a power cap in watts; None if it is unknown.

    Some versions of the library give microwatts: a number above ten thousand cannot be watts.
    """
    power = _number(cap)
    if power is None:
        return None
    is_microwatts = power > 1e4
    return power / 1e6 if is_microwatts else float(power)


def driver_version() -> str | None:
    """Return the kernel driver's version, which the kernel states without the library."""
    return host.read(_ROOT / "sys/module/amdgpu/version")


def pci_address(properties: Any) -> str | None:
    """Return a GPU's PCI address as amdsmi prints it: `0000:c1:00.0`.

    None if this version of torch does not know it.
    """
    parts = [
        getattr(properties, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")
    ]
    known_parts = [part for part in parts if part is not None]
    return "{:04x}:{:02x}:{:02x}.0".format(*known_parts) if len(known_parts) == 3 else None
