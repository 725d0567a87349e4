"""The times of a run and their verdicts, from the first measurement to the end of the last round.

`judging.py` gives each verdict. It may change until its test is reported: by a further round, or by what other tests of
the run turned out to be.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING

from ..baselines.comparators import find_reference
from ..baselines.files import key_of_entry
from ..baselines.references import class_of_key
from ..baselines.rows import timed_row
from ..baselines.run_rows import INTERRUPTED
from ..core.entries import Entry, ExactEntry
from ..core.groups import group_by
from ..core.records import Measurement
from ..core.rows import FAILED, TIME, Row
from ..core.samples import CANARY, OVERSUBSCRIBED, PROFILED
from ..core.verdicts import Group, Kind, Reference, Verdict
from ..settings.parsing import NO_BASELINE, Options
from ..stats.analyses import Analyses
from ..stats.key_results import KeyResults, LostRound
from ..stats.shared import Shared, Side, hold_shared
from ..stats.verdicts import may_be_red, settle
from .judging import Judge
from .kinds import FAIL_ON_WORDS, ResultKind

if TYPE_CHECKING:
    from .device_under_test import DeviceUnderTest


class TimedResults(ResultKind):
    """The times of a run; `analyses` gives the interim analyses of a test, if an option set them."""

    metric = TIME
    counted = "measured"
    record_type = Measurement

    def __init__(
        self,
        options: Options,
        started: str,
        analyses: Callable[[], Analyses | None],
        *,
        judges: bool,
    ) -> None:
        """Prepare the times of a run.

        Args:
            options: of the run.
            started: when the run started.
            analyses: returns the interim analyses of every test; None where each test has as many as it needs.
            judges: False in a round, whose parent judges its measurements.
        """
        super().__init__()
        # The canaries of every process of the run. They have no verdict and no row.
        self.canaries: list[Measurement] = []
        # The change that all tests share so far.
        self.shared: Shared | None = None
        self._options = options
        self._started = started
        self._analyses = analyses
        self._judges = judges
        # The verdict on each key, by its identity, without the change that all tests share. Its row shows that change.
        self._verdicts: dict[str, Verdict] = {}

    def open(self, under_test: "DeviceUnderTest", options: Options) -> None:
        """Keep the open device and the baseline."""
        super().open(under_test, options)
        # A recording compares with nothing.
        self._fail_on = options.fail_on - {NO_BASELINE} if options.record else options.fail_on
        self._under_test = under_test
        self._judge = Judge(under_test, options, self._started, self._analyses)

    def add(self, record: Measurement) -> None:
        """Add a measurement; its verdict follows the test's body."""
        if CANARY in record.samples.labels:
            self.canaries.append(record)
        else:
            super().add(record)

    def measured_names(self, test_id: str) -> set[str]:
        """Return the names that a test has measured under so far."""
        return {measurement.key.name for measurement in self._pending.get(test_id, [])}

    def forget_partial(self, test_id: str, name: str | None) -> None:
        """Remove the partial measurement of a call that ran out of memory."""
        pending = self._pending.get(test_id, [])
        pending[:] = [
            measurement
            for measurement in pending
            if not measurement.invalid or measurement.key.name != name
        ]

    def decide_at_once(self, test_id: str) -> None:
        """Allow a test no further round.

        It may be red now.
        """
        self._judge.at_once.add(test_id)

    def note_lost_rounds(self, lost_rounds: dict[str, list[LostRound]]) -> None:
        """Let each verdict name its test's lost rounds."""
        self._judge.lost_rounds = lost_rounds

    def judge(self, test_id: str) -> None:
        """Judge a test's new measurements with the earlier ones.

        Those are of the same keys, from other rounds.
        """
        measurements = [
            measurement
            for measurement in self._pending.pop(test_id, [])
            if self._add_to_key(measurement)
        ]
        for measurement in measurements:
            self._show_verdict(measurement)

    def _add_to_key(self, measurement: Measurement) -> bool:
        """Add a measurement to its key.

        Return whether it is to be judged. One of ranks that outnumber their cores, or under a profiler, is shown
        without a verdict.
        """
        labels = measurement.samples.labels
        if OVERSUBSCRIBED in labels or (PROFILED in labels and not measurement.invalid):
            word = OVERSUBSCRIBED if OVERSUBSCRIBED in labels else PROFILED
            self._show(timed_row(KeyResults([measurement]), word=word.upper()))
            return False
        self._judge.add(measurement)
        return True

    def _show_verdict(self, measurement: Measurement, *, ended: bool = False) -> None:
        """Show the current verdict on a measurement's key.

        `ended` makes it the last interim analysis.
        """
        verdict, representative = self._judge.verdict_on(measurement, ended=ended)
        results = self._judge.results[measurement.key.identity]
        self._show(timed_row(results, verdict, measurement=representative), verdict)

    def _show(self, row: Row, verdict: Verdict | None = None) -> None:
        """Put a row into the table, and keep its verdict."""
        assert row.key is not None
        if verdict is None:
            self._verdicts.pop(row.key.identity, None)
        else:
            self._verdicts[row.key.identity] = verdict
        self._put(row)

    def _keep_unjudged(self, record: Measurement, word: str) -> None:  # noqa: ARG002
        """Show a measurement of a failed test without a verdict.

        Its word is INTERRUPTED or FAILED by its own record, and not `word`.
        """
        if not record.invalid and self._judges:
            # It counts for a rerun too: the slowest attempt of a process is judged, so a rerun cannot hide a slow one.
            self._judge.add(record)
        end_word = INTERRUPTED if record.invalid == "interrupted" else FAILED
        self._show(timed_row(KeyResults([record]), word=end_word))

    def retract(self, test_id: str) -> None:
        """Take back the verdicts of a test that failed for itself."""
        for row in self.of(test_id):
            if row.time_verdict is not None:
                results = KeyResults(list(row.measurements))
                self._show(timed_row(results, word=FAILED, published=row.published, idle=row.idle))

    def verdict_of(self, row: Row) -> Verdict | None:
        """Return the verdict behind a row.

        It is None if the test failed for itself.
        """
        return self._verdicts.get(row.key.identity) if row.key is not None else None

    def fails(self, row: Row) -> bool:
        """Return whether the verdict on a time fails its test.

        A row whose verdict is that of its peak memory is left to `PeakMemory`.
        """
        if row.time_verdict is None or row.by_peak:
            return False
        word = FAIL_ON_WORDS.get(row.time_verdict.kind)
        # Before the first recording on this hardware, tests without a baseline may pass a gate.
        if word == "no-baseline" and self._options.until_recorded and not self._under_test.recorded:
            return False
        return word in self._fail_on

    def is_final(self, row: Row) -> bool:
        """Return whether a row that is red for its time stays red.

        It may not if its verdict is undecided, since further processes may change it.
        """
        return row.time_verdict is None or row.time_verdict.decided

    def may_change(self, test_id: str) -> bool:
        """Return whether another test or round may change a test's verdict."""
        return any(map(self._may_change, self.of(test_id)))

    def _may_change(self, row: Row) -> bool:
        """Return whether a row may turn red, or wants another process."""
        verdict = self.verdict_of(row)
        return verdict is not None and (may_be_red(verdict) or self.wants_round(row))

    def is_shifted(self, test_id: str) -> bool:
        """Return whether a test's times lack a shared change.

        A later estimate of that change may still change the test's verdict.
        """
        verdicts = map(self.verdict_of, self.of(test_id))
        return any(
            verdict is not None and verdict.reference is not None and verdict.reference.shift != 0
            for verdict in verdicts
        )

    def wants_round(self, row: Row) -> bool:
        """Return whether a row's key is worth another process.

        A key without a reference is measured as often as a recording needs, another until its verdict is decided.
        """
        verdict = self.verdict_of(row)
        if verdict is None or row.key is None or row.test in self._judge.at_once:
            return False
        results = self._judge.results[row.key.identity]
        process_count = results.process_count
        may_become_baseline = verdict.kind in (Kind.NO_BASELINE, Kind.PASSED, Kind.INVALID)
        # In a recording this includes what may miss a limit, but not what surely does.
        may_become_baseline = may_become_baseline or (
            self._options.record and verdict.kind is not Kind.REGRESSED
        )
        if verdict.reference is None and may_become_baseline and not verdict.siblings:
            # An invalid first process does not end it: a later one may be undisturbed.
            return process_count < self._options.recording and not results.hopeless(None)
        # Futile: further processes would hardly decide it.
        if verdict.decided or verdict.futile:
            return False
        # There is nothing to compare with.
        if verdict.reference is None and verdict.limit is None and not verdict.siblings:
            return False
        return process_count < self.most_rounds(row) and not results.hopeless(verdict.reference)

    def most_rounds(self, row: Row) -> int:
        """Return how many processes may measure a row's test."""
        verdict = self.verdict_of(row)
        assert row.key is not None
        return self._judge.analyses_of(
            row.test, row.key, verdict.reference if verdict is not None else None
        ).most

    def end_rounds(self, open_ids: set[str], *, cut: bool) -> None:
        """Give the open tests their last interim analysis.

        It comes before all planned rounds. With `cut` no test gets a further process, so the detectable effect of every
        other verdict is taken anew.
        """
        self._share(open_ids)
        for row, verdict in list(self._judged_rows()):
            assert row.measurement is not None
            if row.test in open_ids:
                self._show_verdict(row.measurement, ended=True)
            elif cut:
                last_verdict, _ = self._judge.verdict_on(row.measurement, ended=True)
                self._settle(row, replace(verdict, reach=last_verdict.reach))

    def settle(self, open_ids: set[str]) -> None:
        """Settle the verdicts of the run together.

        Of many tests some differ by chance, so each p-value is corrected. Only the verdicts of `open_ids`, tests with a
        deferred report, may change. Others get their adjusted p-value.
        """
        self._share(open_ids)
        rows_and_verdicts = {
            row.key.identity: (row, verdict)
            for row, verdict in self._judged_rows()
            if row.key is not None
        }
        settled = settle(
            {name: verdict for name, (_, verdict) in rows_and_verdicts.items()},
            self._under_test.comparisons,
        )
        for name, (row, earlier) in rows_and_verdicts.items():
            verdict = settled[name]
            if row.test not in open_ids:
                verdict = replace(earlier, p_adjusted=verdict.p_adjusted)
            self._settle(row, verdict)

    def _settle(self, row: Row, verdict: Verdict) -> None:
        """Show a verdict with the change that tests share.

        It is kept without that change.
        """
        assert row.measurement is not None
        whole_verdict = verdict if self.shared is None else self.shared.with_whole_change(verdict)
        results = self._judge.results[row.measurement.key.identity]
        self._show(timed_row(results, whole_verdict, measurement=row.measurement), verdict)

    def _share(self, open_ids: set[str]) -> None:
        """Judge each test without the change that all share.

        A drill slows all tests alike to see each turn red, and a recording compares nothing, so both go without it.
        """
        if self._options.drill is not None or self._options.record or not open_ids:
            return
        sides, tolerances, classes, shifts = {}, [], [], {}
        for row, verdict in self._judged_rows():
            if row.measurement is None or verdict.difference is None or verdict.reference is None:
                continue
            key = row.measurement.key
            group = Group(verdict.new_medians_s, self._under_test.identity, self._started)
            # The reference may lack an earlier estimate of the shared change; the new estimate needs it whole.
            whole_reference = replace(verdict.reference, moved=(), shift=0.0)
            sides[key.identity] = Side(group, whole_reference)
            tolerances.append(verdict.tolerance)
            classes.append(class_of_key(key))
            if row.test in open_ids:
                shifts[key.identity] = row.measurement, verdict.reference.shift
        for identity, group, reference in self._canary_groups():
            sides[identity] = Side(group, reference, canary=True)
        self.shared, self._judge.shifted_references = hold_shared(
            sides, tolerances, classes, self._analyses()
        )
        for identity, (measurement, shift) in shifts.items():
            # A key whose shift is the same keeps its verdict, which may be that of its last interim analysis.
            if self._judge.shifted_references[identity].shift != shift:
                self._show_verdict(measurement)

    def _judged_rows(self) -> Iterator[tuple[Row, Verdict]]:
        """Yield the rows that have a verdict, each with it."""
        for row in self.rows:
            verdict = self.verdict_of(row)
            if verdict is not None:
                yield row, verdict

    def _canary_groups(self) -> Iterator[tuple[str, Group, Reference]]:
        """Yield each valid canary that has a reference.

        A canary is a measurement of the machine itself. It comes as the identity of its key, its times in this run,
        and the reference.
        """
        valid_canaries = [canary for canary in self.canaries if not canary.invalid]
        canaries_by_key = group_by(valid_canaries, attrgetter("key.identity"))
        for identity, measurements in canaries_by_key.items():
            reference, _ = find_reference(
                self._under_test.comparator, measurements[0].key, measurements[0].work
            )
            if reference is not None:
                medians_s = tuple(canary.median_s for canary in measurements)
                yield (
                    identity,
                    Group(medians_s, self._under_test.identity, self._started),
                    reference,
                )

    def missing(self, elsewhere: Collection[tuple[str, str]]) -> list[Entry | ExactEntry]:  # noqa: ARG002
        """Return the entries with times that the run lacks.

        They are of this hardware.
        """
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
