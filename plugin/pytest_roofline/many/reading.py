"""Thousands of run files as three tables: runs, tests, rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy
from numpy.typing import NDArray
from pandas import Categorical, DataFrame, to_datetime

from ..baselines.runs import FOREIGN
from ..baselines.test_texts import MeasuredRow, RunFile, environment_of
from ..core.errors import BadInput
from ..core.facts import Environment
from ..core.units import listed, moment
from ..hardware import identity_of, key_of
from .files import Test, parse_test

# The number of reasons that are printed for files that are left out.
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class RunTables:
    """Tables of many runs.

    Args:
        runs: a row a run, in the order of time: `file` (its number), `path`, `run_id`, `started` (UTC, missing where
            unknown), `node`, `device` (its identity; empty for a CPU), `index`, `type`, `hardware`, `environment` (its
            JSON), `tool`, `imported`, `unmeasured` (why a test left no measurement; else empty),
            `chosen` (false for a run that the user left out by its date or tests).
        tests: the tests; sorted, so that the same runs give the same numbers.
        rows: a row for every measurement of every process: `run` and `test` (numbers of rows in `runs` and `tests`),
            `seconds` per call, `unfit` (why it does not count; empty where it does), `hosts` (of its ranks, as JSON;
            empty without ranks), `device` (the device that the measurement names; empty for that of the run).
        left_out: why files are left out, a text for each.
    """

    runs: DataFrame
    tests: tuple[Test, ...]
    rows: DataFrame
    left_out: tuple[str, ...] = ()

    @property
    def fit(self) -> DataFrame:
        """The rows that count."""
        return self.rows[self.rows["unfit"] == ""]

    @property
    def unfit(self) -> dict[str, int]:
        """The numbers of rows that do not count. The commonest reason comes first."""
        reasons = self.rows["unfit"][self.rows["unfit"] != ""].astype(str)
        return {str(reason): int(count) for reason, count in reasons.value_counts().items()}


def tables_of(files: Sequence[RunFile]) -> RunTables:
    """Return the runs, tests and rows of run files."""
    left_out = [file.broken for file in files if file.broken]
    readable = [file for file in files if not file.broken]
    runs, duplicates = _runs(readable)
    if not len(runs):
        reasons = listed(
            [reason.removesuffix(f"; {FOREIGN}") for reason in left_out], MOST_NAMED, "; "
        )
        # The advice that ends several reasons is given once, at the end.
        is_foreign = any(reason.endswith(FOREIGN) for reason in left_out)
        hint = f"; {FOREIGN}" if is_foreign else ""
        raise BadInput(f"none of {len(files)} run files can be used: {reasons}{hint}")
    # A log may hold runs of several nodes, so a path does not tell its run.
    rows_by_run = [readable[file].rows for file in runs["file"]]
    tests, unfit, hosts, device, seconds = _columns(rows_by_run)
    test_texts = sorted(set(tests))
    table = DataFrame(
        {
            "run": numpy.repeat(numpy.arange(len(runs)), [len(rows) for rows in rows_by_run]),
            "test": _numbers(tests, test_texts),
            "unfit": _categorical(unfit),
            "hosts": _categorical(hosts),
            "device": _categorical(device),
            "seconds": numpy.array(seconds, dtype=float),
        }
    ).sort_values(["run", "test"], kind="stable", ignore_index=True)
    return RunTables(
        runs=runs,
        tests=tuple(map(parse_test, test_texts)),
        rows=table,
        left_out=(*left_out, *duplicates),
    )


def _columns(rows_by_run: Sequence[Sequence[MeasuredRow]]) -> Sequence[Sequence[Any]]:
    """Return the columns of all rows; empty ones where no run has a row."""
    # A row has five fields: see `MeasuredRow`.
    return [list(map(itemgetter(place), chain.from_iterable(rows_by_run))) for place in range(5)]


def _numbers(texts: Sequence[str], names: Sequence[str]) -> NDArray[numpy.int64]:
    """Return the place of each text among names."""
    places = {name: place for place, name in enumerate(names)}
    return numpy.fromiter(map(places.__getitem__, texts), numpy.int64, len(texts))


def _categorical(texts: Sequence[str]) -> Categorical:
    """Return a column of few texts. `Categorical(texts)` hashes each of them several times."""
    names = sorted(set(texts))
    return Categorical.from_codes(_numbers(texts, names), names)


def _runs(files: Sequence[RunFile]) -> tuple[DataFrame, list[str]]:
    """Return a row for each run, and why runs are left out.

    Copies of another run are left out, and runs of a fake device where others are of real ones.
    """
    texts = dict.fromkeys(file.environment for file in files)
    facts = {text: _facts(environment_of(text)) for text in texts}
    runs = DataFrame(
        [
            [number, *(getattr(file, name) for name in NAMES), *facts[file.environment]]
            for number, file in enumerate(files)
        ],
        columns=["file", *NAMES, *FACTS],
    )
    # Runs on several nodes may have the same name: only if all of these facts are equal, one is a copy of the other.
    same_runs = runs.groupby(["run_id", "started", "node", "device"], sort=False)
    first_file = same_runs["file"].transform("first")
    is_fake = runs["type"] == "fake"
    if is_fake.all():
        # Without a run of a real device, those of fake devices stay.
        is_fake[:] = False
    is_copy = runs["file"] != first_file
    originals = runs["path"].loc[first_file[is_copy]]
    reasons = [
        f"{path} is left out: it is the same run as {original}"
        for path, original in zip(runs["path"][is_copy], originals, strict=True)
    ]
    reasons += [
        f"{path} is left out: the run was measured on a fake device"
        for path in runs["path"][is_fake & ~is_copy]
    ]
    runs = runs[~is_copy & ~is_fake]
    started = to_datetime(runs["started"].map(moment), utc=True)
    runs = runs.assign(started=started, chosen=True)
    return runs.sort_values(["started", "path"], kind="stable", ignore_index=True), reasons


# The columns of a run that come from its file, and those that `_facts` reads from its environment.
NAMES = ("path", "run_id", "started", "tool", "environment", "imported", "unmeasured")
FACTS = ("node", "device", "index", "type", "hardware")


def _facts(environment: Environment) -> tuple[str | int, ...]:
    """Return the values of the columns `FACTS`."""
    device = environment.device
    return (
        environment.host.name,
        identity_of(environment),
        device.index,
        device.type,
        str(key_of(environment)),
    )
