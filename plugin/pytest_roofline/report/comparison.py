"""Text and JSON of `roofline compare` beside its table."""

from collections.abc import Callable, Sequence
from statistics import geometric_mean

from ..baselines.comparing import Comparison
from ..baselines.pairs import Contrast
from ..baselines.picking import is_imported
from ..baselines.remarks import odd_lines
from ..baselines.rows import odd_behind
from ..baselines.runs import Run
from ..core.rows import PEAK, Row, compared_verdicts, plain
from ..core.units import count, format_seconds, listed, printable
from ..core.verdicts import Kind
from ..hardware import identity_of
from ..stats.analyses import ENOUGH_KNOWN
from ..stats.causes import common_shift
from ..stats.stats import growth
from .overview import changed_texts, clock_line, device_line, shift_line, together_text
from .tables import TextTable, render, styled
from .words import baseline_text, is_value, now_text, tolerance_text, totals_text

# Names, such as hosts or tests, that a sentence lists before it counts the others.
MOST_NAMED = 3


def comparison_lines(comparison: Comparison, old: Sequence[Run], new: Sequence[Run]) -> list[str]:
    """Return the lines above the table, each about several rows.

    Args:
        comparison: its rows, and the verdict on all tests together.
        old: the runs on the old side; empty where that side is a baseline.
        new: the runs on the new side.
    """
    rows = comparison.rows
    lines = (
        [f"REGRESSED: {together_text(comparison.together)}"]
        if comparison.together is not None
        else []
    )
    lines += (
        _blind_line(rows, new) + shift_line(rows) + odd_lines(odd_behind(rows)) + clock_line(rows)
    )
    changed = _place_changes(old, new) + changed_texts(rows)
    lines += [printable(f"changed: {'; '.join(changed)}")] if changed else []
    return list(filter(None, [*lines, *device_line(rows), tolerance_text(rows)]))


def _blind_line(rows: Sequence[Row], new: Sequence[Run]) -> list[str]:
    """Return the sentence that no test can turn red, since too few processes are compared.

    The sentence says how many are enough. There is none where some test may turn red, or where nothing was compared.
    """
    verdicts = compared_verdicts(rows)
    may_turn_red = any(
        verdict.kind is Kind.REGRESSED or verdict.processes >= verdict.processes_for_red
        for verdict in verdicts
    )
    if not verdicts or may_turn_red:
        return []
    # The most demanding test, so that the advice is enough for every test.
    verdict = max(verdicts, key=lambda verdict: verdict.processes_for_red)
    old_processes = len(verdict.baseline_medians_s)
    # With few old processes, more new processes alone are not enough.
    if old_processes >= ENOUGH_KNOWN:
        enough, side = verdict.processes_for_red, "the new side"
    else:
        enough, side = ENOUGH_KNOWN, "each side"
    remedy = f"Measure {side} with --roofline-rounds={enough} --roofline-save=NAME, or"
    if new and all(map(is_imported, new)):
        remedy = "Import more logs, and"
    return [
        f"no test can be REGRESSED with {count(verdict.processes, 'process', 'es')} against {old_processes}, since "
        f"REGRESSED needs {verdict.processes_for_red}. {remedy} name {enough} runs of {side}, separated by commas"
    ]


def _place_changes(old: Sequence[Run], new: Sequence[Run]) -> list[str]:
    """Return the hosts and devices of sides that share none.

    A side that is a baseline has no runs and so no hosts; then there is no line.
    """
    lines = []
    for word, name_of in (
        ("host", lambda run: run.header.environment.host.name),
        ("device", _device),
    ):
        before, after = _names(old, name_of), _names(new, name_of)
        if before and after and not set(before) & set(after):
            lines.append(f"{word} {listed(before, MOST_NAMED)} → {listed(after, MOST_NAMED)}")
    return lines


def _device(run: Run) -> str:
    """Return the identity of the device that a run measured."""
    return identity_of(run.header.environment)


def _names(runs: Sequence[Run], name_of: Callable[[Run], str]) -> list[str]:
    """Return the distinct names that runs have, in order."""
    return list(dict.fromkeys(filter(None, map(name_of, runs))))


def comparison_as_json(comparison: Comparison) -> list[dict[str, object]]:
    """Return the rows as JSON, with the comparison's own fields.

    A row is an object for each of its metrics: its time, and its peak memory if it was measured.
    """
    shift = common_shift(compared_verdicts(comparison.rows))
    suite_change = growth(shift.estimate) if shift is not None else None
    return [
        plain(columns) | _comparison_fields(row, columns.metric, suite_change)
        for row in comparison.everything
        for columns in row.columns()
    ]


def _comparison_fields(
    row: Row, metric: str | None, suite_change: float | None
) -> dict[str, object]:
    """Return the fields that a comparison adds to one metric of a row.

    They are added to times and kernels; peak memory has none.
    """
    if row.exact:
        return kernel_as_json(row)
    return {} if metric == PEAK else _time_fields(row, suite_change)


