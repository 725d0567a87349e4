"""The times of a run and the verdicts on them: what was measured under each key, in all rounds and attempts.

A verdict may change until its test is reported: a further round, or what other tests of the run turned out to be.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

from ..baselines.comparators import class_of_key, find_reference
from ..baselines.comparing import limits_of, policy_of
from ..baselines.files import key_of_entry
from ..baselines.past_runs import PastRuns
from ..baselines.plausible import distrust_reasons
from ..baselines.rows import timed_row
from ..baselines.run_rows import INTERRUPTED
from ..core.entries import Entry, ExactEntry, Statistic
from ..core.keys import Key
from ..core.reasons import Reason, text_reasons
from ..core.records import Measurement
from ..core.rows import FAILED, TIME, Row
from ..core.samples import CANARY, OVERSUBSCRIBED, PROFILED, SIBLINGS
from ..core.verdicts import Group, Idle, Kind, Reference, Subject, Verdict
from ..stats.key_results import KeyResults, LostRound, judge_peak
from ..stats.limits import Limit, Summary
from ..stats.looks import Looks
from ..stats.outlook import Policy
from ..stats.shared import Shared, Side, hold_shared
from ..stats.siblings import Sibling, judge_sibling, unless_busy
from ..stats.verdicts import changes_between, default_looks, judge, may_be_red, settle
from .device_under_test import DeviceUnderTest
from .kinds import FAIL_ON_WORDS, ResultKind
from .settings import NO_BASELINE, Options


class TimedResults(ResultKind):
    """Everything that a run knows of times; `looks` gives how many processes a test may take, where somebody said."""

    metric = TIME
    counted = "measured"
    record_type = Measurement

    def __init__(
        self, options: Options, started: str, looks: Callable[[], Looks | None], *, judges: bool
    ) -> None:
        super().__init__()
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
        self._opened: DeviceUnderTest | None = None
        self._trials: dict[str, KeyResults] = {}
        # By the identity of a key: as it is before what all tests share is put back, which its row shows.
        self._verdicts: dict[str, Verdict] = {}
        self._at_once: set[str] = set()

    def open(self, under_test: DeviceUnderTest, options: Options) -> None:
        """Take what to compare with."""
        super().open(under_test, options)
        # A recording compares with nothing.
        self._fail_on = options.fail_on - {NO_BASELINE} if options.record else options.fail_on
        self._opened = under_test

    @property
    def _under_test(self) -> DeviceUnderTest:
        assert self._opened is not None
        return self._opened

    def add(self, record: Measurement) -> None:
        """Take in what a test measured; the verdict follows when its body has ended."""
        if CANARY in record.samples.labels:
            self.canaries.append(record)
        else:
            super().add(record)

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
        taken = [
            measurement for measurement in self._pending.pop(test_id, []) if self._take(measurement)
        ]
        for measurement in taken:
            self._judge(measurement)

    def verdict_of(self, row: Row) -> Verdict | None:
        """What is known of a row's time beyond what it shows; None where its test failed for itself."""
        return self._verdicts.get(row.key.identity) if row.key is not None else None

    def retract(self, test_id: str) -> None:
        """Take back the verdicts of a test that failed for itself after all."""
        for row in self.of(test_id):
            if row.time_verdict is not None:
                results = KeyResults(list(row.measurements))
                self._show(timed_row(results, word=FAILED, published=row.published, idle=row.idle))

    def end_rounds(self, open_ids: set[str], *, cut: bool) -> None:
        """Give the tests that are still open their last look, although more processes were planned.

        Where all is `cut` short there will be no further process for any test, so that none could have been seen
        better.
        """
        self._share(open_ids)
        for row, verdict in list(self._judged()):
            assert row.measurement is not None
            if row.test in open_ids:
                self._judge(row.measurement, ended=True)
            elif cut:
                self._settle(
                    row,
                    replace(verdict, reach=self._verdict_on(row.measurement, ended=True)[0].reach),
                )

    def settle(self, open_ids: set[str]) -> None:
        """Hold all verdicts of the run against each other; only those of tests that are still held may change."""
        self._share(open_ids)
        named = {
            row.key.identity: (row, verdict)
            for row, verdict in self._judged()
            if row.key is not None
        }
        settled = settle(
            {name: verdict for name, (_, verdict) in named.items()}, self._under_test.comparisons
        )
        for name, (row, known) in named.items():
            verdict = settled[name]
            if row.test not in open_ids:
                verdict = replace(known, p_adjusted=verdict.p_adjusted)
            self._settle(row, verdict)

    def _judged(self) -> Iterator[tuple[Row, Verdict]]:
        for row in self.rows:
            verdict = self.verdict_of(row)
            if verdict is not None:
                yield row, verdict

    def _share(self, open_ids: set[str]) -> None:
        """Find what all tests share today, and hold the open ones against what is left.

        Not in a drill, which slows all alike to see whether each would turn red, nor in a recording, which compares
        nothing.
        """
        if self._options.drill is not None or self._options.record or not open_ids:
            return
        sides, tolerances, classes, shifts = {}, [], [], {}
        for row, verdict in self._judged():
            if row.measurement is None or verdict.difference is None or verdict.reference is None:
                continue
            key, group = (
                row.measurement.key,
                Group(verdict.new_medians_s, self._under_test.identity, self._started),
            )
            sides[key.identity] = Side(group, replace(verdict.reference, moved=(), shift=0.0))
            tolerances.append(verdict.tolerance)
            classes.append(class_of_key(key))
            if row.test in open_ids:
                shifts[key.identity] = row.measurement, verdict.reference.shift
        for identity, group, reference in self._canary_groups():
            sides[identity] = Side(group, reference, canary=True)
        self.shared, self._moved = hold_shared(sides, tolerances, classes, self._looks())
        for identity, (measurement, shift) in shifts.items():
            # One that had its last look is not put back to an earlier one.
            if self._moved[identity].shift != shift:
                self._judge(measurement)

    def _canary_groups(self) -> Iterator[tuple[str, Group, Reference]]:
        found: dict[str, list[Measurement]] = {}
        for one in self.canaries:
            if not one.invalid:
                found.setdefault(one.key.identity, []).append(one)
        for identity, taken in found.items():
            reference, _ = find_reference(self._under_test.comparator, taken[0].key, taken[0].work)
            if reference is not None:
                medians_s = tuple(one.median_s for one in taken)
                yield (
                    identity,
                    Group(medians_s, self._under_test.identity, self._started),
                    reference,
                )

    def may_change(self, test_id: str) -> bool:
        """Return whether other tests' verdicts, or a further round, may change a verdict of a test."""
        return any(map(self._may_change, self.of(test_id)))

    def _may_change(self, row: Row) -> bool:
        verdict = self.verdict_of(row)
        return verdict is not None and (may_be_red(verdict) or self.wants_round(row))

    def fails(self, row: Row) -> bool:
        """Return whether the verdict on a time turns its test red; a row whose word is that of its memory has none."""
        if row.time_verdict is None or row.by_peak:
            return False
        word = FAIL_ON_WORDS.get(row.time_verdict.kind)
        if word == "no-baseline" and self._options.until_recorded and not self._under_test.recorded:
            return False
        return word in self._fail_on

    def is_final(self, row: Row) -> bool:
        """Return whether a red time stays red; behind these verdicts more processes may decide otherwise."""
        return row.time_verdict is None or row.time_verdict.decided

    def missing(self, elsewhere: Collection[tuple[str, str]]) -> list[Entry | ExactEntry]:  # noqa: ARG002
        """Return the measured entries of this hardware that the run did not measure."""
        keys = [row.key for row in self.rows if row.key is not None]
        hardware = {self._under_test.hardware, *(key.hardware for key in keys)}
        measured = {key.identity for key in keys}
        return [
            entry
            for entry in self._under_test.comparator.entries
            if entry.kind == "measured"
            and entry.hardware in hardware
            and not entry.is_canary
            and key_of_entry(entry).identity not in measured
        ]

    def is_moved(self, test_id: str) -> bool:
        """Return whether a shared change is taken out of a test, whose word all tests together may still change."""
        verdicts = map(self.verdict_of, self.of(test_id))
        return any(
            verdict is not None and verdict.reference is not None and verdict.reference.shift != 0
            for verdict in verdicts
        )

    def wants_round(self, row: Row) -> bool:
        """Whether another process might decide."""
        verdict = self.verdict_of(row)
        if verdict is None or row.key is None or row.test in self._at_once:
            return False
        trial = self._trials[row.key.identity]
        rounds = len({one.process for one in trial.measurements})
        unjudged = verdict.kind in (Kind.NO_BASELINE, Kind.PASSED, Kind.INVALID)
        # What may miss a limit is recorded as often; what surely does becomes no baseline.
        unjudged = unjudged or (self._options.record and verdict.kind is not Kind.REGRESSED)
        if verdict.reference is None and unjudged and not verdict.siblings:
            # A recording: what nothing is known of is measured as often as was asked for, also where the first process
            # was disturbed.
            return rounds < self._options.recording and not trial.hopeless(None)
        if verdict.decided or verdict.futile:
            return False
        if verdict.reference is None and verdict.limit is None and not verdict.siblings:
            return False
        return rounds < self.most_rounds(row) and not trial.hopeless(verdict.reference)

    def most_rounds(self, row: Row) -> int:
        """How many processes a test may take."""
        verdict = self.verdict_of(row)
        assert row.key is not None
        return self._plan(
            row.test, row.key, verdict.reference if verdict is not None else None
        ).most

    def _take(self, measurement: Measurement) -> bool:
        """Put a measurement to the others of its key; False for what tells of the scheduler, or of a profiler."""
        labels = measurement.samples.labels
        if OVERSUBSCRIBED in labels or (PROFILED in labels and not measurement.invalid):
            word = OVERSUBSCRIBED if OVERSUBSCRIBED in labels else PROFILED
            self._show(timed_row(KeyResults([measurement]), word=word.upper()))
            return False
        self._trials.setdefault(measurement.key.identity, KeyResults()).measurements.append(
            measurement
        )
        return True

    def _judge(self, measurement: Measurement, *, ended: bool = False) -> None:
        """Show the verdict on a key as it is by now."""
        verdict, shown = self._verdict_on(measurement, ended=ended)
        results = self._trials[measurement.key.identity]
        self._show(timed_row(results, verdict, measurement=shown), verdict)

    def _subject(
        self,
        measurement: Measurement,
        reference: Reference | None,
        entries: Sequence[Entry],
        idle: Sequence[Idle],
        invalid: Sequence[Reason],
    ) -> Subject:
        """Return what is known of a measurement before its time is compared."""
        shown = (entry for entry in entries if entry.kind in ("threshold", "reference"))
        return Subject(
            test_id=measurement.test_id,
            label=measurement.label,
            name=measurement.key.name,
            clock_hz=measurement.samples.clock_hz,
            changed=self._changed(measurement) if reference is not None else (),
            left_out=self._left_out(measurement, reference, invalid),
            published=tuple(entry for entry in shown if not entry.gates),
            idle=tuple(idle),
        )

    def _changed(self, measurement: Measurement) -> tuple[str, ...]:
        """Return what differs from the environments behind the baseline of a measurement."""
        now = self._under_test.environment.everything() | measurement.comparable()
        return changes_between([now], self._under_test.comparator.environments(measurement.key))

    def _with_last_pass(self, verdict: Verdict) -> Verdict:
        """Return a verdict with the run in which its test passed last, where it looks slower than its baseline."""
        if verdict.reference is None or not verdict.looks_slow:
            return verdict
        subject, now = verdict.subject, self._under_test.environment.everything()
        last_pass = self._past_runs.last_pass(subject.test_id, subject.name, now)
        return replace(verdict, subject=replace(subject, last_pass=last_pass))

    @cached_property
    def _past_runs(self) -> PastRuns:
        return PastRuns(self._options.folder, self._under_test.hardware, self._started)

    def _left_out(
        self, measurement: Measurement, reference: Reference | None, invalid: Sequence[Reason]
    ) -> tuple[Reason, ...]:
        """Return why processes of a key do not count, and how rounds ended that gave no number."""
        results = self._trials[measurement.key.identity]
        unsound = {} if invalid else results.unsound(reference)
        lost = self.lost.get(measurement.test_id, ())
        rounds = (each.text for each in lost if measurement.key.name not in each.measured)
        return (*unsound.values(), *text_reasons(*rounds))

    def _settle(self, row: Row, verdict: Verdict) -> None:
        """Show a verdict as the other tests of the run leave it."""
        assert row.measurement is not None
        shown = verdict if self.shared is None else self.shared.with_whole_change(verdict)
        results = self._trials[row.measurement.key.identity]
        self._show(timed_row(results, shown, measurement=row.measurement), verdict)

    def _verdict_on(
        self, measurement: Measurement, *, ended: bool = False
    ) -> tuple[Verdict, Measurement]:
        """The verdict on a key with all its processes, and the one that stands for them."""
        trial = self._trials[measurement.key.identity]
        if SIBLINGS in measurement.samples.labels:
            return self._among_siblings(measurement), trial.representative(None)
        reference, why_none = find_reference(
            self._under_test.comparator, measurement.key, measurement.work
        )
        if self._options.record:
            reference, why_none = None, "recorded, and compared with nothing"
        if reference is not None:
            reference = self._moved.get(measurement.key.identity, reference)
        invalid, standing = trial.invalid(reference), trial.representative(reference)
        invalid = invalid or distrust_reasons(measurement.key, measurement.work, reference)
        entries = self._entries_for(measurement)
        group = trial.group(reference, self._under_test.identity, self._started)
        limits, idle = ([], []) if invalid else self._limits(standing, trial, reference, entries)
        peak_bytes = trial.peak_bytes(reference)
        verdict = judge(
            [group] if group.medians_s else [],
            reference,
            self._policy(standing, reference, ended=ended),
            subject=self._subject(standing, reference, entries, idle, invalid),
            peak=None if invalid else judge_peak(peak_bytes, reference, measurement.key),
            invalid=invalid,
            limits=limits,
            why_none=why_none,
        )
        return self._with_last_pass(unless_busy(verdict, trial.measurements)), standing

    def _among_siblings(self, measurement: Measurement) -> Verdict:
        """The verdict on one of several like devices, which no baseline is asked for: the others stand for it."""
        key = measurement.key
        found: dict[str, Sibling] = {}
        for identity, trial in self._trials.items():
            one = trial.measurements[-1]
            alike = one.test_id == measurement.test_id and one.key.hardware == key.hardware
            if alike and SIBLINGS in one.samples.labels:
                medians_s = trial.group(None, one.device, self._started).medians_s
                found[identity] = Sibling(
                    trial.representative(None), medians_s, trial.invalid(None)
                )
        mine = found.pop(key.identity)
        left_out = self._left_out(mine.measurement, None, mine.invalid)
        return unless_busy(
            judge_sibling(mine, list(found.values()), left_out),
            self._trials[key.identity].measurements,
        )

    def _limits(
        self,
        standing: Measurement,
        trial: KeyResults,
        reference: Reference | None,
        entries: Sequence[Entry],
    ) -> tuple[list[Limit], list[Idle]]:
        def summed(statistic: Statistic) -> Summary:
            return trial.summary(reference, self._under_test.identity, self._started, statistic)

        gpu, min_share = self._under_test.gpu, self._options.min_share
        return limits_of(entries, standing.work, summed, standing, gpu=gpu, min_share=min_share)

    def _policy(
        self, measurement: Measurement, reference: Reference | None, *, ended: bool
    ) -> Policy:
        key, under_test = measurement.key, self._under_test
        looks = replace(self._plan(measurement.test_id, key, reference), ended=ended)
        own, asked = measurement.tolerance, self._options.tolerance
        return policy_of(
            key,
            reference,
            under_test.prior(key),
            under_test.comparisons,
            test_tolerance=own,
            run_tolerance=asked,
            looks=looks,
        )

    def _plan(self, test_id: str, key: Key, reference: Reference | None) -> Looks:
        """How many processes a test may take: as asked for, else as many as red needs for what looks slow."""
        if test_id in self._at_once:
            return Looks(1)
        return self._looks() or default_looks(
            reference, self._under_test.identity, self._under_test.prior(key)
        )

    def _entries_for(self, measurement: Measurement) -> list[Entry]:
        key, comparator = measurement.key, self._under_test.comparator
        shelves = (self._under_test.entries, comparator.entries)
        found = (
            entry
            for shelf in shelves
            for entry in shelf.of(key.benchmark, key.name)
            if entry.matches(key)
        )
        return list({entry.identity: entry for entry in found}.values())

    def _keep_unjudged(self, record: Measurement, word: str) -> None:  # noqa: ARG002
        if not record.invalid and self._judges:
            # A rerun cannot shake it off: of the attempts of a process the slowest stands, whatever failed them.
            self._trials.setdefault(record.key.identity, KeyResults()).measurements.append(record)
        ended = INTERRUPTED if record.invalid == "interrupted" else FAILED
        self._show(timed_row(KeyResults([record]), word=ended))

    def _show(self, row: Row, verdict: Verdict | None = None) -> None:
        assert row.key is not None
        if verdict is None:
            self._verdicts.pop(row.key.identity, None)
        else:
            self._verdicts[row.key.identity] = verdict
        self._put(row)
