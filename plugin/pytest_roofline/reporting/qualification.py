"""What a staged rollout says of a driver: who stands on which side, a row a test, and one sentence of advice."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from ..core.units import format_percent, listed, printable
from ..judging.qualifying_apart import Apart, Outlier
from ..judging.qualifying_effects import Effect, Lost, Qualification, describe_fleet
from ..judging.qualifying_pairs import Pair
from ..judging.qualifying_sides import Change
from ..judging.stats import change_bounds, growth
from ..judging.verdicts import Kind, span_text
from .layout import new_table, render
from .results import count
from .tables import STYLES

# Devices, tests or reasons that are named.
MOST_NAMED = 6
NO_CONTROL = (
    "no control: no device kept its driver, so what the fleet or the calendar does by itself (temperature, firmware, "
    "neighbours) cannot be told from what the driver does"
)


def qualification_lines(found: Qualification) -> list[str]:
    """What must be known before the table: both sides, who is left out, what else changed, and a missing control."""
    rollout = found.rollout
    lines = [f"upgraded {rollout.old} → {rollout.new}: {_named(rollout.treated)}"]
    lines.append(f"controls: {_named(rollout.controls)}" if rollout.controls else NO_CONTROL)
    if rollout.left_out:
        lines.append(f"left out: {_listed(rollout.left_out, '; ')}")
    for word, pairs in (("upgraded devices", rollout.treated), ("controls", rollout.controls)):
        counts = Counter(change for pair in pairs for change in pair.changed)
        told = [f"{change} on {number} of {len(pairs)}" for change, number in counts.items()]
        if told:
            lines.append(f"changed beside the driver on {word}: {_listed(told, '; ')}{_blame(word)}")
    return [printable(line) for line in lines]


def _blame(word: str) -> str:
    return "; the effect is of all of these together" if word == "upgraded devices" else ""


def _named(pairs: Sequence[Pair]) -> str:
    return _listed([f"{pair.device} ({pair.host})" for pair in pairs])


def _listed(texts: Sequence[str], by: str = ", ") -> str:
    return listed(texts, MOST_NAMED, by)


def qualification_table(found: Qualification, width: int, colour: bool) -> str:
    """A row a test, worst first: the change of the upgraded, of the controls, the effect and its interval."""
    table = new_table(("test", "left"), ("upgraded", "right"), ("controls", "right"), ("effect", "right"),
                      ("99 % interval", "right"), ("n", "right"), ("verdict", "left"))  # fmt: skip
    for effect in found.effects:
        table.add_row(
            printable(effect.label),
            format_percent(growth(effect.estimate + (effect.drift or 0.0))),
            "" if effect.drift is None else format_percent(growth(effect.drift)),
            format_percent(effect.change),
            span_text(effect.interval),
            f"{len(effect.treated)}:{len(effect.controls)}",
            Text(effect.kind.value, style=STYLES.get(effect.kind.value, "")),
        )
    return render(table, width, colour)


def qualification_notes(found: Qualification) -> list[str]:
    """Behind the table: what would decide, which devices stand out, where errors come from, what was lost."""
    open_still = [f"INCONCLUSIVE {e.label}: {e.reason}" for e in found.effects if e.kind is Kind.INCONCLUSIVE]
    lines = open_still[:MOST_NAMED]
    lines += [f"… and {len(open_still) - MOST_NAMED} more of these"] if len(open_still) > MOST_NAMED else []
    for effect in found.effects:
        for side, strange in (("upgraded devices", effect.apart), ("controls", effect.controls_apart)):
            lines += _strange(effect, side, strange)
    origins = Counter(effect.origin for effect in found.effects).most_common(MOST_NAMED)
    for origin, tests in origins:
        lines.append(f"error {origin}" + f" ({count(tests, 'test')})" * (len(origins) > 1))
    lines += _fewer(found)
    if found.rollout.controls:
        alone = [effect.label for effect in found.effects if not effect.controls]
        lines += [f"measured on no control: {_listed(alone)}"] if alone else []
    if found.lost:
        lost = _listed([_lost(lost) for lost in found.lost], "; ")
        lines.append(f"no sound time after the upgrade that may be compared: {lost}")
    if found.rollout.gone:
        lines.append(f"ran before the upgrade and not after it: {_listed(found.rollout.gone)}")
    return [printable(line) for line in lines]


def _strange(effect: Effect, side: str, strange: Apart) -> list[str]:
    """Devices that stand out, with what the others of their side did; or all of a side that disagrees."""
    if strange.torn:
        told = _listed([f"{_at(change)} ({_percent(change)})" for change in strange.torn])
        return [f"{side} disagree on {effect.label}: {told}"]
    if not strange.outliers:
        return []
    low, high = (format_percent(growth(bound)) for bound in strange.rest)
    others = len(effect.treated if strange is effect.apart else effect.controls) - len(strange.outliers)
    told = _listed([_outlier(outlier) for outlier in strange.outliers])
    return [f"stands out among the {side} on {effect.label}: {told}; the other {others}: {low} to {high}"]


def _outlier(outlier: Outlier) -> str:
    words = {True: "; its time stood out before too", False: "; its time did not stand out before", None: ""}
    return f"{_at(outlier.change)} ({_percent(outlier.change)}{words[outlier.before]})"


def _at(change: Change) -> str:
    return f"{change.pair.device} on {change.pair.host}"


def _percent(change: Change) -> str:
    return format_percent(growth(change.estimate))


def _lost(lost: Lost) -> str:
    """`step on GPU-0, GPU-1 (2 of 4 upgraded devices and 1 of 3 controls)`."""
    where = f"{len(lost.devices)} of {count(lost.known, 'upgraded device')}"
    if lost.everywhere:
        where += " and every control, so this is no effect of the driver"
    elif lost.controls:
        where += f" and {len(lost.controls)} of {count(lost.controls_known, 'control')}"
    return f"{lost.label} on {_listed(lost.devices)} ({where})"


def _fewer(found: Qualification) -> list[str]:
    """Tests that rest on fewer devices than the last line counts."""
    every = len(found.rollout.treated)
    fewer = [f"{effect.label} ({len(effect.treated)} of {every})" for effect in found.effects
             if len(effect.treated) < every]  # fmt: skip
    return [f"judged by fewer devices than were upgraded: {_listed(fewer)}"] if fewer else []


def summary_sentence(found: Qualification) -> str:
    """`driver 570.86 against 550.54 on 6 devices of 3 nodes, …: 2 of 40 tests slower (…), …: do not roll out`."""
    slower = [effect for effect in found.effects if effect.kind is Kind.REGRESSED]
    parts = [f"{len(slower)} of {len(found.effects)} tests slower{_worst(slower)}"]
    for kind, word in ((Kind.IMPROVED, "faster"), (Kind.PASSED, "the same"), (Kind.INCONCLUSIVE, "open")):
        number = found.count(kind)
        parts += [f"{number} {word}"] if number else []
    parts += [f"{len(found.lost)} lost"] if found.lost else []
    rollout = found.rollout
    fleet = describe_fleet(rollout) + ("" if rollout.controls else ", no control")
    return printable(f"driver {rollout.new} against {rollout.old} on {fleet}: {', '.join(parts)}: {found.advice}")


def _worst(slower: Sequence[Effect]) -> str:
    if not slower:
        return ""
    worst = max(slower, key=lambda effect: effect.estimate)
    return f" (worst {worst.label} {format_percent(worst.change)})"


def qualification_as_json(found: Qualification) -> dict[str, Any]:
    """Everything for a machine; changes are shares of time."""
    rollout = found.rollout
    return {
        "driver_old": rollout.old,
        "driver_new": rollout.new,
        "upgraded": _pairs_as_json(rollout.treated),
        "controls": _pairs_as_json(rollout.controls),
        "left_out": list(rollout.left_out),
        "gone": list(rollout.gone),
        "tolerance": found.tolerance,
        "tests": [_effect_as_json(effect) for effect in found.effects],
        "lost": [_lost_as_json(lost) for lost in found.lost],
        "slower_devices": found.slower_devices,
        "worse": found.worse,
        "advice": found.advice,
        "summary": summary_sentence(found),
    }


def _pairs_as_json(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    return [{"device": pair.device, "host": pair.host, "changed": pair.changed} for pair in pairs]


def _effect_as_json(effect: Effect) -> dict[str, Any]:
    return {
        "label": effect.label,
        "benchmark": effect.key.benchmark,
        "name": effect.key.name,
        "parameters": effect.key.parameters,
        "verdict": effect.kind.value,
        "change": effect.change,
        **change_bounds(effect.interval),
        "p": effect.p,
        "p_adjusted": effect.p_adjusted,
        "upgraded_change": growth(effect.estimate + (effect.drift or 0.0)),
        "control_change": None if effect.drift is None else growth(effect.drift),
        "devices": {change.pair.device: growth(change.estimate) for change in (*effect.treated, *effect.controls)},
        "stand_out": [_outlier_as_json(o) for o in (*effect.apart.outliers, *effect.controls_apart.outliers)],
        "disagree": [change.pair.device for change in (*effect.apart.torn, *effect.controls_apart.torn)],
        "error_from": effect.origin,
        "reason": effect.reason,
    }


def _lost_as_json(lost: Lost) -> dict[str, Any]:
    return {
        "label": lost.label,
        "devices": list(lost.devices),
        "known_on": lost.known,
        "controls": list(lost.controls),
        "known_on_controls": lost.controls_known,
    }


def _outlier_as_json(outlier: Outlier) -> dict[str, Any]:
    return {"device": outlier.change.pair.device, "slower": outlier.slower, "stood_out_before": outlier.before}
