"""What of many runs is kept: a row for each measurement of each process, in columns of numbers and tables of texts.

A text stands once, however many rows have it. That is what lets ten thousand runs fit into a few megabytes.
"""

import json
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from ...core.records import Measurement, Outcome
from ..runs import Run

ROWS = ("file", "test", "process", "unfit", "labels", "hosts")


class Texts:
    """Texts by number, each once."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.all = list(texts)
        self._numbers = {text: number for number, text in enumerate(self.all)}

    def number(self, text: str) -> int:
        """The number of a text, new or known."""
        known = self._numbers.get(text)
        if known is None:
            known = self._numbers[text] = len(self.all)
            self.all.append(text)
        return known


@dataclass(slots=True)
class FileFacts:
    """One file as it was read: what tells that it has changed since, its header, or why it is left out."""

    size: int
    mtime_ns: int
    broken: str = ""
    run_id: str = ""
    started: str = ""
    tool: str = ""
    environment: int = -1
    cut: bool = False


@dataclass(slots=True)
class Columns:
    """Files by absolute path, and the rows of all of them.

    Args:
        files: what is known of each file, in the order in which they were read.
        tests: what may be compared with itself, as JSON: key, work, and what was achieved in place of what was asked.
        environments: of the runs, as JSON.
        texts: why a row is not fit, its labels, and the hosts of its ranks, as JSON.
        rows: `file`, `test`, `process` (numbered in its file), `unfit`, `labels`, `hosts`; all are numbers.
        seconds: of each row, the median of a process in seconds per call.
    """

    files: dict[str, FileFacts] = field(default_factory=dict)
    tests: Texts = field(default_factory=Texts)
    environments: Texts = field(default_factory=Texts)
    texts: Texts = field(default_factory=lambda: Texts([""]))
    rows: dict[str, "array[int]"] = field(default_factory=lambda: {name: array("i") for name in ROWS})
    seconds: "array[float]" = field(default_factory=lambda: array("d"))

    def add(self, path: str, facts: FileFacts, run: Run) -> None:
        """Take in a run that was read from `path`."""
        facts.run_id, facts.started, facts.tool = run.header.run_id, run.header.started, run.header.tool
        facts.environment = self.environments.number(msgspec.json.encode(run.header.environment).decode())
        facts.cut = run.cut
        number = len(self.files)
        self.files[path] = facts
        processes = Texts()
        fitness = Fitness(run)
        for measurement in run.tested:
            row = {
                "file": number,
                "test": self.tests.number(_test(measurement)),
                "process": processes.number(measurement.process),
                "unfit": self.texts.number(fitness.unfit(measurement)),
                "labels": self.texts.number(",".join(measurement.samples.labels)),
                "hosts": self.texts.number(_hosts(measurement)),
            }
            for name, value in row.items():
                self.rows[name].append(value)
            self.seconds.append(measurement.median_s)

    def add_broken(self, path: str, facts: FileFacts, why: str) -> None:
        """Take in that a file cannot be used."""
        facts.broken = why
        self.files[path] = facts


class Fitness:
    """`Run.unfit` for all measurements of a run: each test's outcomes are looked for once.

    What failed for being slower alone counts, since the slow ones are what is looked for.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        outcomes: dict[str, list[Outcome]] = {}
        for outcome in run.outcomes:
            outcomes.setdefault(outcome.test_id, []).append(outcome)
        self._of = {test_id: self._with(tuple(mine)) for test_id, mine in outcomes.items()}
        self._without = self._with(())

    def unfit(self, measurement: Measurement) -> str:
        """Why a measurement does not count; empty where it does."""
        return self._of.get(measurement.test_id, self._without).unfit(measurement, accept_slower=True)

    def _with(self, outcomes: tuple[Outcome, ...]) -> Run:
        run = self._run
        return Run(run.path, run.header, (), outcomes, run.footer, spoiled=run.spoiled)


def _test(measurement: Measurement) -> str:
    parts = {
        "key": measurement.key.identity,
        # An identity has its parameters sorted, but people know them in the order of the test's id.
        "label": json.dumps(measurement.key.label),
        "work": msgspec.json.encode(measurement.work).decode(),
        "achieved": json.dumps(measurement.samples.achieved),
    }
    return "{" + ",".join(f'"{name}":{text}' for name, text in parts.items()) + "}"


def _hosts(measurement: Measurement) -> str:
    return json.dumps(sorted(set(measurement.ranks.hosts))) if measurement.ranks is not None else ""
