"""The fixture `roofline` of a reproducer: the same calls as the plugin's, whose times go into a list."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from ..core.errors import RooflineError, WrongData
from ..core.keys import CACHES, RANK_TIMINGS, TIMINGS, Cache, Timing
from ..core.samples import Samples
from ..core.units import format_amount
from ..core.work import Work
from ..rank_requests import Keep, RankRequest, Taken
from ..requests import (
    Request,
    argument_maker,
    check_callable,
    check_collective,
    check_devices,
    check_distributed,
    check_first_calls,
    check_metric,
    check_work,
    one_of,
    positive,
)
from ..settings import Marks, Options
from .results import Result
from .timing import time_request

if TYPE_CHECKING:
    import torch

    from ..measuring.devices import Device
    from ..ranks import Distributed


class NeedsPlugin(RooflineError):
    """A test asks for what only pytest-roofline itself can do."""


class Roofline:
    """Measures functions for one test.

    Args:
        device: opens what is measured; asked once.
        item: the test.
        marks: what its marker says.
        options: of the run.
        results: gets what was measured.
    """

    def __init__(
        self,
        device: "Callable[[], Device]",
        item: pytest.Item,
        marks: Marks,
        options: Options,
        results: list[Result],
    ) -> None:
        self._open = device
        self._item, self._marks, self._options, self._results = item, marks, options, results

    @property
    def device(self) -> "torch.device":
        """The device that is measured."""
        import torch

        name = self._open().name
        return torch.device("cpu" if name == "fake" else name)

    def measure(
        self,
        fn: Callable[..., object],
        *,
        work: Work | None = None,
        args: tuple[object, ...] | list[object] | None = None,
        make_args: Callable[[], object] | None = None,
        name: str | None = None,
        cache: Cache | None = None,
        verify: Callable[..., object] | None = None,
        timing: Timing = "device",
        budget: float | None = None,
        tolerance: float | None = None,
        metric: str | None = None,
        first_calls: int = 0,
        compiles: bool = False,
        devices: Sequence[str] | None = None,
        **more: object,
    ) -> Result:
        """Time `fn` as the plugin would; what does not change its time (`peak_bytes`, `model`, …) is left out.

        Raises:
            BadInput: an argument cannot be used as given.
            WrongData: the timed buffers do not hold what they should.
        """
        request = Request(
            fn=check_callable(self._replaced(name or "", fn)),
            work=check_work(work),
            name=name or "",
            cache=one_of("cache", cache or self._marks.cache or "warm", CACHES),
            timing=one_of("timing", timing, TIMINGS),
            budget_s=self._budget_s(budget),
            tolerance=positive("tolerance", tolerance),
            metric=check_metric(metric, work),
            verify=verify,
            fresh=make_args is not None and verify is not None,
            peak_bytes=False,
            first_calls=check_first_calls(first_calls),
            compiles=compiles,
            devices=check_devices(devices),
        )
        make = argument_maker(args, make_args, request.cache)
        timed = time_request(self._among(request.devices), request, make)
        if timed is None:
            raise NeedsPlugin(f"{self._item.nodeid}: not one sample was taken within {request.budget_s:g} s")
        result = self._keep(request.name, timed.samples, timed.disturbed, more)
        if timed.wrong:
            raise WrongData(f"{self._item.nodeid}: {timed.wrong}")
        return result

    def measure_ranks(
        self,
        distributed: "Distributed",
        fn: Callable[..., object],
        *args: object,
        timing: Timing = "isolated",
        collective: str | None = None,
        first_calls: int = 0,
        fresh: bool = False,
        **keywords: Any,
    ) -> Result:
        """Time what `fn` does on every rank of a world, as the plugin would.

        Raises:
            BadInput: an argument cannot be used as given.
            WrongData: the timed buffers of a rank do not hold what they should.
            RanksFailed: a rank raised, was lost, or did not answer in time.
        """
        from ..rank_measuring import take

        more = {
            "collective": check_collective(collective),
            "first_calls": check_first_calls(first_calls),
            "fresh": fresh,
            "timing": one_of("timing", timing, RANK_TIMINGS),
        }
        return self._over_ranks(distributed, fn, args, take, keywords, more)

    def measure_job(
        self,
        distributed: "Distributed",
        fn: Callable[..., object],
        *args: object,
        name: str = "job",
        **keywords: Any,
    ) -> Result:
        """Time whole programs, from the start of the processes to their end.

        Raises:
            BadInput: an argument cannot be used as given.
            RanksFailed: a rank raised, was lost, or did not answer in time.
        """
        from ..rank_jobs import take_jobs

        return self._over_ranks(distributed, fn, args, take_jobs, keywords | {"name": name}, {"timing": "wall"})

    def figure(self, name: str, value: float, unit: str) -> None:
        """A number that the test found besides times; only printed here."""
        print(f"{name}: {value:g} {unit}")

    def memory(self, *_args: object, **_keywords: object) -> NoReturn:
        """Follow the memory of a call, which takes the plugin.

        Raises:
            NeedsPlugin: always.
        """
        raise NeedsPlugin(f"{self._item.nodeid} follows memory (roofline.memory); run it with pytest-roofline")

    def resources(self, *_args: object, **_keywords: object) -> NoReturn:
        """Compile a kernel and read its binary, which takes the plugin.

        Raises:
            NeedsPlugin: always.
        """
        raise NeedsPlugin(f"{self._item.nodeid} compiles kernels (roofline.resources); run it with pytest-roofline")

    def require_memory(self, size_bytes: int, where: str = "device") -> None:
        """Skip the test where an allocation of this size cannot fit."""
        from ..measuring.host import free_memory_bytes

        free = self._open().free_bytes() if where == "device" else free_memory_bytes()
        if size_bytes > free:
            self.skip_for_hardware(f"needs {format_amount(size_bytes)} of {where} memory, found {format_amount(free)}")

    def skip_for_hardware(self, reason: str) -> None:
        """Skip the test for lack of hardware."""
        pytest.skip(reason)

    def _over_ranks(
        self,
        distributed: "Distributed",
        fn: Callable[..., object],
        args: tuple[object, ...],
        taking: "Callable[[Distributed, RankRequest, Keep], Taken]",
        given: dict[str, Any],
        more: dict[str, Any],
    ) -> Result:
        from ..distributed.functions import reference
        from ..distributed.worlds import check_backend

        work = check_work(given.get("work"))
        metric = check_metric(given.get("metric"), work)
        request = RankRequest(
            function=reference(self._replaced(given.get("name") or "", fn)),
            args=args,
            size=check_distributed(distributed).size_of(given.get("world_size")),
            work=work,
            name=given.get("name") or "",
            cache=one_of("cache", given.get("cache") or self._marks.cache or "warm", ("warm", "rotate")),
            budget_s=self._budget_s(given.get("budget")),
            tolerance=None,
            metric=metric or work.metric,
            backend=check_backend(given.get("backend")),
            timeout_s=positive("timeout", given.get("timeout")),
            **more,
        )
        taken = taking(distributed, request, lambda taken, error: None)  # noqa: ARG005
        result = self._keep(request.name, taken.samples, taken.disturbed, {})
        if taken.wrong:
            raise WrongData(f"{self._item.nodeid}: {taken.wrong}")
        return result

    def _keep(self, name: str, samples: Samples, disturbed: str, unused: dict[str, object]) -> Result:
        known = ("peak_bytes", "held_bytes", "model")
        result = Result(name, samples, disturbed, tuple(sorted(set(unused) - set(known))))
        self._results.append(result)
        return result

    def _budget_s(self, asked: float | None) -> float:
        return positive("budget", asked) or self._marks.budget or self._options.budget_s

    def _replaced(self, name: str, fn: Callable[..., object]) -> Callable[..., object]:
        replacement = self._item.config.hook.pytest_roofline_function(item=self._item, name=name, fn=fn)
        return fn if replacement is None else replacement

    def _among(self, names: tuple[str, ...]) -> "Device":
        if not names:
            return self._open()
        from ..measuring.devices.peers import open_peer
        from ..measuring.devices.several import SeveralDevices

        return SeveralDevices([open_peer(name) for name in names])
