"""Changes of tests over time. Steps of many tests at one time are one change.

A change in the median of at least four units is common: it is removed before each unit is examined alone.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import numpy
from pandas import DataFrame

from ..baselines.test_texts import environment_of
from ..core.facts import fact_text
from ..core.groups import group_by
from ..stats.outliers import MEDIAN_ERROR
from ..stats.spread import class_of, priors
from ..stats.stats import growth
from .reading import RunTables
from .recent import recent_steps
from .steps import FEWEST_RUNS, RunSeries, SeriesChange, Values, examine

# A common change needs so many units: a single one moves the median of fewer.
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

    It is a share of time. `common` marks a change in the median of all units.
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
    """A step or a drift of one or more tests, on one or more units.

    Args:
        change: as a share of time, in the test and unit where it is largest.
        units: the devices or nodes that show it, sorted; empty where all of a hardware are one series.
        of_units: how many units ran these tests often enough.
        before: the last run before a step; `after` the first run after it. For a drift, the first and the last run.
        changed: the facts of the environment that changed between these runs.
        found: the changes of single tests, the largest first.
        trend: log seconds of the series where it is largest, in the order of time.
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
    """The changes of all tests, with their series.

    Args:
        short: how many series are too short.
        undated: how many runs have no date, and are left out.
    """

    changes: tuple[HistoryChange, ...]
    series: tuple[RunSeries, ...]
    short: int
    undated: int


def history(tables: RunTables, smallest_change: float = 0.02, by: str = "device") -> History:
    """Return the steps and drifts of all tests.

    Args:
        smallest_change: the smallest to report, as a share of time.
        by: the unit of a series: `device`, `node` or `hardware`.
    """
    single, short_count = _series(tables, by)
    by_test = group_by(single, lambda series: series.test)
    middles = [_middle(test_series) for test_series in by_test.values()]
    common = [middle for middle in middles if middle is not None]
    units_by_test = {
        test: {series.unit for series in test_series} - {""}
        for test, test_series in by_test.items()
    }
    changes = [
        _change(tables, group, sorted(affected_units), units_by_test)
        for group, affected_units in _affected_groups(tables, single, common, smallest_change)
    ]
    changes.sort(key=lambda change: (not change.slower, -abs(change.change)))
    undated_count = int(tables.runs["started"].isna().sum())
    return History(tuple(changes), (*common, *single), short_count, undated_count)


def _affected_groups(
    tables: RunTables,
    single: Sequence[RunSeries],
    common: Sequence[RunSeries],
    smallest_change: float,
) -> list[tuple[list[SeriesChange], set[str]]]:
    """Return groups of changes that may be one change.

    Each comes with the units that show it.

    Args:
        single: the series of single units.
        common: the median of all units, by test, where there are enough units.
        smallest_change: the smallest to report, as a share of time.
    """
    common_changes = _changes(common, smallest_change)
    # By the id of each common change, the units that follow it.
    followers: dict[int, list[str]] = {}
    # Each series without the common changes, so that those that remain are of its unit alone.
    remainders = [
        _without(
            series,
            [change for change in common_changes if change.series.test == series.test],
            followers,
        )
        for series in single
    ]
    common_groups = [
        (group, {unit for change in group for unit in followers.get(id(change), ())})
        for group in _group_changes(tables, common_changes)
    ]
    unit_groups = [
        (group, {change.series.unit for change in group} - {""})
        for group in _group_changes(tables, _changes(remainders, smallest_change))
    ]
    return [*common_groups, *unit_groups]


def _changes(series: Sequence[RunSeries], smallest_change: float) -> list[SeriesChange]:
    """Return the changes of whole series, and further steps among the last runs."""
    changes = examine(series, priors(), smallest_change)
    return [*changes, *recent_steps(series, changes, smallest_change)]


