"""A staged rollout, judged: what `roofline compare --control` prints, as text and for a machine."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean, median
from typing import Any

from rich.text import Text

from ..baselines.rollout import Changes, Place, Rollout, RolloutSide
from ..core.rows import TIME, Row, plain
from ..core.units import format_percent, listed, printable
from ..stats.stats import growth
from ..stats.verdicts import Kind, span_text
from .layout import new_table, render
from .tables import STYLES

# Devices, tests or reasons that are named.
MOST_NAMED = 6


def rollout_text(found: Rollout, width: int, colour: bool) -> str:
    """Both sides, a row a test, worst first, what would decide, which devices stand out, and what was lost."""
    lines = [*_side_lines("changed", found.treated), *_side_lines("control", found.controls)]
    counts = Counter(row.verdict for row in found.rows)
    told = ", ".join(f"{counts[kind]} {kind}" for kind in Kind if counts[kind])
    notes = [*_open_lines(found.rows), *_outlier_lines(found), *_lost_lines(found)]
    notes.append(f"spread of changes: {found.spread}")
    return "\n".join([*map(printable, lines), _table(found, width, colour), *map(printable, notes), told])


def _side_lines(word: str, side: RolloutSide) -> list[str]:
    lines = [f"{word}: {listed([_name(place) for place in side.devices], MOST_NAMED)}"]
    told = [f"{change} on {count} of {len(side.devices)}" for change, count in side.environment.items()]
    lines += [f"  {listed(told, MOST_NAMED, '; ')}"] if told else []
    lines += [f"  only before: {listed(side.gone, MOST_NAMED)}"] if side.gone else []
    return lines + ([f"  only after: {listed(side.new, MOST_NAMED)}"] if side.new else [])


def _name(place: Place) -> str:
    host, device = place
    return host if host == device else f"{device} ({host})"


def _table(found: Rollout, width: int, colour: bool) -> str:
    table = new_table(("test", "left"), ("changed", "right"), ("control", "right"), ("effect", "right"),
                      ("99 % interval", "right"), ("n", "right"), ("verdict", "left"))  # fmt: skip
    for row in found.rows:
        changes, judged = found.changes_of(row), row.judgement
        assert judged is not None
        assert judged.interval is not None
        table.add_row(
            printable(row.label),
            _percent(changes.treated),
            _percent(changes.controls),
            format_percent(row.change or 0.0),
            span_text(judged.interval),
            ":".join(str(len(side)) for side in changes.units),
            Text(row.verdict, style=STYLES.get(row.verdict, "")),
        )
    return render(table, width, colour)


def _percent(changes: Changes) -> str:
    return format_percent(growth(fmean(changes.values())))


def _open_lines(rows: Sequence[Row]) -> list[str]:
    told = [f"INCONCLUSIVE {row.label}: {row.reason}" for row in rows if row.verdict == Kind.INCONCLUSIVE]
    return told[:MOST_NAMED] + ([f"… and {len(told) - MOST_NAMED} more"] if len(told) > MOST_NAMED else [])


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
                lines.append(f"{row.label}: {listed(far, MOST_NAMED)}, where the middle of its side is {rest}")
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
    reason = "no sound time any more on devices that got the change"
    lost = [
        Row(test="", label=label, parameters={}, metric=TIME, verdict=Kind.INVALID.value, reason=reason)
        for label in found.lost
    ]
    return [plain(row) | _of_devices(found, row) for row in (*found.rows, *lost)]


def _of_devices(found: Rollout, row: Row) -> dict[str, Any]:
    if row.key is None or row.judgement is None:
        return {"p": None, "control_change": None, "devices": {}, "control_devices": {}}
    changes = found.changes_of(row)
    treated, controls = (
        {_name(place): growth(change) for place, change in side.items()} for side in (changes.treated, changes.controls)
    )
    control = growth(fmean(changes.controls.values()))
    p = row.judgement.p_adjusted
    return {"p": p, "control_change": control, "devices": treated, "control_devices": controls}
