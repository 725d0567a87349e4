"""Items by something that they have in common."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Shared = TypeVar("Shared")


def group_by(items: Iterable[Item], key: Callable[[Item], Shared]) -> dict[Shared, list[Item]]:
    """Return groups of items by their key, in order of appearance."""
    groups: dict[Shared, list[Item]] = {}
    for member in items:
        groups.setdefault(key(member), []).append(member)
    return groups
