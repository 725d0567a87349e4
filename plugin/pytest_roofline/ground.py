"""What is known once the device is open: the device, its surroundings, and what to compare with."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from .core.errors import DeviceError, OtherHardware
from .core.facts import Environment, HardwareKey
from .core.keys import Key
from .core.machine import Gpu
from .core.records import Ceiling
from .core.work import Work, rate_suffix
from .judging.baselines import Entries, Shelf, nearest
from .judging.comparators import BaselineComparator, Comparator, class_of_key, open_comparator, prior_of
from .judging.hardware import datasheet_ceiling, family_of, identity_of, key_of
from .judging.spread import Prior, priors
from .planned import Planned
from .settings import Options

if TYPE_CHECKING:
    from .measuring.devices import Device


@dataclass(slots=True)
class Ground:
    """The open device and what belongs to it; `gpu` is what the management library told before the first test."""

    device: "Device"
    environment: Environment
    hardware: HardwareKey
    comparator: Comparator
    entries: Entries
    comparisons: int
    gpu: Gpu | None = None
    ceilings: dict[str, Ceiling | None] = field(default_factory=dict)
    _priors: dict[str, Prior] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Which very device this is."""
        return identity_of(self.environment)

    def prior(self, key: Key) -> Prior:
        """What to assume of a measurement where its own processes do not tell: from its class."""
        kind = class_of_key(key)
        if kind not in self._priors:
            known = [pair for pair in self.comparator.references() if pair[0].hardware == self.hardware]
            self._priors[kind] = prior_of(known, kind) if known else priors()[kind]
        return self._priors[kind]

    def ceiling(self, work: Work, metric: str) -> Ceiling | None:
        """The roofline of a metric: the datasheet's, or for a CPU's traffic a triad measured once."""
        found = datasheet_ceiling(self.environment.device, work, metric)
        if found is not None or self.environment.device.type != "cpu" or rate_suffix(metric) != "traffic_GBps":
            return found
        if "triad" not in self.ceilings:
            from .measuring.ceiling import measure_triad

            cache_bytes = self.environment.device.last_level_cache_bytes or 0
            self.ceilings["triad"] = measure_triad(self.device, "cpu", cache_bytes)
        return self.ceilings["triad"]


def open_ground(config: pytest.Config, options: Options, planned: Mapping[str, Planned]) -> tuple[Ground, str]:
    """The ground of a run, and a warning about it.

    Raises:
        RooflineError: the device is not there, a baseline is unusable, or the comparison is across hardware.
    """
    from .measuring.devices import open_device
    from .measuring.environment import gather, unused_accelerator

    asked = options.device
    device = config.hook.pytest_roofline_device(config=config, name=asked) or open_device(asked)
    warning = "" if asked == "cpu" else unused_accelerator(device)
    if warning and options.require_hardware:
        raise DeviceError(warning)
    environment = gather(device)
    hardware = key_of(environment)
    entries = Shelf(options.baselines).family(family_of(environment.device))
    comparator = open_comparator(options.against) if options.against else BaselineComparator(entries)
    if options.against:
        _refuse_other_hardware(comparator, hardware)
    comparisons = _count(comparator, planned.values(), hardware)
    return Ground(device, environment, hardware, comparator, entries, comparisons, device.gpu()), warning


def _count(comparator: Comparator, planned: Iterable[Planned], hardware: HardwareKey) -> int:
    return max(1, sum(comparator.count(plan.benchmark, plan.parameters, hardware) for plan in planned))


def _refuse_other_hardware(comparator: Comparator, hardware: HardwareKey) -> None:
    known = comparator.hardware()
    if known and not any(key == hardware for key in known):
        names = "; ".join(str(key) for key in nearest(hardware, known))
        raise OtherHardware(
            f"--roofline-against={comparator.name} was measured on other hardware: this is {hardware}, nearest "
            f"known there: {names}; a comparison across hardware would mean nothing"
        )
