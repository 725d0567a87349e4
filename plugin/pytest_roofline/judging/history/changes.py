"""What happened over time, said once: steps of many tests at one time are one change, with what else changed then."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..many import Many
from ..spread import priors
from .series import Series, common_series, points_of, series_of
from .testing import Found, examine

if TYPE_CHECKING:
    from numpy import ndarray

# A common change needs so many units: of fewer, one alone moves the middle.
FEWEST_UNITS = 4
# Of the units that a change is about, so many are asked what changed in their environment.
MOST_ASKED = 200


@dataclass(frozen=True, slots=True)
class Change:
    """A step or a drift, of one test or of many at the same time, on one unit or on many.

    Args:
        kind: `step` or `drift`.
        hardware: as one device.
        found: the step or drift of each test and unit, the largest first.
        units: devices or nodes that it was seen on, sorted; empty where all of a hardware are one series.
        of_units: how many there are that ran these tests often enough.
        before: number of the last run before it; `after` of the first behind it. Of a drift the first and the last.
        changed: what differs between these runs: `driver 570.86 → 580.10`.
    """

    kind: str
    hardware: str
    found: tuple[Found, ...]
    units: tuple[str, ...]
    of_units: int
    before: int
    after: int
    changed: tuple[str, ...] = ()

    @property
    def worst(self) -> Found:
        """Where it is largest."""
        return self.found[0]

    @property
    def slower(self) -> bool:
        """Whether it is a change for the worse."""
        return self.worst.size > 0

    @property
    def tests(self) -> tuple[int, ...]:
        """Numbers of the tests, the one with the largest change first."""
        return tuple(dict.fromkeys(one.series.test for one in self.found))


@dataclass(frozen=True, slots=True)
class History:
    """What became of the tests.

    Args:
        changes: those for the worse first, the largest first.
        series: every series that was long enough; the common ones of tests that have one, too.
        short: how many were too short to be looked at.
        undated: runs without a date, which count nowhere.
    """

    changes: tuple[Change, ...]
    series: tuple[Series, ...]
    short: int
    undated: int

    @property
    def slower(self) -> bool:
        """Whether anything became slower."""
        return any(change.slower for change in self.changes)


def history(many: Many, least: float = 0.02, by: str = "device") -> History:
    """Steps and drifts of all tests.

    What the middle of at least four units does is common: it is taken out before each unit is looked at by itself.

    Args:
        many: the runs.
        least: the smallest change that is reported, a share of the time.
        by: what a series is of: `device`, `node`, or `hardware`.
    """
    types = dict(zip(many.runs["hardware"], many.runs["type"], strict=True))
    single, short = series_of(points_of(many, by), many.tests, types)
    by_test: dict[int, list[Series]] = {}
    for series in single:
        by_test.setdefault(series.test, []).append(series)
    middles = [common_series(mine, FEWEST_UNITS) for mine in by_test.values()]
    common = [middle for middle in middles if middle is not None]
    together = examine(common, priors(), least)
    alone: list[Series] = []
    followed: dict[int, list[str]] = {}
    for series in single:
        mine = [found for found in together if found.series.test == series.test]
        rest, follows = _without(series, mine)
        alone.append(rest)
        for number in follows:
            followed.setdefault(id(mine[number]), []).append(series.unit)
    units = {number: {one.unit for one in mine} - {""} for number, mine in by_test.items()}
    changes = _together(many, together, followed, units) + _apart(many, examine(alone, priors(), least), units)
    changes.sort(key=lambda change: (not change.slower, -abs(change.worst.size)))
    undated = int(many.runs["started"].isna().sum())
    return History(tuple(changes), (*common, *single), short, undated)


def _without(series: Series, common: Sequence[Found]) -> tuple[Series, list[int]]:
    """A series without the common changes that it follows, and which those are.

    One that a unit does not follow, such as the update that its node never got, must not become a step of its own.
    """
    import numpy

    logs, follows = series.logs, []
    for number, found in enumerate(common):
        if found.kind == "step":
            path = numpy.where(series.runs >= found.after, found.size, 0.0)
        else:
            days = found.series.days
            path = found.size * (series.days - days[0]) / (days[-1] - days[0])
        without = logs - path
        if _restless(without) < _restless(logs):
            logs = without
            follows.append(number)
    return replace(series, logs=logs), follows


def _restless(logs: "ndarray[Any, Any]") -> float:
    import numpy

    return float(numpy.abs(logs - numpy.median(logs)).sum())


def _together(
    many: Many, found: Sequence[Found], followed: dict[int, list[str]], units: dict[int, set[str]]
) -> list[Change]:
    """Common changes: those of several tests at one time are one."""
    changes = []
    for group in _at_one_time(many, found):
        mine = sorted({unit for one in group for unit in followed.get(id(one), ())})
        changes.append(_change(many, group, mine, units))
    return changes


def _apart(many: Many, found: Sequence[Found], units: dict[int, set[str]]) -> list[Change]:
    """Changes of single units: one at the same time on several is one change."""
    groups = _at_one_time(many, found)
    return [_change(many, group, sorted({one.series.unit for one in group} - {""}), units) for group in groups]


def _at_one_time(many: Many, found: Sequence[Found]) -> list[list[Found]]:
    """Steps of one hardware in one direction whose times may be the same; drifts of one unit in one direction."""
    groups: dict[tuple[object, ...], list[list[Found]]] = {}
    spans: dict[int, tuple[int, int]] = {}
    for one in sorted(found, key=lambda one: (one.before, one.after)):
        alone = one.series.unit if one.kind == "drift" else ""
        kind = (many.tests[one.series.test].hardware, one.kind, one.size > 0, alone)
        mine = groups.setdefault(kind, [])
        low, high = _span(one)
        # Where the intervals of all so far meet, so that a chain of neighbours does not join what lies far apart.
        group = next((group for group in mine if max(low, spans[id(group)][0]) <= min(high, spans[id(group)][1])), None)
        if group is None:
            mine.append(group := [])
            spans[id(group)] = (low, high)
        group.append(one)
        spans[id(group)] = max(low, spans[id(group)][0]), min(high, spans[id(group)][1])
    return [group for mine in groups.values() for group in mine]


def _span(found: Found) -> tuple[int, int]:
    """The runs between which a step may lie: noise can move it by one of its own runs."""
    import numpy

    runs = found.series.runs if found.series.raw is None else found.series.raw[0]
    place = int(numpy.searchsorted(runs, found.after))
    return int(runs[max(0, place - 2)]), int(runs[min(len(runs) - 1, place + 1)])


def _change(many: Many, group: list[Found], mine: list[str], units: dict[int, set[str]]) -> Change:
    group.sort(key=lambda one: -abs(one.size))
    first = group[0]
    hardware = many.tests[first.series.test].hardware
    asked = _pairs(many, first, mine)
    return Change(
        first.kind,
        hardware,
        tuple(group),
        tuple(mine),
        len(set().union(*(units[one.series.test] for one in group))),
        first.before,
        first.after,
        _changed(many, asked),
    )


def _pairs(many: Many, found: Found, units: Sequence[str]) -> list[tuple[int, int]]:
    """Of each unit, its last run before a change and its first behind it."""
    if found.series.raw is None:
        return [(found.before, found.after)]
    pairs = []
    runs = many.runs
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
            was, is_now = old.get(name, "unknown"), new.get(name, "unknown")
            if was != is_now:
                told[f"{name} {was} → {is_now}"] += 1
    return tuple(text for text, count in told.most_common() if count * 2 >= len(pairs))


def _environment(many: Many, run: int) -> dict[str, str]:
    row = many.runs.loc[run]
    return many.environments[int(row["environment"])].comparable() | {"measured by": str(row["tool"])}
