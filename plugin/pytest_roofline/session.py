"""One pytest invocation: what it compares with, its run file, its trials and its verdicts."""

import os
import sys
import uuid
from collections import Counter
from dataclasses import replace

import pytest

from .compiled import CompiledKernels
from .core.entries import Entry
from .core.errors import RooflineError
from .core.facts import HardwareKey
from .core.records import Ceiling, Footer, Header, Measurement, Outcome
from .core.resources import Resources
from .core.samples import OVERSUBSCRIBED, Calibration
from .core.work import Work
from .exhausted import Exhausted
from .ground import Ground, open_ground
from .judging.comparators import BaselineComparator, find_reference
from .judging.curves import judge_curves, summarise
from .judging.exact import ExactVerdict
from .judging.looks import Looks
from .judging.runs import RunWriter, new_run_id, now
from .judging.trials import LostRound, Trial
from .judging.verdicts import DEFAULT_TOLERANCE, Kind, Policy, Reference, Verdict, gating_limits, judge, settle
from .planned import Planned, encodable
from .reporting.exhausted import RanOut
from .reporting.records import judgement_of
from .reporting.resources import ExactResult
from .reporting.results import Result
from .round_child import in_round
from .settings import Options
from .version import __version__

_WORDS = {
    Kind.REGRESSED: "regressed",
    Kind.INVALID: "invalid",
    Kind.NO_BASELINE: "no-baseline",
    Kind.INCONCLUSIVE: "inconclusive",
}


