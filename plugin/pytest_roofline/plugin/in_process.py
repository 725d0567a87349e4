"""Measurements in pytest's own process, from the request of a test to the record in the run file: of one device, of
several as one, and of every like device in turn.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..baselines.comparators import Comparator
from ..core.errors import BadInput, DeviceError, NoRoom, RooflineError, WrongData
from ..core.facts import DeviceFacts, HardwareKey
from ..core.keys import Key
from ..core.memory import Phase
from ..core.records import Measurement
from ..core.samples import SIBLINGS, merge_passes
from ..core.units import format_amount
from ..core.work import Work
from ..engine.measure import MeasuredRequest, Observer, measure_request
from ..engine.request import Request, Timed
from ..hardware import key_of
from ..stats.siblings import BETWEEN, FEWEST
from .display import tell
from .observing import MemoryPhase, notice, profiled_labels, take_profile
from .recording import CurrentTest, key_for, record, why_partial
from .results import lack

if TYPE_CHECKING:
    from ..engine.devices import Device


def measure(test: CurrentTest, request: Request) -> Measurement:
    """Measure what a test asks for, on the device of the run or on several of them, and write it down."""
    session = test.session
    under_test = session.under_test
    device, hardware = under_test.device, under_test.hardware
    if request.devices is not None:
        device, hardware = under_test.among(
            tuple(request.devices), lambda name: open_named(test, name)
        )
    key = key_for(test, request, hardware)
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
    """Writes the measurement down, with a profile where one was asked for."""

    def __init__(self, test: CurrentTest, request: Request, device: "Device", key: Key) -> None:
        self._test = test
        self._session = test.session
        self._request = request
        self._device = device
        self._key = key
        self.measurement: Measurement | None = None

    def tell(self, sentence: str) -> None:
        """Say something while the test runs."""
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
        """Write it down; then what was asked for besides, so that whatever that does, nothing is lost."""
        self.measurement = self._record(measured)
        if not measured.wrong:
            take_profile(
                self._session, self._device, self.measurement, fn, sets, self._request.model
            )

    def failed(self, error: BaseException, phase: Phase, measured: MeasuredRequest | None) -> None:
        """Keep how full memory was, and what was measured before, marked so that nobody takes it for a result."""
        request = self._request
        notice(error, MemoryPhase(self._device, request.name, phase, (self._key, request.work)))
        if self.measurement is not None or measured is None:
            # What is interrupted after the record was written has been measured.
            return
        # Whatever happens to the record, what happened to the measurement is what must be told.
        with contextlib.suppress(Exception):
            self._record(
                measured,
                why_partial(error, f"raised {type(error).__name__}: {error}".removesuffix(": ")),
            )

    def _record(self, measured: MeasuredRequest, invalid: str = "") -> Measurement:
        right = measured.verified is not False
        work, key = self._request.work, self._key
        ceiling = (
            self._session.under_test.ceiling(work, key.metric, key.hardware) if right else None
        )
        return record(self._test, self._request, measured, key, ceiling, invalid=invalid)


def _graph_before(comparator: Comparator, key: Key, work: Work) -> bool | None:
    """Whether what this is compared with was timed by a graph; None where nothing is known, or both were seen.

    A call about as long as the longest that a graph is taken of would else be timed now one way, now the other.
    """
    if comparator.work(key) != work:
        return None
    seen = {"graph" in achieved for achieved in comparator.achieved(key)}
    return seen.pop() if len(seen) == 1 else None


def open_named(test: CurrentTest, name: str) -> "Device":
    """A device of this process by its name: `cuda:1`."""
    under_test, config = test.session.under_test, test.item.config
    known = config.hook.pytest_roofline_device(config=config, name=name)
    if known is not None:
        return known  # type: ignore[no-any-return]
    if under_test.environment.device.type != "cuda" or name.partition(":")[0] != "cuda":
        raise BadInput(
            f"devices names {name}, and {under_test.device.name} is measured; several devices of one process can "
            "be timed together where they are CUDA or ROCm devices"
        )
    from ..engine.devices.several import open_peer

    return open_peer(name)


# Of every sibling: A B C …, A B C …, A B C ….
PASSES = 3
REMEDY = "expected it to do what its siblings do; see `roofline doctor` and the kernel's log (dmesg) for this device"

# Makes the maker of one set of arguments, on the torch devices of a sibling: one, or both ends of a link.
MakerOn = Callable[..., Callable[[], object]]


@dataclass(slots=True)
class _Sibling:
    """One sibling with what was taken on it: a device, or two as one."""

    name: str
    uuid: str
    device: "Device"
    parts: "tuple[Device, ...]"
    hardware: HardwareKey
    passes: list[MeasuredRequest] = field(default_factory=list)

    @property
    def measured(self) -> MeasuredRequest:
        """All passes as one, with whatever was wrong in any."""
        first = next((each for each in self.passes if each.verified is False), self.passes[0])
        return replace(
            first,
            samples=merge_passes([each.samples for each in self.passes]),
            doubt=next((each.doubt for each in self.passes if each.doubt), ""),
            disturbance=next((each.disturbance for each in self.passes if each.disturbance), ""),
        )

    @property
    def called(self) -> str:
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
        self._test = test
        self._session = test.session
        # A look at every pass would call more often than it measures.
        self._request = replace(request, refill=False, labels=(SIBLINGS,))
        self._timed = timed
        self._make_args = make_args
        self._needs_bytes = needs_bytes
        self._opened: dict[str, tuple[Device, DeviceFacts]] = {}

    def measure(self, among: Sequence[Sequence[str]] | None) -> tuple[list[Measurement], str]:
        """Measure each in turn; without measurements, why there is nothing to compare."""
        from ..engine.conditions import siblings_of

        ours = self._session.under_test.device
        wanted = (
            [(name,) for name in siblings_of(ours)]
            if among is None
            else [tuple(names) for names in among]
        )
        opened = [self._open(names) for names in wanted]
        # Those of which there are enough of one product, or of one class of links.
        kinds = [one.hardware for one in opened]
        ones = [one for one in opened if kinds.count(one.hardware) >= FEWEST]
        why_not = self._no_room(ones) if ones else self._too_few(among is not None, len(wanted))
        if why_not:
            return [], why_not
        busy = self._busy(ones) if among is None else ""
        try:
            for _ in range(PASSES):
                for one in ones:
                    self._pass(one)
        except BaseException as error:
            # What happened is what must be told, whatever happens to the records.
            with contextlib.suppress(Exception):
                self._write(ones, busy, f"not all siblings were measured: {type(error).__name__}")
            if isinstance(error, NoRoom):
                lack(self._test.item, self._session.options, str(error))
            raise
        return self._write(ones, busy, ""), ""

    def _busy(self, ones: "Sequence[_Sibling]") -> str:
        """Which other devices were at work before any of these was, where they share what is measured."""
        from ..engine.conditions import busy_text

        if not replace(self._request, labels=()).over_host_link:
            return ""
        # Two are asked, since one tells of the others alone.
        return busy_text(ones[0].device) or busy_text(ones[-1].device)

    def _open(self, names: tuple[str, ...]) -> _Sibling:
        under_test, test = self._session.under_test, self._test

        def opened(name: str) -> "Device":
            if name not in self._opened:
                try:
                    device = open_named(test, name)
                    self._opened[name] = device, device.facts()
                except RuntimeError as error:
                    raise DeviceError(
                        f"{name} cannot be opened beside its siblings: {error}; {REMEDY}"
                    ) from error
            return self._opened[name][0]

        parts = tuple(opened(name) for name in names)
        facts = [self._opened[name][1] for name in names]
        uuid = (
            BETWEEN.join(one.uuid or "?" for one in facts) if any(one.uuid for one in facts) else ""
        )
        if len(names) > 1:
            device, hardware = under_test.among(names, opened)
        else:
            device, hardware = parts[0], key_of(replace(under_test.environment, device=facts[0]))
        return _Sibling(BETWEEN.join(names), uuid, device, parts, hardware)

    def _too_few(self, links: bool, count: int) -> str:
        products = ", ".join(sorted({facts.product for _, facts in self._opened.values()}))
        what = "links of one class" if links else "visible GPUs of one product"
        return f"needs {FEWEST} {what}, found {count} in all" + (
            f" ({products})" if products else ""
        )

    def _no_room(self, ones: Sequence[_Sibling]) -> str:
        for one in ones:
            free = min(part.free_bytes() for part in one.parts)
            if free < self._needs_bytes:
                return f"needs {format_amount(self._needs_bytes)} on {one.called}, found {format_amount(free)}"
        return ""

    def _pass(self, one: _Sibling) -> None:
        from ..engine.devices.base import SiblingDevice

        first = one.parts[0]
        with first.current() if isinstance(first, SiblingDevice) else contextlib.nullcontext():
            try:
                self._take(one)
            except NoRoom as error:
                raise NoRoom(f"{one.called} {error}") from error
            except RooflineError:
                raise
            except Exception as error:
                notice(
                    error,
                    MemoryPhase(
                        one.device, one.name, "calls", (self._key(one), self._request.work)
                    ),
                )
                if not isinstance(error, RuntimeError) or "OutOfMemory" in type(error).__name__:
                    error.add_note(f"while {one.called} was measured")
                    raise
                raise DeviceError(
                    f"{one.called} failed while it was measured alone: {type(error).__name__}: {error}; {REMEDY}"
                ) from error

    def _take(self, one: _Sibling) -> None:
        """One pass on one sibling; its buffers are gone afterwards."""
        from ..engine.devices import torch_device

        make_args = self._make_args(*map(torch_device, one.parts))
        request = replace(
            self._request,
            timed=replace(self._timed, make_args=make_args),
            budget_s=self._request.budget_s / PASSES,
            instead=self._test.replacement(one.name, self._timed.call),
            devices=one.name.split(BETWEEN) if len(one.parts) > 1 else None,
        )
        measured = measure_request(one.device, request, Observer())
        one.passes.append(measured)
        if measured.wrong:
            raise WrongData(f"{one.called}: {measured.wrong}")

    def _key(self, one: _Sibling) -> Key:
        return key_for(self._test, replace(self._request, name=one.name), one.hardware)

    def _write(self, ones: Sequence[_Sibling], busy: str, invalid: str) -> list[Measurement]:
        """A record for each sibling that gave samples."""
        session, work, found = self._session, self._request.work, []
        for one in ones:
            if not one.passes:
                continue
            key = self._key(replace(one, name=self._test.fresh("measurement", one.name)))
            like_ours = key.hardware.alone == session.under_test.hardware
            ceiling = (
                session.under_test.ceiling(work, key.metric, key.hardware) if like_ours else None
            )
            measured = replace(one.measured, siblings_busy=busy)
            found.append(
                record(
                    self._test,
                    self._request,
                    measured,
                    key,
                    ceiling,
                    invalid=invalid,
                    device=one.uuid,
                )
            )
        return found
