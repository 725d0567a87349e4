"""What a run knows besides its results: notes of tests, and what a gate that only watches would have made red.

Such a gate is that of `--roofline-ci=shadow`.
"""

from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

import pytest

from ..core.memory import MemoryUse
from ..core.profiles import Figure, Profile
from ..core.units import printable
from .settings import Options

Note = Figure | MemoryUse | Profile
N = TypeVar("N", Figure, MemoryUse, Profile)


@dataclass(slots=True)
class Noted:
    """The notes of a run, in the order in which they came, and the words about those that could not be taken."""

    notes: list[Note] = field(default_factory=list)
    # Whether torch.profiler has watched a device in this process: what it hooked into the driver may stay there.
    watched: bool = False
    # Each said once at the end of the run.
    warnings: list[str] = field(default_factory=list)

    def of(self, kind: type[N]) -> list[N]:
        """Those of a kind."""
        return [note for note in self.notes if isinstance(note, kind)]

    def warn(self, sentence: str) -> None:
        """Say at the end of the run, once, what could not be had; an empty sentence says nothing."""
        if sentence and sentence not in self.warnings:
            self.warnings.append(sentence)


# Among the figures of a report: why the test would have failed.
PROPERTY = "roofline.shadow"
# What is said first; among slowdowns the largest is the worst.
DEVICE, SLOWER, OTHER = range(3)


class Shadow:
    """Everything of a run that would have been red, once a test."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, float, str]] = {}

    def note(self, test_id: str, why: str, rank: int = OTHER, slowdown: float = 0.0) -> None:
        """Note what would have turned a test red."""
        first = why.split("\n")[0]
        self._found[test_id] = rank, -slowdown, printable(first)

    @property
    def sentences(self) -> tuple[str, ...]:
        """Why each would have failed, the worst first."""
        return tuple(
            sentence for _, _, sentence in sorted(self._found.values(), key=lambda one: one[:2])
        )


_shadow_key: pytest.StashKey[Shadow] = pytest.StashKey()


def shadow_of(config: pytest.Config) -> Shadow:
    """What this run would have failed so far."""
    return config.stash.setdefault(_shadow_key, Shadow())


def let_pass(item: pytest.Item, why: str, rank: int = OTHER, slowdown: float = 0.0) -> None:
    """Note why a test would have failed, also among its figures."""
    shadow_of(item.config).note(item.nodeid, why, rank, slowdown)
    item.user_properties.append((PROPERTY, printable(why.split("\n")[0])))


def fail(item: pytest.Item, options: Options, why: str, rank: int = OTHER) -> None:
    """Fail a test for what a gate asks for; where nothing is to fail, note it."""
    if not options.shadow:
        # What led to it is said in it.
        raise pytest.fail.Exception(why, pytrace=False) from None
    let_pass(item, why, rank)


def require(item: pytest.Item, options: Options, why: str) -> None:
    """Fail a test that lacks hardware, where that is required; note it where nothing is to fail."""
    if options.requires_hardware:
        test = f"{item.name}: " * options.shadow
        fail(item, options, f"{test}{why}, and no-hardware fails (--roofline-fail-on)")


def lack(item: pytest.Item, options: Options, why: str) -> NoReturn:
    """End a test that the hardware at hand is not enough for: a failure where it is required, else skipped."""
    require(item, options, why)
    pytest.skip(why)
