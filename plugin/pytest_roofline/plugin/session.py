"""One pytest invocation: what it compares with, its run file, its results and its verdicts."""

import os
import sys
import uuid
from collections import Counter
from dataclasses import replace

import pytest

from ..baselines.run_files import RunWriter
from ..baselines.runs import new_run_id, now
from ..core.errors import RooflineError
from ..core.keys import Key, told_by_position
from ..core.memory import OutOfMemory
from ..core.records import Footer, Header, Measurement, Outcome
from ..core.resources import ResourceKey, Resources
from ..core.rows import Row
from ..core.samples import Calibration
from ..core.units import encodable
from ..core.verdicts import Kind
from ..stats.curves import judge_curves, summarise
from ..stats.looks import Looks
from ..stats.siblings import FEWEST
from ..version import __version__
from .device_under_test import DeviceUnderTest, open_device_under_test
from .launcher import unmet
from .planned import Planned
from .report_files import Reports
from .results import CompiledKernels, Exhausted, Note, Noted, shadow_of
from .round_child import in_round
from .settings import Options
from .timed import TimedResults

# What `--roofline-fail-on` calls a verdict.
_WORDS: dict[str, str] = {
    Kind.REGRESSED: "regressed",
    Kind.INVALID: "invalid",
    Kind.NO_BASELINE: "no-baseline",
    Kind.INCONCLUSIVE: "inconclusive",
}

session_key: "pytest.StashKey[RooflineSession]" = pytest.StashKey()


