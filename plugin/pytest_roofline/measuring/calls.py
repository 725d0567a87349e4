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
            BadInput: the function returned what is not done, or cannot be: see `refuse_promise`.
        """
        self.made += 1
        refuse_promise(self.fn(*self.sets[0]))

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


# What stands for work that another thread, process or stream does, and the call that waits for it.
_WAITS_BY = {
    "concurrent.futures._base.Future": "result()",
    "torch.Future": "wait()",
    "torch._C.Future": "wait()",
    "torch.distributed.distributed_c10d.Work": "wait()",
    "torch._C._distributed_c10d.Work": "wait()",
    "torch.distributed._functional_collectives.AsyncCollectiveTensor": "wait()",
    "multiprocessing.pool.ApplyResult": "get()",
    "mpi4py.MPI.Request": "Wait()",
}


def refuse_promise(result: object) -> None:
    """Refuse what only promises to work, or works where nothing can be computed.

    Raises:
        BadInput: it is a coroutine, a generator, the handle of a collective, a future, or a tensor on `meta`.
    """
    if isinstance(result, list | tuple):
        for one in result:
            refuse_promise(one)
        return
    kind = type(result).__name__
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise BadInput(
            f"the measured function returned {kind}, which does its work only when awaited; expected "
            "a plain function that returns when the work is submitted or done"
        )
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise BadInput(
            f"the measured function returned a {kind}, which does its work only when something takes its values; "
            "expected a plain function: take out `yield`, or call list() on it inside"
        )
    named = (f"{base.__module__}.{base.__qualname__}" for base in type(result).__mro__)
    if wait := next((_WAITS_BY[name] for name in named if name in _WAITS_BY), ""):
        raise BadInput(
            f"the measured function returned {kind}, whose work may not be done yet; expected a function that waits "
            f"for it: call .{wait} on it inside, also after async_op=True"
        )
    if getattr(getattr(result, "device", None), "type", "") == "meta":
        raise BadInput(
            "the measured function returned a tensor on `meta`, which holds no data, so nothing was computed; expected "
            "tensors on the device that is measured: make them with device=roofline.device"
        )
