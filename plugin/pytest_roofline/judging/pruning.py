"""Entries that no test uses any more: a baseline held against the tests that a collection found."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.entries import Entry, ExactEntry
from ..core.errors import BadFile
from ..core.keys import canonical
from .storage import decode_json, read_bytes


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
        if not (_is_generated(entry) or _is_used(entry, tests.get(entry.benchmark, {})))
    ]


def _is_generated(entry: Entry | ExactEntry) -> bool:
    return isinstance(entry, Entry) and entry.kind != "measured" and "made_by" in entry.provenance


def _is_used(entry: Entry | ExactEntry, tests: dict[str, dict[str, Any]]) -> bool:
    """Whether one of the tests, by their canonical parameters, is meant; published entries may name some only."""
    if isinstance(entry, ExactEntry) or entry.kind == "measured":
        return canonical(entry.parameters) in tests
    return any(entry.speaks_of(parameters) for parameters in tests.values())
