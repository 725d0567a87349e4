"""Many runs as tables of pandas: one of runs, one of tests, one of rows."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ...core.errors import BadFile, BadInput
from ...core.facts import Environment
from ...core.keys import Key
from ...core.units import moment
from ...core.work import Work
from ..hardware import identity_of, key_of
from ..storage import to_record
from .columns import Columns, FileFacts
from .reading import read_columns

if TYPE_CHECKING:
    from pandas import DataFrame

# Reasons that are printed of files that are left out.
MOST_NAMED = 5


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
            `device` (its identity; empty of a CPU), `index`, `type`, `hardware`, `driver`, `environment` (a number of
            `environments`), `tool`.
        tests: the tests; sorted, so that the same runs give the same numbers.
        rows: a row for every measurement of every process: `run`, `test` (numbers of the above), `process`, `seconds`
            per call, `rate` per second under the key's metric, `unfit` (why it does not count; empty where it does),
            `labels`, `hosts` (of its ranks, as JSON; empty without).
        environments: what the runs ran on.
        left_out: files that could not be used, each with the reason.
        notes: what else a user should know.
        files: how many were asked for; `read` how many of them were read and not remembered.
    """

    runs: "DataFrame"
    tests: tuple[Test, ...]
    rows: "DataFrame"
    environments: tuple[Environment, ...]
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    files: int = 0
    read: int = 0

    @property
    def fit(self) -> "DataFrame":
        """The rows that count, of runs whose date does not matter."""
        return self.rows[self.rows["unfit"] == ""]

    @property
    def unfit(self) -> dict[str, int]:
        """How many rows do not count, by reason, most first."""
        reasons = self.rows["unfit"][self.rows["unfit"] != ""].astype(str)
        return {str(reason): int(count) for reason, count in reasons.value_counts().items()}


def read_many(
    paths: Sequence[str], cache: Path | None = None, progress: Callable[[int, int], None] | None = None
) -> Many:
    """Many run files as tables; those that cannot be used are named and left out.

    Args:
        paths: absolute, each once, as `expand` gives them.
        cache: the folder of the index; None reads every file and keeps nothing.
        progress: called with how many files of how many have been read.

    Raises:
        BadInput: none of the files can be used.
    """
    columns, notes, read = read_columns(paths, cache, progress)
    try:
        return _many(columns, notes, read)
    except BadFile as error:
        # The index alone holds what is checked here; the run files behind it were checked as they were read.
        told = f"the index in {cache} cannot be used ({error}), so the run files are read anew"
        columns, notes, read = read_columns(paths, None, progress)
        return _many(columns, [told, *notes], read)


def _many(columns: Columns, notes: list[str], read: int) -> Many:
    left_out = [facts.broken for facts in columns.files.values() if facts.broken]
    notes += [f"{path} ends in the middle of a line, which is left out" for path, f in columns.files.items() if f.cut]
    environments = tuple(_environment(text) for text in columns.environments.all)
    runs, doubles = _runs(columns, environments)
    if not len(runs):
        why = "; ".join(left_out[:MOST_NAMED])
        raise BadInput(f"none of {len(columns.files)} run files can be used: {why}")
    tests, numbers = _tests(columns)
    rows = _rows(columns, runs, tests, numbers)
    order = list(dict.fromkeys(runs["environment"]))
    environments = tuple(environments[number] for number in order)
    runs["environment"] = runs["environment"].map({old: new for new, old in enumerate(order)})
    runs = runs.drop(columns="file")
    return Many(runs, tests, rows, environments, (*left_out, *doubles), tuple(notes), len(columns.files), read)


def _environment(text: str) -> Environment:
    return to_record(json.loads(text), Environment, "index")


