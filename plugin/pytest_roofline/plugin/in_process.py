"""One measurement in pytest's own process: from the request of a test to the record in the run file."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..baselines.comparators import find_reference
from ..core.errors import BadInput, NoRoom, WrongData
from ..core.keys import Key
from ..core.memory import Phase
from ..core.records import Measurement
from ..core.units import printable
from ..core.work import Work
from ..engine.measure import Measured, Observer, measure_request
from ..engine.request import Request
from .memory import MemoryPhase, notice
from .observing import profiled_labels, take_profile, take_snapshot, take_snapshot_of_failure
from .recording import CurrentTest, key_for, record, why_partial
from .shadow import lack

if TYPE_CHECKING:
    from ..engine.devices import Device


def measure(test: CurrentTest, request: Request) -> Measurement:
    """Measure what a test asks for, on the device of the run or on several of them, and write it down."""
    session = test.session
    under_test = session.under_test
    device, hardware = under_test.device, under_test.hardware
    if request.devices is not None:
        device, hardware = under_test.among(tuple(request.devices), lambda name: open_named(test, name))
    key = key_for(test, request, hardware)
    request = replace(
        request,
        instead=test.replacement(request.name, request.target.call),
        drill=session.options.drill,
        graph=_graph_before(test, key, request.work) if device.traits.graphs else None,
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
    """Writes the measurement down, with a snapshot and a profile where they were asked for."""

    def __init__(self, test: CurrentTest, request: Request, device: "Device", key: Key) -> None:
        self._test = test
        self._session = test.session
        self._request = request
        self._device = device
        self._key = key
        self.measurement: Measurement | None = None

    def tell(self, sentence: str) -> None:
        """Say something while the test runs, and again at the end."""
        sentence = f"{self._test.label(self._request.name)}: {sentence}"
        self._session.noted.warn(sentence)
        plugins = self._test.item.config.pluginmanager
        reporter: Any = plugins.get_plugin("terminalreporter")
        capture: Any = plugins.get_plugin("capturemanager")
        if reporter is not None:
            with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
                reporter.ensure_newline()
                reporter.write_line(f"roofline: {printable(sentence)}")

    def found(self, measured: Measured, fn: Callable[..., object], sets: Sequence[tuple[object, ...]]) -> None:
        """Write it down; then what was asked for besides, so that whatever that does, nothing is lost."""
        self.measurement = self._record(measured)
        take_snapshot(self._session, self._device, self.measurement.label, partial(fn, *sets[0]))
        if not measured.wrong:
            take_profile(self._session, self._device, self.measurement, fn, sets, self._request.model)

    def failed(
        self, error: BaseException, phase: Phase, measured: Measured | None, once_more: Callable[[], object]
    ) -> None:
        """Keep how full memory was, and what was measured before, marked so that nobody takes it for a result."""
        request = self._request
        notice(error, MemoryPhase(self._device, request.name, phase, (self._key, request.work)))
        if self.measurement is not None:
            # What is interrupted after the record was written has been measured.
            return
        # Whatever happens to the record, what happened to the measurement is what must be told.
        with contextlib.suppress(Exception):
            if measured is not None:
                self._record(measured, why_partial(error, f"raised {type(error).__name__}: {error}"))
            label = self._test.label(request.name)
            take_snapshot_of_failure(self._session, self._device, label, error, once_more)

    def _record(self, measured: Measured, invalid: str = "") -> Measurement:
        right = measured.verified is not False
        work, key = self._request.work, self._key
        ceiling = self._session.under_test.ceiling(work, key.metric, key.hardware) if right else None
        return record(self._test, self._request, measured, key, ceiling, invalid=invalid)


def _graph_before(test: CurrentTest, key: Key, work: Work) -> bool | None:
    """Whether what this is compared with was timed by a graph; None where nothing is known, or both were seen.

    A call about as long as the longest that a graph is taken of would else be timed now one way, now the other.
    """
    reference, _ = find_reference(test.session.under_test.comparator, key, work)
    seen = {"graph" in achieved for achieved in reference.achieved} if reference is not None else set()
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