def _time_fields(row: Row, suite_change: float | None) -> dict[str, object]:
    """Return the fields that a comparison adds to a time.

    Args:
        row: of the comparison.
        suite_change: the change of the whole suite, as a share of time; None where it did not shift together.
    """
    verdict = row.time_verdict
    difference = verdict.difference if verdict is not None else None
    spread = difference.device if difference is not None else None
    return {
        "p": verdict.p if verdict is not None else None,
        "changed": list(verdict.subject.changed) if verdict is not None else [],
        "between_devices": spread.value if spread is not None else None,
        "whole_suite": suite_change,
        "odd_sessions": [session.text for session in odd_behind([row])],
    }


def kernel_as_json(row: Row) -> dict[str, object]:
    """Return the fields that a comparison adds to a kernel."""
    assert row.exact is not None
    return {
        "baseline_figures": row.baseline_figures,
        "worse": [change.figure for change in row.exact.changes if change.verdict == "worse"],
        "better": [change.figure for change in row.exact.changes if change.verdict == "better"],
        "remarks": list(row.exact.remarks),
    }


def contrast_as_json(contrast: Contrast) -> list[dict[str, object]]:
    """Return the comparison of two values of a parameter as JSON, an object for each row."""
    # The largest change of the time is the smallest speed-up.
    return [
        plain(row)
        | {
            "by": contrast.parameter,
            "base": contrast.base,
            "other": value,
            "speedup": _speedup(row.slowdown),
            "speedup_low": _speedup(row.slowdown_interval[1]),
            "speedup_high": _speedup(row.slowdown_interval[0]),
            "p": row.time_verdict.p_adjusted if row.time_verdict is not None else None,
        }
        for value, row in contrast.rows
    ]


def contrast_text(contrast: Contrast, width: int, colour: bool) -> str:
    """Return the table of a contrast, and closing sentences.

    The table compares the values of a parameter with its base value. The table has a row for each test, the worst
    first. The sentences give the reasons of verdicts, and sum up each value of the parameter.
    """
    values = list(dict.fromkeys(value for value, _ in contrast.rows))
    # Tests with the same verdict and reason share a sentence; their labels replace the {} in it.
    labels_by_sentence: dict[str, list[str]] = {}
    for _, row in contrast.rows:
        if row.reason:
            sentence = f"{row.verdict} {{}}: {row.reason}"
            labels_by_sentence.setdefault(sentence, []).append(row.label)
    sentences = [
        sentence.replace("{}", listed(labels, MOST_NAMED), 1)
        for sentence, labels in labels_by_sentence.items()
    ]
    sentences += [_value_sentence(contrast, value) for value in values]
    tolerance = tolerance_text(row for _, row in contrast.rows)
    heading = [tolerance] if tolerance else []
    table = render(_contrast_table(contrast, values), width, colour)
    return "\n".join([*heading, table, *map(printable, sentences)])


def _contrast_table(contrast: Contrast, values: Sequence[str]) -> TextTable:
    """Return the table of both times, with speed-up and verdict.

    Where several values are compared with the base, a column names the value of each row.
    """
    has_several_values = len(values) > 1
    value_column = [(printable(contrast.parameter), "left")] if has_several_values else []
    number_headings = (
        printable(contrast.base),
        "other" if has_several_values else printable(values[0]),
        "speed-up",
        "99 % interval",
        "n",
    )
    number_columns = [(heading, "right") for heading in number_headings]
    table = TextTable(("test", "left"), *value_column, *number_columns, ("verdict", "left"))
    for value, row in contrast.rows:
        times = [
            "" if time_s is None else format_seconds(time_s)
            for time_s in (row.baseline_time_s, row.time_s)
        ]
        # A figure of a program, such as its throughput, is no time.
        times = [baseline_text(row), now_text(row)] if is_value(row) else times
        # The largest change of the time is the smallest speed-up.
        bounds = " … ".join(
            f"{1 / (1 + bound):.2f}"
            for bound in reversed(row.slowdown_interval)
            if bound is not None
        )
        cells = [*times, _speedup_text(_speedup(row.slowdown)), bounds, f"{row.processes or ''}"]
        value_cell = [printable(value)] if has_several_values else []
        table.add_row(printable(row.label), *value_cell, *cells, styled(row.verdict))
    return table


def _value_sentence(contrast: Contrast, value: str) -> str:
    """Return the sentence that sums up one value of the compared parameter.

    It reads `compiled against eager: 3 IMPROVED, 1 PASSED; 1.31x as fast in the geometric mean of 4
    tests`.
    """
    rows = [row for row_value, row in contrast.rows if row_value == value]
    text = f"{value} against {contrast.base}: {totals_text(rows)}"
    # A row with a slowdown has a speed-up, so the 1.0 only satisfies the type.
    speedups = [_speedup(row.slowdown) or 1.0 for row in rows if row.slowdown is not None]
    if not speedups:
        return text
    mean_text = _speedup_text(geometric_mean(speedups))
    return f"{text}; {mean_text} as fast in the geometric mean of {count(len(speedups), 'test')}"


def _speedup(change: float | None) -> float | None:
    """Return the speed-up of a time that changed by a share."""
    return None if change is None else 1 / (1 + change)


def _speedup_text(speedup: float | None) -> str:
    return "" if speedup is None else f"{speedup:.2f}x"
