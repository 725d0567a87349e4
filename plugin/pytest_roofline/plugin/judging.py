"""The verdict on a time: all processes of its key so far, beside the reference and the limits.

`timed.py` keeps the verdicts, and says which of them may still change.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from ..baselines.comparators import find_reference
from ..baselines.past_runs import PastRuns
from ..baselines.plausible import distrust_reasons
from ..baselines.policies import limits_of, policy_of
from ..baselines.rows import told_metric
from ..core.entries import Entry, Statistic
from ..core.keys import Key
from ..core.reasons import Reason, text_reasons
from ..core.records import Measurement
from ..core.samples import SIBLINGS
from ..core.verdicts import Idle, Reference, Subject, Verdict
from ..settings.parsing import Options
from ..stats.analyses import Analyses
from ..stats.key_results import KeyResults, LostRound, judge_peak
from ..stats.limits import Limit, Summary
from ..stats.outlook import Policy
from ..stats.siblings import Sibling, judge_sibling, unless_busy
from ..stats.verdicts import changes_between, default_analyses, judge

if TYPE_CHECKING:
    from .device_under_test import DeviceUnderTest


class Judge:
    """The judge of a run's times."""

    def __init__(
        self,
        under_test: "DeviceUnderTest",
        options: Options,
        started: str,
        analyses: Callable[[], Analyses | None],
    ) -> None:
        """Prepare to judge the measurements of a run.

        Args:
            under_test: the device, with the baseline to compare with.
            options: of the run.
            started: when the run started.
            analyses: returns the interim analyses of every test; None where each test has as many as it needs.
        """
        self._under_test = under_test
        self._options = options
        self._started = started
        self._analyses = analyses
        # By the identity of a key, its measurements in all rounds and attempts.
        self.results: dict[str, KeyResults] = {}
        # By the identity of a key, its reference without the change that all tests share.
        self.shifted_references: dict[str, Reference] = {}
        # The rounds that a test lost: its process died, or it was skipped there.
        self.lost_rounds: dict[str, list[LostRound]] = {}
        # The ids of tests that get no further round.
        self.at_once: set[str] = set()

    def add(self, measurement: Measurement) -> None:
        """Add a measurement to the results of its key."""
        self.results.setdefault(measurement.key.identity, KeyResults()).measurements.append(
            measurement
        )

    def verdict_on(
        self, measurement: Measurement, *, ended: bool = False
    ) -> tuple[Verdict, Measurement]:
        """Return the verdict on a key, and its measurement.

        It is on all processes that measured the key, and one measurement stands for them. A test is judged after some
        of its rounds (an interim analysis), and each time raises the chance of a false red. `ended` makes this analysis
        the last one.
        """
        results = self.results[measurement.key.identity]
        if SIBLINGS in measurement.samples.labels:
            return self._among_siblings(measurement), results.representative(None)
        reference, why_none = self._reference_for(measurement)
        representative = results.representative(reference)
        # Nothing is judged where the processes are not sound, or where the reference is impossible.
        invalid = results.invalid(reference) or distrust_reasons(
            measurement.key, measurement.work, reference
        )
        entries = self._entries_for(measurement)
        # The sound processes of this run, as one session.
        group = results.group(reference, self._under_test.identity, self._started)
        limits, idle = (
            ([], []) if invalid else self._limits(representative, results, reference, entries)
        )
        peak_bytes = results.peak_bytes(reference)
        policy = self._policy(representative, reference)
        # Processes that are not sound use up rounds, so the last analysis may come before its number of processes.
        most = policy.analyses.most
        is_last = ended or results.process_count >= most or results.hopeless(reference)
        verdict = judge(
            [group] if group.medians_s else [],
            reference,
            replace(policy, analyses=replace(policy.analyses, ended=is_last)),
            subject=self._subject(representative, reference, entries, idle, invalid),
            peak=None if invalid else judge_peak(peak_bytes, reference, measurement.key),
            invalid=invalid,
            limits=limits,
            why_none=why_none,
        )
        return self._with_last_pass(unless_busy(verdict, results.measurements)), representative

    def _among_siblings(self, measurement: Measurement) -> Verdict:
        """Return the verdict on a device among its siblings.

        Those are the like devices of the same test in this run.
        """
        key = measurement.key
        # By the identity of the key. No reference (None) is involved, since siblings have no baseline.
        siblings: dict[str, Sibling] = {}
        for identity, results in self.results.items():
            latest = results.measurements[-1]
            is_sibling = (
                latest.test_id == measurement.test_id and latest.key.hardware == key.hardware
            )
            if is_sibling and SIBLINGS in latest.samples.labels:
                medians_s = results.group(None, latest.device, self._started).medians_s
                siblings[identity] = Sibling(
                    results.representative(None), medians_s, results.invalid(None)
                )
        this_sibling = siblings.pop(key.identity)
        left_out = self._left_out(this_sibling.measurement, None, this_sibling.invalid)
        return unless_busy(
            judge_sibling(this_sibling, list(siblings.values()), left_out),
            self.results[key.identity].measurements,
        )

    def _reference_for(self, measurement: Measurement) -> tuple[Reference | None, str]:
        """Return the times to compare with, or why there are none.

        A change of time that all tests share is taken out of it, since it does not come from the test.
        """
        if self._options.record:
            return None, "recorded, not compared"
        reference, why_none = find_reference(
            self._under_test.comparator, measurement.key, measurement.work
        )
        if reference is not None:
            reference = self.shifted_references.get(measurement.key.identity, reference)
        return reference, why_none

    def _entries_for(self, measurement: Measurement) -> list[Entry]:
        """Return the entries for a measurement's key, each once.

        They are those of the baselines, and those that the run compares with.
        """
        key, comparator = measurement.key, self._under_test.comparator
        matches = (
            entry
            for entries in (self._under_test.entries, comparator.entries)
            for entry in entries.of(key.benchmark, key.name)
            if entry.matches(key)
        )
        return list({entry.identity: entry for entry in matches}.values())

    def _limits(
        self,
        representative: Measurement,
        results: KeyResults,
        reference: Reference | None,
        entries: Sequence[Entry],
    ) -> tuple[list[Limit], list[Idle]]:
        """Return the limits of a measurement, and those that do not apply.

        These have a reason. A limit may be on another statistic than the median, such as
        the mean, so it is given all of them.
        """

        def summarise(statistic: Statistic) -> Summary:
            return results.summary(reference, self._under_test.identity, self._started, statistic)

        gpu, min_share = self._under_test.gpu, self._options.min_share
        return limits_of(
            entries, representative.work, summarise, representative, gpu=gpu, min_share=min_share
        )

    def _policy(self, measurement: Measurement, reference: Reference | None) -> Policy:
        """Return how a measurement is judged.

        That is its tolerance, its prior and its interim analyses.
        """
        key, under_test = measurement.key, self._under_test
        analyses = self.analyses_of(measurement.test_id, key, reference)
        return policy_of(
            key,
            reference,
            under_test.prior(key),
            under_test.comparisons,
            test_tolerance=measurement.tolerance,
            run_tolerance=self._options.tolerance,
            analyses=analyses,
        )

    def analyses_of(self, test_id: str, key: Key, reference: Reference | None) -> Analyses:
        """Return after how many processes a test is judged.

        The option `--roofline-rounds` decides. Without it a test that looks slow has as many as a red verdict needs.
        """
        # A test without further rounds has one process.
        if test_id in self.at_once:
            return Analyses(1)
        return self._analyses() or default_analyses(
            reference, self._under_test.identity, self._under_test.prior(key)
        )

    def _subject(
        self,
        measurement: Measurement,
        reference: Reference | None,
        entries: Sequence[Entry],
        idle: Sequence[Idle],
        invalid: Sequence[Reason],
    ) -> Subject:
        """Return the subject of a verdict.

        It holds the facts on its test that do not depend on the comparison.
        """
        limit_entries = (entry for entry in entries if entry.kind in ("threshold", "reference"))
        return Subject(
            test_id=measurement.test_id,
            label=measurement.label,
            name=measurement.key.name,
            clock_hz=measurement.samples.clock_hz,
            changed=self._changes(measurement) if reference is not None else (),
            left_out=self._left_out(measurement, reference, invalid),
            published=tuple(entry for entry in limit_entries if not entry.gates),
            idle=tuple(idle),
            metric=told_metric(measurement.key),
        )

    def _changes(self, measurement: Measurement) -> tuple[str, ...]:
        """Return the differences from the environments behind the baseline."""
        now = self._under_test.environment.everything() | measurement.comparable()
        return changes_between([now], self._under_test.comparator.environments(measurement.key))

    def _left_out(
        self, measurement: Measurement, reference: Reference | None, invalid: Sequence[Reason]
    ) -> tuple[Reason, ...]:
        """Return why processes of a key do not count.

        Reasons why rounds were lost are among them. `invalid` is why the whole key does not count; then single
        processes are not named.
        """
        results = self.results[measurement.key.identity]
        unsound = {} if invalid else results.unsound(reference)
        lost = self.lost_rounds.get(measurement.test_id, ())
        texts = (
            lost_round.text
            for lost_round in lost
            if measurement.key.name not in lost_round.measured
        )
        return (*unsound.values(), *text_reasons(*texts))

    def _with_last_pass(self, verdict: Verdict) -> Verdict:
        """Return a slow verdict with the test's last pass.

        Any other verdict is returned as it is.
        """
        if verdict.reference is None or not verdict.looks_slow:
            return verdict
        subject, now = verdict.subject, self._under_test.environment.everything()
        last_pass = self._past_runs.last_pass(subject.test_id, subject.name, now)
        if last_pass is not None:
            last_pass = replace(last_pass, now=self._options.save or "")
        return replace(verdict, subject=replace(subject, last_pass=last_pass))

    @cached_property
    def _past_runs(self) -> PastRuns:
        return PastRuns(self._options.folder, self._under_test.hardware, self._started)
