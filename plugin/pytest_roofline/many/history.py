"""Changes of tests over time. Steps of many tests at one time are one change.

What the middle of at least four units does is common: it is taken out before each unit is looked at by itself.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy
from pandas import DataFrame

from ..core.facts import fact_text
from ..core.groups import group_by
from ..stats.outliers import MEDIAN_ERROR
from ..stats.spread import class_of, priors
from ..stats.stats import growth
from .reading import RunTables
from .recent import recent_steps
from .steps import FEWEST_RUNS, RunSeries, SeriesChange, Values, examine

# A common change needs so many units: of fewer, one alone moves the middle.
FEWEST_UNITS = 4
# The number of units of a change whose environments are compared.
MOST_COMPARED = 200


@dataclass(frozen=True, slots=True)
class RunName:
    """The name of a run in a report. `started` is in ISO 8601."""

    run_id: str
    started: str
    path: str
    node: str


@dataclass(frozen=True, slots=True)
class TestChange:
    """The change of one test on one unit.

    It is a share of time. `common` marks the change of the middle of all units.
    """

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
    """A step or a drift of one or more tests. It is seen at one time, on one unit or on many.

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
        return list(dict.fromkeys(test_change.label for test_change in self.found))


@dataclass(frozen=True, slots=True)
class History:
    """The changes of all tests, with their series."""

    changes: tuple[HistoryChange, ...]
    series: tuple[RunSeries, ...]
    short: int
    undated: int


def history(tables: RunTables, smallest_change: float = 0.02, by: str = "device") -> History:
    """Return the steps and drifts of all tests."""
    single, short = _series(tables, by)
    by_test = group_by(single, lambda series: series.test)
    common = [
        middle for test_series in by_test.values() if (middle := _middle(test_series)) is not None
    ]
    common_changes = _changes(common, smallest_change)
    followers: dict[int, list[str]] = {}
    remainders = [
        _without(
            series,
            [change for change in common_changes if change.series.test == series.test],
            followers,
        )
        for series in single
    ]
    units = {
        test: {series.unit for series in test_series} - {""}
        for test, test_series in by_test.items()
    }
    groups = [
        (group, {unit for change in group for unit in followers.get(id(change), ())})
        for group in _group_changes(tables, common_changes)
    ]
    unit_groups = _group_changes(tables, _changes(remainders, smallest_change))
    groups += [(group, {change.series.unit for change in group} - {""}) for group in unit_groups]
    changes = [
        _change(tables, group, sorted(affected_units), units) for group, affected_units in groups
    ]
    changes.sort(key=lambda change: (not change.slower, -abs(change.change)))
    return History(
        tuple(changes), (*common, *single), short, int(tables.runs["started"].isna().sum())
    )


def _changes(series: Sequence[RunSeries], smallest_change: float) -> list[SeriesChange]:
    """Return the changes of whole series and of the last runs."""
    changes = examine(series, priors(), smallest_change)
    return [*changes, *recent_steps(series, changes, smallest_change)]


def _series(tables: RunTables, by: str) -> tuple[list[RunSeries], int]:
    """Return the series that are long enough. Count those that are too short.

    A point is the median of a run's processes.
    """
    is_dated = tables.runs["started"].notna()
    rows = tables.fit[tables.fit["run"].map(is_dated)]
    points = (
        rows.assign(log=numpy.log(rows["seconds"]))
        .groupby(["test", "run"])["log"]
        .median()
        .reset_index()
    )
    days = (tables.runs["started"] - tables.runs["started"].min()).dt.total_seconds() / 86_400
    points["days"] = points["run"].map(days)
    points["unit"] = _units(tables, points, by)
    types = dict(zip(tables.runs["hardware"], tables.runs["type"], strict=True))
    run, day, log = (points[name].to_numpy() for name in ("run", "days", "log"))
    series, short = [], 0
    # Runs are numbered in the order of time.
    for (test_number, unit), points_of_series in points.groupby(["test", "unit"]).indices.items():
        if len(points_of_series) < FEWEST_RUNS:
            short += 1
            continue
        test = tables.tests[test_number]
        kind = class_of(types.get(test.hardware, "cuda"), test.key.metric)
        series.append(
            RunSeries(
                int(test_number),
                unit,
                run[points_of_series],
                day[points_of_series],
                log[points_of_series],
                kind,
            )
        )
    return series, short


def _units(tables: RunTables, points: DataFrame, by: str) -> Values:
    """Return the unit of each point.

    Hosts of CPUs that come and go under new names are one series together.
    """
    runs = tables.runs
    counts = runs.groupby(["hardware", "node"])["path"].transform("size")
    are_long_lived = counts.groupby(runs["hardware"]).transform("median") >= FEWEST_RUNS
    device = runs["device"].where((runs["device"] != "") | ~are_long_lived, runs["node"])
    unit = {"node": runs["node"], "hardware": runs["node"].map(lambda _: ""), "device": device}[by]
    # What several devices do together is no device's own.
    over_several = numpy.array([test.several for test in tables.tests], dtype=bool)[
        points["test"]
    ] & (by == "device")
    point_node, point_unit = (
        column.to_numpy(dtype=object)[points["run"]] for column in (runs["node"], unit)
    )
    return numpy.asarray(numpy.where(over_several, point_node, point_unit))


