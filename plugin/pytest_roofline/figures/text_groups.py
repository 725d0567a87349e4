"""Values in any text by a regular expression.

Its one group without a name is the figure, and the named groups tell its places apart; without such a group each named
group is a figure of that name.
"""

import re

from ..core.errors import BadInput, short_repr
from ..core.groups import group_by
from .place import Place


def compile_path(path: str) -> re.Pattern[str]:
    """Return a path as a pattern.

    Raises:
        BadInput: it is no pattern, or has no group that could be a figure.
    """
    try:
        pattern = re.compile(path, re.MULTILINE)
    except (re.error, OverflowError, RecursionError) as error:
        raise BadInput(f"{short_repr(path)} is no regular expression: {error}") from None
    unnamed_count = pattern.groups - len(pattern.groupindex)
    if unnamed_count > 1 or not pattern.groups:
        raise BadInput(
            f"{path!r} has {unnamed_count} groups without a name; expected one unnamed group for the figure, or "
            "only named groups: (?P<rate>[\\d.]+)"
        )
    return pattern


def names_figures(path: str) -> bool:
    """Return True if all groups of a pattern have names.

    The names are those of its figures.
    """
    pattern = compile_path(path)
    return pattern.groups == len(pattern.groupindex)


def values_at(text: str, path: str) -> list[Place]:
    """Return the values that a pattern finds in a text.

    A group without a name holds the figure, and the named groups tell the figures apart. If all groups have names, each
    group is a figure. Matches with the same names are samples of one figure.
    """
    pattern = compile_path(path)
    matches = list(pattern.finditer(text))
    names = list(pattern.groupindex)
    if names_figures(path):
        return [Place(name, {}, [match[name] for match in matches]) for name in names if matches]
    # `compile_path` allows one group without a name.
    (figure_group,) = {*range(1, pattern.groups + 1)} - {*pattern.groupindex.values()}
    matches_by_name = group_by(matches, lambda match: tuple(match[name] or "" for name in names))
    return [
        Place(
            "",
            dict(zip(names, cases, strict=True)),
            [match[figure_group] for match in matches_of_name],
        )
        for cases, matches_of_name in matches_by_name.items()
    ]


def places(text: str) -> list[str]:
    """Return the lines of a text that hold a number."""
    return [line.strip() for line in text.splitlines() if re.search(r"\d", line)]
