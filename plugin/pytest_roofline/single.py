"""One measurement in this process: from the checked request to the record in the run file."""

import contextlib
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from .core.errors import BadInput, NoRoom, WrongData
from .core.facts import HardwareKey
from .core.keys import Key
from .core.memory import Phase
from .core.records import Measurement
from .core.samples import Samples
from .core.units import printable
from .ground import Ground
from .judging.comparators import find_reference
from .judging.hardware import above_peak, beyond_belief
from .memory import Place, notice
from .memory_snapshots import take_snapshot, take_snapshot_of_failure
from .planned import encodable
from .profiling import profiled_labels, take_profile
from .requests import Request, over_host_link
from .shadow import lack
from .subject import Subject

if TYPE_CHECKING:
    from .measuring.devices import Device
    from .measuring.freshness import Look
    from .measuring.timing import Engine, Plan


# Calls of a look at whether they do their work, where they do.
LOOK_CALLS = 6


class Single:
    """One measurement of a test, on the device of the run or on several of them.

    Args:
        subject: the test.
        request: what to measure.
        make: makes one set of arguments.
    """

    def __init__(self, subject: Subject, request: Request, make: Callable[[], object]) -> None:
        self._subject = subject
        self._session = subject.session
        self._request = request
        self._make = make
        self._device, self._hardware = _measured_on(subject, request.devices)
        self._phase: Phase = "arguments"
        self._siblings_busy = ""

    def measure(self) -> Measurement:
        """Take the measurement, write it down, and let go of its buffers.

        Raises:
            WrongData: the timed buffers do not hold what they should.
            Exception: whatever the function raises.
        """
        try:
            return self._measure()
        except Exception as error:
            self._notice(error)
            if self._phase == "arguments":
                self._look_into(error, self._argument_sets)
            raise

    def _measure(self) -> Measurement:
        from .measuring import host
        from .measuring.siblings import busy_text
        from .measuring.timing import Engine

        request, device = self._request, self._device
        replaced = self._subject.replacement(request.name, request.fn)
        drill = self._session.options.drill
        sets, labels = self._argument_sets()
        if replaced is None and drill is not None:
            from .measuring.drill import slowed

            replaced = slowed(request.fn, device, drill, sets=None if request.fresh else sets)
        if replaced is not None:
            labels.add("replaced")
        plan = self._plan(replaced or request.fn, sets)
        labels |= {"refilled"} if request.refill else set()
        look = self._look(sets)
        self._siblings_busy = busy_text(device) if over_host_link(request, self._key.metric) else ""
        engine = Engine(device, plan)
        engine.log.labels |= labels | profiled_labels(self._session)
        measurement: Measurement | None = None
        try:
            watch = host.Neighbours()
            self._phase = "calls"
            engine.run()
            on_cpu = self._session.ground.environment.device.type == "cpu"
            disturbed = host.too_busy(watch.cores_taken()) if on_cpu else ""
            self._phase = "peak_bytes"
            peak_bytes = engine.peak_bytes() if request.peak_bytes else None
            self._phase = "held_bytes"
            held_bytes = engine.held_bytes() if request.held_bytes else None
            self._phase = "verify"
            verified, wrong = verify_sets(request.verify, engine)
            untrue = wrong or engine.left_running or self._stale(look, engine)
            measurement = self._write(engine, verified, untrue, peak_bytes, held_bytes, disturbed)
            take_snapshot(self._session, device, self._subject.label(request.name), partial(plan.fn, *sets[0]))
        except BaseException as error:
            # Before anything is released, since how full memory was is a part of it.
            self._notice(error)
            # Whatever happens to the record, what happened to the measurement is what must be told.
            with contextlib.suppress(Exception):
                # What is interrupted after the record was written has been measured.
                if measurement is None:
                    self._write_partial(engine, error)
                    self._look_into(error, partial(self._once_more, plan.fn, sets))
            raise
        else:
            # Behind everything else, so that whatever it does to the process, nothing is lost.
            if measurement is not None and not wrong:
                take_profile(self._session, device, measurement, plan.fn, sets, request.model)
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

    def _look(self, sets: list[tuple[object, ...]]) -> "Look | None":
        """What looks at the calls; none where nobody wants it, or every sample has other values anyway."""
        from .measuring.freshness import Look

        request = self._request
        if request.refill is not None:
            return None
        # Buffers that are made anew tell nothing of what calls did, and looking would pay a part of a first call.
        return Look(request.fn, sets, before=not (request.fresh or request.first_calls))

    def _stale(self, look: "Look | None", engine: "Engine") -> str:
        """Why calls are not believed; a call that takes as long as the budget did something."""
        samples = engine.samples()
        if look is None or samples is None or samples.median_s * LOOK_CALLS > self._request.budget_s:
            return ""
        return look.why_stale(engine.plan.fn, engine.settle, self._device.free_bytes)

    def _notice(self, error: BaseException) -> None:
        notice(error, Place(self._device, self._request.name, self._phase, (self._key, self._request.work)))

    def _look_into(self, error: BaseException, call: Callable[[], object]) -> None:
        """The memory snapshot of what ran out of memory, where one was asked for."""
        label = self._subject.label(self._request.name)
        take_snapshot_of_failure(self._session, self._device, label, error, call)

    def _once_more(self, fn: Callable[..., object], sets: list[tuple[object, ...]]) -> object:
        from .measuring import cache

        # A set is empty where there was no room for its successor.
        return fn(*(sets[0] or cache.as_tuple(self._make())))

    def _argument_sets(self) -> tuple[list[tuple[object, ...]], set[str]]:
        from .measuring import cache

        request, make, device = self._request, self._make, self._device
        cache_bytes = self._cache_bytes
        if request.cache != "rotate":
            sets = [cache.as_tuple(make())]
            cold = request.cache == "flush" or cache.is_cold(1, request.work, cache_bytes)
            return sets, set() if cold else {"cache_resident"}
        facts = self._session.ground.environment.device
        try:
            sets = cache.make_sets(make, request.work, facts, device.free_bytes(), device.host_s, self._tell)
        except NoRoom as error:
            lack(self._subject.item, self._session.options, str(error))
        return sets, set() if cache.is_cold(len(sets), request.work, cache_bytes) else {"cache_resident"}

    def _tell(self, sentence: str) -> None:
        """Say something while the test runs, and again at the end."""
        sentence = f"{self._subject.label(self._request.name)}: {sentence}"
        self._session.noted.warn(sentence)
        plugins = self._subject.item.config.pluginmanager
        reporter: Any = plugins.get_plugin("terminalreporter")
        capture: Any = plugins.get_plugin("capturemanager")
        if reporter is not None:
            with capture.global_and_fixture_disabled() if capture is not None else contextlib.nullcontext():
                reporter.ensure_newline()
                reporter.write_line(f"roofline: {printable(sentence)}")

    @property
    def _cache_bytes(self) -> int:
        return self._session.ground.environment.device.last_level_cache_bytes or 0

    def _plan(self, fn: Callable[..., object], sets: list[tuple[object, ...]]) -> "Plan":
        from .measuring import cache, timing
        from .measuring.calls import renewal
        from .measuring.freshness import refill_of

        request, device = self._request, self._device
        try:
            refill = refill_of(request.fn, sets, device.free_bytes()) if request.refill else None
        except NoRoom as error:
            lack(self._subject.item, self._session.options, str(error))
        flush = device.flusher(cache.FLUSH_FACTOR * self._cache_bytes) if request.cache == "flush" else None
        return timing.Plan(
            fn=fn,
            sets=sets,
            budget_s=request.budget_s,
            timing=request.timing,
            flush=flush,
            refill=refill,
            renew=renewal(sets, self._make, request.verify) if request.fresh else None,
            first_calls=request.first_calls,
            graph=self._graph_before(),
        )

    def _graph_before(self) -> bool | None:
        """Whether what this is compared with was timed by a graph; None where nothing is known, or both were seen.

        A call about as long as the longest that a graph is taken of would else be timed now one way, now the other.
        """
        reference, _ = find_reference(self._session.ground.comparator, self._key, self._request.work)
        seen = {"graph" in achieved for achieved in reference.achieved} if reference is not None else set()
        return seen.pop() if len(seen) == 1 else None

    @property
    def _key(self) -> Key:
        request, plan = self._request, self._subject.planned
        return Key(
            benchmark=plan.benchmark,
            parameters=plan.parameters,  # type: ignore[arg-type]
            metric=request.metric or request.work.metric,
            hardware=self._hardware,
            cache=request.cache,
            timing=request.timing,
            name=request.name,
        )

    def _write(
        self,
        engine: "Engine",
        verified: bool | None,
        invalid: str,
        peak_bytes: int | None = None,
        held_bytes: int | None = None,
        disturbed: str = "",
    ) -> Measurement | None:
        samples = engine.samples()
        if samples is None:
            return None
        request, session, key = self._request, self._session, self._key
        measurement = Measurement(
            key=key,
            test_id=self._subject.test_id,
            label=self._subject.label(request.name),
            process=session.process,
            work=request.work,
            samples=samples,
            gate=self._subject.marks.gate,
            tolerance=request.tolerance,
            ceiling=session.ceiling(request.work, key.metric, key.hardware) if verified is not False else None,
            verified=verified,
            invalid=invalid,
            peak_bytes=peak_bytes,
            held_bytes=held_bytes,
            compile_s=_compile_s(samples) if request.compiles else None,
            siblings_busy=self._siblings_busy,
        )
        measurement = with_sanity(measurement, session.ground)
        if not measurement.invalid:
            # Only now, since a machine in trouble is slower, and no excuse for what is too fast.
            measurement = replace(measurement, invalid=disturbed or samples.trouble)
        session.record(measurement, engine.calibration)
        return measurement

    def _write_partial(self, engine: "Engine", error: BaseException) -> None:
        """Keep what was measured before something went wrong, marked so that nobody takes it for a result."""
        why = "interrupted" if isinstance(error, KeyboardInterrupt) else f"raised {type(error).__name__}: {error}"
        self._write(engine, None, encodable(why)[:500])


