"""Everything that a session measured under one key: every process, every attempt; and which attempts count.

Nothing is ever replaced. Of the attempts of one process the slowest sound one counts, so nobody can retry a test until
it is green by luck; every sound process counts, so no round can be picked.
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

# After so many processes without a sound attempt, the next one will not be sound either.
MOST_UNSOUND = 3


@dataclass(frozen=True, slots=True)
class LostRound:
    """A round of a test that gave no number.

    Args:
        text: why it gave none.
        measured: the names of the test's other results, for which the round did give a number.
    """

    text: str
    measured: frozenset[str] = frozenset()


@dataclass(slots=True)
class KeyResults:
    """The measurements of one key in the order taken.

    Each is an attempt of a process. It is sound if its time can be trusted and was taken in the reference's mode.
    """

    measurements: list[Measurement] = field(default_factory=list)

    @property
    def process_count(self) -> int:
        """Return the number of processes, sound or not."""
        return len({measurement.process for measurement in self.measurements})

    def sound(self, reference: Reference | None) -> list[Measurement]:
        """Return the slowest sound attempt of each process of a test.

        The slowest counts, so that nobody can repeat a process until it is fast. A process without a sound
        attempt is left out. `reference` is the baseline of the test, which an attempt must be comparable with.
        """
        slowest: dict[str, Measurement] = {}
        for attempt in self._sound_attempts(reference):
            previous = slowest.get(attempt.process)
            if previous is None or attempt.median_s > previous.median_s:
                slowest[attempt.process] = attempt
        return list(slowest.values())

    def unsound(self, reference: Reference | None) -> dict[str, Reason]:
        """Return the processes without a sound attempt, each with a reason."""
        sound_processes = {measurement.process for measurement in self.sound(reference)}
        reasons = {}
        for attempt in self.measurements:
            if attempt.process not in sound_processes:
                first_reason, *_ = _trouble(attempt, reference)
                reasons[attempt.process] = first_reason
        return reasons

    def invalid(self, reference: Reference | None) -> tuple[Reason, ...]:
        """Return why nothing can be judged; empty where enough processes are sound.

        The reason is that of the last unsound process, with their number.
        """
        reasons = list(self.unsound(reference).values())
        unsound_count = len(reasons)
        count = unsound_count + len(self.sound(reference))
        # Where this small a share is unsound, these processes are left out and the others are judged.
        if not reasons or unsound_count <= MOST_EXCLUDED * count:
            return ()
        last_reason = reasons[-1]
        # The only process of a run needs no number.
        return (last_reason if count == 1 else of_processes(last_reason, unsound_count, count),)

    def hopeless(self, reference: Reference | None) -> bool:
        """Return True where another process would hardly be sound either."""
        return len(self.unsound(reference)) >= MOST_UNSOUND

    def representative(self, reference: Reference | None) -> Measurement:
        """Return the measurement that stands for a test: that of the middle sound process.

        Without enough sound processes it is the last measurement.
        """
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
        """Return the sound processes as one session: the seconds of each, its device and its start.

        `statistic` sums up the samples of an attempt: their median, mean or best. Of the sound attempts of a
        process the slowest under it counts.
        """
        slowest: dict[str, float] = {}
        for attempt in self._sound_attempts(reference):
            seconds = process_s(attempt.samples, statistic)
            slowest[attempt.process] = max(seconds, slowest.get(attempt.process, 0.0))
        return Group(tuple(slowest.values()), device, started)

    def summary(
        self, reference: Reference | None, device: str, started: str, statistic: Statistic
    ) -> Summary:
        """Return the sound processes, each summed up by a statistic, and whether that is exact.

        It is exact where every sound attempt gives the statistic itself. Where a sample is the mean of several calls,
        the best sample is only an upper bound on the fastest call.
        """
        all_exact = all(
            exact(attempt.samples, statistic) for attempt in self._sound_attempts(reference)
        )
        return Summary([self.group(reference, device, started, statistic)], all_exact)

    def peak_bytes(self, reference: Reference | None) -> int | None:
        """Return the typical peak memory of a call over the sound attempts."""
        return typical_peak(by_process(self._sound_attempts(reference)).values())

    def _sound_attempts(self, reference: Reference | None) -> list[Measurement]:
        return [attempt for attempt in self.measurements if not _trouble(attempt, reference)]


def by_process(measurements: Iterable[Measurement]) -> dict[str, list[Measurement]]:
    """Return the attempts of each process, in the order taken."""
    processes: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        processes.setdefault(measurement.process, []).append(measurement)
    return processes


def _trouble(measurement: Measurement, reference: Reference | None) -> tuple[Reason, ...]:
    """Return why an attempt is not sound; empty where it is."""
    if measurement.invalid:
        return text_reasons(measurement.invalid)
    return other_mode(measurement.samples.achieved, reference)


# A peak may differ from the baseline's by this share, either way.
PEAK_TOLERANCE = 0.05
# It may always differ by the block into which torch's caching allocator packs small tensors; on a CPU by a page.
BLOCK_BYTES, PAGE_BYTES = 2 * MIB, 4096
NO_PEAK = "the baseline holds no peak memory yet"


def typical_peak(processes: Iterable[Iterable[Measurement]]) -> int | None:
    """Return the median peak of several processes, in bytes, or None.

    Of two in the middle the smaller counts. None where no process has a peak. Code that needs more
    memory needs it in every process, while the largest would make one odd workspace in twelve rounds
    a regression. Of the attempts of one process the largest counts, so that nobody can rerun a test
    until it is green.
    """
    peaks_by_process = [
        [attempt.peak_bytes for attempt in attempts if attempt.peak_bytes is not None]
        for attempts in processes
    ]
    largest = [max(peaks) for peaks in peaks_by_process if peaks]
    return median_low(largest) if largest else None


def judge_peak(new_bytes: int | None, reference: Reference | None, key: Key) -> ExactVerdict | None:
    """Return the verdict on a peak in bytes against that of the reference.

    None where neither side has a peak. `key` tells whether the memory is that of a CPU, which is tolerated to
    differ by a page, not by a block of the device's allocator.
    """
    old_bytes = reference.peak_bytes if reference is not None else None
    if old_bytes is None:
        reason = "no baseline" if reference is None else NO_PEAK
        return (
            None if new_bytes is None else _peak_verdict(Kind.NO_BASELINE, new_bytes, reason=reason)
        )
    if new_bytes is None:
        reason = (
            f"the baseline has a peak memory of {format_memory(old_bytes)}, but this run measured no peak. "
            "Pass peak_bytes=True on a device that reports its peak, or replace the entry with "
            "`roofline baseline approve --replace`"
        )
        return _peak_verdict(Kind.INVALID, None, old_bytes, reason=reason)
    allowed_bytes = max(
        int(PEAK_TOLERANCE * old_bytes), PAGE_BYTES if key.hardware.is_cpu else BLOCK_BYTES
    )
    kind, reason = Kind.PASSED, ""
    if abs(new_bytes - old_bytes) > allowed_bytes:
        kind = Kind.REGRESSED if new_bytes > old_bytes else Kind.IMPROVED
        reason = f"{moved_text(old_bytes, new_bytes)}, tolerated {format_memory(allowed_bytes)}"
    return _peak_verdict(kind, new_bytes, old_bytes, allowed_bytes, reason)


def _peak_verdict(
    kind: Kind,
    new_bytes: int | None,
    old_bytes: int | None = None,
    allowed_bytes: int | None = None,
    reason: str = "",
) -> ExactVerdict:
    """Return a verdict on peak memory without a test's name.

    It is part of the verdict on the test's time, which holds the name.
    """
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
    """Return `peak memory +10.0 % (1.10 GiB, baseline 1.00 GiB)`.

    The share is left out where the baseline is zero.
    """
    share = f" {format_percent(new_bytes / old_bytes - 1)}" if old_bytes else ""
    return f"peak memory{share} ({format_memory(new_bytes)}, baseline {format_memory(old_bytes)})"
