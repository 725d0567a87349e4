"""The open device of a run, its surroundings, and the baseline to compare with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest

from ..baselines.comparators import BaselineComparator, Comparator, open_comparator
from ..baselines.files import Entries, entries_of, nearest
from ..baselines.references import class_of_key, prior_of
from ..core.errors import DeviceError, OtherHardware
from ..core.facts import Environment, Gpu, HardwareKey
from ..core.keys import Key
from ..core.units import encodable
from ..engine import devices, host, identity, inventory
from ..engine.devices import Device
from ..hardware import family_of, identity_of, key_of, use_hardware
from ..settings.options import ranks_key
from ..settings.parsing import Options
from ..settings.round import in_round
from ..stats.spread import Prior, priors
from .planned import Planned, uses_ranks
from .results import DEVICE, note_shadow
from .rooflines import Rooflines, triad_of

if TYPE_CHECKING:
    from .launcher import Launcher


@dataclass(slots=True)
class DeviceUnderTest:
    """The open device of a run, with its surroundings and its baseline.

    `gpu` is the GPU's state before the first test, as its management library reports it. `is_open_here` is False where
    only the ranks have the device open. `entries` are those of the baselines, also where the comparator is a saved run.
    `comparisons` is how many measurements of the planned tests the comparator has, at least 1.
    """

    device: Device
    environment: Environment
    hardware: HardwareKey
    comparator: Comparator
    entries: Entries
    comparisons: int
    rooflines: Rooflines
    gpu: Gpu | None = None
    is_open_here: bool = True
    _priors: dict[str, Prior] = field(default_factory=dict)
    _groups: dict[tuple[str, ...], tuple[Device, HardwareKey]] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Return the identity of this very device."""
        return identity_of(self.environment)

    @property
    def recorded(self) -> bool:
        """Return whether anything was ever recorded on this hardware."""
        return any(key.alone == self.hardware.alone for key in self.comparator.hardware())

    def among(
        self, names: tuple[str, ...], open_part: Callable[[str], Device]
    ) -> tuple[Device, HardwareKey]:
        """Return several devices as one, opened once, and their hardware key.

        `open_part` opens one of them by its name.
        """
        if names not in self._groups:
            from ..engine.devices.several import SeveralDevices

            parts = [open_part(name) for name in names]
            products = sorted(
                {part.facts().product for part in parts} | {self.environment.device.product}
            )
            if len(products) > 1:
                raise DeviceError(f"{', '.join(names)} and {self.device.name} are {' and '.join(products)}; expected "
                                  "devices of one product")  # fmt: skip
            hardware = replace(
                self.hardware,
                devices=len(names),
                link=inventory.kind_among([part.name for part in parts]),
            )
            self._groups[names] = SeveralDevices(parts), hardware
        return self._groups[names]

    def hardware_of_ranks(
        self, environment: Environment | None, hosts: Sequence[str], link: str
    ) -> HardwareKey:
        """Return the hardware key of a measurement over ranks.

        It is that of rank 0, which may run on another machine than this one. Where the ranks use another type of
        device than the run, such as the CPU, it is the run's own.
        """
        rank_key = self.hardware
        if environment is not None and environment.device.type == self.environment.device.type:
            rank_key = key_of(environment)
        node_count = len(set(hosts))
        # No library reports the class of a network, so the number of nodes distinguishes the layouts.
        link_class = link if node_count == 1 else f"{link}-{node_count}-nodes"
        if len(hosts) == 1:
            link_class = "none"
        # There is a host for each rank, and each rank has one device.
        return replace(rank_key, devices=len(hosts), link=link_class)

    def prior(self, key: Key) -> Prior:
        """Return the prior of a measurement's class.

        It is how much its times usually differ between processes. It comes from the references of this hardware. Where
        there are none, it is the one that ships.
        """
        measurement_class = class_of_key(key)
        if measurement_class not in self._priors:
            pairs = [
                (reference_key, reference)
                for reference_key, reference in self.comparator.references()
                if reference_key.hardware.alone == self.hardware.alone
                and not reference_key.is_canary
            ]
            self._priors[measurement_class] = (
                prior_of(pairs, measurement_class) if pairs else priors()[measurement_class]
            )
        return self._priors[measurement_class]


