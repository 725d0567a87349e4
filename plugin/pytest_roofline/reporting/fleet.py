"""Which node, GPU or link is slow, as a table, the worst first, and as plain data."""

from collections.abc import Sequence
from typing import Any

from ..core.units import format_percent, printable
from ..judging.fleet import Finding, Fleet, Part
from ..judging.many import Many
from ..judging.stats import change_bounds, growth
from .layout import new_table, render
from .many import as_percent, joined, unfit_lines

WORDS = {"node": "node", "gpu": "GPU", "link": "link"}
# Findings whose reasons are told; the others are in the table.
MOST_TOLD = 20


def fleet_text(many: Many, found: Fleet, findings: Sequence[Finding], width: int, colour: bool) -> str:
    """The table, what stands behind each row, and what was looked at."""
    lines = []
    if findings:
        lines += [_table(findings, width, colour), ""]
        for number, finding in enumerate(findings[:MOST_TOLD], 1):
            lines += [*_behind(number, finding), ""]
    lines += unfit_lines(many)
    if found.several_nodes:
        lines.append(f"{found.several_nodes} measurements are over several nodes, and say nothing of a single one")
    lines += [_part_line(part) for part in found.parts]
    counts = {level: sum(finding.level == level for finding in findings) for level in WORDS}
    told = ", ".join(f"{count} {WORDS[level]}{'s' * (count > 1)}" for level, count in counts.items() if count)
    return "\n".join([*lines, f"slower than their fellows: {told or 'none'}"])


def _table(findings: Sequence[Finding], width: int, colour: bool) -> str:
    table = new_table(("#", "right"), ("what", "left"), ("test", "left"), ("slower", "right"), ("95 %", "right"))
    for number, finding in enumerate(findings, 1):
        name = printable(finding.part)
        for one in finding.slow:
            low, high = (growth(value) for value in one.interval)
            size = format_percent(growth(one.size))
            table.add_row(str(number), WORDS[finding.level], f"{name}: {one.kind}", size, as_percent(low, high))
        if finding.sometimes is not None:
            often = f"in {finding.sometimes.slow} of {finding.sometimes.runs}"
            size = format_percent(growth(finding.sometimes.size))
            table.add_row(
                str(number), WORDS[finding.level], f"{name}: {finding.sometimes.kind}, sometimes", size, often
            )
    return render(table, width, colour)


def _behind(number: int, finding: Finding) -> list[str]:
    where = f" on {printable(finding.node)}" if finding.node != finding.part else ""
    lines = [f"{number}. {WORDS[finding.level]} {printable(finding.part)}{where}, {printable(finding.hardware)}"]
    lines += [f"   slow in {one.kind}: {joined(one.tests)} in {one.runs} runs" for one in finding.slow]
    if finding.sometimes is not None:
        lines.append(
            f"   slow in {finding.sometimes.kind} in {finding.sometimes.slow} of {finding.sometimes.runs} runs only; "
            "roofline history tells since when"
        )
    if finding.fine:
        lines.append(f"   as fast as others in {', '.join(finding.fine)}")
    if finding.differs:
        lines.append(f"   differs: {joined(finding.differs, 6)}")
    return [*lines, f"   look at: {finding.look}"]


def _part_line(part: Part) -> str:
    counts = {"node": part.nodes, "device": part.devices, "link": part.links, "test": part.tests, "run": part.runs}
    *parts, runs = (f"{count} {name}{'s' * (count != 1)}" for name, count in counts.items())
    much = f"{', '.join(parts)} in {runs}"
    if part.judged:
        reach = ", ".join(f"a {WORDS[level]} from {format_percent(growth(size))}" for level, size in part.reach.items())
        return f"{printable(part.hardware)}: {much}; would have found, in any class of tests, {reach}"
    return (
        f"{printable(part.hardware)}: {much}: too few to say which of them is slow; expected 4 that ran the same tests"
    )


def fleet_as_json(many: Many, found: Fleet, findings: Sequence[Finding]) -> dict[str, Any]:
    """All of it as plain data; sizes are shares of time."""
    return {
        "findings": [_as_json(finding) for finding in findings],
        "hardware": [
            {
                "hardware": part.hardware,
                "nodes": part.nodes,
                "devices": part.devices,
                "links": part.links,
                "tests": part.tests,
                "runs": part.runs,
                "judged": part.judged,
                "detectable": {level: growth(size) for level, size in part.reach.items()},
            }
            for part in found.parts
        ],
        "over_several_nodes": found.several_nodes,
        "left_out": list(many.left_out),
        "unfit": many.unfit,
    }


def _as_json(finding: Finding) -> dict[str, Any]:
    sometimes = finding.sometimes
    return {
        "level": finding.level,
        "part": finding.part,
        "node": finding.node,
        "hardware": finding.hardware,
        "change": growth(finding.size),
        "slow": [
            {
                "class": one.kind,
                "change": growth(one.size),
                **change_bounds(one.interval),
                "p": one.p,
                "tests": list(one.tests),
                "runs": one.runs,
            }
            for one in finding.slow
        ],
        "fine": list(finding.fine),
        "differs": list(finding.differs),
        "sometimes": sometimes
        and {
            "class": sometimes.kind,
            "runs": sometimes.runs,
            "slow_runs": sometimes.slow,
            "change": growth(sometimes.size),
            "p": sometimes.p,
        },
        "look_at": finding.look,
    }
