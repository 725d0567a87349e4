"""The `roofline` fixture: what a test calls to measure something."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from .core.errors import BadInput, WrongData
from .core.keys import CACHES, RANK_TIMINGS, TIMINGS, Cache, Key, Timing
from .core.records import Measurement
from .core.units import format_amount
from .core.work import Work
from .judging.hardware import above_peak
from .planned import Planned, benchmark_name, encodable, parameters_of
from .rank_measuring import (
    JOB_METRIC,
    RankRequest,
    Taken,
    invalid_of,
    key_of_ranks,
    measurement_of,
    take,
    take_jobs,
)
from .requests import (
    Request,
    argument_maker,
    check_callable,
    check_devices,
    check_distributed,
    check_metric,
    check_work,
    one_of,
    positive,
)
from .session import RooflineSession
from .settings import Marks

if TYPE_CHECKING:
    import torch

    from .core.facts import HardwareKey
    from .measuring.devices import Device
    from .measuring.timing import Engine, Plan
    from .ranks import Distributed

# Making argument sets may take so many seconds; no share of the budget, or a smaller one would measure something else.
SETUP_S = 2.0


class Roofline:
    """Measures functions for one test. Comes as the fixture `roofline`."""

    def __init__(self, session: RooflineSession, item: pytest.Item, marks: Marks) -> None:
        self._session = session
        self._item = item
        self._marks = marks
        self._names: set[str] = set()

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
        self._refuse_after_verdict()
        request = Request(
            fn=check_callable(fn),
            work=check_work(work),
            name=self._fresh_name(name),
            cache=one_of("cache", cache or self._marks.cache or "warm", CACHES),
            timing=one_of("timing", timing, TIMINGS),
            budget_s=positive("budget", budget) or self._marks.budget or self._session.options.budget_s,
            tolerance=positive("tolerance", tolerance) or self._marks.tolerance,
            metric=check_metric(metric, work),
            verify=verify,
            fresh=make_args is not None and verify is not None,
            peak_bytes=peak_bytes,
            devices=check_devices(devices),
        )
        make = argument_maker(args, make_args, request.cache)
        return self._measure(request, make)

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

        Returns:
            The measurement; `ranks` has every rank's own times and names the straggler.

        Raises:
            BadInput: an argument cannot be used as given; no rank is contacted.
            WrongData: the timed buffers of a rank do not hold what they should.
            RanksFailed: a rank raised, was lost, or did not answer in time.
        """
        __tracebackhide__ = True
        request = self._rank_request(
            distributed, fn, args, world_size, work, name, one_of("timing", timing, RANK_TIMINGS), cache, budget,
            tolerance, check_metric(metric, work), backend, timeout,
        )  # fmt: skip
        return self._over_ranks(distributed, replace(request, peak_bytes=peak_bytes), take)

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
        request = self._rank_request(
            distributed, fn, args, world_size, work, name, "wall", None, budget, tolerance, JOB_METRIC, backend, timeout
        )
        return self._over_ranks(distributed, request, take_jobs)

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

    def _rank_request(
        self,
        distributed: "Distributed",
        fn: Callable[..., object],
        args: tuple[object, ...],
        world_size: int | None,
        work: Work | None,
        name: str | None,
        timing: Timing,
        cache: Cache | None,
        budget: float | None,
        tolerance: float | None,
        metric: str | None,
        backend: str | None,
        timeout: float | None,
    ) -> RankRequest:
        from .distributed.functions import reference

        check_distributed(distributed)
        self._refuse_after_verdict()
        function, checked = reference(fn), check_work(work)
        replaced = self._replaced(name or "", fn)
        return RankRequest(
            function=function if replaced is None else reference(replaced),
            args=args,
            size=distributed.size_of(world_size),
            work=checked,
            name=self._fresh_name(name),
            timing=timing,
            cache=one_of("cache", cache or self._marks.cache or "warm", ("warm", "rotate")),
            budget_s=positive("budget", budget) or self._marks.budget or self._session.options.budget_s,
            tolerance=positive("tolerance", tolerance) or self._marks.tolerance,
            metric=metric or checked.metric,
            backend=backend,
            timeout_s=positive("timeout", timeout),
            drill=self._session.options.drill if replaced is None else None,
            replaced=replaced is not None,
        )

    def _over_ranks(
        self,
        distributed: "Distributed",
        request: RankRequest,
        taking: Callable[["Distributed", RankRequest, Callable[[Taken], None]], Taken],
    ) -> Measurement:
        __tracebackhide__ = True

        def keep(taken: Taken) -> None:
            # Whatever happens to the record, what happened to the measurement is what must be told.
            with contextlib.suppress(Exception):
                self._record_ranks(taken, request, "the ranks failed on the way")

        taken = taking(distributed, request, keep)
        measurement = self._record_ranks(taken, request, invalid_of(taken))
        if taken.wrong:
            raise WrongData(f"{measurement.label}: {taken.wrong}")
        return measurement

    def _record_ranks(self, taken: Taken, request: RankRequest, invalid: str) -> Measurement:
        session, plan = self._session, self._planned
        link = session.ground.link_of_ranks(taken.ranks.hosts)
        key = key_of_ranks(request, session.ground.hardware, plan.benchmark, plan.parameters, link)
        measurement = measurement_of(
            taken,
            request,
            key,
            test_id=encodable(self._item.nodeid),
            label=self._label + (f".{request.name}" if request.name else ""),
            process=session.process,
            gate=self._marks.gate,
            invalid=invalid,
        )
        session.record(measurement, taken.calibration)
        return measurement

    def _replaced(self, name: str, fn: Callable[..., object]) -> Callable[..., object] | None:
        """What a hook gives to be measured in place of `fn`."""
        hook = self._item.config.hook.pytest_roofline_function
        return hook(item=self._item, name=name, fn=fn)  # type: ignore[no-any-return]

    def _refuse_after_verdict(self) -> None:
        if not self._session.may_measure(self._item):
            raise BadInput("measure was called in a teardown, after the verdict; expected it in the test or its set-up")

    def _measure(self, request: Request, make: Callable[[], object]) -> Measurement:
        from .measuring import host
        from .measuring.timing import Engine

        device, _ = self._measured_on(request)
        replaced = self._replaced(request.name, request.fn)
        drill = self._session.options.drill
        if replaced is None and drill is not None:
            from .measuring.drill import slowed

            replaced = slowed(request.fn, device, drill)
        sets, labels = self._argument_sets(request, make)
        if replaced is not None:
            labels.add("replaced")
        plan = self._plan(request, replaced or request.fn, sets, make if request.fresh else None)
        engine = Engine(device, plan)
        engine.log.labels |= labels
        try:
            watch = host.Neighbours()
            engine.run()
            on_cpu = self._session.ground.environment.device.type == "cpu"
            disturbed = host.too_busy(watch.cores_taken()) if on_cpu else ""
            peak_bytes = engine.peak_bytes() if request.peak_bytes else None
            verified, wrong = _verify(request.verify, engine)
            measurement = self._write(request, engine, verified, wrong or disturbed, peak_bytes)
        except BaseException as error:
            # Whatever happens to the record, what happened to the measurement is what must be told.
            with contextlib.suppress(Exception):
                self._write_partial(request, engine, error)
            raise
        finally:
            # The traceback of a failure holds on to this frame; what it measured must not stay allocated for that.
            sets.clear()
            engine.close()
            del engine, plan
            # A device that cannot even do this has failed already, and that failure is the one to report.
            with contextlib.suppress(Exception):
                device.release()
        assert measurement is not None
        if wrong:
            raise WrongData(f"{measurement.label}: {wrong}")
        return measurement

    def _measured_on(self, request: Request) -> "tuple[Device, HardwareKey]":
        """The device, or several as one, that a request is about, and its hardware key."""
        ground, config = self._session.ground, self._item.config
        if not request.devices:
            return ground.device, ground.hardware

        def opened(name: str) -> "Device":
            known = config.hook.pytest_roofline_device(config=config, name=name)
            if known is not None:
                return known  # type: ignore[no-any-return]
            kind = ground.environment.device.type
            if kind != "cuda" or name.partition(":")[0] != "cuda":
                raise BadInput(
                    f"devices names {name}, and {ground.device.name} is measured; several devices of one process can "
                    "be timed together where they are CUDA or ROCm devices"
                )
            from .measuring.devices.peers import open_peer

            return open_peer(name)

        return ground.among(request.devices, opened)

    def _argument_sets(self, request: Request, make: Callable[[], object]) -> tuple[list[tuple[object, ...]], set[str]]:
        from .measuring import cache

        device, _ = self._measured_on(request)
        cache_bytes = self._cache_bytes
        if request.cache != "rotate":
            sets = [cache.as_tuple(make())]
            cold = request.cache == "flush" or cache.is_cold(1, request.work, cache_bytes)
            return sets, set() if cold else {"cache_resident"}
        count = cache.rotation_sets(request.work, cache_bytes, device.free_bytes())
        sets = cache.make_sets(make, count, SETUP_S, device.host_s)
        cold = cache.is_cold(len(sets), request.work, cache_bytes)
        return sets, set() if cold else {"cache_resident"}

    @property
    def _cache_bytes(self) -> int:
        return self._session.ground.environment.device.last_level_cache_bytes or 0

    def _plan(
        self,
        request: Request,
        fn: Callable[..., object],
        sets: list[tuple[object, ...]],
        make: Callable[[], object] | None,
    ) -> "Plan":
        from .measuring import cache, timing

        def renew(count: int) -> None:
            for index in range(count):
                # The old buffers go first: there may be no room for both.
                sets[index] = ()
                sets[index] = cache.as_tuple(make()) if make is not None else ()

        device, _ = self._measured_on(request)
        flush = device.flusher(cache.FLUSH_FACTOR * self._cache_bytes) if request.cache == "flush" else None
        return timing.Plan(
            fn=fn,
            sets=sets,
            budget_s=request.budget_s,
            timing=request.timing,
            flush=flush,
            renew=renew if make is not None else None,
        )

    def _write(
        self,
        request: Request,
        engine: "Engine",
        verified: bool | None,
        invalid: str,
        peak_bytes: int | None = None,
    ) -> Measurement | None:
        samples = engine.samples()
        if samples is None:
            return None
        session, plan = self._session, self._planned
        metric, (_, hardware) = request.metric or request.work.metric, self._measured_on(request)
        measurement = Measurement(
            key=Key(
                benchmark=plan.benchmark,
                parameters=plan.parameters,  # type: ignore[arg-type]
                metric=metric,
                hardware=hardware,
                cache=request.cache,
                timing=request.timing,
                name=request.name,
            ),
            test_id=encodable(self._item.nodeid),
            label=self._label + (f".{request.name}" if request.name else ""),
            process=session.process,
            work=request.work,
            samples=samples,
            gate=self._marks.gate,
            tolerance=request.tolerance,
            ceiling=session.ceiling(request.work, metric, hardware) if verified is not False else None,
            verified=verified,
            invalid=invalid or samples.trouble,
            peak_bytes=peak_bytes,
        )
        measurement = _with_sanity(measurement)
        session.record(measurement, engine.calibration)
        return measurement

    @property
    def _label(self) -> str:
        """The benchmark with the test's own id text: `TestCopies.d2d[64MiB]`."""
        spec = getattr(self._item, "callspec", None)
        return self._planned.benchmark + (f"[{encodable(spec.id)}]" if spec is not None else "")

    def _write_partial(self, request: Request, engine: "Engine", error: BaseException) -> None:
        """Keep what was measured before something went wrong, marked so that nobody takes it for a result."""
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else f"raised {type(error).__name__}: {error}"
        self._write(request, engine, None, encodable(why)[:500])

    @property
    def _planned(self) -> Planned:
        known = self._session.planned.get(self._item.nodeid)
        return known or Planned(self._item, benchmark_name(self._item), parameters_of(self._item), self._marks)

    def _fresh_name(self, name: str | None) -> str:
        if name is not None and not (isinstance(name, str) and name):
            raise BadInput(f"name is {name!r}; expected text, or None for the only measurement of a test")
        fresh = encodable(name or "")
        if fresh in self._names:
            called = f"the name {fresh!r}" if fresh else "no name"
            raise BadInput(f"this test measures twice under {called}; give each measurement a name of its own")
        self._names.add(fresh)
        return fresh


def _verify(verify: Callable[..., object] | None, engine: "Engine") -> tuple[bool | None, str]:
    """Whether every set that was timed holds the right data, and what is wrong if one does not."""
    if verify is None:
        return None, ""
    engine.settle()
    for index, arguments in enumerate(engine.sets_touched):
        try:
            answer = verify(*arguments)
        except AssertionError as error:
            return False, f"wrong data in argument set {index}: {error}"
        # Functions that assert return None; everything else is taken at its truth.
        if answer is not None and not answer:
            return (
                False,
                f"wrong data in argument set {index} of {len(engine.sets_touched)}: verify returned {answer!r}",
            )
    return True, ""


def _with_sanity(measurement: Measurement) -> Measurement:
    """The measurement, marked invalid where its rate is above what the hardware can do."""
    if measurement.invalid:
        return measurement
    why = above_peak(measurement.ceiling, measurement.work, measurement.share_of_ceiling, measurement.samples.labels)
    return replace(measurement, invalid=why) if why else measurement