def _series(tables: RunTables, by: str) -> tuple[list[RunSeries], int]:
    """Return the series that are long enough, and the number of the others.

    A point is the median of a run's processes.
    """
    is_dated = tables.runs["started"].notna()
    rows = tables.fit
    rows = rows[rows["run"].map(is_dated)]
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
    run_numbers, point_days, logs = (points[name].to_numpy() for name in ("run", "days", "log"))
    series, short_count = [], 0
    # Runs are numbered in the order of time, so the points of a series are, too.
    for (test_number, unit), indices in points.groupby(["test", "unit"]).indices.items():
        if len(indices) < FEWEST_RUNS:
            short_count += 1
            continue
        test = tables.tests[test_number]
        kind = class_of(types.get(test.hardware, "cuda"), test.key.metric)
        series.append(
            RunSeries(
                test=int(test_number),
                unit=unit,
                runs=run_numbers[indices],
                days=point_days[indices],
                logs=logs[indices],
                kind=kind,
            )
        )
    return series, short_count


def _units(tables: RunTables, points: DataFrame, by: str) -> Values:
    """Return the unit of each point.

    It is a device, a node, or an empty text for all of a hardware. `by` names the kind of unit. A CPU has no identity,
    so its node is the unit. Where most nodes appear in a few runs only, as under ever new names, all CPUs of a hardware
    are one series.
    """
    runs = tables.runs
    counts = runs.groupby(["hardware", "node"])["path"].transform("size")
    are_long_lived = counts.groupby(runs["hardware"]).transform("median") >= FEWEST_RUNS
    device = runs["device"].where((runs["device"] != "") | ~are_long_lived, runs["node"])
    # An empty text for each run: all runs of a hardware are one series.
    nothing = runs["node"].map(lambda _: "")
    unit = {"node": runs["node"], "hardware": nothing, "device": device}[by]
    is_over_several = numpy.array([test.several for test in tables.tests], dtype=bool)
    # A test over several devices belongs to their node, not to the device of its run.
    takes_node = is_over_several[points["test"]] & (by == "device")
    point_node, point_unit = (
        column.to_numpy(dtype=object)[points["run"]] for column in (runs["node"], unit)
    )
    return numpy.asarray(numpy.where(takes_node, point_node, point_unit))


def _middle(series: Sequence[RunSeries]) -> RunSeries | None:
    """Return the median of all units of one test, as a series.

    Args:
        series: that of each unit.

    Returns:
        None with too few units or points.
    """
    if len(series) < FEWEST_UNITS:
        return None
    # Each unit is taken above its own median, so that a slow unit is no slow run.
    runs = numpy.concatenate([unit.runs for unit in series])
    logs = numpy.concatenate([unit.logs - median(unit.logs.tolist()) for unit in series])
    days = numpy.concatenate([unit.days for unit in series])
    order = numpy.argsort(runs, kind="stable")
    point_count = len(order) // len(series)
    if point_count < FEWEST_RUNS:
        return None
    # The points of all units, in the order of time, in groups of about one point a unit.
    parts = numpy.array_split(order, point_count)
    last_indices = [part[-1] for part in parts]
    any_unit = series[0]
    return RunSeries(
        any_unit.test,
        "",
        runs=numpy.array([runs[index] for index in last_indices]),
        days=numpy.array([numpy.median(days[part]) for part in parts]),
        logs=numpy.array([numpy.median(logs[part]) for part in parts]),
        kind=any_unit.kind,
        raw=(runs[order], logs[order]),
        noise_factor=MEDIAN_ERROR / len(series) ** 0.5,
    )


def _without(
    series: RunSeries, common: Sequence[SeriesChange], followers: dict[int, list[str]]
) -> RunSeries:
    """Return a series without the common changes that it follows.

    Its unit is added to `followers`, under the `id` of each of these changes.
    """
    if not common:
        return series
    logs = series.logs
    for change in common:
        # `path` is what the change adds to each point.
        remainder = logs - change.path(series)
        # The series follows a change if it scatters less without it.
        if abs(remainder - numpy.median(remainder)).sum() < abs(logs - numpy.median(logs)).sum():
            logs = remainder
            followers.setdefault(id(change), []).append(series.unit)
    return replace(series, logs=logs)


