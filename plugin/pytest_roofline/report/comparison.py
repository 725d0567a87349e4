"""What `roofline compare` says beside its table, and a staged rollout, judged; as text and for a machine."""

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


def comparison_lines(compared: Comparison, old: Sequence[Run], new: Sequence[Run]) -> list[str]:
    """Everything that concerns more than one row, ahead of the table.

    Args:
        compared: the comparison.
        old: the runs on the old side, as far as it consists of runs.
        new: those on the new side.
    """
    rows = compared.rows
    lines = (
        [f"REGRESSED: {together_text(compared.together)}"] if compared.together is not None else []
    )
    lines += (
        _blind_line(rows, new) + shift_line(rows) + odd_lines(odd_behind(rows)) + clock_line(rows)
    )
    changed = _apart(old, new) + changed_texts(rows)
    lines += [printable(f"changed: {'; '.join(changed)}")] if changed else []
    return list(filter(None, [*lines, *device_line(rows), tolerance_text(rows)]))


def _blind_line(rows: Sequence[Row], new: Sequence[Run]) -> list[str]:
    """That too few processes were named for red, and how many are enough; empty where some test may turn red."""
    verdicts = compared_verdicts(rows)
    if not verdicts or any(
        verdict.kind is Kind.REGRESSED or verdict.processes >= verdict.fewest
        for verdict in verdicts
    ):
        return []
    one = max(verdicts, key=lambda verdict: verdict.fewest)
    known = len(one.baseline_medians_s)
    enough, side = (
        (one.fewest, "the new side") if known >= ENOUGH_KNOWN else (ENOUGH_KNOWN, "each side")
    )
    remedy = f"measure {side} with --roofline-rounds={enough} --roofline-save=NAME, or name"
    if new and all(map(is_imported, new)):
        remedy = "import more logs, and name"
    return [
        f"no time can turn red here: {count(one.processes, 'process', 'es')} against {known}, where red needs "
        f"{one.fewest}; {remedy} {enough} runs of {side} with commas between"
    ]


def _apart(old: Sequence[Run], new: Sequence[Run]) -> list[str]:
    """Hosts and devices, where the sides have none in common; a baseline tells neither."""
    told = []
    for word, name in (("host", lambda run: run.header.environment.host.name), ("device", _device)):
        before, after = _names(old, name), _names(new, name)
        if before and after and not set(before) & set(after):
            told.append(f"{word} {listed(before, MOST_NAMED)} → {listed(after, MOST_NAMED)}")
    return told


def _device(run: Run) -> str:
    return identity_of(run.header.environment)


def _names(runs: Sequence[Run], name: Callable[[Run], str]) -> list[str]:
    return list(dict.fromkeys(filter(None, map(name, runs))))


def comparison_as_json(compared: Comparison) -> list[dict[str, object]]:
    """The rows, as every JSON document has them, with what else a comparison knows of each."""
    shift = common_shift(compared_verdicts(compared.rows))
    moved = growth(shift.estimate) if shift is not None else None
    return [
        plain(columns)
        | (_kernel(row) if row.exact else {} if columns.metric == PEAK else _more(row, moved))
        for row in compared.everything
        for columns in row.columns()
    ]


def _more(row: Row, moved: float | None) -> dict[str, object]:
    """What a comparison says of a time beside its columns.

    Args:
        row: of the comparison.
        moved: the change of the whole suite, as a share of time; None where it did not move together.
    """
    judged = row.time_verdict
    difference = judged.difference if judged is not None else None
    spread = difference.device if difference is not None else None
    return {
        "p": judged.p if judged is not None else None,
        "changed": list(judged.subject.changed) if judged is not None else [],
        "between_devices": spread.value if spread is not None else None,
        "whole_suite": moved,
        "odd_sessions": [session.text for session in odd_behind([row])],
    }


