"""What one process of a reproducer measured, as it tells it to the one that started it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.samples import Samples

# Names the file that a process writes its results into.
VARIABLE = "ROOFLINE_REPRODUCED"


@dataclass(frozen=True, slots=True)
class Result:
    """One measurement: its name in the test, its samples, why not to trust them, and keywords that were left out."""

    name: str
    samples: Samples
    trouble: str = ""
    unused: tuple[str, ...] = ()

    @property
    def median_s(self) -> float:
        """Seconds per call."""
        return self.samples.median_s


def write_results(path: Path, results: list[Result], machine: str) -> None:
    """Hand over what was measured, and on what."""
    plain = {
        "machine": machine,
        "results": [
            {
                "name": one.name,
                "median_s": one.median_s,
                "samples": len(one.samples.seconds),
                "mode": one.samples.mode,
                "labels": list(one.samples.labels),
                "trouble": one.trouble or one.samples.trouble,
                "unused": list(one.unused),
            }
            for one in results
        ],
    }
    path.write_text(json.dumps(plain), encoding="utf-8")


def read_results(path: Path) -> dict[str, Any]:
    """What `write_results` wrote; empty where the process came to nothing."""
    try:
        plain: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return plain