def open_device_under_test(
    config: pytest.Config, options: Options, planned: Mapping[str, Planned]
) -> tuple[DeviceUnderTest, str]:
    """Open the device of a run, with its baselines.

    Return it with a warning on the device, or an empty text. Where all tests measure on ranks, the ranks own an
    accelerator, and this process does not open it.
    """
    devices.require_torch()
    # Undone when this configuration ends, so that a later run in this process starts from the shipped datasheets.
    config.add_cleanup(use_hardware(options.baselines))
    device = config.hook.pytest_roofline_device(config=config, name=options.device)
    over_ranks = bool(planned) and all(uses_ranks(plan.item) for plan in planned.values())
    owner = _owner(config) if device is None and over_ranks else None
    if device is None:
        device = devices.open_device(options.device) if owner is None else owner.device()
    warning = _idle_accelerator(config, options, device)
    environment = _identified(config, host.gather(device) if owner is None else owner.environment())
    hardware = key_of(environment)
    entries = entries_of(family_of(environment.device), options.baselines)
    comparator = _comparator(options, entries, hardware, judges=in_round(config) is None)
    comparisons = _comparisons(comparator, planned, hardware)
    gpu = device.gpu()
    _refuse_exclusive(gpu, owner is None, planned)
    triad = triad_of(device, environment) if owner is None and not over_ranks else None
    under_test = DeviceUnderTest(
        device,
        environment,
        hardware,
        comparator,
        entries,
        max(1, comparisons),
        Rooflines(device, environment, gpu, triad),
        gpu,
        owner is None,
    )
    return under_test, warning or host.interpreted(device)


def _owner(config: pytest.Config) -> "Launcher | None":
    """Return the launcher whose ranks own the device.

    It is for a run in which every test uses ranks. Only the ranks open an accelerator. It is None on the CPU, which
    this process can use as well.
    """
    launcher: Launcher | None = config.stash.get(ranks_key, None)
    return None if launcher is None or launcher.kind == "cpu" else launcher


def _comparisons(
    comparator: Comparator, planned: Mapping[str, Planned], hardware: HardwareKey
) -> int:
    """Return the number of comparisons of the planned tests.

    By it the p-values are corrected.
    """
    tests = [(plan.benchmark, plan.parameters) for plan in planned.values()]
    return comparator.count(tests, {*map(encodable, planned)}, hardware)


def _idle_accelerator(config: pytest.Config, options: Options, device: Device) -> str:
    """Return a warning of an accelerator that stays idle.

    The text is empty if there is none.

    Raises:
        DeviceError: the run requires its hardware.
    """
    warning = "" if options.device == "cpu" else host.unused_accelerator(device)
    if warning and options.requires_hardware:
        if not options.shadow:
            raise DeviceError(warning)
        note_shadow(config, "hardware", warning, DEVICE)
    return warning


def _identified(config: pytest.Config, environment: Environment) -> Environment:
    """Return an environment with the identity of its code.

    A round leaves that to its parent.
    """
    this_round = in_round(config)
    if this_round is not None and this_round.side is None:
        return environment
    return identity.identified(
        environment, config.rootpath, this_round.side if this_round else None
    )


def _comparator(
    options: Options, entries: Entries, hardware: HardwareKey, *, judges: bool
) -> Comparator:
    """Return the runs or the baselines to compare with.

    Args:
        options: of the run.
        entries: of the baselines.
        hardware: of this machine.
        judges: False in a round, whose parent judges.

    Raises:
        OtherHardware: `--roofline-against` was measured on other hardware.
    """
    comparator = (
        open_comparator(options.against) if options.against else BaselineComparator(entries)
    )
    # A round does not judge, so only its parent leaves odd sessions out: those with times unlike all others.
    if judges:
        comparator = comparator.without_odd_sessions()
    if options.against:
        _refuse_other_hardware(comparator, hardware)
    return comparator


def _refuse_exclusive(gpu: Gpu | None, opens_device: bool, planned: Mapping[str, Planned]) -> None:
    """Refuse to share a GPU that takes one process only."""
    with_ranks = any(uses_ranks(plan.item) for plan in planned.values())
    if opens_device and with_ranks and gpu is not None and gpu.compute_mode == "exclusive process":
        raise DeviceError(
            f"{gpu.label} takes one process at a time (compute mode exclusive process), but this run has tests "
            "with ranks and tests without ranks. Run the tests with ranks separately (-k, -m), or allow "
            f"several processes with nvidia-smi -i {gpu.index} -c DEFAULT"
        )


def _refuse_other_hardware(comparator: Comparator, hardware: HardwareKey) -> None:
    """Raise if `--roofline-against` was measured on other hardware."""
    measured_hardware = comparator.hardware()
    # The number of devices and their link are a matter of the test, so they are not compared.
    if measured_hardware and not any(key.alone == hardware.alone for key in measured_hardware):
        names = "; ".join(str(key) for key in nearest(hardware, measured_hardware))
        raise OtherHardware(
            f"--roofline-against={comparator.name} was measured on other hardware. This machine is {hardware}; the "
            f"nearest hardware of {comparator.name} is {names}. Expected the same hardware on both sides"
        )
