"""Texts that `roofline history` and `roofline fleet` print, the worst first."""

import datetime
import itertools
import re
from collections import Counter
from collections.abc import Sequence
from statistics import median

from ..core.groups import group_by
from ..core.units import count, cut, format_percent, format_tolerance, listed, printable
from ..report.tables import TextTable, render
from ..report.words import kept_text
from .fleet import Fleet, HardwareCount, SlowPart
from .history import History, HistoryChange, RunName
from .incomplete import MEASUREMENT, IncompleteNode
from .nodes import silent_lines
from .reading import RunTables
from .steps import RunSeries

TICKS = "▁▂▃▄▅▆▇█"
# The least distance from the lowest tick to the highest, in log seconds: noise must not fill the height.
LEAST_HEIGHT_RANGE = 0.04
# At most so many reasons why measurements do not count.
MOST_REASONS = 3
# At most so many changes and findings; the others are in --json.
MOST_PRINTED = 20
# At most so many tests or devices, and so many facts, of each of them.
MOST_NAMED, MOST_FACTS = 3, 6
# At most so many rows in the table of all tests.
MOST_TESTS = 60
WORDS = {"node": "node", "gpu": "GPU", "link": "link"}


def trend(logs: Sequence[float], width: int = 16) -> str:
    """Return log seconds in time order as ticks of eight heights.

    If there are more points than `width`, a tick is the median of several neighbours.
    """
    if not logs:
        return ""
    ticks = min(width, len(logs))
    cuts = [len(logs) * place // ticks for place in range(ticks + 1)]
    heights = [median(logs[start:end]) for start, end in itertools.pairwise(cuts)]
    low, high = min(heights), max(heights)
    middle, height_range = (low + high) / 2, max(LEAST_HEIGHT_RANGE, high - low)
    # From 0 for the lowest tick to 1 for the highest.
    shares = [(height - middle) / height_range + 0.5 for height in heights]
    return "".join(TICKS[round(share * (len(TICKS) - 1))] for share in shares)


def _unfit_lines(tables: RunTables) -> list[str]:
    """Return the line on measurements that do not count, with the reasons.

    Reasons that differ only in numbers are counted together.
    """
    unfit = tables.unfit
    if not unfit:
        return []
    alike = group_by(unfit, lambda reason: re.sub(r"\d[\d.]*", "#", reason)).values()
    counts = Counter({reasons[0]: sum(unfit[reason] for reason in reasons) for reasons in alike})
    lines = [f"{number} × {reason}" for reason, number in counts.most_common()]
    total = f"{counts.total()} of {len(tables.rows)} measurements do not count"
    return [printable(f"{total}: {listed(lines, MOST_REASONS, '; ')}")]


def _span(low: float, high: float) -> str:
    """Return an interval of shares in percent: `5.2 … 7.0`."""
    return f"{low * 100:.1f} … {high * 100:.1f}"


def history_text(tables: RunTables, run_history: History, width: int, colour: bool) -> str:
    """Return every change, every test with its trend, and the counts."""
    changes = run_history.changes
    # A change takes as long to word as the runs are many, so only those that are printed are.
    paragraphs = [
        "\n".join(map(printable, _change_lines(tables, change)))
        for change in changes[:MOST_PRINTED]
    ]
    if len(changes) > MOST_PRINTED:
        paragraphs.append(
            f"… and {len(changes) - MOST_PRINTED} smaller changes; --json has all of them"
        )
    return "\n\n".join(
        [
            *paragraphs,
            _tests_table(tables, run_history, width, colour),
            "\n".join(_closing(tables, run_history)),
        ]
    )


def _change_lines(tables: RunTables, change: HistoryChange) -> list[str]:
    """Return the lines on one change.

    They have its size, time, tests, units, runs, trend and changed facts.
    """
    worst, is_step = change.found[0], change.kind == "step"
    size = f"{format_percent(change.change)} of time ({_span(worst.change_low, worst.change_high)})"
    opening, joint, when = (
        ("between", "and", "then") if is_step else ("from", "to", "from the first run to the last")
    )
    return [
        f"{'SLOWER' if change.slower else 'faster'} {change.kind} {size}, "
        f"{opening} {_time_text(change.before)} {joint} {_time_text(change.after)}",
        f"  tests: {listed(change.tests, MOST_NAMED)}"
        + (", the largest first" if len(change.tests) > 1 else ""),
        f"  on: {_units_text(tables, change)}; {change.hardware}",
        f"  runs: {' → '.join(f'{run.run_id} ({run.node})' for run in (change.before, change.after))}",
        f"  trend: {trend(change.trend, 40)}",
        f"  changed {when}: {listed(change.changed, MOST_FACTS) or 'no recorded fact'}",
    ]


def _time_text(run: RunName) -> str:
    """Return the minute in which a run began."""
    return f"{datetime.datetime.fromisoformat(run.started):%Y-%m-%d %H:%M}"


def _units_text(tables: RunTables, change: HistoryChange) -> str:
    """Return the units that show a change, with the node of each device."""
    if not change.units:
        return "this hardware"
    if len(change.units) == change.of_units and change.of_units > 1:
        return f"all {change.of_units} of {change.of_units}"
    node_of = dict(zip(tables.runs["device"], tables.runs["node"], strict=True))
    names = [f"{unit} on {node_of[unit]}" if unit in node_of else unit for unit in change.units]
    return f"{listed(names, MOST_NAMED)} ({len(change.units)} of {change.of_units})"


def _tests_table(tables: RunTables, run_history: History, width: int, colour: bool) -> str:
    """Return the table of all tests.

    There is a row for each test of each hardware. The trend is that of all units together, or of the first unit where
    they are too few.
    """
    series_by_test: dict[int, RunSeries] = {}
    for series in run_history.series:
        # Common series come first in a history, so a test that has one shows it.
        series_by_test.setdefault(series.test, series)
    counts = Counter(series.test for series in run_history.series if not series.common)
    table = TextTable(
        ("test", "left"),
        ("series", "right"),
        ("runs", "right"),
        ("median", "right"),
        ("trend", "left"),
    )
    medians = tables.fit.groupby("test").agg(seconds=("seconds", "median"), runs=("run", "nunique"))
    order = sorted(
        series_by_test,
        key=lambda number: (tables.tests[number].hardware, tables.tests[number].label),
    )
    for number in order[:MOST_TESTS]:
        seconds, runs = medians.loc[number]
        test = tables.tests[number]
        ticks = trend(series_by_test[number].logs.tolist())
        middle = kept_text(test.key.metric, float(seconds))
        table.add_row(printable(test.label), str(counts[number]), f"{runs:.0f}", middle, ticks)
    remark = (
        f"\n… and {len(order) - MOST_TESTS} more tests; choose tests with --tests"
        if len(order) > MOST_TESTS
        else ""
    )
    return render(table, width, colour) + remark


def _closing(tables: RunTables, run_history: History) -> list[str]:
    """Return the last lines.

    They tell what is left out, and the numbers of series, runs and changes.
    """
    lines = _unfit_lines(tables)
    if run_history.undated:
        lines.append(f"{run_history.undated} runs without a date are left out")
    if run_history.short:
        lines.append(f"{run_history.short} series are too short; a series needs 6 valid runs")
    # The test of each series of a single unit.
    tests = [series.test for series in run_history.series if not series.common]
    slower_count = sum(change.slower for change in run_history.changes)
    return [
        *lines,
        f"{len(tests)} series of {len(set(tests))} tests in {tables.rows['run'].nunique()} runs: "
        f"{slower_count} changes for the worse, {len(run_history.changes) - slower_count} for the better",
    ]


def fleet_text(
    tables: RunTables,
    report: Fleet,
    findings: Sequence[SlowPart],
    width: int,
    colour: bool,
    by: str | None = None,
) -> str:
    """Return the table of findings, the details of each, and the counts.

    `by` is the only level that is shown; None for all.
    """
    lines = []
    if findings:
        lines += [_findings_table(findings, width, colour), ""]
        for number, finding in enumerate(findings[:MOST_PRINTED], 1):
            lines += [*map(printable, _finding_lines(number, finding)), ""]
    lines += _unfit_lines(tables)
    if report.over_several_nodes:
        lines.append(
            f"{report.over_several_nodes} measurements are over several nodes, so they are not used to "
            "judge a single node"
        )
    lines += map(printable, silent_lines(report.silent))
    lines += map(printable, _incomplete_lines(report.incomplete))
    for hardware in report.hardware:
        lines += map(printable, _hardware_lines(hardware))
    counts = Counter(finding.level for finding in findings)
    numbers = [count(counts[level], word) for level, word in WORDS.items() if counts[level]]
    if not any(hardware_count.judged for hardware_count in report.hardware):
        return "\n".join(lines)
    return "\n".join(
        [*lines, f"slower than their peers: {', '.join(numbers) or _none_found(report, by)}"]
    )


def _none_found(report: Fleet, by: str | None) -> str:
    """Return the sentence that no part is slow.

    It adds the slowness that would not have been found.
    """
    # By level, the largest share of all hardware.
    shares: dict[str, float] = {}
    for hardware in report.hardware:
        if hardware.judged:
            for level, share in hardware.detectable.items():
                shares[level] = max(share, shares.get(level, share))
    undetectable = [
        f"a {WORDS[level]} that is less than {format_tolerance(round(share, 3))} slower"
        for level, share in shares.items()
        if by in (None, level)
    ]
    if not undetectable:
        return "none was found"
    parts = listed(undetectable, len(undetectable), ", ")
    return f"none was found; {parts} would not have been found"


def _findings_table(findings: Sequence[SlowPart], width: int, colour: bool) -> str:
    """Return the table of slow parts.

    There is a row for each of their slow classes.
    """
    table = TextTable(
        ("#", "right"), ("what", "left"), ("test", "left"), ("slower", "right"), ("95 %", "right")
    )
    for number, finding in enumerate(findings, 1):
        part_name, level_word = printable(finding.part), WORDS[finding.level]
        for slow_class in finding.slow:
            kind = slow_class.kind if slow_class.steady else f"{slow_class.kind}, sometimes"
            span = _span(slow_class.change_low, slow_class.change_high)
            table.add_row(
                str(number),
                level_word,
                f"{part_name}: {kind}",
                format_percent(slow_class.change),
                span,
            )
    return render(table, width, colour)


def _finding_lines(number: int, finding: SlowPart) -> list[str]:
    """Return the lines on one finding.

    `number` is that of its rows in the table.
    """
    where = f" on {finding.node}" if finding.node != finding.part else ""
    lines = [f"{number}. {WORDS[finding.level]} {finding.part}{where}, {finding.hardware}"]
    sometimes = ", only in some of these runs; roofline history shows since when"
    for slow_class in finding.slow:
        tests = listed(slow_class.tests, MOST_NAMED)
        frequency = "" if slow_class.steady else sometimes
        lines.append(
            f"   slow in {slow_class.kind}: {tests} in {count(slow_class.runs, 'run')}{frequency}"
        )
    if finding.fine:
        lines.append(f"   as fast as others in {', '.join(finding.fine)}")
    if finding.differs:
        lines.append(f"   differs: {listed(finding.differs, MOST_FACTS)}")
    return [*lines, f"   look at: {finding.look_at}"]


def _incomplete_lines(nodes: Sequence[IncompleteNode]) -> list[str]:
    """Return the lines on nodes of which less is judged.

    One reads `node003: 7 of 8 GPUs, 1 of 2 tests: …`.
    """
    lines = [_incomplete_line(node) for node in nodes]
    return cut(lines, MOST_PRINTED, "such nodes; --json has all of them")


def _incomplete_line(node: IncompleteNode) -> str:
    """Return the line on one node of which less is judged."""
    # The number of measurements is named only where no test, GPU or link is missing.
    units = [unit for unit in node.expected if unit != MEASUREMENT] or [*node.expected]
    shares = ", ".join(
        f"{node.judged[unit]} of {count(node.expected[unit], WORDS.get(unit, unit))}"
        for unit in units
    )
    unjudged = "no part of this node is judged" if node.unjudged else ""
    parts = [node.node, unjudged, shares, node.reason]
    return ": ".join(part for part in parts if part)


def _hardware_lines(hardware: HardwareCount) -> list[str]:
    """Return the lines on one hardware.

    They have counts, detectable effects, and runs that name no device.
    """
    counts = {
        "node": hardware.nodes,
        "device": hardware.devices,
        "link": hardware.links,
        "test": hardware.tests,
        "run": hardware.runs,
    }
    # Logs of collectives alone name no device and no link.
    *parts, runs = (count(number, name) for name, number in counts.items() if number)
    size = f"{hardware.hardware}: {', '.join(parts)} in {runs}"
    if hardware.judged:
        effects = ", ".join(
            f"a {WORDS[level]} from {format_percent(share)}"
            for level, share in hardware.detectable.items()
        )
        lines = [f"{size}; detectable in every class of tests: {effects}"]
    else:
        expected = "too few to find a slow part; expected at least 4 with the same tests"
        lines = [f"{size}: {expected}"]
    if hardware.unplaced:
        lines.append(
            f"{hardware.hardware}: devices and links inside a node are not identified "
            f"in {count(hardware.unplaced, 'imported run')}, so a slow device or link is not found"
        )
    return lines
