"""Thousands of run files as three tables: runs, tests, rows."""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
from pandas import DataFrame, to_datetime

from ..baselines.picking import is_imported
from ..baselines.runs import FOREIGN, Run, cut_note, read_run
from ..core.errors import BadFile, BadInput, CannotStore
from ..core.facts import Environment
from ..core.keys import Key
from ..core.records import SCHEMA, Measurement
from ..core.storage import decode_json, to_record
from ..core.units import listed, moment
from ..core.work import Work
from ..core.writing import write_atomically
from ..hardware import identity_of, key_of
from ..version import __version__

# The number of reasons that are printed for files that are left out.
MOST_NAMED = 5
# `test` (JSON), `unfit`, `hosts` (JSON), `device` and seconds per call: the median of a process.
MeasuredRow = tuple[str, str, str, str, float]

# An index of the run files is kept beside the runs, so that ten thousand of them are read only once. A file is taken
# for unchanged while its size and time of change are the same. If the index cannot be used, all files are read again.
INDEX = "runs.msgpack"
# The clocks of file systems are coarse. A file that changed so recently may change again with the same time of change,
# so it does not go into the index.
SETTLED_NS = 2_000_000_000


class Stamp(NamedTuple):
    """The size and time of change of a file. Both are -1 of a file that cannot be seen."""

    size: int
    mtime_ns: int


class RunFile(msgspec.Struct, array_like=True):
    """The contents of one run file.

    `stamp` shows whether it has changed since. `unmeasured` is why a test left no measurement, the
    first of them.
    """

    path: str
    stamp: Stamp
    broken: str = ""
    run_id: str = ""
    started: str = ""
    tool: str = ""
    environment: str = ""
    cut: bool = False
    imported: bool = False
    rows: list[MeasuredRow] = []
    unmeasured: str = ""


class _Index(msgspec.Struct):
    """The index of run files.

    The rows of `files` are stored in `rows`. There a text is its number in `texts`, since all runs repeat the same
    texts.
    """

    made_by: str
    texts: list[str]
    files: list[RunFile]
    rows: list[list[tuple[int, int, int, int, float]]]


@dataclass(frozen=True, slots=True)
class Test:
    """A test: all measurements of it may be compared with each other.

    Args:
        achieved: the mode in which it was timed.
        placed: whether its measurements name the device that they are of.
    """

    key: Key
    work: Work
    achieved: tuple[str, ...]
    label: str
    placed: bool = False

    @property
    def hardware(self) -> str:
        """The hardware, as one device."""
        return str(self.key.hardware.alone)

    @property
    def several(self) -> bool:
        """True if it used more than one device."""
        return (self.key.hardware.devices or 1) > 1


@dataclass(frozen=True, slots=True)
class RunTables:
    """Tables of many runs.

    Args:
        runs: a row a run, in the order of time: `path`, `run_id`, `started` (UTC, missing where unknown), `node`,
            `device` (its identity; empty for a CPU), `index`, `type`, `hardware`, `environment` (a key of
            `environments`), `tool`, `imported`, `unmeasured` (why a test left no measurement; else empty), `chosen`
            (false for a run that the user left out by its date or tests).
        tests: the tests; sorted, so that the same runs give the same numbers.
        rows: a row for every measurement of every process: `run` and `test` (numbers of rows in `runs` and `tests`),
            `seconds` per call, `unfit` (why it does not count; empty where it does), `hosts` (of its ranks, as JSON;
            empty without ranks), `device` (the device that the measurement names; empty for that of the run).
        left_out: why files are left out, a text for each.
        notes: remarks on the index, and on files that were cut.
        files: the number of requested files. `read` is the number of those that the index did not hold, `unreadable`
            that of those that cannot be used.
    """

    runs: DataFrame
    tests: tuple[Test, ...]
    rows: DataFrame
    environments: dict[str, Environment]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: int = 0
    read: int = 0
    unreadable: int = 0

    @property
    def fit(self) -> DataFrame:
        """The rows that count."""
        return self.rows[self.rows["unfit"] == ""]

    @property
    def unfit(self) -> dict[str, int]:
        """The numbers of rows that do not count. The commonest reason comes first."""
        reasons = self.rows["unfit"][self.rows["unfit"] != ""].astype(str)
        return {str(reason): int(count) for reason, count in reasons.value_counts().items()}


