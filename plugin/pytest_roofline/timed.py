"""The times of a run and the verdicts on them: what was measured under each key, in all rounds and attempts.

A verdict may change until its test is reported: a further round, or what other tests of the run turned out to be.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .core.entries import Entry, Statistic
from .core.keys import Key
from .core.records import Measurement
from .core.samples import CANARY, OVERSUBSCRIBED, PROFILED, SIBLINGS
from .ground import Ground
from .judging.comparators import BaselineComparator, class_of_key, find_reference
from .judging.limits import IdleLimit, Limit, Summary
from .judging.looks import Looks
from .judging.peaks import judge_peak
from .judging.plausible import distrusted
from .judging.policy import limits_of, policy_of
from .judging.shared import Shared, Side, hold_shared
from .judging.siblings import Sibling, judge_sibling, unless_busy
from .judging.spread import Group
from .judging.trials import LostRound, Trial
from .judging.verdicts import Kind, Policy, Reference, default_looks, judge, settle
from .reporting.records import judgement_of
from .reporting.results import Result
from .settings import Options

if TYPE_CHECKING:
    from .judging.runs import RunWriter


class TimedResults:
    """Everything that a run knows of times.

    Args:
        options: of the run.
        started: when it began.
        looks: how many processes a test may take, as far as that is known by now; None leaves it to the test.
        judges: whether this process gives verdicts; a round leaves them to the parent.
    """

    def __init__(self, options: Options, started: str, looks: Callable[[], Looks | None], *, judges: bool) -> None:
        self.results: list[Result] = []
        # Of the machine itself, in every process of the run: they have no verdict and no row.
        self.canaries: list[Measurement] = []
        # What all tests share, as far as it is known by now, and their references as they would be today.
        self.shared: Shared | None = None
        self._moved: dict[str, Reference] = {}
        # Rounds of a test that never gave a number: its process died, or it was skipped.
        self.lost: dict[str, list[LostRound]] = {}
        self._options = options
        self._started = started
        self._looks = looks
        self._judges = judges
        self._opened: Ground | None = None
        self._trials: dict[str, Trial] = {}
        self._pending: dict[str, list[Measurement]] = {}
        self._at_once: set[str] = set()

    def open(self, ground: Ground) -> None:
        """Take what to compare with."""
        self._opened = ground

    @property
    def _ground(self) -> Ground:
        assert self._opened is not None
        return self._opened

    def add(self, measurement: Measurement) -> None:
        """Take in what a test measured; the verdict follows when its body has ended."""
        if CANARY in measurement.samples.labels:
            self.canaries.append(measurement)
            return
        self._pending.setdefault(measurement.test_id, []).append(measurement)

    def measured_names(self, test_id: str) -> set[str]:
        """The names under which a test has measured something, since it began and up to now."""
        return {measurement.key.name for measurement in self._pending.get(test_id, [])}

    def forget_partial(self, test_id: str, name: str | None) -> None:
        """Leave out what a measurement had taken before it ran out of memory."""
        pending = self._pending.get(test_id, [])
        pending[:] = [one for one in pending if not one.invalid or one.key.name != name]

    def decide_at_once(self, test_id: str) -> None:
        """No further round of a test may follow; red must be possible now."""
        self._at_once.add(test_id)

    def judge(self, test_id: str) -> None:
        """Judge what was measured of a test since the last time, together with all that was before."""
        taken = [measurement for measurement in self._pending.pop(test_id, []) if self._take(measurement)]
        for measurement in taken:
            self._show(self._verdict_on(measurement))

    def abandon(self, test_id: str | None = None) -> None:
        """Keep what a test measured that did not end well, without a verdict; of all tests where none is named."""
        for name in [test_id] if test_id is not None else list(self._pending):
            self._keep_unjudged(name)

    def of(self, test_id: str) -> list[Result]:
        """What is said of a test so far."""
        return [result for result in self.results if result.measurement.test_id == test_id]

    def call_it(self, test_id: str, word: str) -> None:
        """Name how a test without verdicts ended."""
        self._change(test_id, ended=word)

    def retract(self, test_id: str) -> None:
        """Take back the verdicts of a test that failed for itself after all."""
        self._change(test_id, verdict=None)

    def write_verdicts(self, writer: "RunWriter") -> None:
        """Put the verdicts into the run file."""
        for result in self.results:
            if result.verdict is not None:
                writer.write(judgement_of(result))

    def end_rounds(self, open_ids: set[str], *, cut: bool) -> None:
        """Give the tests that are still open their last look, although more processes were planned.

        Args:
            open_ids: tests whose outcome is not out yet.
            cut: whether there will be no further process for any test, so that none could have been seen better.
        """
        self._share(open_ids)
        for result in [known for known in self.results if known.verdict is not None]:
            last = self._verdict_on(result.measurement, ended=True)
            assert result.verdict is not None
            assert last.verdict is not None
            if result.measurement.test_id in open_ids:
                self._show(last)
            elif cut:
                self._show(replace(result, verdict=replace(result.verdict, reach=last.verdict.reach)))

    def settle(self, open_ids: set[str]) -> None:
        """Hold all verdicts of the run against each other; only those of tests that are still held may change.

        Args:
            open_ids: tests whose outcome is not out yet.
        """
        self._share(open_ids)
        named = {r.measurement.key.identity: r for r in self.results if r.verdict is not None}
        settled = settle({name: r.verdict for name, r in named.items() if r.verdict}, self._ground.comparisons)
        for name, result in named.items():
            verdict = settled[name]
            if result.measurement.test_id not in open_ids:
                assert result.verdict is not None
                verdict = replace(result.verdict, p_adjusted=verdict.p_adjusted)
            self._show(replace(result, verdict=verdict))

    def _share(self, open_ids: set[str]) -> None:
        """Find what all tests share today, and hold the open ones against what is left.

        Not in a drill, which slows all alike to see whether each would turn red.
        """
        if self._options.drill is not None:
            return
        sides, tolerances, classes, shifts = {}, [], [], {}
        for measurement, verdict in [(result.measurement, result.verdict) for result in self.results]:
            if verdict is None or verdict.difference is None or verdict.reference is None:
                continue
            group = Group(verdict.new_medians_s, self._ground.identity, self._started)
            sides[measurement.key.identity] = Side(group, replace(verdict.reference, moved=(), shift=0.0))
            tolerances.append(verdict.tolerance)
            classes.append(class_of_key(measurement.key))
            if measurement.test_id in open_ids:
                shifts[measurement.key.identity] = measurement, verdict.reference.shift
        for identity, group, reference in self._canary_groups():
            sides[identity] = Side(group, reference, canary=True)
        self.shared, self._moved = hold_shared(sides, tolerances, classes)
        for identity, (measurement, shift) in shifts.items():
            # One that had its last look is not put back to an earlier one.
            if self._moved[identity].shift != shift:
                self._show(self._verdict_on(measurement))

    def _canary_groups(self) -> Iterator[tuple[str, Group, Reference]]:
        found: dict[str, list[Measurement]] = {}
        for one in self.canaries:
            if not one.invalid:
                found.setdefault(one.key.identity, []).append(one)
        for identity, taken in found.items():
            reference, _ = find_reference(self._ground.comparator, taken[0].key, taken[0].work)
            if reference is not None:
                medians_s = tuple(one.median_s for one in taken)
                yield identity, Group(medians_s, self._ground.identity, self._started), reference

    def may_change(self, result: Result) -> bool:
        """Whether what is said of a measurement may still change: by other tests' verdicts, or in a further round."""
        verdict = result.verdict
        return verdict is not None and (verdict.may_be_red or self.wants_round(result))

    def wants_round(self, result: Result) -> bool:
        """Whether another process might decide."""
        verdict, measurement = result.verdict, result.measurement
        if verdict is None or measurement.test_id in self._at_once:
            return False
        trial = self._trials[measurement.key.identity]
        rounds = len({one.process for one in trial.measurements})
        if verdict.reference is None and verdict.kind in (Kind.NO_BASELINE, Kind.PASSED) and not verdict.siblings:
            # A recording: what nothing is known of is measured as often as was asked for.
            return rounds < self._options.recording and not trial.hopeless(None)
        if verdict.decided or verdict.futile:
            return False
        if verdict.reference is None and verdict.limit is None and not verdict.siblings:
            return False
        return rounds < self.most_rounds(result) and not trial.hopeless(verdict.reference)

    def most_rounds(self, result: Result) -> int:
        """How many processes a test may take."""
        reference = result.verdict.reference if result.verdict is not None else None
        return self._plan(result.measurement.test_id, result.measurement.key, reference).most

    def _take(self, measurement: Measurement) -> bool:
        """Put a measurement to the others of its key; False for what tells of the scheduler, or of a profiler."""
        labels = measurement.samples.labels
        if OVERSUBSCRIBED in labels or (PROFILED in labels and not measurement.invalid):
            word = OVERSUBSCRIBED if OVERSUBSCRIBED in labels else PROFILED
            self._show(Result(measurement, None, self._facts(measurement), ended=word.upper()))
            return False
        self._trials.setdefault(measurement.key.identity, Trial()).measurements.append(measurement)
        return True

    def _verdict_on(self, measurement: Measurement, *, ended: bool = False) -> Result:
        trial = self._trials[measurement.key.identity]
        if SIBLINGS in measurement.samples.labels:
            return self._among_siblings(measurement)
        reference, why_none = find_reference(self._ground.comparator, measurement.key, measurement.work)
        if reference is not None:
            reference = self._moved.get(measurement.key.identity, reference)
        invalid, standing = trial.invalid(reference), trial.standing(reference)
        invalid = invalid or distrusted(measurement.key, measurement.work, reference)
        entries = self._entries_for(measurement)
        group = trial.group(reference, self._ground.identity, self._started)
        limits, idle = ([], []) if invalid else self._limits(standing, trial, reference, entries)
        verdict = judge(
            [group] if group.medians_s else [],
            reference,
            self._policy(standing, reference, ended=ended),
            invalid=invalid,
            limits=limits,
            why_none=why_none,
        )
        verdict = unless_busy(verdict, trial.measurements)
        if verdict.kind is not Kind.INVALID:
            peak = judge_peak(trial.peak_bytes(reference), reference, measurement.key)
            verdict = replace(verdict, peak=peak)
        published = tuple(entry for entry in entries if entry.kind in ("threshold", "reference") and not entry.gates)
        left_out = tuple(trial.unsound(reference).values()) if not invalid else ()
        lost = self.lost.get(measurement.test_id, ())
        left_out += tuple(one.text for one in lost if measurement.key.name not in one.measured)
        return Result(standing, verdict, self._facts(standing), published, left_out=left_out, idle=tuple(idle))

    def _among_siblings(self, measurement: Measurement) -> Result:
        """The verdict on one of several like devices, which no baseline is asked for: the others stand for it."""
        key = measurement.key
        found: dict[str, Sibling] = {}
        for identity, trial in self._trials.items():
            one = trial.measurements[-1]
            alike = one.test_id == measurement.test_id and one.key.hardware == key.hardware
            if alike and SIBLINGS in one.samples.labels:
                medians_s = trial.group(None, one.device, self._started).medians_s
                found[identity] = Sibling(trial.standing(None), medians_s, trial.invalid(None))
        mine = found.pop(key.identity)
        verdict = unless_busy(judge_sibling(mine, list(found.values())), self._trials[key.identity].measurements)
        return Result(mine.standing, verdict, self._facts(mine.standing))

    def _limits(
        self, standing: Measurement, trial: Trial, reference: Reference | None, entries: Sequence[Entry]
    ) -> tuple[list[Limit], list[IdleLimit]]:
        def summed(statistic: Statistic) -> Summary:
            return trial.summary(reference, self._ground.identity, self._started, statistic)

        gpu, min_share = self._ground.gpu, self._options.min_share
        return limits_of(entries, standing.work, summed, standing, gpu=gpu, min_share=min_share)

    def _policy(self, measurement: Measurement, reference: Reference | None, *, ended: bool) -> Policy:
        key, ground = measurement.key, self._ground
        looks = replace(self._plan(measurement.test_id, key, reference), ended=ended)
        own, asked = measurement.tolerance, self._options.tolerance
        return policy_of(key, reference, ground.prior(key), ground.comparisons, own=own, asked=asked, looks=looks)

    def _plan(self, test_id: str, key: Key, reference: Reference | None) -> Looks:
        """How many processes a test may take: as asked for, else as many as red needs for what looks slow."""
        if test_id in self._at_once:
            return Looks(1)
        return self._looks() or default_looks(reference, self._ground.identity, self._ground.prior(key))

    def _entries_for(self, measurement: Measurement) -> list[Entry]:
        key, comparator = measurement.key, self._ground.comparator
        shelves = [self._ground.entries]
        if isinstance(comparator, BaselineComparator) and comparator.entries is not self._ground.entries:
            shelves.append(comparator.entries)
        found = (entry for shelf in shelves for entry in shelf.of(key.benchmark, key.name) if entry.matches(key))
        return list({entry.identity: entry for entry in found}.values())

    def _change(self, test_id: str, **changes: object) -> None:
        self.results = [
            replace(result, **changes) if result.measurement.test_id == test_id else result  # type: ignore[arg-type]
            for result in self.results
        ]

    def _keep_unjudged(self, test_id: str) -> None:
        for measurement in self._pending.pop(test_id, []):
            ended = "INTERRUPTED" if measurement.invalid == "interrupted" else "FAILED"
            if not measurement.invalid and self._judges:
                # A rerun cannot shake it off: of the attempts of a process the slowest stands, whatever failed them.
                self._trials.setdefault(measurement.key.identity, Trial()).measurements.append(measurement)
            self._show(Result(measurement, None, self._facts(measurement), ended=ended))

    def _facts(self, measurement: Measurement) -> dict[str, str]:
        return self._ground.environment.comparable() | measurement.comparable()

    def _show(self, result: Result) -> None:
        """One row a measurement: a later verdict takes the place of the one before."""
        for index, known in enumerate(self.results):
            if known.measurement.key.identity == result.measurement.key.identity:
                self.results[index] = result
                return
        self.results.append(result)
