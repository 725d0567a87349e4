"""Thousands of run files as tables of pandas: one of runs, one of tests, one of rows."""

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ..baselines.runs import Run, read_run
from ..core.errors import BadFile, BadInput
from ..core.facts import Environment
from ..core.keys import Key
from ..core.records import Measurement
from ..core.storage import decode_json, to_record
from ..core.units import moment
from ..core.work import Work
from ..hardware import identity_of, key_of
from . import index
from .index import FileFacts, MeasuredRow, frames

if TYPE_CHECKING:
    from pandas import DataFrame

# Reasons that are printed of files that are left out.
MOST_NAMED = 5
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Test:
    """What may be compared with itself: a key, its work, and what was measured in place of what was asked for.

    `label` is what people call it: `memcpy_d2d[64MiB]`.
    """

    key: Key
    work: Work
    achieved: tuple[str, ...]
    label: str

    @property
    def hardware(self) -> str:
        """The hardware, as one device."""
        return str(self.key.hardware.alone)

    @property
    def several(self) -> bool:
        """Whether it used more than one device."""
        return (self.key.hardware.devices or 1) > 1


@dataclass(frozen=True, slots=True)
class Many:
    """Many runs.

    Args:
        runs: a row a run, in the order of time: `path`, `run_id`, `started` (UTC, missing where unknown), `node`,
            `device` (its identity; empty of a CPU), `index`, `type`, `hardware`, `environment` (a key of
            `environments`), `tool`.
        tests: the tests; sorted, so that the same runs give the same numbers.
        rows: a row for every measurement of every process: `run`, `test` (numbers of the above), `seconds` per call,
            `unfit` (why it does not count; empty where it does), `hosts` (of its ranks, as JSON; empty without).
        environments: what the runs ran on.
        left_out: files that could not be used, each with the reason.
        notes: what else a user should know.
        files: how many were asked for; `read` how many of them were read and not remembered.
    """

    runs: "DataFrame"
    tests: tuple[Test, ...]
    rows: "DataFrame"
    environments: dict[str, Environment]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: int = 0
    read: int = 0

    @property
    def fit(self) -> "DataFrame":
        """The rows that count."""
        return self.rows[self.rows["unfit"] == ""]

    @property
    def unfit(self) -> dict[str, int]:
        """How many rows do not count, by reason, most first."""
        reasons = self.rows["unfit"][self.rows["unfit"] != ""].astype(str)
        return {str(reason): int(count) for reason, count in reasons.value_counts().items()}


def read_many(paths: Sequence[str], cache: Path | None = None, progress: Progress | None = None) -> Many:
    """Many run files as tables; those that cannot be used are named and left out.

    Args:
        paths: absolute, each once.
        cache: the folder of the index; None reads every file and keeps nothing.
        progress: called now and then with how many files of how many have been read.

    Raises:
        BadInput: none of the files can be used.
    """
    known, notes = index.load(cache) if cache is not None else (frames([], []), [])
    before = {path: tuple(told) for path, *told in known[0][["path", "size", "mtime_ns"]].itertuples(index=False)}
    stats = {path: _stat(path) for path in paths}
    new = [path for path in paths if before.get(path) != stats[path]]
    begun_ns = time.time_ns()
    files, rows = index.joined(known, _read_new(new, stats, progress))
    if cache is not None and (new or notes):
        notes += index.save(cache, (files, rows), set(paths), begun_ns)
    try:
        asked, mine = (table[table["path"].isin(paths)] for table in (files, rows))
        return many_of(asked, mine, notes, len(new))
    except BadInput:
        raise
    except (BadFile, LookupError, TypeError, ValueError) as error:
        # The index alone holds what is checked here; the run files behind it were checked as they were read.
        told = f"the index in {cache} cannot be used ({error}), so the run files are read anew"
        files, rows = _read_new(paths, stats, progress)
        return many_of(files, rows, [told, *notes], len(paths))


def _stat(path: str) -> tuple[int, int]:
    """Size and time of change; of a file that cannot be seen what no file has."""
    try:
        seen = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return -1, -1
    return seen.st_size, seen.st_mtime_ns


