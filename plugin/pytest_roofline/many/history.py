"""What happened to tests over time, said once: steps of many tests at one time are one change, with what else changed.

What the middle of at least four units does is common: it is taken out before each unit is looked at by itself.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy
from pandas import DataFrame

from ..core.facts import known_of
from ..core.groups import grouped
from ..stats.outliers import MEDIAN_ERROR
from ..stats.spread import class_of, priors
from ..stats.stats import growth
from .reading import Many
from .recent import recent_steps
from .steps import FEWEST_RUNS, RunSeries, SeriesChange, Values, examine

# A common change needs so many units: of fewer, one alone moves the middle.
FEWEST_UNITS = 4
# Of the units that a change is about, so many are asked what changed in their environment.
MOST_ASKED = 200


@dataclass(frozen=True, slots=True)
class RunName:
    """A run, as a report names it; `started` in ISO 8601."""

    run_id: str
    started: str
    path: str
    node: str


@dataclass(frozen=True, slots=True)
class TestChange:
    """What one test did on one unit, in shares of time; `common` is what the middle of all units did."""

    label: str
    parameters: dict[str, Any]
    unit: str
    common: bool
    change: float
    change_low: float
    change_high: float
    p: float
    before: RunName
    after: RunName


@dataclass(frozen=True, slots=True)
class HistoryChange:
    """A step or a drift, of one test or of many at the same time, on one unit or on many.

    Args:
        change: share of the time, where it is largest.
        units: devices or nodes that it was seen on, sorted; empty where all of a hardware are one series.
        of_units: how many there are that ran these tests often enough.
        before: the last run before it; `after` the first behind it. Of a drift the first and the last.
        trend: log seconds where it is largest, in the order of time.
    """

    kind: str
    slower: bool
    change: float
    hardware: str
    units: tuple[str, ...]
    of_units: int
    before: RunName
    after: RunName
    changed: tuple[str, ...]
    found: tuple[TestChange, ...]
    trend: tuple[float, ...]

    @property
    def tests(self) -> list[str]:
        """Labels of the tests, the one with the largest change first."""
        return list(dict.fromkeys(one.label for one in self.found))


@dataclass(frozen=True, slots=True)
class History:
    """What became of the tests."""

    changes: tuple[HistoryChange, ...]
    series: tuple[RunSeries, ...]
    short: int
    undated: int


def history(many: Many, least: float = 0.02, by: str = "device") -> History:
    """Steps and drifts of all tests."""
    single, short = _series(many, by)
    by_test = grouped(single, lambda series: series.test)
    common = [middle for mine in by_test.values() if (middle := _middle(mine)) is not None]
    together = _changes(common, least)
    followed: dict[int, list[str]] = {}
    alone = [
        _without(series, [one for one in together if one.series.test == series.test], followed)
        for series in single
    ]
    units = {number: {one.unit for one in mine} - {""} for number, mine in by_test.items()}
    groups = [
        (group, {unit for one in group for unit in followed.get(id(one), ())})
        for group in _grouped(many, together)
    ]
    own = _grouped(many, _changes(alone, least))
    groups += [(group, {one.series.unit for one in group} - {""}) for group in own]
    changes = [_change(many, group, sorted(mine), units) for group, mine in groups]
    changes.sort(key=lambda change: (not change.slower, -abs(change.change)))
    return History(
        tuple(changes), (*common, *single), short, int(many.runs["started"].isna().sum())
    )


def _changes(series: Sequence[RunSeries], least: float) -> list[SeriesChange]:
    """Return what the pass over whole series sees, and the steps of the last runs that it does not see yet."""
    changes = examine(series, priors(), least)
    return [*changes, *recent_steps(series, changes, least)]


def _series(many: Many, by: str) -> tuple[list[RunSeries], int]:
    """The series that are long enough, and how many are too short; a point is the median of a run's processes."""
    dated = many.runs["started"].notna()
    rows = many.fit[many.fit["run"].map(dated)]
    points = (
        rows.assign(log=numpy.log(rows["seconds"]))
        .groupby(["test", "run"])["log"]
        .median()
        .reset_index()
    )
    days = (many.runs["started"] - many.runs["started"].min()).dt.total_seconds() / 86_400
    points["days"] = points["run"].map(days)
    points["unit"] = _units(many, points, by)
    types = dict(zip(many.runs["hardware"], many.runs["type"], strict=True))
    run, day, log = (points[name].to_numpy() for name in ("run", "days", "log"))
    found, short = [], 0
    # Runs are numbered in the order of time.
    for (number, unit), place in points.groupby(["test", "unit"]).indices.items():
        if len(place) < FEWEST_RUNS:
            short += 1
            continue
        test = many.tests[number]
        kind = class_of(types.get(test.hardware, "cuda"), test.key.metric)
        found.append(RunSeries(int(number), unit, run[place], day[place], log[place], kind))
    return found, short


def _units(many: Many, points: DataFrame, by: str) -> Values:
    """What each point is of. Hosts of CPUs that come and go under new names are one series together."""
    runs = many.runs
    counts = runs.groupby(["hardware", "node"])["path"].transform("size")
    stay = counts.groupby(runs["hardware"]).transform("median") >= FEWEST_RUNS
    device = runs["device"].where((runs["device"] != "") | ~stay, runs["node"])
    unit = {"node": runs["node"], "hardware": runs["node"].map(lambda _: ""), "device": device}[by]
    # What several devices do together is no device's own.
    several = numpy.array([test.several for test in many.tests], dtype=bool)[points["test"]] & (
        by == "device"
    )
    node, own = (column.to_numpy(dtype=object)[points["run"]] for column in (runs["node"], unit))
    return numpy.asarray(numpy.where(several, node, own))


