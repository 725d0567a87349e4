"""The `roofline` fixture: what a test calls to measure something."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from .compiling import take
from .core.keys import CACHES, JOB_METRIC, RANK_TIMINGS, TIMINGS, Cache, Timing
from .core.records import Measurement
from .core.resources import Resources
from .core.units import format_amount
from .core.work import Work
from .over_ranks import OverRanks
from .rank_jobs import take_jobs
from .rank_measuring import take as take_ranks
from .requests import (
    Request,
    argument_maker,
    check_callable,
    check_collective,
    check_devices,
    check_metric,
    check_work,
    one_of,
    positive,
)
from .session import RooflineSession
from .settings import Marks
from .single import Single
from .subject import Subject

if TYPE_CHECKING:
    import torch

    from .ranks import Distributed


class Roofline:
    """Measures functions for one test. Comes as the fixture `roofline`."""

    def __init__(self, session: RooflineSession, item: pytest.Item, marks: Marks) -> None:
        self._session = session
        self._marks = marks
        self._subject = Subject(session, item, marks)

    @property
    def device(self) -> "torch.device":
        """The device that is measured, for making tensors on it."""
        import torch

        name = self._session.ground.device.name
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
        peak_bytes: bool = False,
        held_bytes: bool = False,
        devices: Sequence[str] | None = None,
    ) -> Measurement:
        """Time `fn` on the device and write the measurement down; the verdict follows when the test's body has ended.

        Args:
            fn: the function to time, called as `fn(*args)`; its result is ignored.
            work: bytes and FLOPs of one call, from which rates are derived.
            args: arguments for every call.
            make_args: makes one fresh set of arguments; called once, or as often as a rotation needs.
            name: tells several measurements of one test apart.
            cache: `warm` (default) calls with the same buffers, `rotate` goes through so many sets of `make_args` that
                a buffer has left the last-level cache when its turn comes again, `flush` evicts before every call.
            verify: called as `verify(*args)` on every set of arguments that was timed, after timing; False or an
                AssertionError means wrong data.
            timing: `device` times the device's own work, `wall` the host's clock around call and wait.
            budget: seconds of measuring, instead of `--roofline-budget`.
            tolerance: how much slower is still the same, as a share of the time (0.05).
            metric: name of the rate to show, ending in its counting convention (`sm_traffic_GBps`).
            peak_bytes: also find the most memory that a call holds above what is allocated before it, in a pass of its
                own after timing.
            held_bytes: also find what a call leaves allocated as long as its result is kept, above what is allocated
                before it, in a pass of its own: of a forward pass its output and what autograd saved for the backward.
            devices: those of this process that `fn` works on together, the first among them first: `("cuda:0",
                "cuda:1")`. The slowest of them sets the time.

        Returns:
            The measurement, with samples in seconds per call.

        Raises:
            BadInput: an argument cannot be used as given.
            WrongData: the timed buffers do not hold what they should; the measurement can never become a baseline.
            DeviceError: the device stopped answering.
            Exception: whatever `fn` raises, out of memory included; what was held is released.
        """
        self._subject.require_open()
        request = Request(
            fn=check_callable(fn),
            work=check_work(work),
            name=self._subject.fresh_name(name),
            cache=one_of("cache", cache or self._marks.cache or "warm", CACHES),
            timing=one_of("timing", timing, TIMINGS),
            budget_s=positive("budget", budget) or self._marks.budget or self._session.options.budget_s,
            tolerance=positive("tolerance", tolerance) or self._marks.tolerance,
            metric=check_metric(metric, work),
            verify=verify,
            fresh=make_args is not None and verify is not None,
            peak_bytes=peak_bytes,
            held_bytes=held_bytes,
            devices=check_devices(devices),
        )
        make = argument_maker(args, make_args, request.cache)
        return Single(self._subject, request, make).measure()

    def measure_ranks(
        self,
        distributed: "Distributed",
        fn: Callable[..., object],
        *args: object,
        world_size: int | None = None,
        work: Work | None = None,
        name: str | None = None,
        timing: Timing = "isolated",
        cache: Cache | None = None,
        budget: float | None = None,
        tolerance: float | None = None,
        metric: str | None = None,
        backend: str | None = None,
        timeout: float | None = None,
        peak_bytes: bool = False,
        collective: str | None = None,
    ) -> Measurement:
        """Time what `fn` does on every rank of a world; the time of a call is that of the rank that took longest.

        Args:
            distributed: the fixture of that name.
            fn: a function at the top of a module, called once as `fn(rank, *args)` on each rank. If it returns a
                function or a `Timed`, that is timed; else `fn(rank, *args)` itself is, called again and again.
            args: plain data and tensors.
            world_size: ranks; the test's own number (marker `ranks`, parameter `world_size`) by default.
            work: bytes and FLOPs of one call, from which rates are derived.
            name: tells several measurements of one test apart.
            timing: `isolated` times one call at a time, behind a barrier; `pipelined` many calls in a row.
            cache: `warm` (default), or `rotate` through the sets of a `Timed`'s `make_args`.
            budget: seconds of measuring, instead of `--roofline-budget`.
            tolerance: how much slower is still the same, as a share of the time.
            metric: name of the rate to show, ending in its counting convention.
            backend: of torch.distributed; the device's own by default.
            timeout: seconds until every rank must have answered.
            peak_bytes: also find the most memory that a call holds on any rank.
            collective: the one that `fn` does, such as `all_reduce`, to record its algorithm and protocol where the
                library tells of them (NCCL and RCCL do under NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=TUNING).

        Returns:
            The measurement; `ranks` has every rank's own times and names the straggler.

        Raises:
            BadInput: an argument cannot be used as given; no rank is contacted.
            WrongData: the timed buffers of a rank do not hold what they should.
            RanksFailed: a rank raised, was lost, or did not answer in time.
        """
        __tracebackhide__ = True
        over = OverRanks(self._subject, distributed)
        request = over.request(
            fn,
            args,
            world_size=world_size,
            work=check_work(work),
            name=name,
            timing=one_of("timing", timing, RANK_TIMINGS),
            cache=cache,
            budget=budget,
            tolerance=tolerance,
            metric=check_metric(metric, work),
            backend=backend,
            timeout=timeout,
        )
        return over.measure(
            replace(request, peak_bytes=peak_bytes, collective=check_collective(collective)), take_ranks
        )

    def measure_job(
        self,
        distributed: "Distributed",
        fn: Callable[..., object],
        *args: object,
        world_size: int | None = None,
        work: Work | None = None,
        name: str = "job",
        budget: float | None = None,
        tolerance: float | None = None,
        backend: str | None = None,
        timeout: float | None = None,
    ) -> Measurement:
        """Time whole programs, from the start of the processes to their end: `job_wall_s`, in seconds.

        Ranks are started for the purpose, `fn(rank, *args)` is called once on each, and they end in order. What that
        has beyond the steady time of `measure_ranks` is starting, importing, meeting, warming up and ending.

        Args:
            distributed: the fixture of that name.
            fn: a function at the top of a module.
            args: plain data and tensors.
            world_size: ranks; the test's own number by default.
            work: bytes and FLOPs of the whole program.
            name: tells several measurements of one test apart.
            budget: seconds; two programs are run in any case, and five at most.
            tolerance: how much slower is still the same, as a share of the time.
            backend: of torch.distributed; the device's own by default.
            timeout: seconds until every rank must have answered.

        Raises:
            BadInput: an argument cannot be used as given; no rank is contacted.
            RanksFailed: a rank raised, was lost, or did not answer in time.
        """
        __tracebackhide__ = True
        over = OverRanks(self._subject, distributed)
        request = over.request(
            fn,
            args,
            world_size=world_size,
            work=check_work(work),
            name=name,
            timing="wall",
            cache=None,
            budget=budget,
            tolerance=tolerance,
            metric=JOB_METRIC,
            backend=backend,
            timeout=timeout,
        )
        return over.measure(request, take_jobs)

    def resources(
        self,
        kernel: object,
        *,
        target: str | None = None,
        arguments: Mapping[str, object] | None = None,
        options: Mapping[str, object] | None = None,
        name: str | None = None,
        slack: Mapping[str, int] | None = None,
    ) -> Resources:
        """Compile a Triton kernel for a target that need not be here, and hold what it asks for against the baseline.

        Nothing is launched and nothing is timed. The figures are read from the binary: registers, shared memory,
        spills, matrix instructions. They are the same every time, so any that is worse turns the test red.

        Args:
            kernel: a function under `@triton.jit`; or a kernel that was compiled already, as `warmup` or a launch
                returns it, and then nothing but `name` and `slack` beside it.
            target: `sm_90`, `sm_100`, `gfx942`, ….
            arguments: what the kernel is called with, by parameter: a type as Triton writes it (`*bf16:16`, `i32:16`),
                a tensor (on the meta device too), a torch dtype, a number, a bool, None; and the constants' values.
            options: of Triton's compiler: num_warps, num_stages, enable_fp_fusion, ….
            name: tells several kernels of one test apart that are compiled for one target.
            slack: by figure, how much worse it may be before that is red: `{"registers": 8}`.

        Returns:
            What was found, so that the test can also say `assert found.spills == 0`.

        Raises:
            BadInput: an argument or option cannot be used as given.
            CompileFailed: the compiler refuses, or its result cannot be read.
            DoesNotFit: it needs more shared memory than the target has.
        """
        __tracebackhide__ = True
        self._subject.require_open()
        return take(self._subject, kernel, target=target, arguments=arguments, options=options, name=name, slack=slack)

    def require_memory(self, size_bytes: int, where: str = "device") -> None:
        """Skip the test where an allocation of this size cannot fit, with what it needs and what was found.

        Args:
            size_bytes: bytes that the test is going to allocate.
            where: `device` or `host`.
        """
        from .measuring.host import free_memory_bytes

        device = self._session.ground.device
        free = device.free_bytes() if where == "device" else free_memory_bytes()
        if size_bytes > free:
            self.skip_for_hardware(f"needs {format_amount(size_bytes)} of {where} memory, found {format_amount(free)}")

    def skip_for_hardware(self, reason: str) -> None:
        """Skip the test for lack of hardware; a failure under `--roofline-require-hardware`.

        Args:
            reason: need and finding: "needs 2 GPUs, found 1".
        """
        if self._session.options.require_hardware:
            pytest.fail(f"{reason}, and --roofline-require-hardware is set", pytrace=False)
        pytest.skip(reason)
