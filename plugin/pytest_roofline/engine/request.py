"""The request of one measurement.

A test, a rank, and each of several like devices have the same record. To add an argument to `roofline.measure`, add a
parameter there, a field here, and the code in this folder that uses it.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.errors import BadInput, short_repr
from ..core.keys import CACHES, JOB_METRIC, RANK_TIMINGS, TIMINGS, Cache, Timing
from ..core.samples import SIBLINGS
from ..core.work import RATE_SUFFIXES, Work, rate_suffix

# The most first calls that can be timed alone. Later calls are warm, and each one is waited for.
MOST_FIRST_CALLS = 1000
# The functions of a `Timed`, and how errors describe them.
FUNCTIONS = {
    "make_args": "a function that makes one set of arguments",
    "verify": "a function of the same arguments as the timed function",
    "refill": "a function of the same arguments as the timed function",
}


@dataclass(frozen=True, slots=True)
class Timed:
    """What to time, with its buffers and how to check them.

    Args:
        call: timed as `call(*arguments)`; its result is ignored.
        make_args: makes one fresh set of arguments; None calls `call(*args)`.
        verify: called as `verify(*arguments)` on every set that was timed, after timing; False or an AssertionError
            means wrong data. It may look at all sets at once, as that of `roofline.measure`. It must contain no
            collective: where one rank's data are wrong, the others would wait for it in vain.
        refill: called as `refill(*arguments)` on sets that were timed; `call` and `verify` then see new data in those
            very buffers, so that work which was only done once shows.
        as_timed: whether `verify` holds for buffers as the timing left them. Not so where every call changes its own
            input, as a sum in place does: then only the pass after `refill` is verified.
        on_host: whether the call does its work on the host and has done it when it returns, as MPI and Gloo do: it is
            then timed by the host's clock, also where the rank owns an accelerator.
        args: arguments of every call, where nothing makes them.
    """

    call: Callable[..., object]
    make_args: Callable[[], object] | None = None
    verify: Callable[..., object] | None = None
    refill: Callable[..., object] | None = None
    as_timed: bool = True
    on_host: bool = False
    args: tuple[object, ...] | list[object] | None = None

    def __post_init__(self) -> None:
        """Raise BadInput for a field of the wrong type.

        Fields that exclude or need each other are refused too.
        """
        _check_callable(self.call)
        for name, description in FUNCTIONS.items():
            argument = getattr(self, name)
            if argument is not None and not callable(argument):
                raise BadInput(f"{name} is {short_repr(argument)}; expected {description}")
        if self.args is not None and self.make_args is not None:
            raise BadInput(
                "both args and make_args were given; expected only args or only make_args"
            )
        if self.args is not None and not isinstance(self.args, tuple | list):
            raise BadInput(f"args is a {type(self.args).__name__}; expected a tuple of arguments")
        if any(isinstance(argument, Work) for argument in self.args or ()):
            raise BadInput(
                "a Work is among the arguments of the function; expected the keyword work=Work(…)"
            )
        if self.refill is not None and self.verify is None:
            raise BadInput(
                "Timed has refill, but no verify; expected verify, which checks the data after the refill"
            )
        if not self.as_timed and self.verify is not None and self.refill is None:
            raise BadInput(
                "Timed has as_timed=False, but no refill; expected refill, since verify would never be called"
            )

    def arguments(self) -> tuple[object, ...]:
        """Return one set of arguments. `make_args` makes it anew, if given."""
        return as_tuple(self.make_args() if self.make_args is not None else self.args)


@dataclass(frozen=True, slots=True)
class RankOptions:
    """The options that only a measurement over ranks has.

    Args:
        backend: of torch.distributed; None is the device's own.
        timeout_s: seconds until every rank must have answered; None is the run's.
        collective: the one that is measured, for the roofline of its links; None where that is nobody's business.
        fresh: whether ranks are started for this measurement alone.
    """

    size: int
    backend: str | None = None
    timeout_s: float | None = None
    collective: str | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """The checked arguments of one measurement.

    Args:
        work: bytes and FLOPs of one call, from which rates are derived.
        budget_s: seconds of measuring.
        timed: the function with its arguments; None on the way to a rank, which makes it there.
        name: tells several measurements of one test apart.
        cache: `warm` calls with the same buffers, `rotate` goes through so many that one has left the last-level cache
            when its turn comes again, `flush` evicts before every call.
        timing: by the `device`'s own stamps, or `wall` by the host's clock; over ranks `isolated`, one call at a time
            behind a barrier, or `pipelined`, many in a row.
        metric: name of the rate to show; None is the one that the work has.
        tolerance: how much slower is still the same, as a share; None is the run's.
        peak_bytes: whether to find the most memory that a call holds, in a pass of its own.
        held_bytes: whether to find what a call leaves allocated, in a pass of its own.
        first_calls: how many of the very first calls to time alone, before the rest of the warm-up.
        compiles: whether the first call compiles, so that what it takes beyond a warm one is kept.
        refill: whether every sample gets other values; None only looks whether a call heeds them, False does neither.
        devices: those of this process that the function works on together; None for the one that is measured anyway.
        model: a torch module whose parts a profile names; None where nobody gave one.
        instead: called in place of `timed.call`, as a hook asked; None leaves it as it is.
        drill: slows every call down by this share; None is no drill.
        graph: whether to replay a graph, as what it is compared with did; None leaves it to the length of a call.
        labels: what must be said of the numbers from the start.
        ranks: of a measurement over ranks; None in this process.
    """

    work: Work
    budget_s: float
    timed: Timed | None = None
    name: str = ""
    cache: Cache = "warm"
    timing: Timing = "device"
    metric: str | None = None
    tolerance: float | None = None
    peak_bytes: bool = False
    held_bytes: bool = False
    first_calls: int = 0
    compiles: bool = False
    refill: bool | None = None
    devices: Sequence[str] | None = None
    model: Any = None
    instead: Callable[..., object] | None = None
    drill: float | None = None
    graph: bool | None = None
    labels: tuple[str, ...] = ()
    ranks: RankOptions | None = None

    def __post_init__(self) -> None:
        """Raise BadInput for an argument that is not allowed, also in view of the others."""
        if self.metric is not None:
            _check_metric(self.metric, self.work)
        one_of("cache", self.cache, CACHES if self.ranks is None else ("warm", "rotate"))
        # A whole program over ranks is timed by the host's clock.
        one_of("timing", self.timing, TIMINGS if self.ranks is None else (*RANK_TIMINGS, "wall"))
        one_of("refill", self.refill, (None, True, False))
        if self.cache == "rotate" and self.timed is not None and self.timed.make_args is None:
            make_args = "make_args, which makes each set of arguments of the rotation"
            if self.ranks is not None:
                raise BadInput(
                    f"the rank function returned no make_args; cache='rotate' needs a Timed with {make_args}"
                )
            raise BadInput(f"cache='rotate' needs {make_args}")
        _check_first_calls(self.first_calls)
        if self.devices is not None:
            _check_devices(self.devices)
        if self.model is not None and not callable(getattr(self.model, "named_modules", None)):
            kind = type(self.model).__name__
            raise BadInput(
                f"model is a {kind}; expected a torch.nn.Module, whose parts a profile names"
            )

    @property
    def target(self) -> Timed:
        """The function with its arguments. A request on its way to a rank has none."""
        assert self.timed is not None
        return self.timed

    @property
    def shown_metric(self) -> str:
        """The name of the rate to show."""
        return self.metric or self.work.metric

    @property
    def over_host_link(self) -> bool:
        """True if a single device copies over its host's link.

        Other devices may use that link too. It is false over ranks, with several devices, and for one of several like
        devices.
        """
        over_link = rate_suffix(self.shown_metric) == "payload_GBps" and bool(self.work.wire_bytes)
        return over_link and not self.devices and self.ranks is None and SIBLINGS not in self.labels


def as_tuple(arguments: object) -> tuple[object, ...]:
    """Return arguments as a tuple. A tuple or list holds several, None is none, all else is one."""
    if arguments is None:
        return ()
    return tuple(arguments) if isinstance(arguments, tuple | list) else (arguments,)


def one_of(name: str, argument: Any, allowed: tuple[Any, ...]) -> Any:
    """Return an argument. Raise BadInput if it is not an allowed one."""
    if argument not in allowed:
        raise BadInput(
            f"{name} is {short_repr(argument)}; expected one of {', '.join(map(str, allowed))}"
        )
    return argument


def positive(name: str, number: float | None) -> float | None:
    """Return a number or None. Raise BadInput if the number is not finite and above zero."""
    if number is None:
        return None
    if (
        isinstance(number, bool)
        or not isinstance(number, int | float)
        or not 0 < number < float("inf")
    ):
        raise BadInput(f"{name} is {short_repr(number)}; expected a number above zero")
    return float(number)


def check_work(work: object) -> Work:
    """Return the work of a call.

    For None it is that of one call without known bytes or FLOPs. That has a time and no rate. Raise BadInput for
    anything else.
    """
    if work is not None and not isinstance(work, Work):
        raise BadInput(
            f"work is {short_repr(work)}; expected Work(read_bytes=…, write_bytes=…, flops=…), or None"
        )
    return work or Work(calls=1)


def _check_callable(fn: Callable[..., object]) -> None:
    """Raise BadInput unless `fn` can be called and is not async. An async call does no work."""
    if not callable(fn):
        raise BadInput(
            f"the function to time is {short_repr(fn)}; expected a function, such as lambda: …"
        )
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    if not inspect.isroutine(inner):
        # Of an object of a class, it is the method `__call__` that may be async.
        inner = getattr(inner, "__call__", inner)  # noqa: B004
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise BadInput(
            f"{getattr(fn, '__name__', fn)!r} is async, so calling it does no work; expected a plain function that "
            "returns when the work is submitted or done"
        )


def _check_metric(metric: str, work: Work) -> None:
    """Raise BadInput unless `metric` names a rate, and the work has what that rate counts."""
    if not isinstance(metric, str) or (metric != JOB_METRIC and rate_suffix(metric) is None):
        raise BadInput(
            f"metric is {short_repr(metric)}; expected a name that ends in one of {', '.join(RATE_SUFFIXES)}"
        )
    if metric != JOB_METRIC and work.amount(metric) is None:
        work_text = None if work == check_work(None) else work
        raise BadInput(
            f"metric is {short_repr(metric)}, but the work has no amount that this metric counts: {work_text}"
        )


def _check_first_calls(count: object) -> None:
    """Raise BadInput unless `count` is a number of first calls."""
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_FIRST_CALLS:
        raise BadInput(
            f"first_calls is {short_repr(count)}; expected a number of calls from 0 to {MOST_FIRST_CALLS}"
        )


def _check_devices(devices: Sequence[str]) -> None:
    """Raise BadInput unless these are two or more different names."""
    if isinstance(devices, str) or not all(isinstance(name, str) for name in devices):
        raise BadInput(
            f"devices is {short_repr(devices)}; expected names of devices, such as ('cuda:0', 'cuda:1')"
        )
    if len(set(devices)) < max(2, len(devices)):
        raise BadInput(
            f"devices is {short_repr(devices)}; expected two or more names, each of them once"
        )