def _middle(series: Sequence[RunSeries]) -> RunSeries | None:
    """The middle of all units of one test: what they did together; None of fewer units or points than that takes."""
    if len(series) < FEWEST_UNITS:
        return None
    runs = numpy.concatenate([one.runs for one in series])
    logs = numpy.concatenate([one.logs - numpy.median(one.logs) for one in series])
    days = numpy.concatenate([one.days for one in series])
    order = numpy.argsort(runs, kind="stable")
    if len(order) // len(series) < FEWEST_RUNS:
        return None
    parts = numpy.array_split(order, len(order) // len(series))
    return RunSeries(
        series[0].test,
        "",
        runs=numpy.array([runs[part[-1]] for part in parts]),
        days=numpy.array([numpy.median(days[part]) for part in parts]),
        logs=numpy.array([numpy.median(logs[part]) for part in parts]),
        kind=series[0].kind,
        raw=(runs[order], logs[order]),
        steadier=MEDIAN_ERROR / len(series) ** 0.5,
    )


def _without(
    series: RunSeries, common: Sequence[SeriesChange], followed: dict[int, list[str]]
) -> RunSeries:
    """A series without the common changes that it follows, which are noted by their `id`."""
    logs = series.logs
    for found in common:
        without = logs - found.path(series)
        if abs(without - numpy.median(without)).sum() < abs(logs - numpy.median(logs)).sum():
            logs = without
            followed.setdefault(id(found), []).append(series.unit)
    return replace(series, logs=logs)


def _grouped(many: Many, found: Sequence[SeriesChange]) -> list[list[SeriesChange]]:
    """Steps of one hardware in one direction whose times may be the same; drifts of one unit in one direction."""
    groups: dict[tuple[object, ...], list[tuple[int, int, list[SeriesChange]]]] = {}
    for one in sorted(found, key=lambda one: (one.before, one.after)):
        unit = one.series.unit if one.kind == "drift" else ""
        mine = groups.setdefault(
            (many.tests[one.series.test].hardware, one.kind, one.size > 0, unit), []
        )
        low, high = _span(one)
        for place, (least, most, members) in enumerate(mine):
            if max(low, least) <= min(high, most):
                mine[place] = max(low, least), min(high, most), [*members, one]
                break
        else:
            mine.append((low, high, [one]))
    return [
        sorted(members, key=lambda one: -abs(one.size))
        for mine in groups.values()
        for *_, members in mine
    ]


def _span(found: SeriesChange) -> tuple[int, int]:
    """The runs between which a step may lie: noise can move it by one of its own runs."""
    runs = found.series.runs if found.series.raw is None else found.series.raw[0]
    place = int(numpy.searchsorted(runs, found.after))
    return int(runs[max(0, place - 2)]), int(runs[min(len(runs) - 1, place + 1)])


def _change(
    many: Many, group: Sequence[SeriesChange], mine: list[str], units: dict[int, set[str]]
) -> HistoryChange:
    worst = group[0]
    return HistoryChange(
        worst.kind,
        worst.size > 0,
        growth(worst.size),
        many.tests[worst.series.test].hardware,
        tuple(mine),
        len(set().union(*(units[one.series.test] for one in group))),
        _run_name(many, worst.before),
        _run_name(many, worst.after),
        _changed(many, _pairs(many, worst, mine)),
        tuple(_test_change(many, one) for one in group),
        tuple(worst.series.logs.tolist()),
    )


def _test_change(many: Many, one: SeriesChange) -> TestChange:
    test = many.tests[one.series.test]
    low, high = (growth(bound) for bound in one.interval)
    return TestChange(
        test.label,
        test.key.parameters,
        one.series.unit,
        one.series.common,
        growth(one.size),
        low,
        high,
        one.p,
        _run_name(many, one.before),
        _run_name(many, one.after),
    )


def _run_name(many: Many, run: int) -> RunName:
    row = many.runs.loc[run]
    return RunName(
        str(row["run_id"]), row["started"].isoformat(), str(row["path"]), str(row["node"])
    )


def _pairs(many: Many, found: SeriesChange, units: Sequence[str]) -> list[tuple[int, int]]:
    """Of each unit, its last run before a change and its first behind it."""
    if not found.series.common:
        return [(found.before, found.after)]
    runs = many.runs
    pairs = []
    for unit in units[:MOST_ASKED]:
        mine = runs.index[(runs["device"] == unit) | (runs["node"] == unit)]
        before, after = mine[mine <= found.before], mine[mine >= found.after]
        if len(before) and len(after):
            pairs.append((int(before[-1]), int(after[0])))
    return pairs or [(found.before, found.after)]


def _changed(many: Many, pairs: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """What changed in the environment of at least half of the pairs of runs."""
    told: Counter[str] = Counter()
    for pair in pairs:
        old, new = (_environment(many, run) for run in pair)
        for name in dict.fromkeys([*old, *new]):
            was, is_now = known_of(old, name), known_of(new, name)
            if was != is_now:
                told[f"{name} {was} → {is_now}"] += 1
    return tuple(text for text, count in told.most_common() if count * 2 >= len(pairs))


def _environment(many: Many, run: int) -> dict[str, str]:
    row = many.runs.loc[run]
    return many.environments[row["environment"]].everything() | {"measured by": str(row["tool"])}