def _read_new(
    paths: Sequence[str], stats: dict[str, tuple[int, int]], progress: Progress | None
) -> tuple["DataFrame", "DataFrame"]:
    files: list[FileFacts] = []
    rows: list[MeasuredRow] = []
    for done, path in enumerate(paths, 1):
        try:
            run = read_run(Path(path))
        except BadFile as error:
            files.append(FileFacts(path, *stats[path], str(error)))
        else:
            files.append(facts_of(run, path, *stats[path]))
            rows += rows_of(run, path)
        if progress is not None and (done % 50 == 0 or done == len(paths)):
            progress(done, len(paths))
    return frames(files, rows)


def facts_of(run: Run, path: str, size: int, mtime_ns: int) -> FileFacts:
    """What is kept of a run's header."""
    header = run.header
    environment = msgspec.json.encode(header.environment).decode()
    return FileFacts(path, size, mtime_ns, "", header.run_id, header.started, header.tool, environment, run.cut)


def rows_of(run: Run, path: str) -> list[MeasuredRow]:
    """What is kept of a run's measurements. What failed only for being slower counts: that is what is looked for."""
    return [
        (path, _test_text(one), run.unfit(one, accept_slower=True), _hosts(one), one.median_s) for one in run.tested
    ]


def _test_text(measurement: Measurement) -> str:
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


def many_of(files: "DataFrame", rows: "DataFrame", notes: Sequence[str] = (), read: int = 0) -> Many:
    """Runs, tests and rows of what was read.

    Raises:
        BadInput: no file can be used.
        BadFile: a text is no record; other errors of plain data where it is something else altogether.
    """
    left_out = [str(why) for why in files["broken"] if why]
    environments = {text: _record(text, Environment) for text in files["environment"].unique() if text}
    runs, more = _runs(files[files["broken"] == ""], environments)
    if not len(runs):
        raise BadInput(f"none of {len(files)} run files can be used: {'; '.join(left_out[:MOST_NAMED])}")
    cut = [f"{path} ends in the middle of a line, which is left out" for path in files["path"][files["cut"]]]
    rows = rows[rows["path"].isin(runs["path"])]
    texts = sorted(rows["test"].astype(str).unique())
    table = rows[["seconds", "unfit", "hosts"]].assign(
        run=rows["path"].astype(str).map({path: run for run, path in runs["path"].items()}),
        test=rows["test"].astype(str).map({text: number for number, text in enumerate(texts)}),
    )
    table = table.sort_values(["run", "test"], kind="stable", ignore_index=True)
    return Many(
        runs,
        tuple(map(_test, texts)),
        table,
        environments,
        (*left_out, *more),
        (*notes, *cut),
        len(files),
        read,
    )


def _record(text: str, record: type[Any]) -> Any:
    return to_record(decode_json(text, "index"), record, "index")


def _test(text: str) -> Test:
    raw = decode_json(text, "index")
    work, achieved = msgspec.convert(raw["work"], Work), tuple(raw["achieved"])
    return Test(to_record(raw["key"], Key, "index"), work, achieved, str(raw["label"]))


def _runs(files: "DataFrame", environments: dict[str, Environment]) -> tuple["DataFrame", list[str]]:
    """A row a run, those of a fake device and copies of a run that is there already left out, with the reasons."""
    from pandas import DataFrame, to_datetime

    facts = DataFrame([_facts(environments[text]) for text in files["environment"]], index=files.index, columns=FACTS)
    runs = files[["path", "run_id", "started", "tool", "environment"]].join(facts)
    # A name may be given on every node of a fleet; only with all of these equal it is one run, copied.
    first = runs.groupby(["run_id", "started", "node", "device"], sort=False)["path"].transform("first")
    fake = (runs["type"] == "fake") & bool((runs["type"] != "fake").any())
    doubles = runs["path"] != first
    why = [
        f"{path} is left out: it is the same run as {same}"
        for path, same in zip(runs["path"][doubles], first[doubles], strict=True)
    ]
    why += [f"{path} is left out: it is of a fake device" for path in runs["path"][fake & ~doubles]]
    runs = runs[~doubles & ~fake]
    started = to_datetime(runs["started"].map(moment), utc=True)
    return runs.assign(started=started).sort_values(["started", "path"], kind="stable", ignore_index=True), why


FACTS = ("node", "device", "index", "type", "hardware")


def _facts(environment: Environment) -> tuple[str | int, ...]:
    device = environment.device
    return environment.host.name, identity_of(environment), device.index, device.type, str(key_of(environment))