class RooflineSession:
    """The state of a run, from collection to the last line."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        self.config = config
        self.options = options
        self.round = in_round(config)
        self.planned: dict[str, Planned] = {}
        self.exhausted = Exhausted()
        self.not_measured: Counter[str] = Counter()
        self.run_name = options.save or new_run_id()
        self.writer = RunWriter(options.folder, self.run_name)
        self.process = uuid.uuid4().hex
        self.started = now()
        self.timed = TimedResults(
            options, self.started, lambda: self.looks, judges=self.round is None
        )
        self.compiled = CompiledKernels()
        self.noted = Noted()
        self.reports = Reports(options, speaks=self.round is None)
        self.warning = ""
        self.rounds_refused = ""
        self.rounds_used = 1
        # Of a recording, why no baseline can be made of it, once it has ended.
        self.refused: tuple[str, ...] = ()
        # The causes for which the device is DEGRADED, once they are known: a regressed test points to them.
        self.degraded: tuple[str, ...] = ()
        self.health = ""
        self.ended: set[str] = set()
        # Every measuring test that was found, before any was left out, and how each that ran has ended.
        self.collected: tuple[pytest.Item, ...] = ()
        self.outcomes: dict[str, Outcome] = {}
        self._under_test: DeviceUnderTest | None = None
        self._closed = False
        self._calibrated = False

    @property
    def under_test(self) -> DeviceUnderTest:
        """The open device and what belongs to it."""
        if self._under_test is None:
            try:
                self._under_test, self.warning = open_device_under_test(
                    self.config, self.options, self.planned
                )
                self.timed.open(self._under_test)
                self.compiled.open(self._under_test.comparator, self.options)
            except RooflineError as error:
                raise pytest.UsageError(str(error)) from None
            except OSError as error:
                raise pytest.UsageError(f"{error.filename}: {error.strerror}") from None
        return self._under_test

    @property
    def opened(self) -> bool:
        """Whether the device is open."""
        return self._under_test is not None

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that hold under a gate and do not stand in its command: `pytest.ini: tolerance 45 %`."""
        return tuple(str(setting) for setting in self.options.elsewhere if setting.heeded)

    @property
    def rows(self) -> list[Row]:
        """Of everything that was measured or compiled."""
        return [*self.timed.rows, *self.compiled.rows]

    def rows_of(self, test_id: str) -> list[Row]:
        """Of what a test has measured and compiled."""
        return [row for row in self.rows if row.test == test_id]

    @property
    def looks(self) -> Looks | None:
        """How many processes a test may take; None where nobody said, and each test takes as many as it needs."""
        most = 1 if self.rounds_refused else self.options.rounds
        return None if most is None else Looks(most)

    def unmet(self, needs: str | None) -> str | None:
        """Why a test that needs a kind of device is not for this one; None where it is."""
        if needs == "siblings":
            from ..engine.conditions import siblings_of

            count = len(siblings_of(self.under_test.device))
            return (
                f"needs {FEWEST} visible GPUs of one product, found {count}"
                if count < FEWEST
                else None
            )
        return unmet(needs, self.under_test.environment.device.type)

    def record(self, measurement: Measurement, calibration: Calibration | None = None) -> None:
        """Write a measurement down at once, whatever becomes of its test; before the first, what stamps cost here."""
        self.begin_file()
        if calibration is not None and not self._calibrated:
            self._calibrated = True
            self.writer.write(replace(calibration, process=self.process))
        self.writer.write(measurement)
        self.timed.add(measurement)
        self._warn_of_position(measurement.key)

    def ran_out(self, record: OutOfMemory) -> None:
        """Write down that a test ran out of memory; what the measurement had taken that did is no result."""
        self.begin_file()
        self.writer.write(record)
        new = self.exhausted.add(record)
        if not record.recorded or record.round > 1:
            # What a later round had no room for was measured in the first.
            return
        if new:
            self.not_measured["out of memory"] += 1
        self.timed.forget_partial(record.test_id, record.name)

    def record_resources(self, resources: Resources) -> None:
        """Write down what a compiled kernel asks for, whatever becomes of its test."""
        self.begin_file()
        self.writer.write(resources)
        self.compiled.add(resources)
        self._warn_of_position(resources.key)

    def _warn_of_position(self, key: Key | ResourceKey) -> None:
        why = told_by_position(key.parameters)
        if why:
            self.noted.warn(
                f"{key.benchmark}: {why}; until then it is compared with nothing, and no baseline takes it"
            )

    def note(self, note: Note) -> None:
        """Write down what a test found besides times; a further round only repeats it, and keeps quiet."""
        if self.round is None:
            self.begin_file()
            self.writer.write(note)
            self.noted.notes.append(note)

    @property
    def header(self) -> Header:
        """The first line of the run file."""
        return Header(
            run_id=self.run_name,
            started=self.started,
            command=(os.path.basename(sys.argv[0]), *self.options.command),  # noqa: PTH119
            tool=f"pytest-roofline {__version__}",
            environment=self.under_test.environment,
        )

    @property
    def _begun(self) -> bool:
        return self.writer.path is not None or bool(self.writer.trouble)

    @property
    def lost(self) -> str:
        """What was asked for and could not be written; empty where all was."""
        return (
            "the run"
            if self.writer.trouble and self.options.save
            else "a report"
            if self.reports.broken
            else ""
        )

    def begin_file(self) -> None:
        """Write the header, unless it is there."""
        if not self._begun:
            self.writer.write(self.header)

    def judge(self, item: pytest.Item, *, further: bool) -> None:
        """The verdicts on all that a test measured, once its body has ended well; whether further rounds may follow."""
        test_id = encodable(item.nodeid)
        if not further:
            self.timed.decide_at_once(test_id)
        self.compiled.judge(test_id)
        self.timed.judge(test_id)

    def abandon(self, item: pytest.Item, error: BaseException | None = None) -> None:
        """Keep what a test found that did not end well in the table, without a verdict."""
        word = "INTERRUPTED" if isinstance(error, KeyboardInterrupt) else "FAILED"
        for results in (self.timed, self.compiled):
            results.abandon(encodable(item.nodeid), word)

    def call_it(self, test_id: str, word: str) -> None:
        """Name how a test without verdicts ended, once that is known: SKIPPED, XFAIL."""
        for results in (self.timed, self.compiled):
            results.call_it(test_id, word)

    def retract(self, test_id: str) -> None:
        """Take back the verdicts of a test that failed for itself after all, as unittest's do behind pytest's back."""
        self.timed.retract(test_id)
        self.compiled.retract(test_id)

    def fails(self, row: Row) -> bool:
        """Whether a verdict turns its test red; none does not."""
        if row.time_verdict is not None:
            word = _WORDS.get(row.time_verdict.kind)
        elif row.exact is not None:
            word = _WORDS.get(row.exact.verdict)
        else:
            return False
        if row.by_peak:
            # Its memory is worse than its time; a peak that the baseline lacks turns nothing red.
            return not {word, _WORDS[row.verdict]}.isdisjoint(self.options.fail_on)
        if word == "no-baseline" and self.options.until_recorded and row.time_verdict is not None:
            return self.under_test.recorded and word in self.options.fail_on
        return word in self.options.fail_on

    def red_rows(self, test_id: str) -> list[Row]:
        """Measurements and compiled kernels of a test whose verdict turns it red."""
        return [row for row in self.rows_of(test_id) if self.fails(row)]

    def end_measuring(self, item: pytest.Item) -> None:
        """From here on the test measures no more: its verdicts are out."""
        self.ended.add(item.nodeid)

    def start_measuring(self, item: pytest.Item) -> None:
        """A test, or a rerun of it, begins."""
        self.ended.discard(item.nodeid)
        self.exhausted.forget_unrecorded(encodable(item.nodeid))

    def note_outcome(self, outcome: Outcome) -> None:
        """Write down how a test that measured, or would have, ended."""
        self.outcomes[outcome.test_id] = outcome
        if self.round is not None or self.reports.wanted:
            # The parent, or a report, must tell of a test that failed before it measured anything.
            self.begin_file()
        if self._begun:
            self.writer.write(outcome)

    def close(self, exit_status: int) -> None:
        """End the run file."""
        if self._closed:
            return
        self._closed = True
        self.timed.abandon()
        self.compiled.abandon()
        if self.round is None and self.timed.rows:
            self.timed.settle(set())
        if self.options.save or self.reports.wanted or (self.options.shadow and self.round is None):
            # The name, the report, or the night, that was asked for exists even if every test was skipped.
            self.begin_file()
        if self._begun:
            self._write_end(exit_status)
        self.writer.close()

    def _write_end(self, exit_status: int) -> None:
        from ..engine.identity import libraries, packages

        rows, known = self.timed.rows, self.under_test.environment
        self.timed.write_verdicts(self.writer)
        self.compiled.write_verdicts(self.writer)
        summaries = summarise(row.measurement for row in rows if row.measurement is not None)
        words = {(curve.label, curve.metric): curve.kind.value for curve in judge_curves(rows)}
        ended = exit_status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        footer = Footer(
            finished=now(),
            exit_status=exit_status,
            measured=len(rows),
            compiled=len(self.compiled.rows),
            not_measured=dict(self.not_measured),
            curves=tuple(
                replace(curve, verdict=words.get((curve.label, curve.metric), ""))
                for curve in summaries
            ),
            packages=dict(packages().items() - known.packages.items()),
            libraries=dict(libraries().items() - known.libraries.items()),
            shadow=shadow_of(self.config).sentences
            if self.options.shadow and ended and self.round is None
            else None,
            elsewhere=self.settings if self.options.gate and self.round is None else None,
        )
        self.writer.write(footer)