def _runs(columns: Columns, environments: Sequence[Environment]) -> tuple["DataFrame", list[str]]:
    """A row a run, those of a fake device and copies of a run that is there already left out, with the reasons."""
    from pandas import DataFrame, to_datetime

    facts = [_facts_of(environment) for environment in environments]
    known: dict[tuple[str, ...], str] = {}
    plain: list[dict[str, Any]] = []
    left_out = []
    real = any(facts[one.environment]["type"] != "fake" for one in columns.files.values() if not one.broken)
    for file, (path, one) in enumerate(columns.files.items()):
        if one.broken:
            continue
        mine = facts[one.environment]
        # A name may be given on every node of a fleet; only with all of these equal it is one run, copied.
        same = known.setdefault(_who(one, mine), path)
        if same != path:
            left_out.append(f"{path} is left out: it is the same run as {same}")
        elif real and mine["type"] == "fake":
            left_out.append(f"{path} is left out: it is of a fake device")
        else:
            told = {"path": path, "run_id": one.run_id, "started": moment(one.started), "tool": one.tool}
            plain.append({"file": file, **told, "environment": one.environment, **mine})
    runs = DataFrame(plain)
    if plain:
        runs["started"] = to_datetime(runs["started"], utc=True)
        runs = runs.sort_values(["started", "path"], kind="stable", ignore_index=True)
    return runs, left_out


def _who(facts: FileFacts, mine: dict[str, Any]) -> tuple[str, ...]:
    return facts.run_id, facts.started, mine["node"], mine["device"]


def _facts_of(environment: Environment) -> dict[str, Any]:
    device = environment.device
    return {
        "node": environment.host.name,
        "device": identity_of(environment),
        "index": device.index,
        "type": device.type,
        "hardware": str(key_of(environment)),
        "driver": device.driver or "",
    }


def _tests(columns: Columns) -> tuple[tuple[Test, ...], list[int]]:
    """The tests that rows tell of, in an order of their own, and where each number of the columns went."""
    texts = columns.tests.all
    order = sorted(set(columns.rows["test"]), key=texts.__getitem__)
    numbers = [-1] * len(texts)
    for new, old in enumerate(order):
        numbers[old] = new
    return tuple(_test(texts[old]) for old in order), numbers


def _test(text: str) -> Test:
    raw = json.loads(text)
    return Test(
        to_record(raw["key"], Key, "index"),
        msgspec.convert(raw["work"], Work),
        tuple(raw["achieved"]),
        raw["label"],
    )


def _rows(columns: Columns, runs: "DataFrame", tests: Sequence[Test], numbers: Sequence[int]) -> "DataFrame":
    import numpy
    from pandas import DataFrame

    run_of = numpy.full(len(columns.files), -1)
    run_of[runs["file"].to_numpy()] = runs.index.to_numpy()
    column = {name: numpy.frombuffer(values, dtype="int32") for name, values in columns.rows.items()}
    seconds = numpy.frombuffer(columns.seconds)
    test = numpy.array(numbers, dtype="int32")[column["test"]] if numbers else column["test"]
    amounts = numpy.array([one.work.amount(one.key.metric) or numpy.nan for one in tests])
    frame = DataFrame(
        {
            "run": run_of[column["file"]],
            "test": test,
            "process": column["process"],
            "seconds": seconds,
            "rate": amounts[test] / seconds if len(seconds) else seconds,
            **{name: _texts(column[name], columns.texts.all) for name in ("unfit", "labels", "hosts")},
        }
    )
    frame.loc[frame["labels"].isin(_unresolved(columns.texts.all)), "rate"] = numpy.nan
    return frame[frame["run"] >= 0].sort_values(["run", "test", "process"], kind="stable", ignore_index=True)


def _texts(codes: Any, texts: Sequence[str]) -> Any:
    """Numbers of texts as a column; its texts are those used, sorted, whatever was read before."""
    import numpy
    from pandas import Categorical

    used = sorted(set(codes.tolist()), key=texts.__getitem__)
    place = numpy.zeros(len(texts), dtype="int32")
    place[used] = numpy.arange(len(used))
    return Categorical.from_codes(place[codes], [texts[number] for number in used])


def _unresolved(texts: Sequence[str]) -> list[str]:
    """Labels that say that a time is a bound, of which no rate can be made."""
    return [text for text in texts if "unresolved" in text.split(",")]
