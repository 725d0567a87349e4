"""Measurements in pytest's own process, from the request of a test to the record in the run file: of one device, of
several as one, and of every like device in turn.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from ..baselines.comparators import Comparator
from ..core.errors import BadInput, DeviceError, NoRoom, RooflineError, WrongData
from ..core.facts import DeviceFacts, HardwareKey
from ..core.keys import Key
from ..core.memory import Phase
from ..core.records import Measurement
from ..core.samples import SIBLINGS, merge_passes
from ..core.units import format_amount
from ..core.work import Work
from ..engine.devices import Device, torch_device
from ..engine.devices.base import SiblingDevice
from ..engine.measure import MeasuredRequest, Observer, measure_request
from ..engine.quiet import busy_text, siblings_of
from ..engine.request import Request, Timed
from ..hardware import key_of
from ..stats.siblings import BETWEEN, FEWEST
from .observing import MemoryPhase, notice, profiled_labels, take_profile
from .recording import CurrentTest, key_for, record, why_partial
from .results import lack
from .terminal import tell


def measure(test: CurrentTest, request: Request) -> Measurement:
    """Measure a request on one or several devices.

    Without room for a rotation of buffers the test ends as one that lacks hardware.
    """
    session = test.session
    under_test = session.under_test
    device, hardware = under_test.device, under_test.hardware
    if request.devices is not None:
        device, hardware = under_test.among(
            tuple(request.devices), lambda name: open_named(test, name)
        )
    key = key_for(test, request, hardware)
    # `instead` is the function that a hook put in the place of the test's; `graph` keeps the mode of the baseline.
    request = replace(
        request,
        instead=test.replacement(request.name, request.target.call),
        drill=session.options.drill,
        graph=_graph_before(under_test.comparator, key, request.work)
        if device.traits.graphs
        else None,
        labels=tuple(profiled_labels(session)),
    )
    recorder = _Recorder(test, request, device, key)
    try:
        measured = measure_request(device, request, recorder)
    except NoRoom as error:
        lack(test.item, session.options, str(error))
    assert recorder.measurement is not None
    if measured.wrong:
        raise WrongData(f"{recorder.measurement.label}: {measured.wrong}")
    return recorder.measurement


class _Recorder(Observer):
    """The observer of a measurement: it records it, with a profile if one is due."""

    def __init__(self, test: CurrentTest, request: Request, device: Device, key: Key) -> None:
        """Prepare to record what a measurement reports: its progress, its end, or its failure."""
        self._test = test
        self._session = test.session
        self._request = request
        self._device = device
        self._key = key
        # The complete measurement, once it is recorded.
        self.measurement: Measurement | None = None

    def tell(self, sentence: str) -> None:
        """Print a sentence while the test runs."""
        config = self._test.item.config
        capture: Any = config.pluginmanager.get_plugin("capturemanager")
        with (
            capture.global_and_fixture_disabled()
            if capture is not None
            else contextlib.nullcontext()
        ):
            tell(
                config,
                f"roofline: {self._test.label(self._request.name)}: {sentence}",
                progress=False,
            )

    def finished(
        self,
        measured: MeasuredRequest,
        fn: Callable[..., object],
        sets: Sequence[tuple[object, ...]],
    ) -> None:
        """Record the measurement, then profile the function.

        A profile that fails loses no measurement that way.
        """
        self.measurement = self._record(measured)
        if not measured.wrong:
            take_profile(
                self._session, self._device, self.measurement, fn, sets, self._request.model
            )

    def failed(self, error: BaseException, phase: Phase, measured: MeasuredRequest | None) -> None:
        """Keep the memory's state with an error.

        What was measured before it is recorded as invalid. `phase` is the step of measuring in which the error came;
        `measured` is None if there was no sample yet.
        """
        request = self._request
        notice(error, MemoryPhase(self._device, request.name, phase, (self._key, request.work)))
        if self.measurement is not None or measured is None:
            # The measurement is complete, or nothing was measured.
            return
        # An error while recording must not hide the error of the measurement.
        with contextlib.suppress(Exception):
            self._record(
                measured,
                why_partial(error, f"raised {type(error).__name__}: {error}".removesuffix(": ")),
            )

    def _record(self, measured: MeasuredRequest, invalid: str = "") -> Measurement:
        """Record a measurement; `invalid` is why it is no result. One with wrong data has no roofline."""
        has_right_data = measured.verified is not False
        work, key = self._request.work, self._key
        ceiling = (
            self._session.under_test.rooflines.ceiling(work, key.metric, key.hardware)
            if has_right_data
            else None
        )
        return record(self._test, self._request, measured, key, ceiling, invalid=invalid)


def _graph_before(comparator: Comparator, key: Key, work: Work) -> bool | None:
    """Return whether a CUDA graph timed the baseline of a key.

    A graph replays many calls at once. It is None without such a baseline, or where its processes differ. The choice
    depends on how long a call takes; for a call near that limit it would change from run to run without this.
    """
    if comparator.work(key) != work:
        return None
    modes = {"graph" in achieved for achieved in comparator.achieved(key)}
    return modes.pop() if len(modes) == 1 else None


def open_named(test: CurrentTest, name: str) -> Device:
    """Open a device of this process by its name: `cuda:1`."""
    under_test, config = test.session.under_test, test.item.config
    device = config.hook.pytest_roofline_device(config=config, name=name)
    if device is not None:
        return device  # type: ignore[no-any-return]
    if under_test.environment.device.type != "cuda" or name.partition(":")[0] != "cuda":
        raise BadInput(
            f"the argument devices names {name}, but the measured device is {under_test.device.name}; only CUDA "
            "or ROCm devices can be timed together in one process"
        )
    from ..engine.devices.several import open_peer

    return open_peer(name)


# Each pass measures every sibling once: A B C …, A B C …, A B C ….
PASSES = 3
REMEDY = (
    "the other siblings had no such error; check this device with `roofline doctor` and in the log of the kernel "
    "(dmesg)"
)

# Takes the torch devices of a sibling, which are two for a link. Returns a function that makes one set of arguments.
MakerOn = Callable[..., Callable[[], object]]


@dataclass(slots=True)
class _Sibling:
    """A sibling with its measured passes: a device, or two as one."""

    name: str
    uuid: str
    device: Device
    parts: tuple[Device, ...]
    hardware: HardwareKey
    passes: list[MeasuredRequest] = field(default_factory=list)

    @property
    def measured(self) -> MeasuredRequest:
        """All passes of a sibling as one measurement.

        It has the first fault of any pass.
        """
        passes = self.passes
        # A pass with wrong data goes before the others, so that the measurement has the fault.
        first = next((measured for measured in passes if measured.verified is False), passes[0])
        return replace(
            first,
            samples=merge_passes([measured.samples for measured in passes]),
            doubt=next((measured.doubt for measured in passes if measured.doubt), ""),
            disturbance=next(
                (measured.disturbance for measured in passes if measured.disturbance), ""
            ),
        )

    @property
    def title(self) -> str:
        """The name with the UUID, for messages."""
        return f"{self.name} ({self.uuid or 'without a UUID'})"


class Siblings:
    """The measurements of one test on every sibling."""

    def __init__(
        self,
        test: CurrentTest,
        request: Request,
        timed: Timed,
        make_args: MakerOn,
        needs_bytes: int,
    ) -> None:
        """Prepare to measure a function on like devices in turn.

        `make_args` returns, for a device, what makes a set of arguments there. Each device needs `needs_bytes` of
        free memory.
        """
        self._test = test
        self._session = test.session
        # The look for spoiled arguments would call more often than a short pass measures.
        self._request = replace(request, refill=False, labels=(SIBLINGS,))
        self._timed = timed
        self._make_args = make_args
        self._needs_bytes = needs_bytes
        self._open_devices: dict[str, tuple[Device, DeviceFacts]] = {}

    def measure(self, among: Sequence[Sequence[str]] | None) -> list[Measurement]:
        """Measure each sibling in turn.

        A sibling is a like device, or a group of devices in `among`. The test is skipped where there is nothing to
        compare.
        """
        our_device = self._session.under_test.device
        groups = (
            [(name,) for name in siblings_of(our_device)]
            if among is None
            else [tuple(names) for names in among]
        )
        candidates = [self._open(names) for names in groups]
        # Siblings are enough devices of one product, or enough links of one class.
        # Their hardware keys are equal.
        hardware_keys = [sibling.hardware for sibling in candidates]
        siblings = [
            sibling for sibling in candidates if hardware_keys.count(sibling.hardware) >= FEWEST
        ]
        why_not = (
            self._no_room(siblings) if siblings else self._too_few(among is not None, len(groups))
        )
        if why_not:
            pytest.skip(why_not)
        busy = self._busy(siblings) if among is None else ""
        self._run_passes(siblings, busy)
        return self._write(siblings, busy, "")

    def _run_passes(self, siblings: Sequence[_Sibling], busy: str) -> None:
        """Measure all siblings in turn, in several passes.

        After an error the passes so far are recorded as invalid. `busy` names the devices that were busy before.
        """
        try:
            for _ in range(PASSES):
                for sibling in siblings:
                    self._pass(sibling)
        except BaseException as error:
            # An error while recording must not hide the error of the measurement.
            with contextlib.suppress(Exception):
                self._write(
                    siblings,
                    busy,
                    f"the test ended with {type(error).__name__} before all siblings were measured",
                )
            # A test without room for its buffers is skipped, or fails where hardware is required.
            if isinstance(error, NoRoom):
                lack(self._test.item, self._session.options, str(error))
            raise

    def _busy(self, siblings: "Sequence[_Sibling]") -> str:
        """Return which devices were busy before the measurement.

        The text is empty if none was. It is also empty if the work does not go over the link to the host, which all
        siblings share: then other busy devices do no harm.
        """
        # The label of siblings would hide that the work goes over that link.
        if not replace(self._request, labels=()).over_host_link:
            return ""
        # A device reports on the others only, so a second one reports on the first.
        first, last = siblings[0], siblings[-1]
        return busy_text(first.device) or busy_text(last.device)

    def _open(self, names: tuple[str, ...]) -> _Sibling:
        """Open the devices of these names as one sibling.

        Each is opened once.
        """
        under_test, test = self._session.under_test, self._test

        def open_part(name: str) -> Device:
            """Return the device of this name, opened at its first use."""
            if name not in self._open_devices:
                try:
                    device = open_named(test, name)
                    self._open_devices[name] = device, device.facts()
                except RuntimeError as error:
                    raise DeviceError(
                        f"{name} cannot be opened together with its siblings: {error}; {REMEDY}"
                    ) from error
            device, _ = self._open_devices[name]
            return device

        parts = tuple(open_part(name) for name in names)
        facts = [device_facts for _, device_facts in map(self._open_devices.__getitem__, names)]
        uuids = [device_facts.uuid for device_facts in facts]
        uuid = BETWEEN.join(uuid or "?" for uuid in uuids) if any(uuids) else ""
        if len(names) > 1:
            device, hardware = under_test.among(names, open_part)
        else:
            device, hardware = parts[0], key_of(replace(under_test.environment, device=facts[0]))
        return _Sibling(BETWEEN.join(names), uuid, device, parts, hardware)

    def _too_few(self, links: bool, count: int) -> str:
        """Return why too few siblings are here to compare.

        `links` tells whether they are links between devices, and `count` how many devices or links were seen.
        """
        products = ", ".join(sorted({facts.product for _, facts in self._open_devices.values()}))
        siblings = "links of one class" if links else "visible GPUs of one product"
        return f"needs {FEWEST} {siblings}, found {count} in all" + (
            f" ({products})" if products else ""
        )

    def _no_room(self, siblings: Sequence[_Sibling]) -> str:
        """Return which sibling has too little memory, else an empty text."""
        for sibling in siblings:
            free = min(part.free_bytes() for part in sibling.parts)
            if free < self._needs_bytes:
                return f"needs {format_amount(self._needs_bytes)} on {sibling.title}, found {format_amount(free)}"
        return ""

    def _pass(self, sibling: _Sibling) -> None:
        """Measure one pass on a sibling as the current device.

        An error names the sibling. A RuntimeError of torch, other than a lack of memory, becomes a DeviceError.
        """
        first_part = sibling.parts[0]
        with (
            first_part.current()
            if isinstance(first_part, SiblingDevice)
            else contextlib.nullcontext()
        ):
            try:
                self._measure_pass(sibling)
            except NoRoom as error:
                raise NoRoom(f"{sibling.title} {error}") from error
            except RooflineError:
                raise
            except Exception as error:
                notice(
                    error,
                    MemoryPhase(
                        sibling.device,
                        sibling.name,
                        "calls",
                        (self._key(sibling), self._request.work),
                    ),
                )
                # torch reports a fault of the device as a RuntimeError, and so a lack of memory.
                if not isinstance(error, RuntimeError) or "OutOfMemory" in type(error).__name__:
                    error.add_note(f"the error came while {sibling.title} was measured")
                    raise
                raise DeviceError(
                    f"{sibling.title} failed while it was measured alone: {type(error).__name__}: {error}; {REMEDY}"
                ) from error

    def _measure_pass(self, sibling: _Sibling) -> None:
        """Measure one pass on a sibling; its buffers are gone afterwards."""
        make_args = self._make_args(*map(torch_device, sibling.parts))
        request = replace(
            self._request,
            timed=replace(self._timed, make_args=make_args),
            budget_s=self._request.budget_s / PASSES,
            instead=self._test.replacement(sibling.name, self._timed.call),
            devices=sibling.name.split(BETWEEN) if len(sibling.parts) > 1 else None,
        )
        measured = measure_request(sibling.device, request, Observer())
        sibling.passes.append(measured)
        if measured.wrong:
            raise WrongData(f"{sibling.title}: {measured.wrong}")

    def _key(self, sibling: _Sibling) -> Key:
        """Return the key of a sibling's measurement, which has its name."""
        return key_for(self._test, replace(self._request, name=sibling.name), sibling.hardware)

    def _write(self, siblings: Sequence[_Sibling], busy: str, invalid: str) -> list[Measurement]:
        """Record a measurement of each sibling with samples.

        Only one of the run's own hardware has a roofline. `busy` names the devices that were busy before, and `invalid`
        is why the measurements are no results; empty if they are.
        """
        session, work, measurements = self._session, self._request.work, []
        for sibling in siblings:
            if not sibling.passes:
                continue
            key = self._key(
                replace(sibling, name=self._test.unique_name("measurement", sibling.name))
            )
            like_ours = key.hardware.alone == session.under_test.hardware
            ceiling = (
                session.under_test.rooflines.ceiling(work, key.metric, key.hardware)
                if like_ours
                else None
            )
            measured = replace(sibling.measured, siblings_busy=busy)
            measurements.append(
                record(
                    self._test,
                    self._request,
                    measured,
                    key,
                    ceiling,
                    invalid=invalid,
                    device=sibling.uuid,
                )
            )
        return measurements
