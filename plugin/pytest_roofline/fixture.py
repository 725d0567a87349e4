"""The `roofline` fixture: what a test calls to measure something."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from .core.errors import BadInput, WrongData
from .core.keys import CACHES, TIMINGS, Cache, Key, Timing
from .core.records import Measurement
from .core.units import format_amount
from .core.work import Work
from .judging.hardware import above_peak
from .planned import Planned, benchmark_name, encodable, parameters_of
from .requests import Request, argument_maker, check_callable, check_metric, check_work, one_of, positive
from .session import RooflineSession
from .settings import Marks

if TYPE_CHECKING:
    import torch

    from .measuring.timing import Engine, Plan

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

        Returns:
            The measurement, with samples in seconds per call.

        Raises:
            BadInput: an argument cannot be used as given.
            WrongData: the timed buffers do not hold what they should; the measurement can never become a baseline.
            DeviceError: the device stopped answering.
            Exception: whatever `fn` raises, out of memory included; what was held is released.
        """
        if not self._session.may_measure(self._item):
            raise BadInput("measure was called in a teardown, after the verdict; expected it in the test or its set-up")
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
        )
        make = argument_maker(args, make_args, request.cache)
        return self._measure(request, make)

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

    def _measure(self, request: Request, make: Callable[[], object]) -> Measurement:
        from .measuring import host
        from .measuring.timing import Engine

        replaced = self._item.config.hook.pytest_roofline_function(item=self._item, name=request.name, fn=request.fn)
        sets, labels = self._argument_sets(request, make)
        if replaced is not None:
            labels.add("replaced")
        plan = self._plan(request, replaced or request.fn, sets, make if request.fresh else None)
        engine = Engine(self._session.ground.device, plan)
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
                self._session.ground.device.release()
        assert measurement is not None
        if wrong:
            raise WrongData(f"{measurement.label}: {wrong}")
        return measurement

    def _argument_sets(self, request: Request, make: Callable[[], object]) -> tuple[list[tuple[object, ...]], set[str]]:
        from .measuring import cache

        device = self._session.ground.device
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

        device = self._session.ground.device
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
        metric = request.metric or request.work.metric
        measurement = Measurement(
            key=Key(
                benchmark=plan.benchmark,
                parameters=plan.parameters,  # type: ignore[arg-type]
                metric=metric,
                hardware=session.ground.hardware,
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
            ceiling=session.ceiling(request.work, metric) if verified is not False else None,
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
    from dataclasses import replace

    if measurement.invalid:
        return measurement
    why = above_peak(measurement.ceiling, measurement.work, measurement.share_of_ceiling, measurement.samples.labels)
    return replace(measurement, invalid=why) if why else measurement
