"""Series of a history: the log median of every run, by test and by what it ran on, in the order of time."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..many import Many, Test
from ..spread import class_of

if TYPE_CHECKING:
    from numpy import ndarray
    from pandas import DataFrame

# Two segments of three runs: fewer cannot show a step that is more than an outlier.
FEWEST_RUNS = 6
SHORTEST = 3


@dataclass(frozen=True, slots=True)
class Series:
    """One test over time on one unit, or in the middle of all units.

    Args:
        test: number of the test.
        unit: device, node, or empty where all of a hardware are one series.
        runs: number of each point's run, in the order of time; of a common series the last one of each point.
        days: since the first run of the history, of each point.
        logs: log seconds of each point; of a common series, above each unit's own median.
        kind: class of the noise that is assumed: `device` or `host`.
        raw: of a common series, the runs and logs that its points are the middles of, in the order of time.
    """

    test: int
    unit: str
    runs: "ndarray[Any, Any]"
    days: "ndarray[Any, Any]"
    logs: "ndarray[Any, Any]"
    kind: str = "device"
    raw: "tuple[ndarray[Any, Any], ndarray[Any, Any]] | None" = None

    def around(self, cut: int, low: float, high: float) -> tuple[int, int]:
        """The last run before the step in front of point `cut`, from level `low` to `high`, and the first behind it.

        A point of a common series has a run of every unit; among these the step is where both levels fit best.
        """
        if self.raw is None:
            return int(self.runs[cut - 1]), int(self.runs[cut])
        import numpy

        runs, logs = self.raw
        start = int(numpy.searchsorted(runs, self.runs[cut - 2], side="right")) if cut > 1 else 0
        end = int(numpy.searchsorted(runs, self.runs[cut], side="right"))
        apart = numpy.abs(logs[start:end] - low) - numpy.abs(logs[start:end] - high)
        # At least one run stays on either side.
        place = start + 1 + int(numpy.argmin(numpy.cumsum(apart)[:-1]))
        return int(runs[place - 1]), int(runs[place])

    @property
    def common(self) -> bool:
        """Whether it is the middle of all units."""
        return self.raw is not None


def points_of(many: Many, by: str) -> "DataFrame":
    """A row for each run, test and unit: `test`, `unit`, `run`, `days`, `log`; in the order of test, unit, time.

    Args:
        many: the runs.
        by: `device` (a CPU's hosts together), `node`, or `hardware` (all of one hardware together).
    """
    import numpy
    from pandas import DataFrame

    dated = many.runs["started"].notna()
    rows = many.fit[many.fit["run"].map(dated)]
    middle = DataFrame({"test": rows["test"], "run": rows["run"], "log": numpy.log(rows["seconds"])})
    points = middle.groupby(["test", "run"], sort=True)["log"].median().reset_index()
    first = many.runs["started"].min()
    days = ((many.runs["started"] - first).dt.total_seconds() / 86_400).to_numpy()
    points["days"] = days[points["run"]]
    points["unit"] = _units(many, points, by)
    # Runs are numbered in the order of time.
    return points.sort_values(["test", "unit", "run"], kind="stable", ignore_index=True)


def _units(many: Many, points: "DataFrame", by: str) -> Any:
    import numpy

    node = many.runs["node"].to_numpy(dtype=object)[points["run"]]
    if by == "node":
        return node
    if by == "hardware":
        return numpy.full(len(points), "", dtype=object)
    device = many.runs["device"].to_numpy(dtype=object)[points["run"]]
    # What several devices do together is no device's own.
    several = numpy.array([test.several for test in many.tests], dtype=bool)[points["test"]]
    return numpy.where(several, node, device)


def series_of(points: "DataFrame", tests: Sequence[Test], types: dict[str, str]) -> tuple[list[Series], int]:
    """Those that are long enough, and how many are too short."""
    found, short = [], 0
    bounds = _bounds(points["test"].to_numpy(), points["unit"].to_numpy())
    run, days, logs = (points[name].to_numpy() for name in ("run", "days", "log"))
    test, unit = points["test"].to_numpy(), points["unit"].to_numpy()
    for start, end in bounds:
        if end - start < FEWEST_RUNS:
            short += 1
            continue
        part, number = slice(start, end), int(test[start])
        kind = class_of(types.get(tests[number].hardware, "cuda"), tests[number].key.metric)
        found.append(Series(number, unit[start], run[part], days[part], logs[part], kind))
    return found, short


def _bounds(*columns: "ndarray[Any, Any]") -> list[tuple[int, int]]:
    import numpy

    if not len(columns[0]):
        return []
    changed = numpy.zeros(len(columns[0]) - 1, dtype=bool)
    for column in columns:
        changed |= column[1:] != column[:-1]
    cuts = [0, *(numpy.flatnonzero(changed) + 1).tolist(), len(columns[0])]
    return list(pairwise(cuts))


def common_series(series: Sequence[Series], fewest_units: int) -> Series | None:
    """The middle of all units of one test: what they did together; None of fewer units or points than that takes.

    Every unit counts from its own median, so that it does not matter which of them were measured when. As many runs as
    there are units make one point.
    """
    import numpy

    if len(series) < fewest_units:
        return None
    runs = numpy.concatenate([one.runs for one in series])
    logs = numpy.concatenate([one.logs - numpy.median(one.logs) for one in series])
    days = numpy.concatenate([one.days for one in series])
    order = numpy.argsort(runs, kind="stable")
    count = len(order) // len(series)
    if count < FEWEST_RUNS:
        return None
    parts = numpy.array_split(order, count)
    return Series(
        series[0].test,
        "",
        runs=numpy.array([runs[part[-1]] for part in parts]),
        days=numpy.array([numpy.median(days[part]) for part in parts]),
        logs=numpy.array([numpy.median(logs[part]) for part in parts]),
        kind=series[0].kind,
        raw=(runs[order], logs[order]),
    )
