"""What a reproducer is to measure, and what was measured where it was recorded: `case.json`, written and read here."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .checks import check_tolerance, require_positive
from .decoding import decode_json, to_value
from .errors import BadFile, BadInput
from .facts import Environment
from .work import Work

CASE_FILE = "case.json"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One measurement of a test, as a run has it. Times are in seconds per call.

    Args:
        name: within the test; empty for the only one.
        label: as people call it.
        metric: its rate.
        work: of one call.
        seconds: the median of every process that counts.
        baseline_s: what it was compared with; None where it was not, or with a limit.
        tolerance: how much slower than that is still the same, as a share.
        labels: how it was taken.
        limit_s: what it may take at most, where it was held against a limit in place of a baseline.
        invalid: why these times are not to be trusted; empty where they are.
    """

    name: str
    label: str
    metric: str
    work: Work
    seconds: tuple[float, ...]
    baseline_s: float | None
    tolerance: float
    labels: tuple[str, ...] = ()
    limit_s: float | None = None
    invalid: str = ""

    def __post_init__(self) -> None:
        if not self.seconds:
            raise BadInput(f"{self.label!r} has no time")
        require_positive(self.seconds, "seconds")
        require_positive(tuple(known for known in (self.baseline_s, self.limit_s) if known is not None), "baseline")
        check_tolerance(self.tolerance)


@dataclass(frozen=True, slots=True)
class Case:
    """One test to measure again.

    Args:
        node_id: as pytest is to be called with, from the folder of the copied tests.
        device: as users name it: `cuda:0`.
        options: of pytest-roofline that change how it is measured.
        machine: what it was recorded on, in words.
        recorded: its measurements.
        failure: why it failed for itself, and not for its speed; empty where it did not.
    """

    node_id: str
    device: str
    options: tuple[str, ...]
    machine: str
    recorded: tuple[Recorded, ...]
    failure: str = ""


def kind_of_failure(reason: str) -> str:
    """The exception behind a reason of pytest's: `WrongData` of `pytest_roofline.core.errors.WrongData: copy: …`."""
    head = reason.partition(":")[0].strip()
    # A bare assert is told by its own text.
    return "AssertionError" if head.startswith("assert ") else head.rpartition(".")[2]


def machine_text(environment: Environment) -> str:
    """A machine in words, without its name: `NVIDIA H200, driver 570.86, kernel 6.8, torch 2.13.0`."""
    device, torch = environment.device, environment.software.get("torch")
    facts = (
        device.product,
        device.driver and f"driver {device.driver}",
        f"kernel {environment.host.kernel}",
        torch and f"torch {torch}",
    )
    return ", ".join(fact for fact in facts if fact)


def cases_text(cases: Sequence[Case]) -> str:
    """The text of `case.json`."""
    return json.dumps([asdict(case) for case in cases], indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_cases(path: Path) -> list[Case]:
    """The cases of a reproducer, the worst first.

    Raises:
        BadFile: the file is missing, or none of ours.
    """
    try:
        cases: tuple[Case, ...] = to_value(decode_json(path.read_bytes(), "it"), tuple[Case, ...], "it")
    except OSError as error:
        raise BadFile(f"{path} cannot be read: {error.strerror or error}; expected it beside reproduce.py") from None
    except BadFile as error:
        raise BadFile(f"{path} is not what `roofline bundle` wrote: {error}; unpack the archive again") from None
    if not cases:
        raise BadFile(f"{path} names no test; unpack the archive again")
    return list(cases)
