"""How often a gate that only watches would have been red: what `--roofline-ci=shadow` left in saved runs."""

from dataclasses import dataclass
from pathlib import Path

from ..core.errors import BadFile
from ..core.facts import HardwareKey
from ..hardware import key_of
from .runs import ends_of

# From so many nights on, the rate of alarms is worth a decision.
NIGHTS = 14


@dataclass(frozen=True, slots=True)
class Watched:
    """A run that watched: its night, a date in UTC, and what would have been red, the worst first.

    `failed` tells that tests failed for themselves, which they do under any profile.
    """

    night: str
    alarms: tuple[str, ...]
    failed: bool = False

    @property
    def red(self) -> bool:
        """Whether the gate would have been red."""
        return self.failed or bool(self.alarms)

    @property
    def why(self) -> str:
        """The worst of it: what was measured, and how it ended."""
        return self.alarms[0].partition(" (")[0] if self.alarms else "a test failed for itself"


def watched(folder: Path, hardware: HardwareKey) -> list[Watched]:
    """The runs in a folder that watched on this hardware, in the order of their beginning; damaged files are left out.

    Args:
        folder: that holds `runs`.
        hardware: of the device at hand.
    """
    found = []
    for path in (folder / "runs").glob("*.jsonl"):
        try:
            ends = ends_of(path)
        except (BadFile, OSError):
            continue
        if ends is None:
            continue
        header, footer = ends
        if footer.shadow is not None and key_of(header.environment).alone == hardware.alone:
            found.append((header.started, Watched(header.started[:10], footer.shadow, footer.exit_status != 0)))
    return [run for _, run in sorted(found, key=lambda one: one[0])]
