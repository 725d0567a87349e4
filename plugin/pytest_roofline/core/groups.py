"""Items by something that they have in common."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")
Shared = TypeVar("Shared")


def grouped(items: Iterable[Item], key: Callable[[Item], Shared]) -> dict[Shared, list[Item]]:
    """Return the items by their key, in the order in which they come."""
    groups: dict[Shared, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