def _kernel(row: Row) -> dict[str, object]:
    """What it knows of a compiled kernel beside its figures."""
    assert row.exact is not None
    return {
        "baseline_figures": row.baseline_figures,
        "worse": [change.figure for change in row.exact.changes if change.verdict == "worse"],
        "better": [change.figure for change in row.exact.changes if change.verdict == "better"],
        "remarks": list(row.exact.remarks),
    }


def contrast_as_json(found: Contrast) -> list[dict[str, object]]:
    """The rows, as every JSON document has them, with the parameter, its two values, and the speed-up."""
    return [
        plain(row)
        | {
            "by": found.parameter,
            "base": found.base,
            "other": value,
            "speedup": _speedup(row.change),
            "speedup_low": _speedup(row.change_high),
            "speedup_high": _speedup(row.change_low),
            "p": row.time_verdict.p_adjusted if row.time_verdict is not None else None,
        }
        for value, row in found.rows
    ]


def contrast_text(found: Contrast, width: int, colour: bool) -> str:
    """A row a test, worst first, why some are open, and one sentence for each value."""
    values = list(dict.fromkeys(value for value, _ in found.rows))
    reasons: dict[str, list[str]] = {}
    for _, row in found.rows:
        if row.reason:
            reasons.setdefault(f"{row.verdict} {{}}: {row.reason}", []).append(row.label)
    told = [told.replace("{}", listed(labels, MOST_NAMED), 1) for told, labels in reasons.items()]
    told += [_closing(found, value) for value in values]
    head = tolerance_text(row for _, row in found.rows)
    table = render(_contrast_table(found, values), width, colour)
    return "\n".join([*filter(None, (head,)), table, *map(printable, told)])


def _contrast_table(found: Contrast, values: Sequence[str]) -> TextTable:
    """Both times, the speed-up with its interval, the processes, the verdict; of several values a column with each."""
    several = len(values) > 1
    heads = (
        printable(found.base),
        "other" if several else printable(values[0]),
        "speed-up",
        "99 % interval",
        "n",
    )
    table = TextTable(("test", "left"), *[(printable(found.parameter), "left")] * several,
                      *[(head, "right") for head in heads], ("verdict", "left"))  # fmt: skip
    for value, row in found.rows:
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


def _closing(found: Contrast, value: str) -> str:
    """`compiled against eager: 3 IMPROVED, 1 PASSED; 1.31x as fast, the geometric mean of 4 tests`."""
    rows = [row for each, row in found.rows if each == value]
    told = f"{value} against {found.base}: {totals_text(rows)}"
    speedups = [_speedup(row.change) or 1.0 for row in rows if row.change is not None]
    if not speedups:
        return told
    return f"{told}; {_times(geometric_mean(speedups))} as fast, the geometric mean of {count(len(speedups), 'test')}"


def _speedup(change: float | None) -> float | None:
    """How many times as fast something is whose time changed by a share."""
    return None if change is None else 1 / (1 + change)


def _times(speedup: float | None) -> str:
    return "" if speedup is None else f"{speedup:.2f}x"


# Devices, tests or reasons that are named.
MOST_PLACES = 6


def rollout_text(found: Rollout, width: int, colour: bool) -> str:
    """Both sides, a row a test, worst first, what would decide, which devices stand out, and what was lost."""
    lines = [*_side_lines("changed", found.treated), *_side_lines("control", found.controls)]
    lines += filter(None, (tolerance_text(found.rows),))
    notes = [*_open_lines(found.rows), *_outlier_lines(found), *_lost_lines(found)]
    notes.append(f"spread of changes: {found.spread}")
    return "\n".join(
        [
            *map(printable, lines),
            _table(found, width, colour),
            *map(printable, notes),
            totals_text(found.rows),
        ]
    )


