"""The measured function and its argument sets, called in turn."""

import inspect
import itertools
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
        # What this loop costs is in every sample of a CPU, so it does no arithmetic between two calls.
        fn, sets = self.fn, self.sets
        if len(sets) == 1:
            arguments = sets[0]
            for _ in itertools.repeat(None, count):
                fn(*arguments)
        else:
            at, left = self.made % len(sets), count
            while left:
                turn = sets[at : at + left]
                for arguments in turn:
                    fn(*arguments)
                at, left = 0, left - len(turn)
        self.made += count

    def kept(self) -> object:
        """One call, with its result."""
        arguments = self.sets[self.made % len(self.sets)]
        self.made += 1
        return self.fn(*arguments)

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
