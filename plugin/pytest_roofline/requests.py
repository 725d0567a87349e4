"""The arguments of `roofline.measure`, checked: bad ones get a sentence with what was seen and what was expected."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from .core.checks import refuse_wide, shown
from .core.errors import BadInput
from .core.keys import Cache, Timing
from .core.work import RATE_SUFFIXES, Work, rate_suffix
from .ranks import Distributed
from .settings import WIDE_MARK, Marks

# More tell nothing of a start, and each is waited for.
MOST_FIRST_CALLS = 1000
# As roofline_kernels.work.COLLECTIVES names them.
COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v"),
    *("broadcast", "reduce", "gather", "scatter", "send_recv"),
)


class Request:
    """The checked arguments of one `measure`."""

    def __init__(
        self,
        *,
        fn: Callable[..., object],
        work: Work,
        name: str,
        cache: Cache,
        timing: Timing,
        budget_s: float,
        tolerance: float | None,
        metric: str | None,
        verify: Callable[..., object] | None,
        fresh: bool,
        peak_bytes: bool,
        held_bytes: bool = False,
        devices: tuple[str, ...] = (),
        first_calls: int = 0,
        compiles: bool = False,
        model: Any = None,
        refill: bool | None = None,
    ) -> None:
        if verify is not None and not callable(verify):
            raise BadInput(f"verify is {shown(verify)}; expected a function of the same arguments as fn")
        self.fn, self.work, self.name, self.cache, self.timing = fn, work, name, cache, timing
        self.budget_s, self.tolerance, self.metric, self.verify = budget_s, tolerance, metric, verify
        # Whether the buffers that the warm-up used are made anew before what will be verified is timed.
        self.fresh = fresh
        self.peak_bytes, self.held_bytes = peak_bytes, held_bytes
        # Those of this process that the function works on together; empty for the one that is measured anyway.
        self.devices = devices
        # Calls timed alone before the warm-up; of a function that compiles, that is at least the one that does.
        self.first_calls = max(first_calls, int(compiles))
        self.compiles = compiles
        # Whether every sample gets other values; None only looks whether a call notices them, False does neither.
        self.refill = refill
        # A torch module whose parts a profile names; None where nobody gave one.
        self.model = model


def check_callable(fn: Callable[..., object]) -> Callable[..., object]:
    if not callable(fn):
        raise BadInput(f"measure was given {shown(fn)}; expected a function to time, such as lambda: …")
    inner = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inner if inspect.isroutine(inner) else getattr(inner, "__call__", inner)  # noqa: B004
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise BadInput(
            f"{getattr(fn, '__name__', fn)!r} is async, so calling it does no work; expected a plain function that "
            "returns when the work is submitted or done"
        )
    return fn


def check_work(work: Work | None) -> Work:
    if not isinstance(work, Work):
        raise BadInput(f"work is {shown(work)}; expected Work(read_bytes=…, write_bytes=…, flops=…)")
    return work


def check_metric(metric: str | None, work: Work | None) -> str | None:
    if metric is None:
        return None
    if not isinstance(metric, str) or rate_suffix(metric) is None:
        raise BadInput(f"metric is {shown(metric)}; expected a name that ends in one of {', '.join(RATE_SUFFIXES)}")
    if work is not None and work.amount(metric) is None:
        raise BadInput(f"metric is {shown(metric)}, but work has none of what it counts: {work}")
    return metric


def check_distributed(distributed: object) -> Distributed:
    if not isinstance(distributed, Distributed):
        raise BadInput(
            f"the first argument is {shown(distributed)}; expected the fixture `distributed`, as the test takes it "
            "among its own arguments"
        )
    return distributed


def check_collective(name: str | None) -> str | None:
    return name if name is None else str(one_of("collective", name, COLLECTIVES))


def check_devices(devices: Sequence[str] | None) -> tuple[str, ...]:
    if devices is None:
        return ()
    if isinstance(devices, str) or not all(isinstance(name, str) for name in devices):
        raise BadInput(f"devices is {shown(devices)}; expected names of devices, such as ('cuda:0', 'cuda:1')")
    if len(set(devices)) < max(2, len(devices)):
        raise BadInput(f"devices is {shown(devices)}; expected two or more, each once")
    return tuple(devices)


def check_first_calls(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_FIRST_CALLS:
        raise BadInput(f"first_calls is {shown(count)}; expected how many calls to time alone, 0 to {MOST_FIRST_CALLS}")
    return count


def check_model(model: Any) -> Any:
    if model is not None and not callable(getattr(model, "named_modules", None)):
        raise BadInput(f"model is a {type(model).__name__}; expected a torch.nn.Module, whose parts a profile names")
    return model


def one_of(what: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        raise BadInput(f"{what} is {shown(value)}; expected one of {', '.join(map(str, allowed))}")
    return value


def positive(what: str, value: float | None) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise BadInput(f"{what} is {shown(value)}; expected a number above zero")
    return float(value)


def chosen_tolerance(value: float | None, marks: Marks) -> float | None:
    """The tolerance of a measurement: its own, or that of the marker.

    Raises:
        BadInput: no number above zero, or wider than is allowed without a reason.
    """
    chosen = positive("tolerance", value) or marks.tolerance
    refuse_wide(chosen, marks.tolerance_reason is not None, WIDE_MARK)
    return chosen


def argument_maker(
    args: tuple[object, ...] | list[object] | None, make_args: Callable[[], object] | None, cache: Cache
) -> Callable[[], object]:
    if args is not None and make_args is not None:
        raise BadInput("both args and make_args were given; expected one of them")
    if make_args is not None and not callable(make_args):
        raise BadInput(f"make_args is {shown(make_args)}; expected a function that makes one set of arguments")
    if cache == "rotate" and make_args is None:
        raise BadInput("cache='rotate' needs make_args, which makes each fresh set of arguments to rotate through")
    if args is not None and not isinstance(args, tuple | list):
        raise BadInput(f"args is a {type(args).__name__}; expected a tuple of arguments")
    return make_args or (lambda: args)


def over_host_link(request: Request, metric: str) -> bool:
    """Whether what is measured goes between a device and its host, over a link that other devices may share."""
    return rate_suffix(metric) == "payload_GBps" and bool(request.work.wire_bytes) and not request.devices
