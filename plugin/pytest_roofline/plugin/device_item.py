"""The item `device health`: red where the device is not what it should be, so that fifty slow tests have one cause."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ..baselines.rows import DEGRADED
from ..core.errors import BadFile
from ..core.facts import Finding, Gpu, Unexpected
from ..core.records import Outcome
from .session import RooflineSession
from .shadow import DEVICE, fail

if TYPE_CHECKING:
    from ..machine.expectation import Expectation

NAME = "device health"


class DeviceHealth(pytest.Item):
    """Runs last, when it is known how the device did under load."""

    def __init__(self, *, state: RooflineSession, **keywords: Any) -> None:
        super().__init__(NAME, nodeid=NAME, **keywords)
        self._state = state

    def runtest(self) -> None:
        """Fail with the cause first, where the device is DEGRADED and that is to fail.

        Raises:
            pytest.fail.Exception: the device runs below its rated facts.
        """
        state = self._state
        findings = look(state, at_the_end=True)
        fails = bool(findings) and "degraded" in state.options.fail_on
        words = (DEGRADED,) if findings else ()
        reason = state.health.split("\n")[0]
        ended = Outcome(NAME, "failed" if fails else "passed", words, reason, by_verdict=fails)
        state.note_outcome(replace(ended, shadow=fails and state.options.shadow))
        if fails:
            fail(self, state.options, state.health, DEVICE)

    def reportinfo(self) -> tuple[str, None, str]:
        """Where pytest says that it is: in no file."""
        return NAME, None, NAME


def wanted(state: RooflineSession) -> bool:
    """Whether there is anything to look at: a device that tells of itself, or an expectation of the node."""
    return state.under_test.gpu is not None or state.options.expect is not None


def look(state: RooflineSession, *, at_the_end: bool = False) -> list[Finding]:
    """What makes the device DEGRADED, as far as it is known by now, noted in the run's state.

    Args:
        state: the run.
        at_the_end: whether the device has been under load, so that its measurements count and it is asked again.
    """
    from ..machine.health import degraded, unknown_health
    from ..report.verdicts import health_message

    expected = _expectation(state)
    now = state.under_test.device.gpu() if at_the_end else None
    before, after = (_rated(gpu, expected) for gpu in (state.under_test.gpu, now))
    measured = [row.measurement for row in state.timed.rows if row.measurement is not None]
    findings = degraded(before, after, measured, _differences(expected))
    state.degraded = tuple(finding.observed for finding in findings)
    state.health = health_message(findings) if findings else unknown_health(after or before)
    return findings


def _expectation(state: RooflineSession) -> "Expectation | None":
    """What `--roofline-expect` says of a good node.

    Raises:
        pytest.UsageError: the file cannot be used.
    """
    if state.options.expect is None:
        return None
    from ..machine.expectation import read_expectation

    try:
        return read_expectation(state.options.expect)
    except BadFile as error:
        raise pytest.UsageError(str(error)) from None


def _rated(gpu: Gpu | None, expected: "Expectation | None") -> Gpu | None:
    if gpu is None or expected is None:
        return gpu
    from ..machine.expectation import rated_by

    return rated_by(expected, gpu)


def _differences(expected: "Expectation | None") -> list[Unexpected]:
    if expected is None:
        return []
    from ..engine.inventory import take_stock
    from ..machine.expectation import differences

    return differences(expected, take_stock())
