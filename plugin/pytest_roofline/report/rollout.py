"""A staged rollout, judged: what `roofline compare --control` prints, as text and for a machine."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from rich.text import Text

from ..baselines.rollout import Changes, Place, Rollout, RolloutRow, RolloutSide
from ..core.rows import TIME, Columns, plain
from ..core.units import format_percent, listed, printable
from ..stats.stats import CONFIDENCE, growth
from ..stats.verdicts import Kind, span_text
from .layout import new_table, render
from .tables import STYLES

# Devices, tests or reasons that are named.
MOST_NAMED = 6


def rollout_text(found: Rollout, width: int, colour: bool) -> str:
    """Both sides, a row a test, worst first, what would decide, which devices stand out, and what was lost."""
    lines = [*_side_lines("changed", found.treated), *_side_lines("control", found.controls)]
    counts = Counter(row.kind for row in found.rows)
    told = ", ".join(f"{counts[kind]} {kind.value}" for kind in Kind if counts[kind])
    notes = [*_open_lines(found.rows), *_outlier_lines(found.rows), *_lost_lines(found)]
    notes.append(f"spread of changes: {found.spread}")
    return "\n".join([*map(printable, lines), _table(found.rows, width, colour), *map(printable, notes), told])


def _side_lines(word: str, side: RolloutSide) -> list[str]:
    lines = [f"{word}: {listed([_name(place) for place in side.devices], MOST_NAMED)}"]
    told = [f"{change} on {count} of {len(side.devices)}" for change, count in side.environment.items()]
    lines += [f"  {listed(told, MOST_NAMED, '; ')}"] if told else []
    lines += [f"  only before: {listed(side.gone, MOST_NAMED)}"] if side.gone else []
    return lines + ([f"  only after: {listed(side.new, MOST_NAMED)}"] if side.new else [])


def _name(place: Place) -> str:
    host, device = place
    return host if host == device else f"{device} ({host})"


def _table(rows: Sequence[RolloutRow], width: int, colour: bool) -> str:
    table = new_table(("test", "left"), ("changed", "right"), ("control", "right"), ("effect", "right"),
                      ("99 % interval", "right"), ("n", "right"), ("verdict", "left"))  # fmt: skip
    for row in rows:
        table.add_row(
            printable(row.key.label),
            _percent(row.treated),
            _percent(row.controls),
            format_percent(growth(row.estimate)),
            span_text(row.interval),
            ":".join(map(str, row.units)),
            Text(row.kind.value, style=STYLES.get(row.kind.value, "")),
        )
    return render(table, width, colour)


def _percent(changes: Changes) -> str:
    return format_percent(growth(fmean(changes.values())))


def _open_lines(rows: Sequence[RolloutRow]) -> list[str]:
    told = [f"INCONCLUSIVE {row.key.label}: {row.reason}" for row in rows if row.kind is Kind.INCONCLUSIVE]
    return told[:MOST_NAMED] + ([f"… and {len(told) - MOST_NAMED} more"] if len(told) > MOST_NAMED else [])


def _outlier_lines(rows: Sequence[RolloutRow]) -> list[str]:
    """Devices that changed by more than the tolerance otherwise than the middle of their side: a mean hides them."""
    lines = []
    for row in rows:
        for changes in (row.treated, row.controls):
            middle = median(changes.values())
            far = {place: change for place, change in changes.items() if abs(growth(change - middle)) > row.tolerance}
            told = [f"{_name(place)} {format_percent(growth(change))}" for place, change in far.items()]
            if told and len(changes) > 2:
                rest = format_percent(growth(middle))
                lines.append(f"{row.key.label}: {listed(told, MOST_NAMED)}, where the middle of its side is {rest}")
    return lines


def _lost_lines(found: Rollout) -> list[str]:
    lines = []
    for label, places in found.lost.items():
        on = listed([_name(place) for place in places], MOST_NAMED)
        lines.append(
            f"lost: {label} has no sound time any more on {on} ({len(places)} of {len(found.treated.devices)})"
        )
    return lines + ([f"on no control: {listed(found.uncontrolled, MOST_NAMED)}"] if found.uncontrolled else [])


def rollout_as_json(found: Rollout) -> list[dict[str, Any]]:
    """A row a test, in the fields of every document, and with it what each device did; changes are shares of time."""
    return [plain(_plain(row)) | _more(row) for row in found.rows] + [
        plain(_lost_row(label)) | _more(None) for label in found.lost
    ]


def _plain(row: RolloutRow) -> Columns:
    key, (low, high) = row.key, row.interval
    return Columns(
        test="",
        label=key.label,
        benchmark=key.benchmark,
        name=key.name,
        parameters=key.parameters,
        metric=TIME,
        hardware=str(key.hardware),
        counting=key.metric,
        cache=key.cache,
        timing=key.timing,
        change=growth(row.estimate),
        change_low=growth(low),
        change_high=growth(high),
        confidence=CONFIDENCE,
        tolerance=row.tolerance,
        verdict=row.kind.value,
        reason=row.reason,
    )


def _lost_row(label: str) -> Columns:
    reason = "no sound time any more on devices that got the change"
    return Columns(test="", label=label, parameters={}, metric=TIME, verdict=Kind.INVALID.value, reason=reason)


def _more(row: RolloutRow | None) -> dict[str, Any]:
    sides = (row.treated, row.controls) if row is not None else ({}, {})
    names = ("devices", "control_devices")
    told = {
        name: {_name(place): growth(change) for place, change in side.items()}
        for name, side in zip(names, sides, strict=True)
    }
    control = growth(fmean(row.controls.values())) if row is not None else None
    return {"p": row.p if row is not None else None, "control_change": control, **told}
