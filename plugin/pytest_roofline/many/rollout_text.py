"""Text and JSON of `roofline rollout`: one sentence on the whole, then tests, then nodes."""

from collections.abc import Sequence
from statistics import fmean

from ..core.rows import plain
from ..core.units import count, cut, format_percent, format_tolerance, listed, printable
from ..core.verdicts import Kind
from ..report.tables import TextTable, render, styled
from ..report.words import span_text, tolerance_text, totals_text
from ..stats.stats import growth
from .files import parse_test
from .groups import NodeGroup, Place
from .nodes import silent_lines
from .rollout import CHANGED, CONTROL, FEWEST, Rollout, TestEffect
from .slow_nodes import SlowNode

# Nodes, facts or reasons that a line lists before it counts the others.
MOST_NAMED = 6
# At most so many tests in the table, and nodes on lines of their own; --json has all.
MOST_ROWS = 20


def first_line(rollout: Rollout, labels: Sequence[str]) -> str:
    """Return the sentence on the whole fleet, which ends with its verdict.

    `labels` are the user's words for before and after, for what the files do not say; empty without.
    """
    differs = [*rollout.differs, *([" → ".join(labels)] if labels else [])]
    facts = f"; differs: {listed(differs, MOST_NAMED)}" if differs else ""
    return printable(f"{_opening(rollout)}{facts}. {rollout.kind}")


def _opening(rollout: Rollout) -> str:
    """Return what the change does to the fleet.

    It is a figure, that nothing was found, or why nobody can tell.
    """
    effect = rollout.effect
    if effect is None:
        changed, others = (len(group.nodes) for group in (rollout.treated, rollout.controls))
        return (
            f"cannot tell: {count(changed, 'node')} changed and {others} did not; "
            f"expected {FEWEST} of each"
        )
    tolerance = format_tolerance(max(row.tolerance or 0.0 for row in rollout.rows))
    span = f"{format_percent(effect.low).removesuffix(' %')} … {format_percent(effect.high)}"
    where = f"on {count(len(rollout.treated.nodes), 'node')} (99 %: {span})"
    slow, total = len(rollout.regressed), len(rollout.tests)
    tests = (
        f"in {slow} of {count(total, 'test')}" if slow else f"in {count(total, 'test')} together"
    )
    if rollout.kind is Kind.INCONCLUSIVE:
        reason = next(
            row.reason for row in reversed(rollout.rows) if row.verdict == Kind.INCONCLUSIVE
        )
        return f"cannot tell: AFTER {reason}, {tests}, tolerance {tolerance}"
    # An interval around zero shows no effect, so what would have been found is told in place of a figure.
    if effect.low <= 0 <= effect.high and rollout.kind is Kind.PASSED:
        detectable = format_tolerance(round(effect.detectable, 3))
        return f"no slowdown above {tolerance}; would have found {detectable}"
    word = "slower" if effect.change > 0 else "faster"
    within = f", within {tolerance}" if rollout.kind is Kind.PASSED else ""
    return f"AFTER is {abs(effect.change) * 100:.1f} % {word} than BEFORE {where}, {tests}{within}"


def rollout_text(rollout: Rollout, labels: Sequence[str], width: int, colour: bool) -> str:
    """Return the whole text.

    It has the sentence on the whole, what is missing, the tests, and the slow nodes.
    """
    lines = [first_line(rollout, labels), *map(printable, _missing_lines(rollout))]
    if rollout.tests:
        lines += filter(None, (tolerance_text(rollout.rows),))
        lines.append(_table(rollout, width, colour))
        nodes = {CHANGED: rollout.treated.nodes, CONTROL: rollout.controls.nodes}
        lines += [
            *(f"{name}: {printable(listed(nodes[name], MOST_NAMED))}" for name in nodes),
            f"spread between nodes: {rollout.spread}",
            totals_text([test.row for test in rollout.tests]),
        ]
    return "\n".join([*lines, *map(printable, _slow_lines(rollout.slow_nodes))])


def _missing_lines(rollout: Rollout) -> list[str]:
    """Return the lines on what is missing.

    That is silent nodes, places of one side only, lost tests, and controls.
    """
    lines = silent_lines(rollout.silent)
    for group, name in ((rollout.treated, CHANGED), (rollout.controls, CONTROL)):
        lines += [
            f"only {time} ({name}): {_places_text(places)}"
            for time, places in (("before", group.gone), ("after", group.new))
            if places
        ]
    lines += [
        f"lost: {label} has no comparable time after the change on {_places_text(places)}"
        for label, places in list(rollout.lost.items())[:MOST_ROWS]
    ]
    if rollout.without_control:
        lines.append(f"without a control: {listed(rollout.without_control, MOST_NAMED)}")
    return lines


