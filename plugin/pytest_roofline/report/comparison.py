"""Text and JSON of `roofline compare` beside its table, and of a staged rollout."""

from collections.abc import Callable, Sequence
from statistics import fmean, geometric_mean, median

from ..baselines.comparing import Comparison
from ..baselines.pairs import Contrast
from ..baselines.picking import is_imported
from ..baselines.remarks import odd_lines
from ..baselines.rollout import Changes, Place, Rollout, RolloutSide
from ..baselines.rows import odd_behind
from ..baselines.runs import Run
from ..core.rows import PEAK, TIME, Row, compared_verdicts, plain
from ..core.units import count, format_percent, format_seconds, listed, printable
from ..core.verdicts import Kind
from ..hardware import identity_of
from ..stats.causes import common_shift
from ..stats.looks import ENOUGH_KNOWN
from ..stats.stats import growth
from ..stats.verdicts import span_text
from .overview import changed_texts, clock_line, device_line, shift_line, together_text
from .tables import TextTable, render, styled
from .words import tolerance_text, totals_text

# Of the names of one side.
MOST_NAMED = 3


def comparison_lines(comparison: Comparison, old: Sequence[Run], new: Sequence[Run]) -> list[str]:
    """Return the lines ahead of the table, on several rows each.

    Args:
        compared: the comparison.
        old: the runs on the old side, as far as it consists of runs.
        new: those on the new side.
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
    """Return that too few processes were named for red.

    It says how many are enough, and is empty where some test may turn red.
    """
    verdicts = compared_verdicts(rows)
    if not verdicts or any(
        verdict.kind is Kind.REGRESSED or verdict.processes >= verdict.fewest
        for verdict in verdicts
    ):
        return []
    verdict = max(verdicts, key=lambda verdict: verdict.fewest)
    old_processes = len(verdict.baseline_medians_s)
    enough, side = (
        (verdict.fewest, "the new side")
        if old_processes >= ENOUGH_KNOWN
        else (ENOUGH_KNOWN, "each side")
    )
    remedy = f"measure {side} with --roofline-rounds={enough} --roofline-save=NAME, or name"
    if new and all(map(is_imported, new)):
        remedy = "import more logs, and name"
    return [
        f"no time can turn red with {count(verdict.processes, 'process', 'es')} against {old_processes}, "
        f"since red needs {verdict.fewest}; {remedy} {enough} runs of {side} with commas between"
    ]


def _place_changes(old: Sequence[Run], new: Sequence[Run]) -> list[str]:
    """Return the hosts and devices of sides that share none.

    A baseline tells neither.
    """
    lines = []
    for word, name in (("host", lambda run: run.header.environment.host.name), ("device", _device)):
        before, after = _names(old, name), _names(new, name)
        if before and after and not set(before) & set(after):
            lines.append(f"{word} {listed(before, MOST_NAMED)} → {listed(after, MOST_NAMED)}")
    return lines


def _device(run: Run) -> str:
    return identity_of(run.header.environment)


def _names(runs: Sequence[Run], name: Callable[[Run], str]) -> list[str]:
    return list(dict.fromkeys(filter(None, map(name, runs))))


def comparison_as_json(comparison: Comparison) -> list[dict[str, object]]:
    """Return the rows as JSON, with the comparison's own fields."""
    shift = common_shift(compared_verdicts(comparison.rows))
    suite_change = growth(shift.estimate) if shift is not None else None
    return [
        plain(columns)
        | (
            kernel_as_json(row)
            if row.exact
            else {}
            if columns.metric == PEAK
            else _time_fields(row, suite_change)
        )
        for row in comparison.everything
        for columns in row.columns()
    ]