def read_run_tables(paths: Sequence[str], cache: Path | None = None) -> RunTables:
    """Return many run files as tables.

    Files that cannot be used are left out, with reasons. `cache` is the folder of the index; without
    it every file is read.
    """
    indexed, notes = load_index(cache / INDEX) if cache is not None else ({}, [])
    stamps = {path: _stamp(path) for path in paths}
    unread = [path for path in paths if path not in indexed or indexed[path].stamp != stamps[path]]
    started_ns = time.time_ns()
    files = indexed | {file.path: file for file in _read_new(unread, stamps)}
    if cache is not None and (unread or notes):
        notes += _save(cache, files, set(paths), started_ns)
    return tables_of([files[path] for path in paths], notes, len(unread))


def _stamp(path: str) -> Stamp:
    try:
        status = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return Stamp(-1, -1)
    return Stamp(status.st_size, status.st_mtime_ns)


def _read_new(paths: Sequence[str], stamps: dict[str, Stamp]) -> Iterable[RunFile]:
    for path in paths:
        try:
            yield file_of(read_run(Path(path)), path, stamps[path])
        except BadFile as error:
            yield RunFile(path, stamps[path], str(error))


def file_of(run: Run, path: str, stamp: Stamp) -> RunFile:
    """Return the entry of a run in the index.

    Measurements count even if their test failed because it is slower: that is what is searched for.
    """
    header = run.header
    environment = msgspec.json.encode(header.environment).decode()
    rows = [
        (
            _test_text(measurement),
            run.unfit(measurement, accept_slower=True),
            _hosts(measurement),
            measurement.device,
            measurement.median_s,
        )
        for measurement in run.tested
    ]
    return RunFile(
        path,
        stamp,
        "",
        header.run_id,
        header.started,
        header.tool,
        environment,
        run.cut,
        is_imported(run),
        rows,
        _missing_reason(run),
    )


def _missing_reason(run: Run) -> str:
    """Return why a failed test left no measurement; empty where each has one."""
    measured_ids = {entry.test_id for entry in run.measurements}
    failed_ids = (test_id for test_id in run.not_passed if test_id not in measured_ids)
    reasons = (run.not_passed[test_id].reason for test_id in failed_ids)
    return next((reason for reason in reasons if reason), "")


