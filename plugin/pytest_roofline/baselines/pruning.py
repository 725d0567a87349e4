"""Entries that no test uses any more: a baseline held against the tests that a collection found."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.entries import Entry, ExactEntry
from ..core.errors import BadFile
from ..core.keys import canonical
from ..core.storage import decode_json, read_bytes
from .comparators import key_of_entry


@dataclass(frozen=True, slots=True)
class PlannedTest:
    """A test that will measure: its benchmark and the parameters of its key."""

    benchmark: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Unused:
    """An entry that no test uses, and whether its benchmark is known with other parameters."""

    entry: Entry | ExactEntry
    benchmark_known: bool


def read_plan(path: Path) -> list[PlannedTest]:
    """The tests that a collection wrote down, one JSON object a line: `{"benchmark": …, "parameters": {…}}`.

    Raises:
        BadFile: missing, empty, or a line that is something else.
    """
    planned = []
    for number, line in enumerate(read_bytes(path, "plan").split(b"\n"), 1):
        if not line.strip():
            continue
        where = f"plan {path}, line {number}"
        raw = decode_json(line, where)
        if not isinstance(raw, dict):
            raise BadFile(f"{where} is a {type(raw).__name__}; expected an object")
        benchmark, parameters = raw.get("benchmark"), raw.get("parameters")
        if not isinstance(benchmark, str) or not isinstance(parameters, dict):
            raise BadFile(f"{where} lacks a benchmark or parameters; expected both")
        planned.append(PlannedTest(benchmark, parameters))
    return planned


def unused(entries: Iterable[Entry | ExactEntry], planned: Sequence[PlannedTest]) -> list[Unused]:
    """The entries that none of the planned tests would be compared with, in their order.

    What a program made from published figures holds those of sizes and worlds that no test has, and would hold them
    again when it is next run.
    """
    tests: dict[str, dict[str, dict[str, Any]]] = {}
    for test in planned:
        tests.setdefault(test.benchmark, {})[canonical(test.parameters)] = test.parameters
    return [
        Unused(entry, entry.benchmark in tests)
        for entry in entries
        if not (_stands_alone(entry) or _is_used(entry, tests.get(entry.benchmark, {})))
    ]


@dataclass(frozen=True, slots=True)
class Selection:
    """What a run took of the tests that were found.

    Args:
        found: every test that measures, before any was left out.
        taken: those that ran.
        parts: benchmarks of which single tests were asked for, so that the others may not have been looked for.
        whole: whether tests were looked for everywhere, and none was left out.
    """

    found: Sequence[PlannedTest]
    taken: Sequence[PlannedTest]
    parts: frozenset[str] = frozenset()
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """An entry that a run should have measured, and why it did not."""

    entry: Entry
    why: str


def unmeasured(
    entries: Iterable[Entry], measured: Container[str], selection: Selection
) -> tuple[list[Unmeasured], int]:
    """The recorded entries that a run covers and did not measure, and how many it left out on purpose.

    Args:
        entries: recorded ones of the hardware at hand.
        measured: identities of the keys that need not be asked for: measured, or of a test that is red anyway.
        selection: what the run took.
    """
    found, taken = _by_benchmark(selection.found), _by_benchmark(selection.taken)
    missing, left_out = [], 0
    for entry in entries:
        name, parameters = entry.benchmark, canonical(entry.parameters)
        if key_of_entry(entry).identity in measured:
            continue
        why = ""
        if parameters in taken.get(name, ()):
            why = "its test did not measure it"
        elif name in taken and name not in selection.parts and parameters not in found[name]:
            why = "its test has other parameters now"
        elif name not in found and selection.whole:
            why = "there is no such test"
        if why:
            missing.append(Unmeasured(entry, why))
        else:
            left_out += 1
    return missing, left_out


def _by_benchmark(tests: Sequence[PlannedTest]) -> dict[str, set[str]]:
    known: dict[str, set[str]] = {}
    for test in tests:
        known.setdefault(test.benchmark, set()).add(canonical(test.parameters))
    return known


def _stands_alone(entry: Entry | ExactEntry) -> bool:
    """Whether an entry is of no test: a canary's, or one that a program made."""
    if not isinstance(entry, Entry):
        return False
    return entry.is_canary or (entry.kind != "measured" and "made_by" in entry.provenance)


def _is_used(entry: Entry | ExactEntry, tests: dict[str, dict[str, Any]]) -> bool:
    """Whether one of the tests, by their canonical parameters, is meant; published entries may name some only."""
    if isinstance(entry, ExactEntry) or entry.kind == "measured":
        return canonical(entry.parameters) in tests
    return any(entry.speaks_of(parameters) for parameters in tests.values())
