"""The `roofline` fixture: what a test calls to measure something."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

from ..core.errors import refuse_wide
from ..core.keys import JOB_METRIC, RANK_TIMINGS, TIMINGS, Cache, Timing
from ..core.memory import MemoryUse
from ..core.profiles import Figure, Unit
from ..core.records import Measurement
from ..core.resources import Resources
from ..core.units import format_amount
from ..core.work import Work
from ..engine.request import Request, Timed, check_work, one_of, positive
from . import in_process, over_ranks
from .compiling import take
from .current_test import CurrentTest
from .observing import note_figure, profiled_labels, take_memory, warn_of_ranks
from .session import RooflineSession
from .settings import WIDE_MARK, Marks
from .shadow import lack
from .siblings import Siblings

if TYPE_CHECKING:
    import torch

    from .distributed import Distributed


class Roofline:
    """Measures functions for one test. Comes as the fixture `roofline`."""

    def __init__(self, session: RooflineSession, item: pytest.Item, marks: Marks) -> None:
        self._session = session
        self._marks = marks
        self._test = CurrentTest(session, item, marks)

    @property
    def device(self) -> "torch.device":
        """The device that is measured, for making tensors on it."""
        from ..engine.devices import torch_device

        return torch_device(self._session.under_test.device)

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
        refill: bool | None = None,
        model: "torch.nn.Module | None" = None,
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
                AssertionError means wrong data. If it also has `spoil(sets)` and `first_wrong(sets)`, these do that for
                all sets at once: ruin before timing what the warm-up wrote, and name the first that is wrong, or None.
            timing: `device` times the device's own work, `wall` the host's clock around call and wait.
            budget: seconds of measuring, instead of `--roofline-budget`.
            tolerance: how much slower is still the same, as a share of the time (0.05).
            metric: name of the rate to show, ending in its counting convention (`sm_traffic_GBps`).
            peak_bytes: also find the most memory that a call holds above what is allocated before it, in a pass of its
                own after timing; it is compared with the baseline, and red beyond 5 % more.
            held_bytes: also find what a call leaves allocated as long as its result is kept, above what is allocated
                before it, in a pass of its own: of a forward pass its output and what autograd saved for the backward.
            first_calls: how many of the very first calls are timed alone, by the host's clock from the call until all
                of its work is done, before the rest of the warm-up: what a first step costs beside a steady one. Call
                0 pays whatever this process has not paid yet; a test before may have paid some of it.
            compiles: `fn` compiles at its first call, as `torch.compile` does: the seconds of that call beyond a warm
                one are kept as `compile_s` and never judged. Tracing and compiling are in it, loading of kernels,
                their tuning, and a first call's allocations. It is a cold compile only where torch's caches are off
                (TORCHINDUCTOR_FORCE_DISABLE_CACHES=1, and `torch.compiler.reset()` before).
            refill: True gives the floating-point tensors of the arguments, and of the function's closure, other values
                before every sample, outside of its time, which is then one call. That takes copies of them, and as
                long as copying them. By default a look after the samples spoils what a call writes to and calls
                again: where it stays spoiled, the measurement is INVALID. False does not look.
            model: whose parts become ranges where `--roofline-profile` looks for where the time goes, after all else.
                Their hooks are there for the profiled calls alone; without the option nothing is done with it.
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
        self._test.require_open()
        request = Request(
            work=check_work(work),
            budget_s=self._budget_s(budget),
            timed=Timed(fn, make_args=make_args, verify=verify, args=args),
            name=self._test.fresh_name(name),
            cache=cache or self._marks.cache or "warm",
            timing=one_of("timing", timing, TIMINGS),
            metric=metric,
            tolerance=self._tolerance(tolerance),
            peak_bytes=peak_bytes,
            held_bytes=held_bytes,
            first_calls=first_calls,
            compiles=compiles,
            refill=refill,
            model=model,
            devices=devices,
        )
        return in_process.measure(self._test, request)

    def measure_siblings(
        self,
        fn: Callable[..., object],
        *,
        make_args: Callable[..., Callable[[], object]],
        work: Work,
        among: Sequence[Sequence[str]] | None = None,
        cache: Cache = "rotate",
        verify: Callable[..., object] | None = None,
        budget: float | None = None,
        metric: str | None = None,
        needs_bytes: int = 0,
    ) -> list[Measurement]:
        """Time `fn` on every like device that this process sees, in turn, and hold each against the others.

        Each is measured alone, in three passes through all, so that a drift hits all alike. One that is surely 6 %
        slower than the median of the others is REGRESSED and named; none of it is ever compared with a baseline, or
        becomes one. The test is skipped where fewer than four are alike.

        Args:
            fn: the function to time, called as `fn(*args)` with the device under test as the current one.
            make_args: called with the device under test, as torch has it (both ends of a link); returns what makes one
                fresh set of arguments there.
            work: bytes and FLOPs of one call.
            among: what to hold against each other, each by the names of its devices: `[("cuda:0", "cuda:1"), …]` for
                links, of which those of one class are compared; every device by default.
            cache: as of `measure`.
            verify: as of `measure`, on each.
            budget: seconds of measuring on each, over all passes.
            metric: name of the rate to show.
            needs_bytes: free memory that each device must have; with less on one, the test is skipped.

        Returns:
            A measurement for each, by its name: `cuda:3`, with its UUID as `device`.

        Raises:
            BadInput: an argument cannot be used as given.
            WrongData: one of them holds wrong data.
            DeviceError: one of them stopped answering.
        """
        self._test.require_open()
        request = Request(
            work=check_work(work),
            budget_s=self._budget_s(budget),
            cache=one_of("cache", cache, ("warm", "rotate")),
            metric=metric,
        )
        timed = Timed(fn, verify=verify)
        found, why_not = Siblings(self._test, request, timed, make_args, needs_bytes).measure(among)
        if why_not:
            pytest.skip(why_not)
        return found

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
        first_calls: int = 0,
        fresh: bool = False,
    ) -> Measurement:
        """Time what `fn` does on every rank of a world; the time of a call is that of the rank that took longest.

        Args:
            distributed: the fixture of that name.
            fn: a function at the top of a module, called once as `fn(rank, *args)` on each rank. If it returns a
                function or a `Timed`, that is timed; else `fn(rank, *args)` itself is, called again and again.
            args: plain data and tensors.
            world_size: ranks; the test's own number (marker `ranks`, parameter `world_size`) by default.
            work: bytes and FLOPs of one call on one rank, from which rates are derived. FLOP/s in a type that the
                metric names are held against the datasheet's peak of a rank's device.
            name: tells several measurements of one test apart.
            timing: `isolated` times one call at a time, behind a barrier; `pipelined` many calls in a row.
            cache: `warm` (default), or `rotate` through the sets of a `Timed`'s `make_args`.
            budget: seconds of measuring, instead of `--roofline-budget`.
            tolerance: how much slower is still the same, as a share of the time.
            metric: name of the rate to show, ending in its counting convention.
            backend: of torch.distributed; the device's own by default.
            timeout: seconds until every rank must have answered, first calls included: by default 120 and twenty
                budgets, so give one where a call takes many seconds, the more so with `first_calls`.
            peak_bytes: also find the most memory that a call holds on any rank, and compare it with the baseline.
            collective: the one that `fn` does, such as `all_reduce`, for the roofline that it is held against.
            first_calls: how many of the very first calls are timed alone, each behind a barrier and by the clock of the
                rank that took longest, before the rest of the warm-up.
            fresh: start ranks for this measurement, so that call 0 pays for what a new process has not loaded or
                allocated yet: kernels, libraries, compiling, communicators of its own. What ranks need to meet and to
                be timed is there by then: the device's context, stamps, their groups, and the buffers.

        Returns:
            The measurement; `ranks` has every rank's own times and names the straggler.

        Raises:
            BadInput: an argument cannot be used as given; no rank is contacted.
            WrongData: the timed buffers of a rank do not hold what they should.
            RanksFailed: a rank raised, was lost, or did not answer in time.
        """
        __tracebackhide__ = True
        self._require_ranks(distributed)
        over_ranks.check_call(fn, args)
        request = Request(
            work=check_work(work),
            budget_s=self._budget_s(budget),
            name=self._test.fresh_name(name),
            cache=cache or self._marks.cache or "warm",
            timing=one_of("timing", timing, RANK_TIMINGS),
            metric=metric,
            tolerance=self._tolerance(tolerance),
            peak_bytes=peak_bytes,
            first_calls=first_calls,
            labels=tuple(profiled_labels(self._session)),
            ranks=over_ranks.rank_options(
                distributed, world_size, backend=backend, timeout=timeout, collective=collective, fresh=fresh
            ),
        )
        return over_ranks.measure_over(self._test, distributed, fn, args, request)

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
        self._require_ranks(distributed)
        over_ranks.check_call(fn, args)
        request = Request(
            work=check_work(work),
            budget_s=self._budget_s(budget),
            name=self._test.fresh_name(name),
            cache=self._marks.cache or "warm",
            timing="wall",
            metric=JOB_METRIC,
            tolerance=self._tolerance(tolerance),
            labels=tuple(profiled_labels(self._session)),
            ranks=over_ranks.rank_options(distributed, world_size, backend=backend, timeout=timeout),
        )
        return over_ranks.measure_over(self._test, distributed, fn, args, request)

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
        self._test.require_open()
        return take(self._test, kernel, target=target, arguments=arguments, options=options, name=name, slack=slack)

    def figure(self, name: str, value: float, unit: Unit) -> Figure:
        """Write down a number that the test found besides times; it is shown, and never judged.

        It stands in the run file at once, and in no baseline. A further round finds it again and keeps quiet.

        Args:
            name: what it is, once a test: `efficiency`.
            value: a finite number in `unit`.
            unit: `B`, `s`, `share` (of 1), `count`, `FLOP`, `tokens/s` or `x` (a factor).

        Raises:
            BadInput: another unit, no finite number, or a name that the test gave before.
        """
        self._test.require_open()
        return note_figure(self._test, name, value, unit)

    def memory(
        self,
        fn: Callable[..., object],
        *,
        args: tuple[object, ...] | list[object] | None = None,
        make_args: Callable[[], object] | None = None,
        model: "torch.nn.Module | None" = None,
        optimizer: "torch.optim.Optimizer | None" = None,
        name: str | None = None,
    ) -> MemoryUse:
        """Call `fn` once, untimed, and find what its memory goes into at the peak, by category.

        Every operator is followed, so the call is slow, and compiled code runs operator by operator. The record stands
        in the run file at once and is shown after the results; it is never judged. A first step also makes what later
        ones find: to see a steady one, call it after `measure`.

        Args:
            fn: called as `fn(*args)`; its result is kept until the call has been looked at.
            args: its arguments.
            make_args: makes one set of arguments.
            model: whose parameters, buffers and gradients were there before the call; its forward pass shows them too.
            optimizer: whose state was there before the call; a step inside the call is seen without.
            name: tells several calls of one test apart.

        Returns:
            The peak with what it is made of, in bytes, so that the test can assert on it.

        Raises:
            BadInput: an argument cannot be used as given, or nothing of the call lies on the device.
            Exception: whatever `fn` raises, out of memory included; nothing stays hooked into the model.
        """
        __tracebackhide__ = True
        self._test.require_open()
        return take_memory(
            self._test,
            fn,
            args=args,
            make_args=make_args,
            model=model,
            optimizer=optimizer,
            name=name,
        )

    def require_memory(self, size_bytes: int, where: str = "device") -> None:
        """Skip the test where an allocation of this size cannot fit, with what it needs and what was found.

        Args:
            size_bytes: bytes that the test is going to allocate.
            where: `device` or `host`.
        """
        from ..engine.host import free_memory_bytes

        device = self._session.under_test.device
        free = device.free_bytes() if where == "device" else free_memory_bytes()
        if size_bytes > free:
            self.skip_for_hardware(f"needs {format_amount(size_bytes)} of {where} memory, found {format_amount(free)}")

    def skip_for_hardware(self, reason: str) -> None:
        """Skip the test for lack of hardware; a failure under `--roofline-require-hardware`.

        Args:
            reason: need and finding: "needs 2 GPUs, found 1".
        """
        __tracebackhide__ = True
        lack(self._test.item, self._session.options, reason)

    def _budget_s(self, asked: float | None) -> float:
        return positive("budget", asked) or self._marks.budget or self._session.options.budget_s

    def _tolerance(self, asked: float | None) -> float | None:
        """The tolerance of a measurement: its own, or that of the marker; wider ones only with a reason."""
        chosen = positive("tolerance", asked) or self._marks.tolerance
        refuse_wide(chosen, self._marks.tolerance_reason is not None, WIDE_MARK)
        return chosen

    def _require_ranks(self, distributed: object) -> None:
        warn_of_ranks(self._session)
        over_ranks.check_distributed(distributed)
        self._test.require_open()
