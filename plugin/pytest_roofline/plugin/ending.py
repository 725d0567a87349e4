"""The gate around a whole run: it measures, and ends with status 0 only behind its last line."""

import os
import sys
from collections.abc import Generator

import pytest

from ..settings.command_line import commands_gate, option_value, rounds_prevented, source_of
from ..settings.options import LOOKING, ROUND_VARIABLE, SHADOW

# The status of a run that came to its last line. A process that served rank 0 has no such line, and sets 0 at once.
end_status_key: pytest.StashKey[int] = pytest.StashKey()
ENDED = "the run ended with status 0 before it printed its result"


class GateOfCommand:
    """The hook around everything that a command of pytest does."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_cmdline_main(
        self, config: pytest.Config
    ) -> Generator[None, pytest.ExitCode | int | None, pytest.ExitCode | int | None]:
        """Refuse a gate that measures nothing, and replace a false status 0.

        A status 0 is false if the run did not come to its last line, or had another status there.
        """
        # A round, or a worker of xdist, is a part of another run, which has the gate.
        is_part = ROUND_VARIABLE in os.environ or hasattr(config, "workerinput")
        if is_part or not commands_gate(config):
            return (yield)
        refuse_no_verdict(config)
        status: pytest.ExitCode | int | None
        try:
            status = yield
        except SystemExit as error:
            if error.code:
                raise
            status = pytest.ExitCode.OK
        end_status = config.stash.get(end_status_key, None)
        if status != pytest.ExitCode.OK or end_status == pytest.ExitCode.OK:
            return status
        text = (
            ENDED if end_status is None else f"the run ended with status 0 instead of {end_status}"
        )
        is_shadow = option_value(config, "ci") == SHADOW
        prefix = "SHADOW: would have failed: " if is_shadow else ""
        print(f"{prefix}GATE: {text}", file=sys.stderr)
        return status if is_shadow else end_status or pytest.ExitCode.TESTS_FAILED


def refuse_no_verdict(config: pytest.Config) -> None:
    """Refuse options that keep a gate from its verdict."""
    text = why_no_test_runs(config)
    if text:
        raise pytest.UsageError(
            f"{text}, so the gate of this command would measure nothing. Remove that option or --roofline-ci"
        )
    option = rounds_prevented(config)
    if option:
        raise pytest.UsageError(
            f"{option} disables the further rounds of this command's gate. Remove this setting where it is made, or "
            "give it in the command"
        )


def why_no_test_runs(config: pytest.Config) -> str:
    """Return why the gate of a command runs no test.

    The text is empty if it runs tests, or if the command has no gate. An example is `pytest.ini: --markers only lists
    tests`.
    """
    if not commands_gate(config):
        return ""
    for option, flag in LOOKING.items():
        value = getattr(config.option, option, None)
        if value:
            source = source_of(config, option, value)
            # An option of the command itself has no source to name.
            prefix = f"{source}: " if source else ""
            return f"{prefix}{flag} only lists tests"
    return ""