def _group_changes(tables: RunTables, changes: Sequence[SeriesChange]) -> list[list[SeriesChange]]:
    """Return groups of changes that may be one change, the largest first.

    Steps of a group have the same hardware and direction, and the runs between which they may lie
    overlap. Drifts are also grouped by unit.
    """
    # Each group is (first run, last run, changes): its steps may all lie between these runs.
    groups: dict[tuple[object, ...], list[tuple[int, int, list[SeriesChange]]]] = {}
    for change in sorted(changes, key=lambda change: (change.before, change.after)):
        unit = change.series.unit if change.kind == "drift" else ""
        hardware, is_slower = tables.tests[change.series.test].hardware, change.size > 0
        spans = groups.setdefault((hardware, change.kind, is_slower, unit), [])
        start, end = _span(change)
        for index, (first, last, members) in enumerate(spans):
            # A change that overlaps with a group joins it, and the group keeps the runs that both have.
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

    Noise can move the place where it was seen by one run of its series.
    """
    runs = change.series.single_runs
    place = int(numpy.searchsorted(runs, change.after))
    # The step was seen between the runs at `place - 1` and `place`.
    first, last = max(0, place - 2), min(len(runs) - 1, place + 1)
    return int(runs[first]), int(runs[last])


def _change(
    tables: RunTables,
    group: Sequence[SeriesChange],
    affected_units: list[str],
    units_by_test: dict[int, set[str]],
) -> HistoryChange:
    """Return a group of changes of single tests as one change.

    Args:
        group: the changes, the largest first.
        affected_units: the units that show it.
        units_by_test: all units that ran a test often enough.
    """
    worst = group[0]
    all_units = set().union(*(units_by_test[change.series.test] for change in group))
    return HistoryChange(
        kind=worst.kind,
        slower=worst.size > 0,
        change=growth(worst.size),
        hardware=tables.tests[worst.series.test].hardware,
        units=tuple(affected_units),
        of_units=len(all_units),
        before=_run_name(tables, worst.before),
        after=_run_name(tables, worst.after),
        changed=_changed_facts(tables, _pairs(tables, worst, affected_units)),
        found=tuple(_test_change(tables, change) for change in group),
        trend=tuple(worst.series.logs.tolist()),
    )


def _test_change(tables: RunTables, change: SeriesChange) -> TestChange:
    """Return a change of one series for a report."""
    test = tables.tests[change.series.test]
    low, high = (growth(bound) for bound in change.interval)
    return TestChange(
        label=test.label,
        parameters=test.key.parameters,
        unit=change.series.unit,
        common=change.series.common,
        change=growth(change.size),
        change_low=low,
        change_high=high,
        p=change.p,
        before=_run_name(tables, change.before),
        after=_run_name(tables, change.after),
    )


def _run_name(tables: RunTables, run: int) -> RunName:
    """Return the name of the run with this number."""
    row = tables.runs.loc[run]
    return RunName(
        str(row["run_id"]), row["started"].isoformat(), str(row["path"]), str(row["node"])
    )


def _pairs(tables: RunTables, change: SeriesChange, units: Sequence[str]) -> list[tuple[int, int]]:
    """Return pairs of runs between which a change lies.

    They are each unit's last run before it and first run after it. A change of a single unit has one such pair, and so
    has a change whose units have no runs on both sides.
    """
    if not change.series.common:
        return [(change.before, change.after)]
    # The numbers of runs by device, and by node. A unit is one of both.
    runs_by_name = [tables.runs.groupby(name).indices for name in ("device", "node")]
    pairs = []
    for unit in units[:MOST_COMPARED]:
        unit_runs = numpy.unique(numpy.concatenate([runs.get(unit, []) for runs in runs_by_name]))
        before, after = unit_runs[unit_runs <= change.before], unit_runs[unit_runs >= change.after]
        if len(before) and len(after):
            pairs.append((int(before[-1]), int(after[0])))
    return pairs or [(change.before, change.after)]


def _changed_facts(tables: RunTables, pairs: Sequence[tuple[int, int]]) -> tuple[str, ...]:
    """Return the facts that changed in at least half of the pairs of runs."""
    # In how many pairs each fact changed: the cause of a common change is most likely a fact that most units share.
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
    return environment_of(row["environment"]).everything() | {"measured by": str(row["tool"])}
