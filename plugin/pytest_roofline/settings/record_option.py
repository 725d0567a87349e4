"""`--roofline-record`: its settings, and the options that refuse it beside them."""

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ..core.errors import BadInput
from ..core.units import encodable, printable
from ..core.writing import check_writable
from .command_line import ON_THE_SPOT, commanded_value, option_value, source_of
from .options import SIDE_BY_SIDE, ini_name

# The rounds of a recording by default: twice what an entry needs, so that a busy minute costs no entry.
RECORDED_ROUNDS = 10
# The longest wait of a recording for a quiet machine by default.
WAIT_S = 120.0
# Why an option of ours cannot stand beside `--roofline-record`.
_EXCLUSIONS = {
    "ci": "a gate compares with the baselines, and a recording writes the baselines",
    "against": "a recording compares with nothing",
    "drill": "a deliberate slowdown must not become a baseline",
    "profile": "a time under a profiler must not become a baseline",
}


def records(config: pytest.Config) -> bool:
    """Return whether the command asks for a recording. Always False in a round."""
    if commanded_value(config, "record"):
        return True
    if commanded_value(config, "accept-slower") is not None:
        raise BadInput(
            "--roofline-accept-slower is given without --roofline-record. Add --roofline-record, or remove "
            "--roofline-accept-slower"
        )
    return False


def reason_of(config: pytest.Config) -> str:
    """Return the reason to record slower tests, if any."""
    reason = commanded_value(config, "accept-slower")
    if reason is not None and not reason.strip():
        raise BadInput(
            "--roofline-accept-slower is empty; expected a reason for the entries, as in "
            "--roofline-accept-slower='safer rounding'"
        )
    return printable(encodable(reason or ""))


def recording_name() -> str:
    """Return a name for a recording without one.

    It is made of the time in UTC, to the millisecond: `record-20261128-091653-042`.
    """
    # The format gives microseconds, so the last three digits are cut.
    return f"record-{datetime.datetime.now(datetime.UTC):%Y%m%d-%H%M%S-%f}"[:-3]


def refuse_record(
    config: pytest.Config, options_in_force: Mapping[str, bool], rounds: int, target: Path
) -> None:
    """Raise if a recording is excluded or cannot be written.

    Args:
        config: pytest's configuration.
        options_in_force: for each option of ours that excludes a recording, whether it is in force.
        rounds: the number of processes.
        target: the folder of baselines.

    Raises:
        BadInput: another option excludes it, the processes are too few, or no file can be written into its folder.
    """
    for name, is_in_force in options_in_force.items():
        if is_in_force:
            value = option_value(config, name)
            _refuse(config, ini_name(name), value, f"--roofline-{name}", _EXCLUSIONS[name])
    # The options of pytest-xdist for workers on this machine and elsewhere.
    worker_count = getattr(config.option, "numprocesses", None)
    worker_specifications = getattr(config.option, "tx", None)
    if workers := worker_count or worker_specifications:
        _refuse(config, "numprocesses", workers, "-n", SIDE_BY_SIDE)
    for name, flag in ON_THE_SPOT.items():
        if value := getattr(config.option, name, None):
            why = f"{flag} ends every test at once, so no further process measures the test"
            _refuse(config, name, value, flag, why)
    from ..stats.analyses import ENOUGH_KNOWN

    if rounds < ENOUGH_KNOWN:
        raise BadInput(
            f"--roofline-rounds is {rounds}; expected {ENOUGH_KNOWN} or more with --roofline-record, since an entry "
            f"of a baseline needs {ENOUGH_KNOWN} valid processes"
        )
    check_writable(target, f"--roofline-record writes {target}")


def _refuse(config: pytest.Config, option: str, value: Any, flag: str, why: str) -> None:
    """Raise for an option that excludes `--roofline-record`.

    The message names the file that sets it, if any. `option` is its name in pytest's configuration, and `flag` the
    option as it is typed.
    """
    source = source_of(config, option, value)
    place = f" of {source}" if source else ""
    raise BadInput(
        f"--roofline-record is given together with {flag}{place}: {why}. Remove --roofline-record or {flag}"
    )
