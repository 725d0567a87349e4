"""The fixture `roofline` of a reproducer: the same calls as the plugin's, whose measurements go into a list."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from ..core.errors import RooflineError, WrongData
from ..core.facts import HardwareKey
from ..core.keys import CACHES, JOB_METRIC, RANK_TIMINGS, TIMINGS, Cache, Key, Timing
from ..core.records import Measurement
from ..core.units import format_amount
from ..core.work import Work
from ..planned import benchmark_name, encodable, parameters_of
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
    check_model,
    check_work,
    one_of,
    positive,
)
from ..settings import Marks, Options
from .timing import time_request

if TYPE_CHECKING:
    import torch

    from ..measuring.devices import Device
    from ..ranks import Distributed


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
        results: list[tuple[Measurement, tuple[str, ...]]],
    ) -> None:
        self._open = device
        self._item, self._marks, self._options, self._results = item, marks, options, results

    @property
    def device(self) -> "torch.device":
        """The device that is measured."""
        from ..measuring.devices import torch_device

        return torch_device(self._open())

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
        peak_bytes: bool = False,
        held_bytes: bool = False,
        first_calls: int = 0,
        compiles: bool = False,
        model: "torch.nn.Module | None" = None,
        devices: Sequence[str] | None = None,
        **more: object,
    ) -> Measurement:
        """Time `fn` as the plugin would; what this version does not know is left out.

        The measurement has no roofline, and its key no hardware: it is compared with nothing but the case.

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
            peak_bytes=peak_bytes,
            held_bytes=held_bytes,
            first_calls=check_first_calls(first_calls),
            compiles=compiles,
            model=check_model(model),
            devices=check_devices(devices),
        )
        make = argument_maker(args, make_args, request.cache)
        timed = time_request(self._among(request.devices), request, make)
        if timed is None:
            raise RooflineError(f"{self._item.nodeid}: not one sample was taken within {request.budget_s:g} s")
        samples = timed.samples
        measurement = Measurement(
            **self._named(request),
            samples=samples,
            tolerance=request.tolerance,
            verified=timed.verified,
            invalid=timed.wrong or timed.disturbed or samples.trouble,
            peak_bytes=timed.peak_bytes,
            held_bytes=timed.held_bytes,
            compile_s=max(0.0, samples.first_calls_s[0] - samples.alone_s) if compiles else None,
        )
        return self._kept(measurement, timed.wrong, tuple(sorted(more)))

    def measure_ranks(
        self,
        distributed: "Distributed",
        fn: Callable[..., object],
        *args: object,
        timing: Timing = "isolated",
        collective: str | None = None,
        first_calls: int = 0,
        fresh: bool = False,
        metric: str | None = None,
        peak_bytes: bool = False,
        **keywords: Any,
    ) -> Measurement:
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
            "metric": check_metric(metric, check_work(keywords.get("work"))) or keywords["work"].metric,
            "peak_bytes": peak_bytes,
        }
        return self._over_ranks(distributed, fn, args, take, keywords, more)

    def measure_job(
        self,
        distributed: "Distributed",
        fn: Callable[..., object],
        *args: object,
        name: str = "job",
        **keywords: Any,
    ) -> Measurement:
        """Time whole programs, from the start of the processes to their end.

        Raises:
            BadInput: an argument cannot be used as given.
            RanksFailed: a rank raised, was lost, or did not answer in time.
        """
        from ..rank_jobs import take_jobs

        more = {"timing": "wall", "metric": JOB_METRIC}
        return self._over_ranks(distributed, fn, args, take_jobs, keywords | {"name": name}, more)

    def figure(self, name: str, value: float, unit: str) -> None:
        """A number that the test found besides times; only printed here."""
        print(f"{name}: {value:g} {unit}")

    def memory(self, *_args: object, **_keywords: object) -> NoReturn:
        """Follow the memory of a call, which takes the plugin: the test ends, and what it measured before counts."""
        pytest.skip("the rest follows memory (roofline.memory), which takes pytest-roofline")

    def resources(self, *_args: object, **_keywords: object) -> NoReturn:
        """Compile a kernel and read its binary, which takes the plugin: the test ends likewise."""
        pytest.skip("the rest compiles kernels (roofline.resources), which takes pytest-roofline")

    def measure_siblings(self, *_args: object, **_keywords: object) -> NoReturn:
        """Measure every like device of the machine, which takes the plugin and the machine: the test ends likewise."""
        pytest.skip("the rest holds every GPU of the machine against the others, which takes pytest-roofline")

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
    ) -> Measurement:
        from ..distributed.functions import reference
        from ..distributed.worlds import check_backend

        request = RankRequest(
            function=reference(self._replaced(given.get("name") or "", fn)),
            args=args,
            size=check_distributed(distributed).size_of(given.get("world_size")),
            work=check_work(given.get("work")),
            name=given.get("name") or "",
            cache=one_of("cache", given.get("cache") or self._marks.cache or "warm", ("warm", "rotate")),
            budget_s=self._budget_s(given.get("budget")),
            tolerance=positive("tolerance", given.get("tolerance")),
            backend=check_backend(given.get("backend")),
            timeout_s=positive("timeout", given.get("timeout")),
            **more,
        )
        taken = taking(distributed, request, lambda taken, error: None)  # noqa: ARG005
        measurement = Measurement(
            **self._named(request),
            samples=taken.samples,
            tolerance=request.tolerance,
            verified=taken.verified,
            invalid=taken.wrong or taken.disturbed or taken.samples.trouble,
            peak_bytes=taken.peak_bytes,
            ranks=taken.ranks,
        )
        return self._kept(measurement, taken.wrong)

    def _named(self, request: Request | RankRequest) -> dict[str, Any]:
        """What a record says of what was measured, before any time."""
        key = Key(
            benchmark=benchmark_name(self._item),
            parameters=parameters_of(self._item),  # type: ignore[arg-type]
            metric=request.metric or request.work.metric,
            hardware=HardwareKey(),
            cache=request.cache,
            timing=request.timing,
            name=request.name,
        )
        told = {"test_id": encodable(self._item.nodeid), "label": key.label, "process": "reproducer"}
        return {"key": key, "work": request.work, **told}

    def _kept(self, measurement: Measurement, wrong: str, unused: tuple[str, ...] = ()) -> Measurement:
        self._results.append((measurement, unused))
        if wrong:
            raise WrongData(f"{self._item.nodeid}: {wrong}")
        return measurement

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