def _middle(series: Sequence[RunSeries]) -> RunSeries | None:
    """Return the middle of all units of one test.

    None of fewer units or points than that takes.
    """
    if len(series) < FEWEST_UNITS:
        return None
    runs = numpy.concatenate([unit.runs for unit in series])
    logs = numpy.concatenate([unit.logs - numpy.median(unit.logs) for unit in series])
    days = numpy.concatenate([unit.days for unit in series])
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
    series: RunSeries, common: Sequence[SeriesChange], followers: dict[int, list[str]]
) -> RunSeries:
    """Return a series without the common changes that it follows.

    Its unit is added to `followers`, under the `id` of each of these changes.
    """
    logs = series.logs
    for change in common:
        remainder = logs - change.path(series)
        if abs(remainder - numpy.median(remainder)).sum() < abs(logs - numpy.median(logs)).sum():
            logs = remainder
            followers.setdefault(id(change), []).append(series.unit)
    return replace(series, logs=logs)


def _group_changes(tables: RunTables, changes: Sequence[SeriesChange]) -> list[list[SeriesChange]]:
    """Return groups of changes that may be one.

    Steps share hardware, direction and perhaps their time.

    Drifts are grouped by unit and direction.
    """
    groups: dict[tuple[object, ...], list[tuple[int, int, list[SeriesChange]]]] = {}
    for change in sorted(changes, key=lambda change: (change.before, change.after)):
        unit = change.series.unit if change.kind == "drift" else ""
        spans = groups.setdefault(
            (tables.tests[change.series.test].hardware, change.kind, change.size > 0, unit), []
        )
        start, end = _span(change)
        for index, (first, last, members) in enumerate(spans):
            if max(start, first) <= min(end, last):
                spans[index] = max(start, first), min(end, last), [*members, change]
                break
        else:
            spans.append((start, end, [change]))
    return [
        sorted(members, key=lambda change: -abs(change.size))
        for spans in groups.values()
        for *_, members in spans
    ]


def _span(change: SeriesChange) -> tuple[int, int]:
    """Return the runs between which a step may lie.

    Noise can move it by one of its own runs.
    """
    runs = change.series.runs if change.series.raw is None else change.series.raw[0]
    place = int(numpy.searchsorted(runs, change.after))
    return int(runs[max(0, place - 2)]), int(runs[min(len(runs) - 1, place + 1)])


def _change(
    tables: RunTables,
    group: Sequence[SeriesChange],
    affected_units: list[str],
    units: dict[int, set[str]],
) -> HistoryChange:
    worst = group[0]
    return HistoryChange(
        worst.kind,
        worst.size > 0,
        growth(worst.size),
        tables.tests[worst.series.test].hardware,
        tuple(affected_units),
        len(set().union(*(units[change.series.test] for change in group))),
        _run_name(tables, worst.before),
        _run_name(tables, worst.after),
        _changed_facts(tables, _pairs(tables, worst, affected_units)),
        tuple(_test_change(tables, change) for change in group),
        tuple(worst.series.logs.tolist()),
    )


def _test_change(tables: RunTables, change: SeriesChange) -> TestChange:
    test = tables.tests[change.series.test]
    low, high = (growth(bound) for bound in change.interval)
    return TestChange(
        test.label,
        test.key.parameters,
        change.series.unit,
        change.series.common,
        growth(change.size),
        low,
        high,
        change.p,
        _run_name(tables, change.before),
        _run_name(tables, change.after),
    )


def _run_name(tables: RunTables, run: int) -> RunName:
    row = tables.runs.loc[run]
    return RunName(
        str(row["run_id"]), row["started"].isoformat(), str(row["path"]), str(row["node"])
    )


def _pairs(tables: RunTables, change: SeriesChange, units: Sequence[str]) -> list[tuple[int, int]]:
    """Return each unit's last run before a change and its first behind it."""
    if not change.series.common:
        return [(change.before, change.after)]
    runs = tables.runs
    pairs = []
    for unit in units[:MOST_COMPARED]:
        unit_runs = runs.index[(runs["device"] == unit) | (runs["node"] == unit)]
        before, after = unit_runs[unit_runs <= change.before], unit_runs[unit_runs >= change.after]
        if len(before) and len(after):
            pairs.append((int(before[-1]), int(after[0])))
    return pairs or [(change.before, change.after)]


def _changed_facts(tables: RunTables, pairs: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Return the facts that changed in at least half of the pairs."""
    differences: Counter[str] = Counter()
    for pair in pairs:
        old, new = (_environment(tables, run) for run in pair)
        for name in dict.fromkeys([*old, *new]):
            old_value, new_value = fact_text(old, name), fact_text(new, name)
            if old_value != new_value:
                differences[f"{name} {old_value} → {new_value}"] += 1
    return tuple(text for text, count in differences.most_common() if count * 2 >= len(pairs))


def _environment(tables: RunTables, run: int) -> dict[str, str]:
    row = tables.runs.loc[run]
    return tables.environments[row["environment"]].everything() | {"measured by": str(row["tool"])}
