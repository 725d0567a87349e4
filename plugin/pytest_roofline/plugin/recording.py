"""The test that measures and its records: the key of each, and why it is no result, if so."""

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
from .selection import marks_of

if TYPE_CHECKING:
    from ..engine.measure import MeasuredRequest
    from ..engine.request import Request
    from .rooflines import Rooflines
    from .session import RooflineSession

# The most characters of an exception's message in a record.
MOST_MESSAGE = 500


class CurrentTest:
    """The test that measures: its name in the run, its marker, and the names of its measurements."""

    def __init__(self, session: "RooflineSession", item: pytest.Item) -> None:
        """Keep the test that uses the fixture, with its plan."""
        self.session = session
        self.item = item
        self.planned = session.planned[item.nodeid]
        self.marks = self.planned.marks
        # The kind and the name of each finding of this test: `("figure", "efficiency")`.
        self._names: set[tuple[str, str]] = set()

    @property
    def test_id(self) -> str:
        """The node id of the test, as files have it."""
        return encodable(self.item.nodeid)

    def label(self, name: str) -> str:
        """Return the label of a measurement: `TestCopies.d2d[64MiB].cold`.

        It is the benchmark with the test's own id text and the measurement's name.
        """
        return self.planned.label + (f".{name}" if name else "")

    def unique_name(self, kind: str, name: str | None) -> str:
        """Return the name of a finding, as files have it.

        A finding is a measurement or a figure, for example.

        Raises:
            BadInput: the name is no text, or the test has another finding of the kind with that name.
        """
        if name is not None and not (isinstance(name, str) and name):
            raise BadInput(
                f"name is {name!r}; expected text, or None for the only {kind} of a test"
            )
        text = encodable(name or "")
        if (kind, text) in self._names:
            name_text = f"the name {text!r}" if text else "no name"
            raise BadInput(
                f"this test has two {kind}s with {name_text}. Give each a different name, as in name='cold'"
            )
        self._names.add((kind, text))
        return text

    def require_open(self) -> None:
        """Refuse a measurement or a note behind the test's verdict."""
        if self.item.nodeid in self.session.ended_tests:
            raise BadInput(
                f"the fixture roofline of {printable(self.item.name)} was used after the verdict of "
                "that test, in a teardown or in another test; add roofline to the arguments "
                "of every test that measures"
            )

    def replacement(self, name: str, fn: Callable[..., object]) -> Callable[..., object] | None:
        """Return a hook's function in place of `fn`, if any."""
        hook = self.item.config.hook.pytest_roofline_function
        return hook(item=self.item, name=name, fn=fn)  # type: ignore[no-any-return]


def key_for(test: CurrentTest, request: "Request", hardware: HardwareKey) -> Key:
    """Return the key of a measurement of a test."""
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
    """Record a measurement of a test, and return the record.

    Args:
        test: that measured.
        request: what was measured.
        measured: the samples and what was observed beside them.
        key: of the measurement.
        ceiling: its roofline; None without.
        invalid: why a partial measurement is no result; empty for a complete one.
        device: the UUID of a sibling; empty for the run's own device.
        ranks: the ranks that measured, if any.
    """
    session, samples = test.session, measured.samples
    compile_s = None
    if request.compiles:
        # The first call compiles, and does all else that happens once; the time of a warm call is subtracted.
        first_call_s = samples.first_calls_s[0]
        compile_s = max(0.0, first_call_s - samples.alone_s)
    measurement = Measurement(
        key=key,
        test_id=test.test_id,
        label=test.label(key.name),
        process=session.process,
        work=request.work,
        samples=samples,
        # With more ranks than cores a time mostly shows the scheduler, so it fails no test.
        gate=test.marks.gate and OVERSUBSCRIBED not in samples.labels,
        tolerance=request.tolerance,
        ceiling=ceiling,
        verified=measured.verified,
        invalid=encodable(measured.wrong or invalid or measured.doubt),
        peak_bytes=measured.peak_bytes,
        held_bytes=measured.held_bytes,
        compile_s=compile_s,
        siblings_busy=measured.siblings_busy,
        tier=test.marks.tier,
        marks=marks_of(test.item),
        device=device,
        ranks=ranks,
    )
    measurement = with_sanity(measurement, session.under_test.rooflines)
    if not measurement.invalid:
        # A time that is too fast stays the reason: a disturbed machine is slower, so it explains none.
        measurement = replace(
            measurement, invalid=encodable(measured.disturbance or samples.trouble)
        )
    session.record(measurement, measured.calibration)
    return measurement


def why_partial(error: BaseException, message: str) -> str:
    """Return why a partial measurement is no result.

    It is the message of the error, or that the run was interrupted.
    """
    return encodable("interrupted" if isinstance(error, KeyboardInterrupt) else message)[
        :MOST_MESSAGE
    ]


def with_sanity(measurement: Measurement, rooflines: "Rooflines") -> Measurement:
    """Return the measurement, invalid if it is faster than its hardware can be."""
    if measurement.invalid:
        return measurement
    ceiling, work = measurement.ceiling, measurement.work
    doubt = above_peak(ceiling, work, measurement.share_of_ceiling, measurement.samples.labels)
    amount = work.amount(ceiling.metric) if ceiling is not None else None
    if not doubt and ceiling is not None and amount:
        doubt = beyond_belief(ceiling, amount, measurement.median_s)
    doubt = doubt or rooflines.beyond_belief(work, measurement.median_s)
    return replace(measurement, invalid=doubt) if doubt else measurement
