"""From what was measured for a test to the record of it: its key, and why it is no result where it is none."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..core.facts import HardwareKey
from ..core.keys import Key
from ..core.records import Ceiling, Measurement
from ..core.samples import OVERSUBSCRIBED, Samples
from ..hardware import above_peak, beyond_belief
from .current_test import CurrentTest
from .device_under_test import DeviceUnderTest
from .planned import encodable

if TYPE_CHECKING:
    from ..engine.measure import Measured
    from ..engine.request import Request

# Of what an exception says: enough to know it by.
MOST_WHY = 500


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
    measured: "Measured",
    key: Key,
    ceiling: Ceiling | None,
    *,
    invalid: str = "",
    **more: Any,
) -> Measurement:
    """Write a measurement of a test down.

    Args:
        test: the one that measures.
        request: what it asked for.
        measured: what was found.
        key: of the measurement.
        ceiling: the roofline; None where there is none.
        invalid: why it is no result, whatever was found; empty where that decides.
        more: further fields of the record.
    """
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
        invalid=encodable(measured.wrong or invalid or measured.doubted),
        peak_bytes=measured.peak_bytes,
        held_bytes=measured.held_bytes,
        compile_s=_compile_s(samples) if request.compiles else None,
        siblings_busy=measured.siblings_busy,
        **more,
    )
    measurement = with_sanity(measurement, session.under_test)
    if not measurement.invalid:
        # Only now, since a machine in trouble is slower, and no excuse for what is too fast.
        measurement = replace(measurement, invalid=encodable(measured.disturbed or samples.trouble))
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


def _compile_s(samples: Samples) -> float:
    """Seconds of the very first call beyond a warm one by itself: what compiling took, and all that comes once."""
    return max(0.0, samples.first_calls_s[0] - samples.alone_s)
