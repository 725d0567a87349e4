"""The notes of a run besides its results, and the tests that a gate in shadow mode would have failed.

That is the gate of `--roofline-ci=shadow`. Other parts of it: `settings/parsing.py` reads the option,
`plugin/deciding.py` passes a test that would have failed, `plugin/gate.py` does so for the gate's own items,
`plugin/session.py` writes the sentences into the run file, `baselines/nights.py` counts the nights, and
`report/messages.py` prints both.
"""

from dataclasses import dataclass, field
from operator import itemgetter
from typing import NoReturn, TypeVar

import pytest

from ..core.memory import MemoryUse
from ..core.profiles import Figure, Profile
from ..core.units import printable
from ..settings.parsing import Options

Note = Figure | MemoryUse | Profile
N = TypeVar("N", Figure, MemoryUse, Profile)


@dataclass(slots=True)
class RunNotes:
    """The notes of a run in their order, and the warnings about missing ones."""

    notes: list[Note] = field(default_factory=list)
    # Whether torch.profiler has run in this process: its hooks may stay in the driver and slow later calls down.
    watched: bool = False
    # Each is printed once, at the end of the run.
    warnings: list[str] = field(default_factory=list)

    def of(self, kind: type[N]) -> list[N]:
        """Return the notes of a kind."""
        return [note for note in self.notes if isinstance(note, kind)]

    def warn(self, sentence: str) -> None:
        """Print a sentence once at the end of the run.

        An empty sentence is ignored.
        """
        if sentence and sentence not in self.warnings:
            self.warnings.append(sentence)


@dataclass(slots=True)
class Programs:
    """The programs that the tests of a run have started.

    Args:
        tests: by the identity of a figure's key, the id of its test.
        software: the hashes and the versions of the programs.
        count: of the starts.
    """

    tests: dict[str, str] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
    count: int = 0


# The name of the figure in a report that says why the test would have failed.
PROPERTY = "roofline.shadow"
# The ranks of reasons, the worst first. Among slowdowns the largest is the worst.
DEVICE, SLOWER, OTHER = range(3)


# By test id: the rank of the reason, minus the slowdown, and the sentence.
_shadow_key: pytest.StashKey[dict[str, tuple[int, float, str]]] = pytest.StashKey()


def note_shadow(
    config: pytest.Config, test_id: str, reason: str, rank: int = OTHER, slowdown: float = 0.0
) -> None:
    """Keep why this run would have failed a test."""
    failures = config.stash.setdefault(_shadow_key, {})
    failures[test_id] = rank, -slowdown, printable(reason.split("\n")[0])


def shadow_sentences(config: pytest.Config) -> tuple[str, ...]:
    """Return why this run would have failed, worst first."""
    failures = config.stash.get(_shadow_key, {}).values()
    return tuple(sentence for _, _, sentence in sorted(failures, key=itemgetter(0, 1)))


def let_pass(item: pytest.Item, reason: str, rank: int = OTHER, slowdown: float = 0.0) -> None:
    """Note why a test would have failed, also among its figures."""
    note_shadow(item.config, item.nodeid, reason, rank, slowdown)
    item.user_properties.append((PROPERTY, printable(reason.split("\n")[0])))


def fail(item: pytest.Item, options: Options, reason: str, rank: int = OTHER) -> None:
    """Fail a test for a reason of the gate.

    In shadow mode it passes, and the reason is noted. `rank` is the place of the reason among others: the device, then
    slower tests, then all else.
    """
    if not options.shadow:
        # The reason says it all, so no cause is chained.
        raise pytest.fail.Exception(reason, pytrace=False) from None
    let_pass(item, reason, rank)


def require(item: pytest.Item, options: Options, reason: str) -> None:
    """Fail a test that lacks hardware, if that is required.

    In shadow mode the lack is only noted.
    """
    if options.requires_hardware:
        # In shadow mode the reason stands alone, without the report that names the test.
        test_name = f"{item.name}: " if options.shadow else ""
        fail(
            item,
            options,
            f"{test_name}{reason}; missing hardware fails a test here (no-hardware in --roofline-fail-on)",
        )


def lack(item: pytest.Item, options: Options, reason: str) -> NoReturn:
    """End a test for lack of hardware.

    It fails where hardware is required, and is skipped elsewhere.
    """
    require(item, options, reason)
    pytest.skip(reason)
