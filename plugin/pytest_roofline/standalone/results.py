"""What one process of a reproducer measured, as it tells it to the one that started it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ..core.records import Measurement

# Names the file that a process writes its results into.
VARIABLE = "ROOFLINE_REPRODUCED"


@dataclass(frozen=True, slots=True)
class Found:
    """One measurement: its name in the test, seconds per call, why not to trust them, keywords that were left out."""

    name: str
    median_s: float
    trouble: str = ""
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """What one process found.

    Args:
        machine: in words.
        found: its measurements.
        failure: why the test failed; empty where it did not.
        skipped: whether it was skipped, at once or on the way.
    """

    machine: str = ""
    found: tuple[Found, ...] = ()
    failure: str = ""
    skipped: bool = False


def found_of(measurement: Measurement, unused: tuple[str, ...]) -> Found:
    """A measurement, and the keywords that were left out of it."""
    return Found(measurement.key.name, measurement.median_s, measurement.invalid, unused)


def write_results(path: Path, told: Told) -> None:
    """Hand over what was found."""
    path.write_text(json.dumps(asdict(told)), encoding="utf-8")


def read_results(path: Path) -> Told:
    """What `write_results` wrote; empty where the process came to nothing."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Told()
    found = tuple(Found(**one | {"unused": tuple(one["unused"])}) for one in plain["found"])
    return Told(**plain | {"found": found})
