"""The page: what was to reach, what was found, and the tables behind it."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from goals import verdict_on

HEAD = """# Ranks: speed, blame, clean ends

Made by `python benchmarks/ranks.py -o docs/results/ranks.md`: every number of this page, in one run. {cpu}, {cores}
cores, a virtual machine; Gloo, torch {torch}. Two Slurm nodes were emulated on it. Load average {before} when it
began and {after} when it ended{quiet}. The peer is `torch.multiprocessing.spawn`, unless another is named.
"""
# More than this many processes that want a core when the measurement begins: others are at work.
QUIET_LOAD = 0.5
COLUMNS = 120


@dataclass(frozen=True, slots=True)
class Goal:
    """One line of what was to reach.

    Args:
        what: was measured.
        wanted: in words.
        found: in words.
        reached: whether it is that good.
    """

    what: str
    wanted: str
    found: str
    reached: bool


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure: its goals, and what stands below its headline."""

    title: str
    goals: tuple[Goal, ...]
    text: str


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def filled(text: str) -> str:
    """Paragraphs in lines of even length; tables, titles, lists and code stay as they are."""
    return "\n\n".join(
        block
        if block.startswith(("|", "#", "* ", "```"))
        else textwrap.fill(" ".join(block.split()), COLUMNS, break_on_hyphens=False)
        for block in text.strip().split("\n\n")
    )


def page(figures: Sequence[Figure], facts: dict[str, str]) -> str:
    """All of it.

    Args:
        figures: in order.
        facts: `cpu`, `cores`, `torch`, `before` and `after` (load averages).
    """
    quiet = "" if float(facts["before"]) <= QUIET_LOAD else ", so others were at work beside it"
    return with_figures(HEAD.format(**facts, quiet=quiet), figures)


def with_figures(head: str, figures: Sequence[Figure]) -> str:
    """A page: its title, what missed its goal, how it was made, all goals, and every figure.

    Args:
        head: title, and how the page was made.
        figures: in order.
    """
    goals = [(number, goal) for number, figure in enumerate(figures, 1) for goal in figure.goals]
    verdict = verdict_on([(goal.what, goal.found, goal.reached) for _, goal in goals])
    title, _, text = head.partition("\n")
    rows = [
        (str(number), g.what, g.wanted, g.found, "yes" if g.reached else "**no**")
        for number, g in goals
    ]
    parts = [f"{title}\n", filled(verdict) + "\n", filled(text) + "\n"]
    parts.append(table(("", "what", "to reach", "found", "reached"), rows) + "\n")
    parts += [
        f"## {number}. {figure.title}\n\n{filled(figure.text)}\n"
        for number, figure in enumerate(figures, 1)
    ]
    return "\n".join(parts)
