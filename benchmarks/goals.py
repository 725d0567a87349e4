"""Goals of a page: what was to reach, what was seen, and the sentence that says how many were reached."""

from collections.abc import Sequence

# A goal in words, what was seen, and whether that reaches it.
Goal = tuple[str, str, bool]


def verdict_on(goals: Sequence[Goal]) -> str:
    """Return the sentence that says how many goals are reached, and names the others."""
    missed = [f"{goal}: {seen}" for goal, seen, reached in goals if not reached]
    if missed:
        verb = "is" if len(missed) == 1 else "are"
        return f"**{len(missed)} of {len(goals)} goals {verb} missed**: {'; '.join(missed)}."
    return f"**All {len(goals)} goals are reached.**"


def rows_of(goals: Sequence[Goal]) -> list[str]:
    """Return the rows of their table, as Markdown."""
    return [
        f"| {goal} | {seen} | {'reached' if reached else '**missed**'} |"
        for goal, seen, reached in goals
    ]


def seen_of(goals: Sequence[Goal], words: str) -> tuple[str, str] | None:
    """Return the first goal that has these words, with what was seen; None where none has."""
    return next(((goal, seen) for goal, seen, _ in goals if words in goal), None)
