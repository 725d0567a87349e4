"""The measured function and its argument sets, called in turn."""

import inspect
from collections.abc import Callable, Sequence

from ..core.errors import BadInput


class Calls:
    """Calls a function with the next argument set, and the next, and counts.

    It holds no set beside the list that it was given: whoever empties that list has freed the buffers.
    """

    def __init__(self, fn: Callable[..., object], sets: Sequence[tuple[object, ...]]) -> None:
        self.fn = fn
        self.sets = sets
        self.made = 0

    def first(self) -> None:
        """The very first call: whatever only promises to work is found out here.

        Raises:
            BadInput: the function returned an awaitable.
        """
        self.made += 1
        _refuse_awaitable(self.fn(*self.sets[0]))

    def __call__(self, count: int) -> None:
        fn, sets, turn = self.fn, self.sets, len(self.sets)
        for number in range(self.made, self.made + count):
            fn(*sets[number % turn])
        self.made += count

    def restart(self) -> None:
        """Begin with the first set again: the sets were replaced."""
        self.made = 0

    @property
    def touched(self) -> Sequence[tuple[object, ...]]:
        """The sets that were called with since the last restart."""
        return self.sets[: self.made]


def _refuse_awaitable(result: object) -> None:
    """Refuse what only promises to work: an async function hidden in another one."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise BadInput(
            f"the measured function returned {type(result).__name__}, which does its work only when awaited; expected "
            "a plain function that returns when the work is submitted or done"
        )
