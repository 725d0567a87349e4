"""What a rank function returns to have something other than itself timed."""

from collections.abc import Callable
from dataclasses import dataclass

from ..core.errors import BadInput


@dataclass(frozen=True, slots=True)
class Timed:
    """What to time on a rank, with its buffers and how to check them.

    Args:
        call: timed as `call(*arguments)`; its result is ignored.
        make_args: makes one fresh set of arguments; None calls `call()`.
        verify: called as `verify(*arguments)` on every set that was timed, after timing; False or an AssertionError
            means wrong data. As that of `roofline.measure`, it may look at all sets at once. It must contain no
            collective: where one rank's data are wrong, the others would wait for it in vain.
        refill: called as `refill(*arguments)` on sets that were timed; `call` and `verify` then see new data in those
            very buffers, so that work which was only done once shows.
        as_timed: whether `verify` holds for buffers as the timing left them. Not so where every call changes its own
            input, as a sum in place does: then only the pass after `refill` is verified.
        on_host: whether the call does its work on the host and has done it when it returns, as MPI and Gloo do: it is
            then timed by the host's clock, also where the rank owns an accelerator.
    """

    call: Callable[..., object]
    make_args: Callable[[], object] | None = None
    verify: Callable[..., object] | None = None
    refill: Callable[..., object] | None = None
    as_timed: bool = True
    on_host: bool = False

    def __post_init__(self) -> None:
        for name in ("call", "make_args", "verify", "refill"):
            value = getattr(self, name)
            if not callable(value) and not (value is None and name != "call"):
                raise BadInput(f"Timed.{name} is {value!r}; expected a function")
        if self.refill is not None and self.verify is None:
            raise BadInput("Timed has refill and no verify; expected verify, which looks at what was refilled")
        if not self.as_timed and self.verify is not None and self.refill is None:
            raise BadInput("Timed has as_timed=False and no refill; expected refill, or nothing would ever be verified")