def _places_text(places: Sequence[Place]) -> str:
    """Return places by name: `GPU-3 (node1)`, or the node alone."""
    names = [node if node == device else f"{device} ({node})" for node, device in places]
    return listed(names, MOST_NAMED)


def _table(rollout: Rollout, width: int, colour: bool) -> str:
    """Return the table of mean changes in both groups.

    The effect is their difference; `n` counts the nodes of both.
    """
    table = TextTable(("test", "left"), ("changed", "right"), ("control", "right"), ("effect", "right"),
                      ("99 % interval", "right"), ("n", "right"), ("verdict", "left"))  # fmt: skip
    together = [rollout.together] if rollout.together is not None else []
    for test in [*together, *rollout.tests[:MOST_ROWS]]:
        row = test.row
        table.add_row(
            printable(row.label),
            *(
                format_percent(growth(fmean(changes.values())))
                for changes in (test.changes.treated, test.changes.controls)
            ),
            format_percent(row.change or 0.0),
            span_text(row),
            f"{len(test.changes.treated)}:{len(test.changes.controls)}",
            styled(row.verdict),
        )
    left_out_count = len(rollout.tests) - MOST_ROWS
    remark = ""
    if left_out_count > 0:
        remark = f"\n… and {left_out_count} more tests, none of them worse; --json has all"
    return render(table, width, colour) + remark


def _slow_lines(nodes: Sequence[SlowNode]) -> list[str]:
    """Return the lines on nodes that are slower than their own group."""
    lines = [
        f"slower than its group: {node.node} {format_percent(node.change)} ({node.group}), "
        f"in {_test_text(node.test)}{', since the change' if node.since else ''}"
        for node in nodes
    ]
    return cut(lines, MOST_ROWS, "slow nodes; --name-only has all")


def _test_text(test: str) -> str:
    """Return the label of a test.

    An empty text is the mean of all tests.
    """
    return parse_test(test).label if test else "the mean of all tests"


def rollout_as_json(
    rollout: Rollout, labels: Sequence[str], left_out: Sequence[str]
) -> dict[str, object]:
    """Return everything about a rollout as JSON. Changes are shares of time."""
    effect = rollout.effect
    return {
        "sentence": first_line(rollout, labels),
        "verdict": rollout.kind.value,
        "change": effect and effect.change,
        "change_low": effect and effect.low,
        "change_high": effect and effect.high,
        "detectable": effect and effect.detectable,
        "differs": rollout.differs,
        "labels": list(labels),
        "spread": rollout.spread,
        "tests": [_test_as_json(test) for test in rollout.tests],
        "together": rollout.together and _test_as_json(rollout.together),
        CHANGED: _group_as_json(rollout.treated),
        CONTROL: _group_as_json(rollout.controls),
        "slow_nodes": [
            {"node": node.node, "group": node.group, "label": _test_text(node.test),
             "change": node.change, "p": node.p, "since_change": node.since}
            for node in rollout.slow_nodes
        ],
        "silent": {node.node: node.reason for node in rollout.silent},
        "lost": {label: [list(place) for place in places] for label, places in rollout.lost.items()},
        "without_control": list(rollout.without_control),
        "left_out": list(left_out),
    }  # fmt: skip


def _test_as_json(test: TestEffect) -> dict[str, object]:
    """Return the row of a test.

    It has its p-value and the change of each node besides.
    """
    verdict = test.row.time_verdict
    return plain(test.row) | {
        "p": verdict.p_adjusted if verdict is not None else None,
        "control_change": growth(fmean(test.changes.controls.values())),
        "nodes": {node: growth(change) for node, change in test.changes.treated.items()},
        "control_nodes": {node: growth(change) for node, change in test.changes.controls.items()},
    }


def _group_as_json(group: NodeGroup) -> dict[str, object]:
    """Return the nodes of a group, and the places that only one side has."""
    return {
        "nodes": list(group.nodes),
        "only_before": [list(place) for place in group.gone],
        "only_after": [list(place) for place in group.new],
    }
