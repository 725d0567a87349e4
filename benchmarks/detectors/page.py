"""The tables as Markdown."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence

from .criteria import CLAIMS, Finding, percent
from .drawing import SLOWDOWNS
from .tally import KINDS, OURS, Cell, Tallies, Tally

WIDTH = 118
SETTINGS = {"all": "all slower", "alone": "one slower", "single": ""}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def filled(text: str) -> str:
    """Paragraphs refilled, after figures were put in."""
    return "\n\n".join(textwrap.fill(paragraph, WIDTH, break_on_hyphens=False) for paragraph in text.split("\n\n"))


def rules_table(tallies: Tallies) -> str:
    """Rule × slowdown: the shares that are called slower, in percent."""
    header = ["rule", "unchanged", "unchanged, slower or faster", "suites", *(f"+{percent(s)}" for s in SLOWDOWNS)]
    kinds = dict.fromkeys((cell.rule, cell.tolerance, cell.setting) for cell in tallies if cell.slowdown)
    return table(header, [_rule_row(tallies, *kind) for kind in sorted(kinds, key=_order)])


def _order(kind: tuple[str, float | None, str]) -> tuple[bool, str, float, str]:
    rule, tolerance, setting = kind
    return rule != OURS, rule, tolerance or 0.0, setting


def _rule_row(tallies: Tallies, rule: str, tolerance: float | None, setting: str) -> list[str]:
    parts = [rule, f"δ {percent(tolerance)}" if tolerance else "", SETTINGS[setting]]
    unchanged = tallies.get(Cell(rule, setting, tolerance, 0.0))
    shares = (unchanged.share("REGRESSED"), unchanged.different, unchanged.red_suites) if unchanged else ("", "", "")
    slower = [tallies[Cell(rule, setting, tolerance, slowdown)].share("REGRESSED") for slowdown in SLOWDOWNS]
    return [", ".join(part for part in parts if part), *(f"{share}" for share in (*shares, *slower))]


def verdict_table(tallies: Tallies) -> str:
    """What this plugin says of each slowdown, in percent of the tests."""
    header = ["δ", "slowdown", "slower", *KINDS, "new processes"]
    cells = sorted((cell for cell in tallies if cell.rule == OURS), key=lambda c: (c.tolerance, c.slowdown, c.setting))
    return table(header, [_verdict_row(cell, tallies[cell]) for cell in cells])


def _verdict_row(cell: Cell, tally: Tally) -> list[str]:
    slowdown = f"+{percent(cell.slowdown)}" if cell.slowdown else "unchanged"
    setting = {"all": "all", "alone": "one"}[cell.setting] if cell.slowdown else ""
    shares = [f"{tally.share(kind)}" for kind in KINDS]
    return [percent(cell.tolerance), slowdown, setting, *shares, f"{tally.mean_processes:.2f}"]


def condition_table(data: Mapping[str, Tallies]) -> str:
    """Of several conditions, what unchanged code meets and how much of slower code is found."""
    shown = ("REGRESSED", "PASSED", "INCONCLUSIVE")
    header = ["condition", "δ", "slowdown", "slower", "suites red", *shown, "new processes"]
    rows = []
    for name, tallies in data.items():
        for cell in sorted(tallies, key=lambda c: (c.tolerance, c.slowdown, c.setting)):
            tally = tallies[cell]
            slowdown, setting = _verdict_row(cell, tally)[1:3]
            shares = [f"{tally.share(kind)}" for kind in shown]
            suites = f"{tally.red_suites}" if tally.suites else ""
            figures = [suites, *shares, f"{tally.mean_processes:.2f}"]
            rows.append([name, percent(cell.tolerance), slowdown, setting, *figures])
    return table(header, rows)


def closing(findings: Sequence[Finding]) -> str:
    """For each criterion whether it holds, and where it does not."""
    lines = []
    for criterion in dict.fromkeys(finding.criterion for finding in findings):
        mine = [finding for finding in findings if finding.criterion == criterion]
        word = "holds" if all(finding.holds for finding in mine) else "does not hold"
        lines.append(f"**{criterion}. {CLAIMS[criterion]}: {word}.**\n\n" + "\n".join(_by_data(mine)))
    return "\n\n".join(lines)


def _by_data(findings: Sequence[Finding]) -> list[str]:
    lines = []
    for data in dict.fromkeys(finding.data for finding in findings):
        mine = [finding for finding in findings if finding.data == data]
        word = "holds" if all(finding.holds for finding in mine) else "does not hold"
        marked = [finding.figures if finding.holds else f"**{finding.figures}**" for finding in mine]
        lines.append(f"* {data}: {word} ({'; '.join(marked)})")
    return lines