def load_index(path: Path) -> tuple[dict[str, RunFile], list[str]]:
    """Return the files of an index by path.

    They are followed by a note if the index cannot be used. Both are empty where there is no index,
    or one of another version.
    """
    try:
        index = msgspec.msgpack.decode(path.read_bytes(), type=_Index)
        if index.made_by != _index_version():
            return {}, []
        texts = [sys.intern(text) for text in index.texts]
        for file, rows in zip(index.files, index.rows, strict=True):
            file.rows = [
                (texts[test], texts[unfit], texts[hosts], texts[device], seconds)
                for test, unfit, hosts, device, seconds in rows
            ]
    except FileNotFoundError:
        return {}, []
    except (OSError, LookupError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        return {}, [f"the index {path} cannot be used ({reason}), so all run files are read again"]
    return {file.path: file for file in index.files}, []


def _save(
    folder: Path, files: dict[str, RunFile], requested_paths: set[str], started_ns: int
) -> list[str]:
    """Write the index, and return a note if it cannot be written.

    Files that do not exist any more, or that changed just before `started_ns`, are left out.
    """
    stored_paths = {path for path in files.keys() - requested_paths if Path(path).exists()}
    stored_paths |= {
        path
        for path in requested_paths
        if 0 <= files[path].stamp.mtime_ns < started_ns - SETTLED_NS
    }
    entries = [file for path, file in files.items() if path in stored_paths]
    text_numbers: dict[str, int] = {}

    def number_of(text: str) -> int:
        return text_numbers.setdefault(text, len(text_numbers))

    rows = [
        [
            (number_of(test), number_of(unfit), number_of(hosts), number_of(device), seconds)
            for test, unfit, hosts, device, seconds in file.rows
        ]
        for file in entries
    ]
    entries_without_rows = [msgspec.structs.replace(file, rows=[]) for file in entries]
    try:
        write_atomically(
            folder / INDEX,
            msgspec.msgpack.encode(
                _Index(_index_version(), [*text_numbers], entries_without_rows, rows)
            ),
        )
        with (
            contextlib.suppress(FileExistsError),
            (folder / ".gitignore").open("x", encoding="utf-8") as ignore,
        ):
            ignore.write("*\n")
    except (CannotStore, OSError) as error:
        return [f"the index cannot be written, so the next call reads all files again: {error}"]
    return []


def _index_version() -> str:
    return f"pytest-roofline {__version__}, run files of schema {SCHEMA}"


def _test_text(measurement: Measurement) -> str:
    """Return the test of a measurement as JSON, which `_test` reads."""
    parts = {
        "key": measurement.key.identity,
        # The identity has its parameters sorted, but a label shows them in the order of the test's id.
        "label": json.dumps(measurement.key.label),
        "work": msgspec.json.encode(measurement.work).decode(),
        "achieved": json.dumps(measurement.samples.achieved),
        "placed": json.dumps(bool(measurement.device)),
    }
    return "{" + ",".join(f'"{name}":{text}' for name, text in parts.items()) + "}"


def _hosts(measurement: Measurement) -> str:
    return json.dumps(sorted(set(measurement.ranks.hosts))) if measurement.ranks is not None else ""


def tables_of(
    files: Sequence[RunFile], notes: Sequence[str] = (), files_read: int = 0
) -> RunTables:
    """Return the runs, tests and rows of run files."""
    left_out = [file.broken for file in files if file.broken]
    readable = [file for file in files if not file.broken]
    environments = {
        text: to_record(decode_json(text, "index"), Environment, "index")
        for text in dict.fromkeys(file.environment for file in readable)
    }
    runs, duplicates = _runs(readable, environments)
    if not len(runs):
        reasons = listed(
            [reason.removesuffix(f"; {FOREIGN}") for reason in left_out], MOST_NAMED, "; "
        )
        hint = f"; {FOREIGN}" * any(reason.endswith(FOREIGN) for reason in left_out)
        raise BadInput(f"none of {len(files)} run files can be used: {reasons}{hint}")
    cut = [cut_note(file.path) for file in readable if file.cut]
    run_numbers = {path: number for number, path in runs["path"].items()}
    numbered_rows = [
        (run_numbers[file.path], *row)
        for file in readable
        if file.path in run_numbers
        for row in file.rows
    ]
    table = DataFrame(numbered_rows, columns=["run", "test", "unfit", "hosts", "device", "seconds"])
    test_texts = sorted(table["test"].unique())
    table["test"] = table["test"].map({text: number for number, text in enumerate(test_texts)})
    categories = dict.fromkeys(("unfit", "hosts", "device"), "category")
    table = table.astype(categories | {"seconds": float})
    table = table.sort_values(["run", "test"], kind="stable", ignore_index=True)
    return RunTables(
        runs=runs,
        tests=tuple(map(_test, test_texts)),
        rows=table,
        environments=environments,
        left_out=(*left_out, *duplicates),
        notes=(*notes, *cut),
        files=len(files),
        read=files_read,
        unreadable=len(left_out),
    )


def _test(text: str) -> Test:
    """Return a test from its JSON, which `_test_text` wrote."""
    raw = decode_json(text, "index")
    work, achieved = msgspec.convert(raw["work"], Work), tuple(raw["achieved"])
    key = to_record(raw["key"], Key, "index")
    return Test(key, work, achieved, label=str(raw["label"]), placed=bool(raw["placed"]))


def _runs(
    files: Sequence[RunFile], environments: dict[str, Environment]
) -> tuple[DataFrame, list[str]]:
    """Return a row for each run, and the reasons why runs are left out.

    Copies of another run are left out, and runs of a fake device where others are of real ones.
    """
    runs = DataFrame(
        [
            [*(getattr(file, name) for name in NAMES), *_facts(environments[file.environment])]
            for file in files
        ],
        columns=[*NAMES, *FACTS],
    )
    # Runs on several nodes may have the same name: only if all of these facts are equal, one is a copy of the other.
    first_path = runs.groupby(["run_id", "started", "node", "device"], sort=False)[
        "path"
    ].transform("first")
    is_fake = (runs["type"] == "fake") & bool((runs["type"] != "fake").any())
    is_copy = runs["path"] != first_path
    reasons = [
        f"{path} is left out: it is the same run as {original}"
        for path, original in zip(runs["path"][is_copy], first_path[is_copy], strict=True)
    ]
    reasons += [
        f"{path} is left out: the run was measured on a fake device"
        for path in runs["path"][is_fake & ~is_copy]
    ]
    runs = runs[~is_copy & ~is_fake]
    started = to_datetime(runs["started"].map(moment), utc=True)
    return runs.assign(started=started, chosen=True).sort_values(
        ["started", "path"], kind="stable", ignore_index=True
    ), reasons


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
