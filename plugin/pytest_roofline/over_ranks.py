"""One measurement over ranks: from the arguments of a test to the record in the run file."""

import contextlib
from collections.abc import Callable
from dataclasses import replace

from .core.errors import WrongData
from .core.facts import HardwareKey
from .core.keys import Cache, Key, Timing
from .core.records import Ceiling, Measurement
from .core.samples import OVERSUBSCRIBED
from .core.work import Work
from .judging.hardware import collective_ceiling, product_of, rank_ceiling
from .memory_snapshots import warn_of_ranks
from .planned import encodable
from .profiling import profiled_labels
from .rank_requests import Keep, RankRequest, Taken
from .ranks import Distributed
from .requests import check_distributed, chosen_tolerance, one_of, positive
from .single import with_sanity
from .subject import Subject

Taking = Callable[[Distributed, RankRequest, Keep], Taken]


class OverRanks:
    """Measures over ranks for one test.

    Args:
        subject: the test.
        distributed: its fixture of that name.

    Raises:
        BadInput: that is something else, or the test's verdicts are out.
    """

    def __init__(self, subject: Subject, distributed: Distributed) -> None:
        self._subject = subject
        self._distributed = check_distributed(distributed)
        subject.require_open()
        warn_of_ranks(subject.session)

    def request(
        self,
        fn: Callable[..., object],
        args: tuple[object, ...],
        *,
        world_size: int | None,
        work: Work,
        name: str | None,
        timing: Timing,
        cache: Cache | None,
        budget: float | None,
        tolerance: float | None,
        metric: str | None,
        backend: str | None,
        timeout: float | None,
    ) -> RankRequest:
        """The arguments of a call, checked before any rank is contacted; the test is skipped for lack of ranks.

        Raises:
            BadInput: one cannot be used as given.
        """
        from .distributed.functions import reference
        from .distributed.wire import encode
        from .distributed.worlds import check_backend

        subject, options = self._subject, self._subject.session.options
        function = reference(fn)
        # Only to have them refused now: a rank is started to be measured, not to be told that it cannot be.
        encode(args, "an argument")
        replacement = subject.replacement(name or "", fn)
        return RankRequest(
            function=function if replacement is None else reference(replacement),
            args=args,
            size=self._distributed.size_of(world_size),
            work=work,
            name=subject.fresh_name(name),
            timing=timing,
            cache=one_of("cache", cache or subject.marks.cache or "warm", ("warm", "rotate")),
            budget_s=positive("budget", budget) or subject.marks.budget or options.budget_s,
            tolerance=chosen_tolerance(tolerance, subject.marks),
            metric=metric or work.metric,
            backend=check_backend(backend),
            timeout_s=positive("timeout", timeout),
            drill=options.drill if replacement is None else None,
            replaced=replacement is not None,
        )

    def measure(self, request: RankRequest, taking: Taking) -> Measurement:
        """Have the ranks measure, and write it down.

        Args:
            request: what to measure.
            taking: `take` or `take_jobs`.

        Raises:
            WrongData: the buffers of a rank do not hold what they should.
            RanksFailed: a rank raised, was lost, or did not answer in time.
        """
        __tracebackhide__ = True

        def keep(taken: Taken, error: BaseException) -> None:
            why = "interrupted" if isinstance(error, KeyboardInterrupt) else _first_line(error)
            # Whatever happens to the record, what happened to the measurement is what must be told.
            with contextlib.suppress(Exception):
                self._record(taken, request, why)

        taken = taking(self._distributed, request, keep)
        measurement = self._record(taken, request, encodable(taken.wrong or taken.disturbed or taken.samples.trouble))
        if taken.wrong:
            raise WrongData(f"{measurement.label}: {taken.wrong}")
        return measurement

    def _record(self, taken: Taken, request: RankRequest, invalid: str) -> Measurement:
        """Write down what was taken; the hardware is that of the ranks, and counts their devices."""
        subject, session = self._subject, self._subject.session
        plan, hardware = (
            subject.planned,
            session.ground.hardware_of_ranks(taken.environment, taken.ranks.hosts, taken.link),
        )
        labels = {*taken.samples.labels, *profiled_labels(session)}
        measurement = Measurement(
            key=Key(
                benchmark=plan.benchmark,
                parameters=plan.parameters,  # type: ignore[arg-type]
                metric=request.metric,
                hardware=hardware,
                cache=request.cache,
                timing=request.timing,
                name=request.name,
            ),
            test_id=subject.test_id,
            label=subject.label(request.name),
            process=session.process,
            work=request.work,
            samples=replace(taken.samples, labels=tuple(sorted(labels))),
            gate=subject.marks.gate and OVERSUBSCRIBED not in taken.samples.labels,
            tolerance=request.tolerance,
            ceiling=self._ceiling(taken, request, hardware),
            verified=taken.verified,
            invalid=invalid,
            peak_bytes=taken.peak_bytes,
            ranks=taken.ranks,
        )
        measurement = with_sanity(measurement, session.ground)
        session.record(measurement, taken.calibration)
        return measurement

    def _ceiling(self, taken: Taken, request: RankRequest, hardware: HardwareKey) -> Ceiling | None:
        """The roofline of what crosses the links of every rank's device, or of what one rank computes."""
        found = rank_ceiling(taken.environment, request.work, request.metric)
        if found is not None or taken.environment is None:
            return found
        known = product_of(taken.environment.device)
        return collective_ceiling(known, hardware, request.work, request.metric, request.collective or "")


def _first_line(error: BaseException) -> str:
    """What went wrong, with the rank that is to blame."""
    return encodable(f"the ranks failed on the way: {error}".partition("\n")[0])[:500]
