"""The fixture `roofline`, by which a test measures."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from ..core.errors import BadInput, refuse_wide
from ..core.features import require
from ..core.keys import JOB_METRIC, RANK_TIMINGS, TIMINGS, Cache, Timing
from ..core.records import Measurement
from ..core.units import format_amount
from ..core.work import Work
from ..engine.devices import torch_device
from ..engine.host import free_memory_bytes
from ..engine.request import Request, Timed, check_work, one_of, positive
from ..figures.reading import ProgramFigure
from . import in_process, programs
from .findings import Findings
from .in_process import Siblings
from .observing import profiled_labels, warn_of_ranks
from .planned import WIDE_MARK
from .recording import CurrentTest
from .results import lack

if TYPE_CHECKING:
    import torch

    from .distributed import Distributed
    from .session import RooflineSession


class Roofline(Findings):
    """Measures functions for one test. Comes as the fixture `roofline`."""

    def __init__(self, session: "RooflineSession", item: pytest.Item) -> None:
        self._test = CurrentTest(session, item)

    @property
    def device(self) -> "torch.device":
        """The device that is measured, for making tensors on it."""
        return torch_device(self._test.session.under_test.device)

    def __call__(self, *_args: object, **_keywords: object) -> NoReturn:
        """Refuse to be called, and say what to write."""
        raise BadInput(
            "the fixture roofline is not a function. Call a method of the fixture, such as "
            "roofline.measure(fn, *args)"
        )

    def measure(
        self,
        fn: Callable[..., object],
        *args: object,
        work: Work | None = None,
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
        """Time `fn` on the device; the verdict follows the test's body.

        Args:
            fn: the function to time, called as `fn(*args)`; its result is ignored.
            args: arguments for every call.
            work: bytes and FLOPs of one call, from which rates are derived; without, a time is all that is told and
                judged.
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
            held_bytes: also find what a call leaves allocated as long as its result is kept, in a pass of its own: of a
                forward pass its output and what autograd saved for the backward.
            first_calls: how many of the very first calls are timed alone, by the host's clock, before the rest of the
                warm-up. Call 0 pays whatever this process has not paid yet.
            compiles: `fn` compiles at its first call, as `torch.compile` does: the seconds of that call beyond a warm
                one are kept as `compile_s`, never judged. They hold tracing, compiling, loading, tuning and first
                allocations. It is a cold compile only where torch's caches are off.
            refill: True gives the floating-point tensors of the arguments, and of the function's closure, other values
                before every sample, outside of its time, which is then one call. By default a look after the samples
                spoils what a call writes to and calls again: where it stays spoiled, the measurement is INVALID. False
                does not look.
            model: whose parts become ranges under `--roofline-profile`; ignored without.
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
        request = self._request(
            work=work,
            budget=budget,
            name=self._test.unique_name("measurement", name),
            cache=cache,
            tolerance=tolerance,
            timed=Timed(fn, make_args=make_args, verify=verify, args=args or None),
            timing=one_of("timing", timing, TIMINGS),
            metric=metric,
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
        work: Work | None = None,
        among: Sequence[Sequence[str]] | None = None,
        cache: Cache = "rotate",
        verify: Callable[..., object] | None = None,
        budget: float | None = None,
        metric: str | None = None,
        needs_bytes: int = 0,
    ) -> list[Measurement]:
        """Time `fn` on every like device in turn, and compare them.

        Each is measured alone, in three passes through all, so that a drift hits all alike. One that is surely 6 %
        slower than the median of the others is REGRESSED and named; none of it is ever compared with a baseline, or
        becomes one. The test is skipped where fewer than four are alike.

        Args:
            fn: the function to time, called as `fn(*args)` with the device under test as the current one.
            make_args: called with the device under test, as torch has it (both ends of a link); returns what makes one
                fresh set of arguments there.
            work: bytes and FLOPs of one call; `cache`, `verify` and `metric` are as of `measure`, on each.
            among: what to hold against each other, each by the names of its devices: `[("cuda:0", "cuda:1"), …]` for
                links, of which those of one class are compared; every device by default.
            budget: seconds of measuring on each, over all passes.
            needs_bytes: free memory that each device must have; with less on one, the test is skipped.

        Returns:
            A measurement for each, by its name: `cuda:3`, with its UUID as `device`.

        Raises:
            BadInput: an argument cannot be used as given.
            WrongData: one of them holds wrong data.
            DeviceError: one of them stopped answering.
        """
        self._test.require_open()
        request = self._request(
            work=work,
            budget=budget,
            cache=one_of("cache", cache, ("warm", "rotate")),
            metric=metric,
        )
        siblings = Siblings(self._test, request, Timed(fn, verify=verify), make_args, needs_bytes)
        return siblings.measure(among)

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
        """Time `fn` on every rank of a world. The slowest rank sets the time.

        Args:
            distributed: the fixture of that name.
            fn: a function at the top of a module, called once as `fn(rank, *args)` on each rank. If it returns a
                function or a `Timed`, that is timed; else `fn(rank, *args)` itself is, called again and again.
            args: plain data and tensors.
            world_size: ranks; the test's own number (marker `ranks`, parameter `world_size`) by default.
            work: of one call on one rank; `name`, `budget`, `tolerance` and `metric` are as of `measure`.
            timing: `isolated` times one call at a time, behind a barrier; `pipelined` many calls in a row.
            cache: `warm` (default), or `rotate` through the sets of a `Timed`'s `make_args`.
            backend: of torch.distributed; the device's own by default.
            timeout: seconds until every rank must have answered, first calls included; by default 120 and twenty
                budgets.
            peak_bytes: as of `measure`, of the rank that holds most.
            collective: the one that `fn` does, such as `all_reduce`, for the roofline that it is held against.
            first_calls: as of `measure`, each behind a barrier and by the clock of the rank that took longest.
            fresh: start ranks for this measurement, so that call 0 pays for what a new process has not loaded or
                allocated yet. The device's context, stamps, groups and the buffers are there by then.

        Returns:
            The measurement; `ranks` has every rank's own times and names the straggler.

        Raises:
            BadInput: an argument cannot be used as given; no rank is contacted.
            WrongData: the timed buffers of a rank do not hold what they should.
            RanksFailed: a rank raised, was lost, or did not answer in time.
        """
        return self._measure_over(
            distributed,
            fn,
            args,
            {
                "world_size": world_size,
                "backend": backend,
                "timeout": timeout,
                "collective": collective,
                "fresh": fresh,
            },
            work=work,
            budget=budget,
            name=name,
            cache=cache,
            tolerance=tolerance,
            timing=one_of("timing", timing, RANK_TIMINGS),
            metric=metric,
            peak_bytes=peak_bytes,
            first_calls=first_calls,
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
        """Time whole programs from start to end: `job_wall_s`, in seconds.

        Ranks are started for the purpose, `fn(rank, *args)` is called once on each, and they end in order: two programs
        in any case, and five at most. What that has beyond the steady time of `measure_ranks` is starting, importing,
        meeting, warming up and ending. Arguments and errors are as of `measure_ranks`; `work` is of the whole program.
        """
        return self._measure_over(
            distributed,
            fn,
            args,
            {"world_size": world_size, "backend": backend, "timeout": timeout},
            work=work,
            budget=budget,
            name=name,
            tolerance=tolerance,
            timing="wall",
            metric=JOB_METRIC,
        )

    def measure_command(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        read: str | None = None,
        higher: Mapping[str, str] | None = None,
        lower: Mapping[str, str] | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        ranks: int | None = None,
    ) -> list[ProgramFigure]:
        """Run a program, and judge the figures that it prints; without any, the time of the command.

        Each run of the program is one process of the model. Further rounds run the test once more in this pytest, with
        its fixtures; where it calls `measure` as well, in a process of its own. What the program printed is kept beside
        the runs, in `printed`.

        Args:
            command: the program and its arguments, which no shell reads. `{out}` in it stands for a fresh file that is
                read in place of standard output.
            read: the form of the output: `json` (the default where a figure is named), `csv`, `regex`; or a tool whose
                own figures are taken, such as `nvbandwidth`, `nccl-tests` or `babelstream`.
            higher: by name the path of each figure of which more is better: `{"tok/s": "results.*.throughput"}`. A
                rate such as `tok/s` is the unit as well, and so is what a name ends with, `p99 (ms)`.
            lower: the same of figures of which less is better.
            timeout: seconds after which it is killed with all that it started; an hour by default.
            env: variables beside those of this process.
            cwd: the folder that it runs in; the present one by default.
            ranks: start it on so many ranks by `mpirun` or `srun`; they are the devices in the key.

        Returns:
            The figures, each with `name`, `value`, `unit` and `direction`.

        Raises:
            BadInput: an argument cannot be used as given, or another test has the same figures.
            ProgramFailed: it did not start, ended with another status than 0, hung, or printed no such figures.
        """
        self._test.require_open()
        return programs.measure(
            self._test,
            command,
            read=read,
            higher=higher,
            lower=lower,
            timeout=timeout,
            env=env,
            cwd=cwd,
            ranks=ranks,
        )

    def require_memory(self, size_bytes: int, where: str = "device") -> None:
        """Skip the test if an allocation of this size cannot fit.

        Args:
            size_bytes: bytes that the test is going to allocate.
            where: `device` or `host`.
        """
        device = self._test.session.under_test.device
        free = device.free_bytes() if where == "device" else free_memory_bytes()
        if size_bytes > free:
            self.skip_for_hardware(
                f"needs {format_amount(size_bytes)} of {where} memory, found {format_amount(free)}"
            )

    def skip_for_hardware(self, reason: str) -> None:
        """Skip the test for lack of hardware.

        It fails instead where `--roofline-fail-on` has `no-hardware`.

        Args:
            reason: need and finding: "needs 2 GPUs, found 1".
        """
        lack(self._test.item, self._test.session.options, reason)

    def _request(
        self,
        *,
        work: Work | None,
        budget: float | None,
        name: str = "",
        cache: Cache | None = None,
        tolerance: float | None = None,
        **settings: Any,
    ) -> Request:
        """Return a request with defaults.

        They come from the marker, then from the run.
        """
        chosen_tolerance = positive("tolerance", tolerance) or self._test.marks.tolerance
        has_reason = self._test.marks.tolerance_reason is not None
        refuse_wide(chosen_tolerance, is_deliberate=has_reason, remedy=WIDE_MARK)
        return Request(
            work=check_work(work),
            budget_s=positive("budget", budget)
            or self._test.marks.budget
            or self._test.session.options.budget_s,
            name=name,
            cache=cache or self._test.marks.cache or "warm",
            tolerance=chosen_tolerance,
            **settings,
        )

    def _measure_over(
        self,
        distributed: "Distributed",
        fn: Callable[..., object],
        args: tuple[object, ...],
        ranks: dict[str, Any],
        **settings: Any,
    ) -> Measurement:
        """Measure on ranks, and return the measurement.

        `ranks` are the options that only a measurement on ranks has, and `settings` those of any request.
        """
        require("ranks")
        from . import over_ranks

        warn_of_ranks(self._test.session)
        self._test.require_open()
        # A call that no rank could run is refused before a lack of ranks skips the test.
        over_ranks.check_call(distributed, fn, args)
        settings["name"] = self._test.unique_name("measurement", settings["name"])
        settings["labels"] = tuple(profiled_labels(self._test.session))
        request = self._request(**settings, ranks=over_ranks.rank_options(distributed, **ranks))
        return over_ranks.measure_over(self._test, distributed, fn, args, request)
