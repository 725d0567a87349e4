"""What one process of a reproducer measured, as it tells it to the one that started it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from ..core.checks import require_positive
from ..core.decoding import decode_json, to_value
from ..core.errors import BadFile
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

    def __post_init__(self) -> None:
        require_positive((self.median_s,), "median_s")


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
        told: Told = to_value(decode_json(path.read_bytes(), path.name), Told, path.name)
    except (OSError, BadFile):
        return Told()
    return told
