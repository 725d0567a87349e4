"""The runs that ended in a folder.

They tell what a gate in shadow would have failed, night by night, and the last green gate.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import BadFile
from ..core.facts import HardwareKey
from ..core.records import Footer, Header
from ..hardware import key_of
from .run_files import SUFFIX
from .runs import ends_of

# After so many nights, the rate of alarms is known well enough to decide on a gate.
NIGHTS = 14


@dataclass(frozen=True, slots=True)
class ShadowRun:
    """A run in shadow.

    It has its date in UTC, and the alarms that would have failed it, the worst first. `failed` tells whether it failed
    all the same.
    """

    night: str
    alarms: tuple[str, ...]
    failed: bool = False

    @property
    def red(self) -> bool:
        """Return True where the gate would have been red."""
        return self.failed or bool(self.alarms)

    @property
    def why(self) -> str:
        """Return the worst alarm: its measurement and verdict."""
        if not self.alarms:
            return "a test failed before its verdict"
        # The alarms are in order of their badness. What follows in brackets are the details of one.
        worst = self.alarms[0]
        return worst.partition(" (")[0]


def shadow_runs(folder: Path, hardware: HardwareKey) -> list[ShadowRun]:
    """Return the runs in shadow on this hardware, oldest first.

    Damaged files are left out.
    """
    return [
        ShadowRun(header.started[:10], footer.shadow, footer.exit_status != 0)
        for _, header, footer in _oldest_first(folder)
        if footer.shadow is not None and key_of(header.environment).alone == hardware.alone
    ]


def settings_of_last_green(folder: Path, besides: Path | None) -> tuple[str, ...]:
    """Return the settings of the newest green gate in a folder.

    They are the settings from outside its command, as in files and environment variables. The run file
    `besides` does not count.
    """
    settings: tuple[str, ...] = ()
    for path, _, footer in _oldest_first(folder):
        if path == besides:
            continue
        is_green_gate = footer.exit_status == 0 and footer.shadow is None
        if is_green_gate and footer.elsewhere is not None:
            settings = footer.elsewhere
    return settings


def _oldest_first(folder: Path) -> list[tuple[Path, Header, Footer]]:
    """Return file, header and footer of every complete run, the oldest run first."""

    def start(ends: tuple[Path, Header, Footer]) -> str:
        _, header, _ = ends
        return header.started

    return sorted(ended_runs(folder), key=start)


def ended_runs(folder: Path) -> Iterator[tuple[Path, Header, Footer]]:
    """Yield file, header and footer of every complete run.

    Damaged files in the folder are left out.
    """
    for path in (folder / "runs").glob(f"*{SUFFIX}"):
        ends = None
        with contextlib.suppress(BadFile, OSError):
            ends = ends_of(path)
        if ends is not None:
            yield path, *ends
