"""The calls of a function, with one argument set after the other."""

import inspect
import itertools
from collections.abc import Callable, Sequence

from ...core.errors import BadInput


class CallSequence:
    """A function that is called with one argument set after the other. `made` counts the calls.

    It keeps no reference to a set of its own, so that emptying the list of sets frees all buffers.
    """

    def __init__(self, fn: Callable[..., object], sets: Sequence[tuple[object, ...]]) -> None:
        self.fn = fn
        self.sets = sets
        self.made = 0

    def first(self) -> None:
        """Make the very first call. Raise BadInput if the result is only a promise of work."""
        self.made += 1
        refuse_promise(self.fn(*self.sets[0]))

    def __call__(self, count: int) -> None:
        """Make so many calls."""
        # What this loop costs is in every sample of a CPU, so it does no arithmetic between two calls.
        fn, sets = self.fn, self.sets
        if len(sets) == 1:
            arguments = sets[0]
            for _ in itertools.repeat(None, count):
                fn(*arguments)
        else:
            next_set, calls_left = self.made % len(sets), count
            while calls_left:
                turn = sets[next_set : next_set + calls_left]
                for arguments in turn:
                    fn(*arguments)
                next_set, calls_left = 0, calls_left - len(turn)
        self.made += count

    def call_and_keep(self) -> object:
        """Make one call, and return its result."""
        arguments = self.sets[self.made % len(self.sets)]
        self.made += 1
        return self.fn(*arguments)

    def restart(self) -> None:
        """Begin with the first set again, after the sets were replaced."""
        self.made = 0

    @property
    def called_sets(self) -> Sequence[tuple[object, ...]]:
        """The sets that a call has used since the last restart."""
        return self.sets[: self.made]


# Types of objects that stand for work which may still go on elsewhere, with the method that waits for it.
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


def refuse_promise(output: object) -> None:
    """Raise BadInput if a result shows that the work is not done.

    Such results are coroutines, generators, futures and tensors without data, also in tuples and lists.
    """
    if isinstance(output, list | tuple):
        for member in output:
            refuse_promise(member)
        return
    kind = type(output).__name__
    if inspect.isawaitable(output):
        if inspect.iscoroutine(output):
            output.close()
        raise BadInput(
            f"the measured function returned {kind}, which works only when awaited; expected "
            "a plain function that returns after the work is submitted or done"
        )
    if inspect.isgenerator(output) or inspect.isasyncgen(output):
        raise BadInput(
            f"the measured function returned a {kind}, which works only when its values are consumed; "
            "expected a plain function without `yield`. Call list() on the generator inside the function"
        )
    class_names = (f"{base.__module__}.{base.__qualname__}" for base in type(output).__mro__)
    if wait := next((_WAITS_BY[name] for name in class_names if name in _WAITS_BY), ""):
        raise BadInput(
            f"the measured function returned {kind}, whose work may not be done yet; expected a function that "
            f"waits for the work. Call .{wait} on the {kind} inside the function, also after async_op=True"
        )
    if getattr(getattr(output, "device", None), "type", "") == "meta":
        raise BadInput(
            "the measured function returned a tensor on `meta`, which holds no data, so nothing was computed; expected "
            "tensors on the measured device. Make the tensors with device=roofline.device"
        )