def _time_fields(row: Row, suite_change: float | None) -> dict[str, object]:
    """Return the fields that a comparison adds to a time.

    Args:
        row: of the comparison.
        moved: the change of the whole suite, as a share of time; None where it did not move together.
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
    """Return the rows as JSON, with both values and the speed-up."""
    return [
        plain(row)
        | {
            "by": contrast.parameter,
            "base": contrast.base,
            "other": value,
            "speedup": _speedup(row.change),
            "speedup_low": _speedup(row.change_high),
            "speedup_high": _speedup(row.change_low),
            "p": row.time_verdict.p_adjusted if row.time_verdict is not None else None,
        }
        for value, row in contrast.rows
    ]


def contrast_text(contrast: Contrast, width: int, colour: bool) -> str:
    """Return a row a test, worst first, and closing sentences.

    The sentences say why some are open, and sum up each value.
    """
    values = list(dict.fromkeys(value for value, _ in contrast.rows))
    reasons: dict[str, list[str]] = {}
    for _, row in contrast.rows:
        if row.reason:
            reasons.setdefault(f"{row.verdict} {{}}: {row.reason}", []).append(row.label)
    sentences = [
        text.replace("{}", listed(labels, MOST_NAMED), 1) for text, labels in reasons.items()
    ]
    sentences += [_value_sentence(contrast, value) for value in values]
    head = tolerance_text(row for _, row in contrast.rows)
    table = render(_contrast_table(contrast, values), width, colour)
    return "\n".join([*filter(None, (head,)), table, *map(printable, sentences)])


def _contrast_table(contrast: Contrast, values: Sequence[str]) -> TextTable:
    """Return the table of both times, with speed-up and verdict.

    Of several values a column has each.
    """
    several = len(values) > 1
    heads = (
        printable(contrast.base),
        "other" if several else printable(values[0]),
        "speed-up",
        "99 % interval",
        "n",
    )
    table = TextTable(("test", "left"), *[(printable(contrast.parameter), "left")] * several,
                      *[(head, "right") for head in heads], ("verdict", "left"))  # fmt: skip
    for value, row in contrast.rows:
        times = [
            "" if time_s is None else format_seconds(time_s)
            for time_s in (row.baseline_time_s, row.time_s)
        ]
        bounds = " … ".join(
            f"{1 / (1 + bound):.2f}"
            for bound in (row.change_high, row.change_low)
            if bound is not None
        )
        cells = [*times, _times(_speedup(row.change)), bounds, f"{row.processes or ''}"]
        table.add_row(
            printable(row.label), *[printable(value)] * several, *cells, styled(row.verdict)
        )
    return table


def _value_sentence(contrast: Contrast, value: str) -> str:
    """Return the sentence that sums up one value.

    It reads `compiled against eager: 3 IMPROVED, 1 PASSED; 1.31x as fast, the geometric mean of 4
    tests`.
    """
    rows = [row for row_value, row in contrast.rows if row_value == value]
    text = f"{value} against {contrast.base}: {totals_text(rows)}"
    speedups = [_speedup(row.change) or 1.0 for row in rows if row.change is not None]
    if not speedups:
        return text
    return f"{text}; {_times(geometric_mean(speedups))} as fast, the geometric mean of {count(len(speedups), 'test')}"


def _speedup(change: float | None) -> float | None:
    """Return the speed-up of a time that changed by a share."""
    return None if change is None else 1 / (1 + change)


def _times(speedup: float | None) -> str:
    return "" if speedup is None else f"{speedup:.2f}x"


# Devices, tests or reasons that are named.
MOST_PLACES = 6


def rollout_text(rollout: Rollout, width: int, colour: bool) -> str:
    """Return both sides, a row a test, and notes.

    The worst row comes first. The notes tell what would decide, which devices stand out, and what
    was lost.
    """
    lines = [*_side_lines("changed", rollout.treated), *_side_lines("control", rollout.controls)]
    lines += filter(None, (tolerance_text(rollout.rows),))
    notes = [*_open_lines(rollout.rows), *_outlier_lines(rollout), *_lost_lines(rollout)]
    notes.append(f"spread of changes: {rollout.spread}")
    return "\n".join(
        [
            *map(printable, lines),
            _rollout_table(rollout, width, colour),
            *map(printable, notes),
            totals_text(rollout.rows),
        ]
    )


def _side_lines(word: str, side: RolloutSide) -> list[str]:
    lines = [f"{word}: {listed([_place_text(place) for place in side.devices], MOST_PLACES)}"]
    changes = [
        f"{change} on {count} of {len(side.devices)}" for change, count in side.environment.items()
    ]
    lines += [f"  {listed(changes, MOST_PLACES, '; ')}"] if changes else []
    lines += [f"  only before: {listed(side.gone, MOST_PLACES)}"] if side.gone else []
    return lines + ([f"  only after: {listed(side.new, MOST_PLACES)}"] if side.new else [])


def _place_text(place: Place) -> str:
    host, device = place
    return host if host == device else f"{device} ({host})"


def _rollout_table(rollout: Rollout, width: int, colour: bool) -> str:
    table = TextTable(("test", "left"), ("changed", "right"), ("control", "right"), ("effect", "right"),
                      ("99 % interval", "right"), ("n", "right"), ("verdict", "left"))  # fmt: skip
    for row in rollout.rows:
        changes, verdict = rollout.changes_of(row), row.time_verdict
        assert verdict is not None
        assert verdict.interval is not None
        table.add_row(
            printable(row.label),
            _mean_change_text(changes.treated),
            _mean_change_text(changes.controls),
            format_percent(row.change or 0.0),
            span_text(verdict.interval),
            ":".join(str(len(side)) for side in changes.units),
            styled(row.verdict),
        )
    return render(table, width, colour)


def _mean_change_text(changes: Changes) -> str:
    return format_percent(growth(fmean(changes.values())))


def _open_lines(rows: Sequence[Row]) -> list[str]:
    lines = [
        f"INCONCLUSIVE {row.label}: {row.reason}"
        for row in rows
        if row.verdict == Kind.INCONCLUSIVE
    ]
    return lines[:MOST_PLACES] + (
        [f"… and {len(lines) - MOST_PLACES} more"] if len(lines) > MOST_PLACES else []
    )


def _outlier_lines(rollout: Rollout) -> list[str]:
    """Return the devices whose change stands out on their side.

    They differ from its middle by more than the tolerance; a mean hides them.
    """
    lines = []
    for row in rollout.rows:
        device_changes = rollout.changes_of(row)
        for changes in (device_changes.treated, device_changes.controls):
            middle = median(changes.values())
            far = [
                f"{_place_text(place)} {format_percent(growth(change))}"
                for place, change in changes.items()
                if abs(growth(change - middle)) > (row.tolerance or 0.0)
            ]
            if far and len(changes) > 2:
                middle_change = format_percent(growth(middle))
                lines.append(
                    f"{row.label}: {listed(far, MOST_PLACES)}, but the median of its side is {middle_change}"
                )
    return lines


def _lost_lines(rollout: Rollout) -> list[str]:
    lines = []
    for label, places in rollout.lost.items():
        devices = listed([_place_text(place) for place in places], MOST_PLACES)
        lines.append(
            f"lost: {label} has no valid time after the change on {devices} ({len(places)} of "
            f"{len(rollout.treated.devices)})"
        )
    return lines + (
        [f"without a control: {listed(rollout.without_control, MOST_PLACES)}"]
        if rollout.without_control
        else []
    )


def rollout_as_json(rollout: Rollout) -> list[dict[str, object]]:
    """Return a row a test as JSON, with each device's change.

    Changes are shares of time.
    """
    reason = "no valid time after the change"
    lost = [
        Row(
            test="",
            label=label,
            parameters={},
            metric=TIME,
            verdict=Kind.INVALID.value,
            reason=reason,
        )
        for label in rollout.lost
    ]
    return [plain(row) | _device_fields(rollout, row) for row in (*rollout.rows, *lost)]


def _device_fields(rollout: Rollout, row: Row) -> dict[str, object]:
    if row.key is None or row.time_verdict is None:
        return {"p": None, "control_change": None, "devices": {}, "control_devices": {}}
    changes = rollout.changes_of(row)
    treated, controls = (
        {_place_text(place): growth(change) for place, change in side.items()}
        for side in (changes.treated, changes.controls)
    )
    control = growth(fmean(changes.controls.values()))
    p = row.time_verdict.p_adjusted
    return {"p": p, "control_change": control, "devices": treated, "control_devices": controls}
