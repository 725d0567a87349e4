"""Around a whole run whose command asks for a gate: it measures, and ends with status 0 only behind its last look."""

import os
import sys
from collections.abc import Generator

import pytest

from .command_line import commands_gate, option_value, rounds_prevented, source_of
from .options import LOOKING, ROUND_VARIABLE, SHADOW

# Of a run whose gate has had its last look, or has none here: ranks that serve another process have not.
looked_key: pytest.StashKey[bool] = pytest.StashKey()
ENDED = "the run ended with status 0 before every test had its verdict"


class GateOfCommand:
    """The hook around everything that a command of pytest does."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_cmdline_main(
        self, config: pytest.Config
    ) -> Generator[None, pytest.ExitCode | int | None, pytest.ExitCode | int | None]:
        """Refuse to look in place of a gate, and turn a green end without its last look into a red one."""
        part = ROUND_VARIABLE in os.environ or hasattr(config, "workerinput")
        if part or not commands_gate(config):
            return (yield)
        refuse_no_verdict(config)
        status = yield
        if status != pytest.ExitCode.OK or config.stash.get(looked_key, False):
            return status
        watches = option_value(config, "ci") == SHADOW
        print("SHADOW: would have failed: " * watches + f"GATE: {ENDED}", file=sys.stderr)
        return status if watches else pytest.ExitCode.TESTS_FAILED


def refuse_no_verdict(config: pytest.Config) -> None:
    """Raise where an option makes a gate of the command only look at tests, or takes it its rounds from elsewhere."""
    text = looking(config)
    if text:
        raise pytest.UsageError(
            f"{text}, so the gate of this command would measure nothing; take one of the two out"
        )
    option = rounds_prevented(config)
    if option:
        raise pytest.UsageError(
            f"{option} takes the gate of this command its further rounds; take it out there, or give it in the command"
        )


def looking(config: pytest.Config) -> str:
    """Say why a gate of the command runs no test: `--markers only looks at tests`; empty where it does."""
    if not commands_gate(config):
        return ""
    for option, flag in LOOKING.items():
        value = getattr(config.option, option, None)
        if value:
            source = source_of(config, option, value)
            return f"{f'{source}: ' if source else ''}{flag} only looks at tests"
    return ""
