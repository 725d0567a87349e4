"""Everything that a session measured under one key: every process, every attempt; and which of it stands.

Nothing is ever replaced. Of the attempts of one process the slowest sound one stands, so luck cannot be retried into
green; every sound process counts, so no round can be picked.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median_high, median_low

from ..core.entries import Statistic
from ..core.keys import Key
from ..core.reasons import Reason, of_processes, text_reasons
from ..core.records import Measurement
from ..core.rows import PEAK
from ..core.samples import MOST_EXCLUDED
from ..core.units import MIB, format_memory, format_percent
from ..core.verdicts import ExactVerdict, Group, Kind, Reference
from .limits import Summary, exact, process_s
from .verdicts import other_mode

# A number that could not be trusted so often will not be the next time.
MOST_UNSOUND = 3


@dataclass(frozen=True, slots=True)
class LostRound:
    """A round of a test that gave no number, and why; `measured` are the names under which it gave one all the same."""

    text: str
    measured: frozenset[str] = frozenset()


@dataclass(slots=True)
class KeyResults:
    """The measurements of one key in the order taken."""

    measurements: list[Measurement] = field(default_factory=list)

    def sound(self, reference: Reference | None) -> list[Measurement]:
        """One measurement for each process that can be judged: its slowest sound attempt."""
        standing: dict[str, Measurement] = {}
        for attempt in self._sound_attempts(reference):
            known = standing.get(attempt.process)
            if known is None or attempt.median_s > known.median_s:
                standing[attempt.process] = attempt
        return list(standing.values())

    def unsound(self, reference: Reference | None) -> dict[str, Reason]:
        """Processes without a sound attempt, each with the reason."""
        processes = {measurement.process for measurement in self.sound(reference)}
        return {
            attempt.process: _trouble(attempt, reference)[0]
            for attempt in self.measurements
            if attempt.process not in processes
        }

    def invalid(self, reference: Reference | None) -> tuple[Reason, ...]:
        """Why nothing can be said; none where enough processes are sound, as with the blocks of one measurement."""
        reasons = list(self.unsound(reference).values())
        spoiled, processes = len(reasons), len(reasons) + len(self.sound(reference))
        if not reasons or spoiled <= MOST_EXCLUDED * processes:
            return ()
        return (reasons[-1] if processes == 1 else of_processes(reasons[-1], spoiled, processes),)

    def hopeless(self, reference: Reference | None) -> bool:
        """Whether another process would be no better."""
        return len(self.unsound(reference)) >= MOST_UNSOUND

    def standing(self, reference: Reference | None) -> Measurement:
        """The measurement that stands for all: of the sound processes the one in the middle, else the last."""
        sound = self.sound(reference)
        if not sound or self.invalid(reference):
            return self.measurements[-1]
        middle = median_high(sorted(measurement.median_s for measurement in sound))
        return next(measurement for measurement in sound if measurement.median_s == middle)

    def group(
        self,
        reference: Reference | None,
        device: str,
        started: str,
        statistic: Statistic = "median",
    ) -> Group:
        """The sound processes as the session that they are, each its slowest sound attempt under a statistic."""
        slowest: dict[str, float] = {}
        for attempt in self._sound_attempts(reference):
            seconds = process_s(attempt.samples, statistic)
            slowest[attempt.process] = max(seconds, slowest.get(attempt.process, 0.0))
        return Group(tuple(slowest.values()), device, started)

    def summary(
        self, reference: Reference | None, device: str, started: str, statistic: Statistic
    ) -> Summary:
        """The same, with whether every attempt was taken in a way that tells the statistic itself."""
        told = all(exact(attempt.samples, statistic) for attempt in self._sound_attempts(reference))
        return Summary([self.group(reference, device, started, statistic)], told)

    def peak_bytes(self, reference: Reference | None) -> int | None:
        """The most memory that a call held, over the sound attempts."""
        return typical_peak(by_process(self._sound_attempts(reference)).values())

    def _sound_attempts(self, reference: Reference | None) -> list[Measurement]:
        return [attempt for attempt in self.measurements if not _trouble(attempt, reference)]


def by_process(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """The attempts of each process, in the order taken."""
    processes: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        processes.setdefault(measurement.process, []).append(measurement)
    return processes


def _trouble(measurement: Measurement, reference: Reference | None) -> tuple[Reason, ...]:
    if measurement.invalid:
        return text_reasons(measurement.invalid)
    return other_mode(measurement.samples.achieved, reference)


# As a share of the baseline's peak, either way.
PEAK_TOLERANCE = 0.05
# Never less than this: the block that torch's caching allocator packs small tensors into; of a CPU a page.
BLOCK_BYTES, PAGE_BYTES = 2 * MIB, 4096
NO_PEAK = "the baseline holds no peak yet"


def typical_peak(processes: Iterable[Iterable[Measurement]]) -> int | None:
    """The peak that stands for several processes: the one in the middle, of two the smaller; None where none has one.

    Code that takes more takes it in every process; the largest would make a regression of one odd workspace in twelve
    rounds. Of the attempts of one process the largest counts, so that nobody reruns a test into green.
    """
    known = [
        [one.peak_bytes for one in attempts if one.peak_bytes is not None] for attempts in processes
    ]
    most = [max(peaks) for peaks in known if peaks]
    return median_low(most) if most else None


def judge_peak(new_bytes: int | None, reference: Reference | None, key: Key) -> ExactVerdict | None:
    """Return the verdict on a peak, in bytes; None where there is none on either side."""
    old_bytes = reference.peak_bytes if reference is not None else None
    if old_bytes is None:
        why = "no baseline" if reference is None else NO_PEAK
        return None if new_bytes is None else _on_peak(Kind.NO_BASELINE, new_bytes, reason=why)
    if new_bytes is None:
        why = (
            f"the baseline has a peak of {format_memory(old_bytes)} and none was taken; expected peak_bytes=True and a "
            "device that tells, or an entry without a peak: `roofline baseline approve --replace`"
        )
        return _on_peak(Kind.INVALID, None, old_bytes, reason=why)
    allowed_bytes = max(
        int(PEAK_TOLERANCE * old_bytes), PAGE_BYTES if key.hardware.is_cpu else BLOCK_BYTES
    )
    kind, why = Kind.PASSED, ""
    if abs(new_bytes - old_bytes) > allowed_bytes:
        kind = Kind.REGRESSED if new_bytes > old_bytes else Kind.IMPROVED
        why = f"{moved_text(old_bytes, new_bytes)}, tolerated {format_memory(allowed_bytes)}"
    return _on_peak(kind, new_bytes, old_bytes, allowed_bytes, why)


def _on_peak(
    kind: Kind,
    new_bytes: int | None,
    old_bytes: int | None = None,
    allowed_bytes: int | None = None,
    reason: str = "",
) -> ExactVerdict:
    return ExactVerdict(
        test_id="",
        label="",
        metric=PEAK,
        verdict=kind.value,
        reason=reason,
        value=new_bytes,
        unit="B",
        baseline_value=old_bytes,
        allowed=allowed_bytes,
    )


def moved_text(old_bytes: int, new_bytes: int) -> str:
    """`peak memory +10.0 % (1.10 GiB, baseline 1.00 GiB)`; of a baseline of nothing without the share."""
    share = f" {format_percent(new_bytes / old_bytes - 1)}" if old_bytes else ""
    return f"peak memory{share} ({format_memory(new_bytes)}, baseline {format_memory(old_bytes)})"