def _side_lines(word: str, side: RolloutSide) -> list[str]:
    lines = [f"{word}: {listed([_name(place) for place in side.devices], MOST_PLACES)}"]
    told = [
        f"{change} on {count} of {len(side.devices)}" for change, count in side.environment.items()
    ]
    lines += [f"  {listed(told, MOST_PLACES, '; ')}"] if told else []
    lines += [f"  only before: {listed(side.gone, MOST_PLACES)}"] if side.gone else []
    return lines + ([f"  only after: {listed(side.new, MOST_PLACES)}"] if side.new else [])


def _name(place: Place) -> str:
    host, device = place
    return host if host == device else f"{device} ({host})"


def _table(found: Rollout, width: int, colour: bool) -> str:
    table = TextTable(("test", "left"), ("changed", "right"), ("control", "right"), ("effect", "right"),
                      ("99 % interval", "right"), ("n", "right"), ("verdict", "left"))  # fmt: skip
    for row in found.rows:
        changes, judged = found.changes_of(row), row.time_verdict
        assert judged is not None
        assert judged.interval is not None
        table.add_row(
            printable(row.label),
            _percent(changes.treated),
            _percent(changes.controls),
            format_percent(row.change or 0.0),
            span_text(judged.interval),
            ":".join(str(len(side)) for side in changes.units),
            styled(row.verdict),
        )
    return render(table, width, colour)


def _percent(changes: Changes) -> str:
    return format_percent(growth(fmean(changes.values())))


def _open_lines(rows: Sequence[Row]) -> list[str]:
    told = [
        f"INCONCLUSIVE {row.label}: {row.reason}"
        for row in rows
        if row.verdict == Kind.INCONCLUSIVE
    ]
    return told[:MOST_PLACES] + (
        [f"… and {len(told) - MOST_PLACES} more"] if len(told) > MOST_PLACES else []
    )


def _outlier_lines(found: Rollout) -> list[str]:
    """Devices that changed by more than the tolerance otherwise than the middle of their side: a mean hides them."""
    lines = []
    for row in found.rows:
        both = found.changes_of(row)
        for changes in (both.treated, both.controls):
            middle = median(changes.values())
            far = [
                f"{_name(place)} {format_percent(growth(change))}"
                for place, change in changes.items()
                if abs(growth(change - middle)) > (row.tolerance or 0.0)
            ]
            if far and len(changes) > 2:
                rest = format_percent(growth(middle))
                lines.append(
                    f"{row.label}: {listed(far, MOST_PLACES)}, where the middle of its side is {rest}"
                )
    return lines


def _lost_lines(found: Rollout) -> list[str]:
    lines = []
    for label, places in found.lost.items():
        on = listed([_name(place) for place in places], MOST_PLACES)
        lines.append(
            f"lost: {label} has no sound time any more on {on} ({len(places)} of {len(found.treated.devices)})"
        )
    return lines + (
        [f"on no control: {listed(found.without_control, MOST_PLACES)}"]
        if found.without_control
        else []
    )


def rollout_as_json(found: Rollout) -> list[dict[str, object]]:
    """A row a test, in the fields of every document, and with it what each device did; changes are shares of time."""
    reason = "no sound time any more on devices that got the change"
    lost = [
        Row(
            test="",
            label=label,
            parameters={},
            metric=TIME,
            verdict=Kind.INVALID.value,
            reason=reason,
        )
        for label in found.lost
    ]
    return [plain(row) | _of_devices(found, row) for row in (*found.rows, *lost)]


def _of_devices(found: Rollout, row: Row) -> dict[str, object]:
    if row.key is None or row.time_verdict is None:
        return {"p": None, "control_change": None, "devices": {}, "control_devices": {}}
    changes = found.changes_of(row)
    treated, controls = (
        {_name(place): growth(change) for place, change in side.items()}
        for side in (changes.treated, changes.controls)
    )
    control = growth(fmean(changes.controls.values()))
    p = row.time_verdict.p_adjusted
    return {"p": p, "control_change": control, "devices": treated, "control_devices": controls}
