"""`--roofline-wait`: a run waits for a quiet machine before its first test, and ends if it stays busy."""

from typing import TYPE_CHECKING, Any

import pytest

from ..engine import quiet
from ..engine.devices.cpu import QUIETEN
from .current import open_session
from .terminal import tell, wrapped

if TYPE_CHECKING:
    from .session import RooflineSession


class Waiting:
    """The hook that waits for a quiet machine once the device is open."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._busy = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Wait for a quiet machine, or end the run with status 1.

        Raises:
            pytest.Session.Failed: it stays busy.
        """
        state = open_session(session.config)
        # After an error of collection pytest runs no test, so there is nothing to wait for.
        has_failed = session.testsfailed and not session.config.option.continue_on_collection_errors
        if state is None or has_failed:
            return
        self._busy = self._wait(state)
        if self._busy:
            state.stayed_busy = True
            raise session.Failed("the machine stayed busy")

    def _wait(self, state: "RooflineSession") -> str:
        """Wait for a quiet machine; return who is busy.

        The text is empty if it became quiet.
        """
        under_test = state.under_test
        if not under_test.is_open_here and under_test.environment.device.type != "cpu":
            # Only the ranks open the accelerator, so this process cannot look at it.
            return ""
        return quiet.wait_until_quiet(
            lambda: quiet.busy_at(under_test.device),
            self._patience_s,
            lambda line: tell(state.config, f"roofline: {line}", progress=False),
        )

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print who keeps the machine busy."""
        if not self._busy:
            return
        terminalreporter.section("roofline")
        line = (
            f"This machine stayed busy for {self._patience_s:g} s: {self._busy}. Expected a quiet machine, "
            f"so pytest measured nothing and ended with status 1. {QUIETEN.capitalize()}, and run this again. "
            "To wait longer, add --roofline-wait=10m."
        )
        for part in wrapped(line, terminalreporter._tw.fullwidth):
            terminalreporter.write_line(part)