def _measured_on(subject: Subject, names: tuple[str, ...]) -> "tuple[Device, HardwareKey]":
    """The device of the run, or the named ones as one, with its hardware key."""
    ground = subject.session.ground
    if not names:
        return ground.device, ground.hardware
    return ground.among(names, lambda name: open_named(subject, name))


def open_named(subject: Subject, name: str) -> "Device":
    """A device of this process by its name: `cuda:1`.

    Raises:
        BadInput: another kind of device than the run's own.
        DeviceError: it is not there.
    """
    ground, config = subject.session.ground, subject.item.config
    known = config.hook.pytest_roofline_device(config=config, name=name)
    if known is not None:
        return known  # type: ignore[no-any-return]
    if ground.environment.device.type != "cuda" or name.partition(":")[0] != "cuda":
        raise BadInput(
            f"devices names {name}, and {ground.device.name} is measured; several devices of one process can "
            "be timed together where they are CUDA or ROCm devices"
        )
    from .measuring.devices.peers import open_peer

    return open_peer(name)


def verify_sets(verify: Callable[..., object] | None, engine: "Engine") -> tuple[bool | None, str]:
    """Whether every set that was timed holds the right data, and what is wrong if one does not."""
    from .measuring.calls import wrong_data

    if verify is None:
        return None, ""
    engine.settle()
    wrong = wrong_data(verify, engine.sets_touched)
    return not wrong, wrong


def _compile_s(samples: Samples) -> float:
    """Seconds of the very first call beyond a warm one by itself: what compiling took, and all that comes once."""
    return max(0.0, samples.first_calls_s[0] - samples.alone_s)


def with_sanity(measurement: Measurement, ground: Ground) -> Measurement:
    """The measurement, marked invalid where its rate is above what the hardware can do."""
    if measurement.invalid:
        return measurement
    ceiling, work = measurement.ceiling, measurement.work
    why = above_peak(ceiling, work, measurement.share_of_ceiling, measurement.samples.labels)
    amount = work.amount(ceiling.metric) if ceiling is not None else None
    if not why and ceiling is not None and amount:
        why = beyond_belief(ceiling, amount, measurement.median_s)
    why = why or ground.beyond_belief(work, measurement.median_s)
    return replace(measurement, invalid=why) if why else measurement
