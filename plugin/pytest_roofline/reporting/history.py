"""What became of tests over time, as a table, the worst first, and as plain data."""

from typing import Any

from ..core.units import format_percent, format_seconds, printable
from ..judging.history import Change, History
from ..judging.history.series import Series
from ..judging.many import Many
from ..judging.stats import change_bounds, growth
from .layout import new_table, render
from .many import as_percent, joined, trend, unfit_lines

# Changes that are told in full; the others are in --json.
MOST_TOLD = 20
# Devices or nodes that are named of a change.
MOST_UNITS = 3
# Rows of the table of all tests.
MOST_TESTS = 60


def history_text(many: Many, found: History, width: int, colour: bool) -> str:
    """Every change, then every test with its trend, then what was looked at."""
    lines = []
    for change in found.changes[:MOST_TOLD]:
        lines += [*_change_lines(many, change), ""]
    if len(found.changes) > MOST_TOLD:
        lines += [f"… and {len(found.changes) - MOST_TOLD} smaller changes; --json has all of them", ""]
    lines += [_tests_table(many, found, width, colour), "", *_closing(many, found)]
    return "\n".join(lines)


def _change_lines(many: Many, change: Change) -> list[str]:
    worst = change.worst
    word = "SLOWER" if change.slower else "faster"
    low, high = (growth(value) for value in worst.interval)
    size = f"{format_percent(growth(worst.size))} of time ({as_percent(low, high)})"
    when = f"between {_when(many, change.before)} and {_when(many, change.after)}"
    if change.kind == "drift":
        when = f"from {_when(many, change.before)} to {_when(many, change.after)}"
    tests = [many.tests[number].label for number in change.tests]
    lines = [
        f"{word} {change.kind} {size}, {when}",
        f"  tests: {joined(tests, 4)}" + (", the largest first" if len(tests) > 1 else ""),
        f"  on: {_where(many, change)}; {printable(change.hardware)}",
        f"  runs: {_run(many, change.before)} → {_run(many, change.after)}",
        f"  trend: {trend(worst.series.logs.tolist(), 40)}",
    ]
    told = "changed then" if change.kind == "step" else "changed from the first to the last"
    return [*lines, f"  {told}: {joined(change.changed, 6) or 'nothing that a run file knows of'}"]


def _where(many: Many, change: Change) -> str:
    nodes_of = dict(zip(many.runs["device"], many.runs["node"], strict=True))
    nodes = set(nodes_of.values())
    if not change.units:
        return "this hardware"
    if len(change.units) == change.of_units and change.of_units > 1:
        return f"all {change.of_units} of {change.of_units}"
    told = [unit if unit in nodes else f"{unit} on {nodes_of.get(unit, '?')}" for unit in change.units[:MOST_UNITS]]
    more = f" and {len(change.units) - MOST_UNITS} more" if len(change.units) > MOST_UNITS else ""
    return f"{printable(', '.join(told))}{more} ({len(change.units)} of {change.of_units})"


def _when(many: Many, run: int) -> str:
    return f"{many.runs['started'][run]:%Y-%m-%d %H:%M}"


def _run(many: Many, run: int) -> str:
    return printable(f"{many.runs['run_id'][run]} ({many.runs['node'][run]})")


def _tests_table(many: Many, found: History, width: int, colour: bool) -> str:
    """A row for each test of each hardware: what is common to its units, or its only one."""
    shown: dict[int, Series] = {}
    counts: dict[int, int] = {}
    for series in found.series:
        # Common series come first, and stand for all others.
        shown.setdefault(series.test, series)
        counts[series.test] = counts.get(series.test, 0) + (not series.common)
    columns = ("test", "left"), ("series", "right"), ("runs", "right"), ("median", "right"), ("trend", "left")
    table = new_table(*columns)
    order = sorted(shown, key=lambda number: (many.tests[number].hardware, many.tests[number].label))
    medians = many.fit.groupby("test")["seconds"].median()
    runs = many.fit.groupby("test")["run"].nunique()
    for number in order[:MOST_TESTS]:
        table.add_row(
            printable(many.tests[number].label),
            str(counts[number]),
            str(runs[number]),
            format_seconds(float(medians[number])),
            trend(shown[number].logs.tolist()),
        )
    more = f"\n… and {len(order) - MOST_TESTS} more tests; choose with --tests" if len(order) > MOST_TESTS else ""
    return render(table, width, colour) + more


def _closing(many: Many, found: History) -> list[str]:
    lines = unfit_lines(many)
    if found.undated:
        lines.append(f"{found.undated} runs have no date and count nowhere")
    if found.short:
        lines.append(f"{found.short} series are too short: a series needs 6 runs that count")
    single = sum(not series.common for series in found.series)
    worse = sum(change.slower for change in found.changes)
    lines.append(
        f"{single} series of {len({series.test for series in found.series})} tests in "
        f"{many.rows['run'].nunique()} runs: "
        f"{worse} changes for the worse, {len(found.changes) - worse} for the better"
    )
    return lines


def history_as_json(many: Many, found: History) -> dict[str, Any]:
    """All of it as plain data; sizes are shares of time."""
    return {
        "changes": [_change_as_json(many, change) for change in found.changes],
        "series": sum(not series.common for series in found.series),
        "too_short": found.short,
        "undated_runs": found.undated,
        "runs": int(many.rows["run"].nunique()),
        "left_out": list(many.left_out),
        "unfit": many.unfit,
    }


def _change_as_json(many: Many, change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "slower": change.slower,
        "change": growth(change.worst.size),
        "hardware": change.hardware,
        "units": list(change.units),
        "of_units": change.of_units,
        "before": _run_as_json(many, change.before),
        "after": _run_as_json(many, change.after),
        "changed": list(change.changed),
        "found": [
            {
                "label": many.tests[one.series.test].label,
                "parameters": many.tests[one.series.test].key.parameters,
                "unit": one.series.unit,
                "common": one.series.common,
                "change": growth(one.size),
                **change_bounds(one.interval),
                "p": one.p,
                "before": _run_as_json(many, one.before),
                "after": _run_as_json(many, one.after),
            }
            for one in change.found
        ],
    }


def _run_as_json(many: Many, run: int) -> dict[str, str]:
    row = many.runs.loc[run]
    return {"run_id": str(row["run_id"]), "started": row["started"].isoformat(), "path": str(row["path"])}
