"""What a run knows: rows with their verdicts, of times and of compiled kernels, what tests found besides, and what a
gate that only watches (`--roofline-ci=shadow`) would have made red.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import pytest

from ..baselines.exact import (
    ExactKnown,
    KnownKernel,
    entry_of,
    judge_exact,
    known_by,
    known_in_baselines,
)
from ..baselines.files import BaselineFolders
from ..baselines.rows import compiled_row
from ..core.exact import ExactVerdict
from ..core.memory import MemoryUse, OutOfMemory
from ..core.profiles import Figure, Profile
from ..core.resources import ResourceKey, Resources
from ..core.rows import FAILED, Row
from ..core.units import printable
from .settings import Options

if TYPE_CHECKING:
    from ..baselines.comparators import Comparator
    from ..baselines.run_files import RunWriter

# In place of a verdict, where a test expected that.
DOES_NOT_FIT = "DOES NOT FIT"
Note = Figure | MemoryUse | Profile
N = TypeVar("N", Figure, MemoryUse, Profile)


class Results:
    """The rows of a run, one a key: a later verdict, or a rerun, takes the place of the one before."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        # By the identity of its key, which takes long to make, where a row stands.
        self._places: dict[str | None, int] = {}
        # By test, what its verdict waits for the end of the body.
        self._pending: dict[str, list[Any]] = {}

    def add(self, record: Any) -> None:
        """Take in what a test found; the verdict follows when its body has ended."""
        self._pending.setdefault(record.test_id, []).append(record)

    def of(self, test_id: str) -> list[Row]:
        """What is said of a test so far."""
        return [row for row in self.rows if row.test == test_id]

    def abandon(self, test_id: str | None = None, word: str = FAILED) -> None:
        """Keep what a test found that did not end well, without a verdict; of all tests where none is named."""
        for name in [test_id] if test_id is not None else list(self._pending):
            for record in self._pending.pop(name, []):
                self._keep_unjudged(record, word)

    def _keep_unjudged(self, record: Any, word: str) -> None:
        raise NotImplementedError

    def call_it(self, test_id: str, word: str) -> None:
        """Name how a test without verdicts ended."""
        for index, row in enumerate(self.rows):
            if row.test == test_id and _judged(row) is None:
                self.rows[index] = replace(row, verdict=word)

    def write_verdicts(self, writer: "RunWriter") -> None:
        """Put the verdicts into the run file."""
        for judged in filter(None, map(_judged, self.rows)):
            writer.write(judged)

    def _put(self, row: Row) -> None:
        place = self._places.setdefault(_identity(row), len(self.rows))
        self.rows[place : place + 1] = [row]


def _judged(row: Row) -> Any:
    return row.time_verdict or row.exact


def _identity(row: Row) -> str | None:
    key = row.resources.key if row.resources is not None else row.key
    return key.identity if key is not None else None


class CompiledKernels(Results):
    """Everything that a run knows of compiled kernels.

    Verdicts are exact, so they are out at once: no rounds, no held reports, no other tests to pay for.
    """

    def __init__(self) -> None:
        super().__init__()
        self.known = ExactKnown({}, "")

    def open(self, comparator: "Comparator", options: Options) -> None:
        """Read what to compare with."""
        if options.against:
            self.known = known_by(comparator)
        else:
            self.known = known_in_baselines(BaselineFolders(options.baselines).resources())

    def judge(self, test_id: str) -> None:
        """The verdicts on everything that a test compiled; none on what cannot run, which the test itself expected."""
        for resources in self._pending.pop(test_id, []):
            if resources.invalid:
                self._put(compiled_row(resources, verdict=DOES_NOT_FIT))
            else:
                self._put(compiled_row(resources, self._judgement_on(resources)))

    def missed(
        self, test_id: str, benchmark: str, parameters: Mapping[str, object]
    ) -> list[ResourceKey]:
        """Kernels that the baseline has of a test, and that the test has not compiled so far."""
        compiled = {resources.key.identity for resources in self._pending.get(test_id, [])}
        return [key for key in self.known.of(benchmark, parameters) if key.identity not in compiled]

    def _judgement_on(self, resources: Resources) -> ExactVerdict:
        kernel = KnownKernel(entry_of(resources, {}), "", resources.slack, resources.unread)
        exact = judge_exact(kernel, *self.known.find(resources.key))
        return replace(exact, test_id=resources.test_id, label=resources.label)

    def _keep_unjudged(self, record: Resources, word: str) -> None:
        self._put(compiled_row(record, verdict=word))

    def retract(self, test_id: str) -> None:
        """Take back the verdicts of a test that failed for itself after all."""
        for row in self.of(test_id):
            if row.exact is not None:
                self._put(replace(row, verdict=FAILED, reason="", exact=None))


class Exhausted:
    """Everything of a run that ran out of memory."""

    def __init__(self) -> None:
        self.found: list[OutOfMemory] = []

    def add(self, record: OutOfMemory) -> bool:
        """Note it, and whether it is new; a rerun or a later round cannot shake off a red one."""
        for index, known in enumerate(self.found):
            if (known.test_id, known.name) == (record.test_id, record.name):
                self.found[index] = known if known.red else record
                return False
        self.found.append(record)
        return True

    def forget_unrecorded(self, test_id: str) -> None:
        """A test begins anew: what merely failed an attempt before says nothing of this one."""
        self.found = [one for one in self.found if one.test_id != test_id or one.recorded]

    def of(self, test_id: str) -> list[OutOfMemory]:
        """What is known of a test."""
        return [one for one in self.found if one.test_id == test_id]


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
    if options.require_hardware:
        test = f"{item.name}: " * options.shadow
        fail(item, options, f"{test}{why}, and --roofline-require-hardware is set")


def lack(item: pytest.Item, options: Options, why: str) -> NoReturn:
    """End a test that the hardware at hand is not enough for: a failure where it is required, else skipped."""
    require(item, options, why)
    pytest.skip(why)