class RooflineSession:
    """The state of a run, from collection to the last line."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self.config = config
        self.options = options
        self.round = in_round(config)
        self.planned: dict[str, Planned] = {}
        self.results: list[Result] = []
        self.exhausted = Exhausted()
        self.compiled = CompiledKernels()
        self.not_measured: Counter[str] = Counter()
        self.run_name = options.save or new_run_id()
        self.writer = RunWriter(options.folder, self.run_name)
        self.process = uuid.uuid4().hex
        self.started = now()
        self.warning = ""
        self.rounds_refused = ""
        self.rounds_used = 1
        # The causes for which the device is DEGRADED, once they are known: a regressed test points to them.
        self.degraded: tuple[str, ...] = ()
        self.health = ""
        self._ground: Ground | None = None
        # Rounds of a test that never gave a number: its process died, or it was skipped.
        self.lost: dict[str, list[LostRound]] = {}
        self._trials: dict[str, Trial] = {}
        self._pending: dict[str, list[Measurement]] = {}
        self._closed = False
        self._calibrated = False
        self._ended: set[str] = set()
        self._at_once: set[str] = set()

    @property
    def ground(self) -> Ground:
        """The open device and what belongs to it.

        Raises:
            pytest.UsageError: the device is not there, a baseline is unusable, or the comparison is across hardware.
        """
        if self._ground is None:
            try:
                self._ground, self.warning = open_ground(self.config, self.options, self.planned)
                self.compiled.open(self._ground.comparator, self.options)
            except RooflineError as error:
                raise pytest.UsageError(str(error)) from None
            except OSError as error:
                raise pytest.UsageError(f"{error.filename}: {error.strerror}") from None
        return self._ground

    @property
    def opened(self) -> bool:
        """Whether the device is open."""
        return self._ground is not None

    @property
    def looks(self) -> Looks:
        """How many processes a test may take, and whether red must be possible at once, as `-x` needs."""
        most = 1 if self.rounds_refused else self.options.rounds
        return Looks(most, eager=bool(self.config.getoption("maxfail", 0)))

    def ceiling(self, work: Work, metric: str, hardware: HardwareKey | None = None) -> Ceiling | None:
        """The roofline of a metric on this device, or on several of them where `hardware` says so."""
        return self.ground.ceiling(work, metric, hardware)

    def record(self, measurement: Measurement, calibration: Calibration | None = None) -> None:
        """Write a measurement down at once, whatever becomes of its test; before the first, what stamps cost here."""
        self.begin_file()
        if calibration is not None and not self._calibrated:
            self._calibrated = True
            self.writer.write(replace(calibration, process=self.process))
        self.writer.write(measurement)
        self._pending.setdefault(measurement.test_id, []).append(measurement)

    def ran_out(self, found: RanOut) -> None:
        """Write down that a test ran out of memory; what the measurement had taken that did is no result."""
        record = found.record
        self.begin_file()
        self.writer.write(record)
        new = self.exhausted.add(found)
        if not record.recorded or record.round > 1:
            # What a later round had no room for was measured in the first.
            return
        if new:
            self.not_measured["out of memory"] += 1
        pending = self._pending.get(record.test_id, [])
        pending[:] = [one for one in pending if not one.invalid or one.key.name != record.name]

    def measured_names(self, test_id: str) -> set[str]:
        """The names under which a test has measured something, since it began and up to now."""
        return {measurement.key.name for measurement in self._pending.get(test_id, [])}

    def record_resources(self, resources: Resources) -> None:
        """Write down what a compiled kernel asks for, whatever becomes of its test."""
        self.begin_file()
        self.writer.write(resources)
        self.compiled.add(resources)

    def begin_file(self) -> None:
        """Write the header, unless it is there."""
        if self.writer.path is None and not self.writer.trouble:
            self.writer.write(
                Header(
                    run_id=self.run_name,
                    started=self.started,
                    command=(os.path.basename(sys.argv[0]), *self.options.command),  # noqa: PTH119
                    tool=f"pytest-roofline {__version__}",
                    environment=self.ground.environment,
                )
            )

    def judge(self, item: pytest.Item, *, further: bool = True) -> list[Result]:
        """The verdicts on everything that a test measured, once its body has ended well.

        Args:
            item: the test.
            further: whether further rounds of it may follow; if not, red must be possible now.
        """
        test_id = encodable(item.nodeid)
        if not further:
            self._at_once.add(test_id)
        self.compiled.judge(test_id)
        return self.take_in(test_id)

    def take_in(self, test_id: str) -> list[Result]:
        """Judge what was measured of a test since the last time, together with all that was before."""
        return [self._judge(measurement) for measurement in self._pending.pop(test_id, [])]

    def abandon(self, item: pytest.Item, error: BaseException | None = None) -> None:
        """Keep what a test found that did not end well in the table, without a verdict."""
        self._keep_unjudged(encodable(item.nodeid))
        word = "INTERRUPTED" if isinstance(error, KeyboardInterrupt) else "FAILED"
        self.compiled.abandon(encodable(item.nodeid), word)

    def call_it(self, test_id: str, word: str) -> None:
        """Name how a test without verdicts ended, once that is known: SKIPPED, XFAIL."""
        self._change(test_id, ended=word)
        self.compiled.call_it(test_id, word)

    def retract(self, test_id: str) -> None:
        """Take back the verdicts of a test that failed for itself after all, as unittest's do behind pytest's back."""
        self._change(test_id, verdict=None)
        self.compiled.retract(test_id)

    def _change(self, test_id: str, **changes: object) -> None:
        self.results = [
            replace(result, **changes) if result.measurement.test_id == test_id else result  # type: ignore[arg-type]
            for result in self.results
        ]

    def _keep_unjudged(self, test_id: str) -> None:
        for measurement in self._pending.pop(test_id, []):
            ended = "INTERRUPTED" if measurement.invalid == "interrupted" else "FAILED"
            if not measurement.invalid and self.round is None:
                # A rerun cannot shake it off: of the attempts of a process the slowest stands, whatever failed them.
                self._trials.setdefault(measurement.key.identity, Trial()).measurements.append(measurement)
            self._show(Result(measurement, None, self._facts(measurement), ended=ended))

    def _facts(self, measurement: Measurement) -> dict[str, str]:
        return self.ground.environment.comparable() | measurement.comparable()

    def _show(self, result: Result) -> None:
        """One row a measurement: a later verdict takes the place of the one before."""
        for index, known in enumerate(self.results):
            if known.measurement.key.identity == result.measurement.key.identity:
                self.results[index] = result
                return
        self.results.append(result)

    def _judge(self, measurement: Measurement) -> Result:
        """The verdict on all that is known under a measurement's key; none on what tells of the scheduler only."""
        if OVERSUBSCRIBED in measurement.samples.labels:
            unjudged = Result(measurement, None, self._facts(measurement), ended=OVERSUBSCRIBED.upper())
            self._show(unjudged)
            return unjudged
        self._trials.setdefault(measurement.key.identity, Trial()).measurements.append(measurement)
        result = self._verdict_on(measurement)
        self._show(result)
        return result

    def _verdict_on(self, measurement: Measurement, *, ended: bool = False) -> Result:
        trial = self._trials[measurement.key.identity]
        reference, why_none = find_reference(self.ground.comparator, measurement.key, measurement.work)
        invalid, standing = trial.invalid(reference), trial.standing(reference)
        entries = self._entries_for(measurement)
        group = trial.group(reference, self.ground.identity, self.started) if trial.sound(reference) else None
        verdict = judge(
            [group] if group is not None else [],
            reference,
            self._policy(standing, reference, ended=ended),
            invalid=invalid,
            thresholds=gating_limits(entries, measurement.work),
            why_none=why_none,
        )
        published = tuple(entry for entry in entries if entry.kind != "measured" and not entry.gates)
        left_out = tuple(trial.unsound(reference).values()) if not invalid else ()
        lost = self.lost.get(measurement.test_id, ())
        left_out += tuple(one.text for one in lost if measurement.key.name not in one.measured)
        return Result(standing, verdict, self._facts(standing), published, left_out=left_out)

    def end_rounds(self, open_ids: set[str], *, cut: bool) -> None:
        """Give the tests that are still open their last look, although more processes were planned.

        Args:
            open_ids: tests whose outcome is not out yet.
            cut: whether there will be no further process for any test, so that none could have been seen better.
        """
        for result in [known for known in self.results if known.verdict is not None]:
            last = self._verdict_on(result.measurement, ended=True)
            assert result.verdict is not None
            assert last.verdict is not None
            if result.measurement.test_id in open_ids:
                self._show(last)
            elif cut:
                self._show(replace(result, verdict=replace(result.verdict, reach=last.verdict.reach)))

    def _policy(self, measurement: Measurement, reference: Reference | None, *, ended: bool) -> Policy:
        """Tolerance: marker or argument, then the baseline's entry, then command line and ini, then the default."""
        entry = reference.tolerance if reference is not None else None
        return Policy(
            tolerance=measurement.tolerance or entry or self.options.tolerance or DEFAULT_TOLERANCE,
            comparisons=self.ground.comparisons,
            prior=self.ground.prior(measurement.key),
            looks=Looks(1) if measurement.test_id in self._at_once else replace(self.looks, ended=ended),
        )

    def _entries_for(self, measurement: Measurement) -> list[Entry]:
        key, comparator = measurement.key, self.ground.comparator
        shelves = [self.ground.entries]
        if isinstance(comparator, BaselineComparator) and comparator.entries is not self.ground.entries:
            shelves.append(comparator.entries)
        found = (entry for shelf in shelves for entry in shelf.of(key.benchmark, key.name) if entry.matches(key))
        return list({entry.identity: entry for entry in found}.values())

    def results_of(self, test_id: str) -> list[Result]:
        """What is said of a test so far."""
        return [result for result in self.results if result.measurement.test_id == test_id]

    def settle(self, open_ids: set[str]) -> None:
        """Hold all verdicts of the run against each other; only those of tests that are still held may change.

        Args:
            open_ids: tests whose outcome is not out yet.
        """
        named = {r.measurement.key.identity: r for r in self.results if r.verdict is not None}
        settled = settle({name: r.verdict for name, r in named.items() if r.verdict}, self.ground.comparisons)
        for name, result in named.items():
            verdict = settled[name]
            if result.measurement.test_id not in open_ids:
                assert result.verdict is not None
                verdict = replace(result.verdict, p_adjusted=verdict.p_adjusted)
            self._show(replace(result, verdict=verdict))

    def may_change(self, result: Result) -> bool:
        """Whether what is said of a measurement may still change: by other tests' verdicts, or in a further round."""
        verdict = result.verdict
        if verdict is None or verdict.decided:
            return False
        return verdict.may_be_red or self.wants_round(result)

    def wants_round(self, result: Result) -> bool:
        """Whether another process might decide."""
        verdict = result.verdict
        if verdict is None or verdict.decided or verdict.futile:
            return False
        if verdict.reference is None and verdict.threshold is None:
            return False
        if result.measurement.test_id in self._at_once:
            return False
        trial = self._trials[result.measurement.key.identity]
        rounds = len({measurement.process for measurement in trial.measurements})
        return rounds < self.looks.most and not trial.hopeless(verdict.reference)

    def fails(self, verdict: Verdict | ExactVerdict) -> bool:
        """Whether a verdict turns its test red."""
        return _WORDS.get(verdict.kind) in self.options.fail_on

    def red_kernels(self, test_id: str) -> list[ExactResult]:
        """Compiled kernels of a test whose verdict turns it red."""
        return [known for known in self.compiled.of(test_id) if known.verdict is not None and self.fails(known.verdict)]

    def end_measuring(self, item: pytest.Item) -> None:
        """From here on the test measures no more: its verdicts are out."""
        self._ended.add(item.nodeid)

    def start_measuring(self, item: pytest.Item) -> None:
        """A test, or a rerun of it, begins."""
        self._ended.discard(item.nodeid)
        self.exhausted.forget_unrecorded(encodable(item.nodeid))

    def may_measure(self, item: pytest.Item) -> bool:
        """Whether a verdict will still be given on what the test measures."""
        return item.nodeid not in self._ended

    def note_outcome(self, outcome: Outcome) -> None:
        """Write down how a test that measured, or would have, ended."""
        if self.round is not None:
            # The parent must hear of a test that failed before it measured anything.
            self.begin_file()
        if self.writer.path is not None or self.writer.trouble:
            self.writer.write(outcome)

    def close(self, exit_status: int) -> None:
        """End the run file."""
        if self._closed:
            return
        self._closed = True
        for test_id in list(self._pending):
            self._keep_unjudged(test_id)
        self.compiled.abandon()
        if self.round is None and self.results:
            self.settle(set())
        if self.options.save:
            # The name that was asked for exists even if every test was skipped.
            self.begin_file()
        if self.writer.path is not None or self.writer.trouble:
            self._write_end(exit_status)
        self.writer.close()

    def _write_end(self, exit_status: int) -> None:
        for result in self.results:
            if result.verdict is not None:
                self.writer.write(judgement_of(result))
        self.compiled.write_verdicts(self.writer)
        summaries = summarise(result.measurement for result in self.results)
        judged = judge_curves([(r.measurement, r.verdict) for r in self.results if r.verdict is not None])
        words = {(curve.label, curve.metric): curve.kind.value for curve in judged}
        self.writer.write(
            Footer(
                finished=now(),
                exit_status=exit_status,
                measured=len(self.results),
                compiled=len(self.compiled.results),
                not_measured=dict(self.not_measured),
                curves=tuple(replace(curve, verdict=words.get((curve.label, curve.metric), "")) for curve in summaries),
            )
        )
