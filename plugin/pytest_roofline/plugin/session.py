"""A pytest invocation: its baseline, its run file, its results and its verdicts."""

import contextlib
import os
import sys
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from ..baselines.recordings import Recording
from ..baselines.run_files import RunWriter
from ..baselines.runs import new_run_id, now
from ..core.errors import RooflineError
from ..core.keys import Key, positional_names_note
from ..core.memory import OutOfMemory
from ..core.records import Footer, Header, Measurement, Outcome
from ..core.resources import ResourceKey, Resources
from ..core.rows import Row
from ..core.samples import Calibration
from ..core.units import encodable
from ..engine import identity
from ..engine.quiet import siblings_of
from ..settings.parsing import Options
from ..settings.round import in_round
from ..stats.analyses import Analyses
from ..stats.curves import judge_curves, summarise
from ..stats.siblings import FEWEST
from ..version import __version__
from .compiled import CompiledKernels
from .device_under_test import DeviceUnderTest, open_device_under_test
from .exhausted import ExhaustedMemory
from .kinds import ResultKind
from .peaks import PeakMemory
from .planned import Planned, unmet
from .report_files import Reports
from .results import Note, Programs, RunNotes, shadow_sentences
from .times import Times


class RooflineSession:
    """The state of a run, from collection to the last line."""

    def __init__(self, config: pytest.Config, options: Options) -> None:
        """Begin the state of a run, without a device.

        Hooks and fixtures share it.
        """
        self.config = config
        self.options = options
        # The round that this process runs for its parent; None in the run itself.
        self.round = in_round(config)
        # The tests that will measure, by node id.
        self.planned: dict[str, Planned] = {}
        # The number of tests that did not measure, by reason.
        self.not_measured: Counter[str] = Counter()
        self.run_name = options.save or new_run_id()
        self.writer = RunWriter(options.folder, self.run_name)
        self.process = uuid.uuid4().hex
        # The round that runs in this pytest: 1, and more while tests of programs run once more.
        self.repetition = 1
        self.programs = Programs()
        self.started = now()
        self.timed = Times(options, self.started, lambda: self.analyses, judges=self.round is None)
        self.kinds: list[ResultKind] = [
            self.timed,
            PeakMemory(self.timed),
            CompiledKernels(),
            ExhaustedMemory(self.timed, self.not_measured),
        ]
        for kinds in config.hook.pytest_roofline_result_kinds(config=config):
            self._add_kinds(kinds)
        self.run_notes = RunNotes()
        self.reports = Reports(options, speaks=self.round is None)
        self.warning = ""
        self.why_no_rounds = ""
        self.rounds_used = 1
        # Why no baseline can be made of a recording; set at its end.
        self.refusals: tuple[str, ...] = ()
        # The entries that a recording has written; set at its end.
        self.recording: Recording | None = None
        # Whether the machine stayed busy until `--roofline-wait` was over, so that nothing was measured.
        self.stayed_busy = False
        # The causes for which the device is DEGRADED. The message of a regressed test names them.
        self.degraded: tuple[str, ...] = ()
        self.health = ""
        # The node ids of tests that may not measure any more, since their verdicts are out.
        self.ended_tests: set[str] = set()
        # Every measuring test of the collection, before any was left out.
        self.collected: tuple[pytest.Item, ...] = ()
        # How each measuring test that ran has ended, by its id.
        self.outcomes: dict[str, Outcome] = {}
        self._under_test: DeviceUnderTest | None = None
        self._calibrated = False

    def _add_kinds(self, kinds: Iterable[ResultKind]) -> None:
        """Add the kinds of result of a conftest.py.

        Raises:
            pytest.UsageError: one has no metric, or that of another kind.
        """
        for kind in kinds:
            metrics = [earlier_kind.metric for earlier_kind in self.kinds]
            if not kind.metric or kind.metric in metrics:
                raise pytest.UsageError(
                    f"{type(kind).__name__} has metric {kind.metric!r}; expected a metric of its own, other than "
                    f"{', '.join(metrics)}"
                )
            self.kinds.append(kind)

    @property
    def under_test(self) -> DeviceUnderTest:
        """The device with what belongs to it; the first access opens it.

        Raises:
            pytest.UsageError: the device or the baselines cannot be used.
        """
        if self._under_test is None:
            try:
                self._under_test, self.warning = open_device_under_test(
                    self.config, self.options, self.planned
                )
                for kind in self.kinds:
                    kind.open(self._under_test, self.options)
            except RooflineError as error:
                raise pytest.UsageError(str(error)) from None
            except OSError as error:
                raise pytest.UsageError(f"{error.filename}: {error.strerror}") from None
        return self._under_test

    @property
    def opened(self) -> bool:
        """The state of the device: True once something has opened it."""
        return self._under_test is not None

    @property
    def settings(self) -> tuple[str, ...]:
        """The outside settings that hold under a gate: `pytest.ini: tolerance 45 %`."""
        return tuple(str(setting) for setting in self.options.elsewhere if setting.heeded)

    @property
    def analyses(self) -> Analyses | None:
        """The interim analyses of every test, by the option.

        They say after how many rounds it is judged. They are None without the option; then each test takes as many
        rounds as it needs.
        """
        most_rounds = 1 if self.why_no_rounds else self.options.rounds
        return None if most_rounds is None else Analyses(most_rounds)

    def unmet(self, needs: str | None) -> str | None:
        """Return why the device does not suit a test.

        It is None if the device does.
        """
        if needs == "siblings":
            sibling_count = len(siblings_of(self.under_test.device))
            return (
                f"needs {FEWEST} visible GPUs of one product, found {sibling_count}"
                if sibling_count < FEWEST
                else None
            )
        return unmet(needs, self.under_test.environment.device.type)

    def start_measuring(self, item: pytest.Item) -> None:
        """Begin the measurements of a test, or of its rerun."""
        self.ended_tests.discard(item.nodeid)
        for kind in self.kinds:
            kind.start(encodable(item.nodeid))

    def record(
        self,
        record: Measurement | Resources | OutOfMemory,
        calibration: Calibration | None = None,
    ) -> None:
        """Write a result, and give it to its kind.

        `calibration` is that of the clock; the first one is written before the result. A repetition adds measurements
        only.
        """
        if self.repetition > 1 and not isinstance(record, Measurement):
            return
        self.begin_file()
        if calibration is not None and not self._calibrated:
            self._calibrated = True
            self.writer.write(replace(calibration, process=self.process))
        self.writer.write(record)
        # Each type of record belongs to the first kind of result that takes it.
        next(kind for kind in self.kinds if isinstance(record, kind.record_type)).add(record)
        if not isinstance(record, OutOfMemory):
            self._warn_of_position(record.key)

    @contextlib.contextmanager
    def repeating(self, number: int) -> Iterator[None]:
        """Count this block's measurements as another process.

        It is that of round `number`.
        """
        own_process = self.process
        self.process, self.repetition = uuid.uuid4().hex, number
        try:
            yield
        finally:
            self.process, self.repetition = own_process, 1

    def has_only_programs(self, test_id: str) -> bool:
        """Return whether programs gave all figures of a test."""
        keys = [row.key for row in self.timed.of(test_id)]
        return all(key is not None and key.identity in self.programs.tests for key in keys)

    def begin_file(self) -> None:
        """Write the header, unless it is there."""
        if not self._begun:
            self.writer.write(self.header)

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
        """Whether the header of the run file is written, or failed to be."""
        return self.writer.path is not None or bool(self.writer.trouble)

    def _warn_of_position(self, key: Key | ResourceKey) -> None:
        """Warn of a key whose parameters are named by their position."""
        reason = positional_names_note(key.parameters)
        if reason:
            self.run_notes.warn(
                f"{key.benchmark}: {reason}. Until then the test is neither compared nor put into a baseline"
            )

    def note(self, note: Note) -> None:
        """Write a note of a test, and keep it.

        An example is a figure. The summary shows it. A further round repeats the note, so it does not write it again.
        """
        if self.round is None and self.repetition == 1:
            self.begin_file()
            self.writer.write(note)
            self.run_notes.notes.append(note)

    def judge(self, item: pytest.Item, *, further: bool) -> None:
        """Judge a test's results after its body.

        `further` tells whether rounds may follow; without them the test may be red now.
        """
        test_id = encodable(item.nodeid)
        if not further:
            self.timed.decide_at_once(test_id)
        for kind in self.kinds:
            kind.judge(test_id)

    def abandon(self, item: pytest.Item, error: BaseException | None = None) -> None:
        """Keep the results of a failed test without a verdict."""
        word = "INTERRUPTED" if isinstance(error, KeyboardInterrupt) else "FAILED"
        for kind in self.kinds:
            kind.abandon(encodable(item.nodeid), word)

    def reds(self, test_id: str) -> list[tuple[ResultKind, Row]]:
        """Return the results that fail a test, each with its kind."""
        return [(kind, row) for kind in self.kinds for row in kind.reds(test_id)]

    def retract(self, test_id: str) -> None:
        """Take back the verdicts of a test that failed for itself.

        A failure of unittest comes after the verdict, and not through pytest's hook.
        """
        for kind in self.kinds:
            kind.retract(test_id)

    def name_end(self, test_id: str, word: str) -> None:
        """Name how a test without verdicts ended: SKIPPED, XFAIL."""
        for kind in self.kinds:
            kind.name_end(test_id, word)

    def note_outcome(self, outcome: Outcome) -> None:
        """Keep how a measuring test ended.

        It is written if the run has a file.
        """
        self.outcomes[outcome.test_id] = outcome
        if self.round is not None or self.reports.has_readers:
            # The parent of a round, or a report, also names tests that measured nothing, so the file is needed.
            self.begin_file()
        if self._begun:
            self.writer.write(outcome)

    def end_measuring(self, item: pytest.Item) -> None:
        """End the measurements of a test, whose verdicts are out."""
        self.ended_tests.add(item.nodeid)

    @property
    def rows(self) -> list[Row]:
        """The rows of all kinds of result."""
        return [row for kind in self.kinds for row in kind.rows]

    def rows_of(self, test_id: str) -> list[Row]:
        """Return the results of a test."""
        return [row for row in self.rows if row.test == test_id]

    @property
    def counts(self) -> dict[str, int]:
        """The number of results by kind: `{"measured": 12, "compiled": 4}`."""
        return {kind.counted: len(kind.rows) for kind in self.kinds if kind.counted and kind.rows}

    @property
    def lost_output(self) -> str:
        """The output that could not be written: `the run` or `a report`.

        The text is empty if all was written.
        """
        if self.writer.trouble and self.options.save:
            return "the run"
        return "a report" if self.reports.broken else ""

    def close(self, exit_status: int) -> None:
        """Settle all verdicts, and end the run file.

        Verdicts depend on each other.
        """
        for kind in self.kinds:
            kind.abandon()
            if self.round is None:
                kind.settle(set())
        if (
            self.options.save
            or self.reports.has_readers
            or (self.options.shadow and self.round is None)
        ):
            # A saved, reported or shadow run has a file even if every test was skipped.
            self.begin_file()
        if self._begun:
            self._write_end(exit_status)
        self.writer.close()

    def _write_end(self, exit_status: int) -> None:
        """Write the verdicts and the footer.

        The footer has the packages, libraries and programs that came after the header was written.
        """
        rows, environment = self.timed.rows, self.under_test.environment
        for kind in self.kinds:
            kind.write_verdicts(self.writer)
        summaries = summarise(row.measurement for row in rows if row.measurement is not None)
        # The verdict on each curve, by its label and metric.
        words = {(curve.label, curve.metric): curve.kind.value for curve in judge_curves(rows)}
        is_complete = exit_status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        is_round = self.round is not None
        has_shadow = self.options.shadow and is_complete and not is_round
        footer = Footer(
            finished=now(),
            exit_status=exit_status,
            measured=self.counts.get("measured", 0),
            compiled=self.counts.get("compiled", 0),
            not_measured=dict(self.not_measured),
            curves=tuple(
                replace(curve, verdict=words.get((curve.label, curve.metric), ""))
                for curve in summaries
            ),
            packages=dict(identity.packages().items() - environment.packages.items()),
            libraries=dict(identity.libraries().items() - environment.libraries.items()),
            shadow=shadow_sentences(self.config) if has_shadow else None,
            software=self.programs.software,
            elsewhere=self.settings if self.options.gate and not is_round else None,
        )
        self.writer.write(footer)
