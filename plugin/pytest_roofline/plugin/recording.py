"""The test that measures, and the record of what was measured: its key, and why it is no result where it is none."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from ..core.errors import BadInput
from ..core.facts import HardwareKey
from ..core.keys import Key
from ..core.records import Ceiling, Measurement
from ..core.samples import OVERSUBSCRIBED, Ranks
from ..core.units import encodable, printable
from ..hardware import above_peak, beyond_belief
from .device_under_test import DeviceUnderTest
from .planned import Marks, Planned
from .selection import marks_of
from .session import RooflineSession

if TYPE_CHECKING:
    from ..engine.measure import MeasuredRequest
    from ..engine.request import Request

# Of what an exception says: enough to know it by.
MOST_WHY = 500


class CurrentTest:
    """The test that measures: its name in the run, its marker, and the names that it gave to its measurements."""

    def __init__(self, session: RooflineSession, item: pytest.Item, marks: Marks) -> None:
        self.session = session
        self.item = item
        self.marks = marks
        self._names: set[tuple[str, str]] = set()

    @property
    def test_id(self) -> str:
        """Its node id, as files hold it."""
        return encodable(self.item.nodeid)

    @property
    def planned(self) -> Planned:
        """Its benchmark and parameters."""
        known = self.session.planned.get(self.item.nodeid)
        return known or Planned.of(self.item, self.marks)

    def label(self, name: str) -> str:
        """The benchmark with the test's own id text and the measurement's name: `TestCopies.d2d[64MiB].cold`."""
        return self.planned.label + (f".{name}" if name else "")

    def fresh(self, kind: str, name: str | None) -> str:
        """The name of a measurement, or of something else that the test finds; no kind has one twice."""
        if name is not None and not (isinstance(name, str) and name):
            raise BadInput(
                f"name is {name!r}; expected text, or None for the only {kind} of a test"
            )
        fresh = encodable(name or "")
        if (kind, fresh) in self._names:
            called = f"the name {fresh!r}" if fresh else "no name"
            raise BadInput(f"this test has two {kind}s under {called}; give each a name of its own")
        self._names.add((kind, fresh))
        return fresh

    def require_open(self) -> None:
        """Refuse a measurement that nobody would judge, and a note that nobody would show."""
        if self.item.nodeid in self.session.ended:
            raise BadInput(
                f"the fixture roofline of {printable(self.item.name)} was used after the verdict of that test, in a "
                "teardown or in another test; expected it in that test or its set-up: let every test that measures "
                "take roofline as an argument of its own"
            )

    def replacement(self, name: str, fn: Callable[..., object]) -> Callable[..., object] | None:
        """What a hook gives to be measured in place of `fn`; None leaves it as it is."""
        hook = self.item.config.hook.pytest_roofline_function
        return hook(item=self.item, name=name, fn=fn)  # type: ignore[no-any-return]


def key_for(test: CurrentTest, request: "Request", hardware: HardwareKey) -> Key:
    """The key of a measurement of a test."""
    planned = test.planned
    return Key(
        benchmark=planned.benchmark,
        parameters=planned.parameters,  # type: ignore[arg-type]
        metric=request.shown_metric,
        hardware=hardware,
        cache=request.cache,
        timing=request.timing,
        name=request.name,
    )


def record(
    test: CurrentTest,
    request: "Request",
    measured: "MeasuredRequest",
    key: Key,
    ceiling: Ceiling | None,
    *,
    invalid: str = "",
    device: str = "",
    ranks: Ranks | None = None,
) -> Measurement:
    """Write a measurement of a test down; `device` is the UUID of one of several siblings."""
    session, samples = test.session, measured.samples
    measurement = Measurement(
        key=key,
        test_id=test.test_id,
        label=test.label(key.name),
        process=session.process,
        work=request.work,
        samples=samples,
        gate=test.marks.gate and OVERSUBSCRIBED not in samples.labels,
        tolerance=request.tolerance,
        ceiling=ceiling,
        verified=measured.verified,
        invalid=encodable(measured.wrong or invalid or measured.doubt),
        peak_bytes=measured.peak_bytes,
        held_bytes=measured.held_bytes,
        # Of the very first call what is beyond a warm one by itself: compiling, and all that comes once.
        compile_s=max(0.0, samples.first_calls_s[0] - samples.alone_s)
        if request.compiles
        else None,
        siblings_busy=measured.siblings_busy,
        tier=test.marks.tier,
        marks=marks_of(test.item),
        device=device,
        ranks=ranks,
    )
    measurement = with_sanity(measurement, session.under_test)
    if not measurement.invalid:
        # Only now, since a machine in trouble is slower, and no excuse for what is too fast.
        measurement = replace(
            measurement, invalid=encodable(measured.disturbance or samples.trouble)
        )
    session.record(measurement, measured.calibration)
    return measurement


def why_partial(error: BaseException, said: str) -> str:
    """Why what there is of a measurement is no result: it was interrupted, or what went wrong on the way."""
    return encodable("interrupted" if isinstance(error, KeyboardInterrupt) else said)[:MOST_WHY]


def with_sanity(measurement: Measurement, under_test: DeviceUnderTest) -> Measurement:
    """The measurement, marked invalid where its rate is above what the hardware can do."""
    if measurement.invalid:
        return measurement
    ceiling, work = measurement.ceiling, measurement.work
    why = above_peak(ceiling, work, measurement.share_of_ceiling, measurement.samples.labels)
    amount = work.amount(ceiling.metric) if ceiling is not None else None
    if not why and ceiling is not None and amount:
        why = beyond_belief(ceiling, amount, measurement.median_s)
    why = why or under_test.beyond_belief(work, measurement.median_s)
    return replace(measurement, invalid=why) if why else measurement
