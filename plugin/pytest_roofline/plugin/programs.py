"""Measurements of a program's own figures. Each run of the program is one process of the model."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..core.directions import Direction, inverse_if_higher, is_of_tool, unit_of
from ..core.errors import BadFile, BadInput, ProgramFailed, short_repr
from ..core.facts import HardwareKey
from ..core.features import require
from ..core.keys import JOB_METRIC, Key
from ..core.records import Measurement
from ..core.samples import Ranks, Samples
from ..core.units import printable, slug
from ..core.work import RATE_UNITS, Work, rate_suffix
from ..core.writing import make_ignored_folder
from ..engine.inventory import kind_among
from ..engine.request import positive
from ..figures.plan import ReadPlan, plan_of_arguments
from ..figures.reading import READERS, ProgramFigure, read_figures
from ..processes.programs import (
    OUT,
    TIMEOUT_S,
    Printed,
    Surroundings,
    identity_of,
    program_name,
)
from .recording import CurrentTest, with_sanity
from .results import lack
from .selection import marks_of

# The label of what a drill slowed down.
REPLACED = "replaced"


def measure(
    test: CurrentTest,
    words: Sequence[str | os.PathLike[str]],
    *,
    read: str | None,
    higher: Mapping[str, str] | None,
    lower: Mapping[str, str] | None,
    timeout: float | None,
    env: Mapping[str, str] | None,
    cwd: str | os.PathLike[str] | None,
    ranks: int | None,
) -> list[ProgramFigure]:
    """Run a program once for a test, and record its figures.

    The arguments are those of `roofline.measure_command`.

    Raises:
        BadInput: an argument cannot be used as given, or two figures of the run have one key.
        ProgramFailed: it did not end with status 0, or printed no such figures.
    """
    if isinstance(words, str | bytes) or not words:
        raise BadInput(
            f'command is {short_repr(words)}; expected a list of words, such as ["nvbandwidth", "-j"]'
        )
    if ranks is not None and (isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1):
        raise BadInput(f"ranks is {short_repr(ranks)}; expected a whole number above zero")
    plan = plan_of_arguments(read, higher, lower)
    if plan.facts:
        require("exchange")
        from ..exchange.building import check_plan

        check_plan(plan, "read")
    devices = plan.facts.get("devices", ranks)
    # Only OSU has a device for each rank.
    if plan.reader == "osu" and ranks is not None and devices != ranks:
        raise BadInput(f"ranks is {ranks}, but read says devices={devices}; give only one of them")
    around = Surroundings(
        Path(cwd if cwd is not None else Path.cwd()),
        {**os.environ, **(env or {})},
        positive("timeout", timeout) or TIMEOUT_S,
    )
    return _ProgramRun(test, [os.fspath(word) for word in words], plan, around, ranks).measure()


class _ProgramRun:
    """One run of a program by a test."""

    def __init__(
        self,
        test: CurrentTest,
        command: Sequence[str],
        figures: ReadPlan,
        around: Surroundings,
        ranks: int | None,
    ) -> None:
        """Prepare to run a program once; its output goes to numbered files of the run's folder.

        Args:
            test: that runs it.
            command: the program and its arguments.
            figures: how they are read; without a reader the time of the command is judged.
            around: its folder, its variables and its time limit.
            ranks: how many a launcher starts it on; None without a launcher.
        """
        self._test, self._session = test, test.session
        self._command, self._figures, self._around, self._ranks = command, figures, around, ranks
        self._programs = test.session.programs
        self._programs.count += 1
        printed = self._session.options.folder / "printed"
        make_ignored_folder(printed)
        folder = printed / self._session.run_name
        folder.mkdir(exist_ok=True)
        self._printed = Printed(
            folder / f"{self._programs.count:03}-{slug(test.planned.benchmark)}"
        )
        self._words = [word.replace(OUT, str(self._printed.out)) for word in command]
        self._name = program_name(command)
        self._launcher = ""

    def measure(self) -> list[ProgramFigure]:
        """Run the program, and record its figures."""
        words, environ = self._launched()
        around = replace(self._around, environ=environ)
        # The program may need the device's memory.
        self._session.under_test.device.release()
        try:
            seconds = self._printed.run(words, around)
            measurements = self._read(seconds)
        except (ProgramFailed, BadFile, BadInput) as error:
            text = printable(str(error)).removeprefix(f"{self._name}: ")
            raise ProgramFailed(f"{self._name}: {text}", getattr(error, "status", None)) from None
        self._identify()
        return [self._record(measurement) for measurement in measurements]

    def _launched(self) -> tuple[list[str], Mapping[str, str]]:
        """Return the words of the command and its variables.

        With ranks they are those of the launcher. A test whose ranks no launcher can start is skipped or fails here.
        """
        size, environ = self._ranks, self._around.environ
        if size is None:
            return self._words, environ
        require("ranks")
        from .launcher import launcher_of

        launcher = launcher_of(self._test.item.config, self._session.options)
        if reason := launcher.unavailable(size):
            lack(self._test.item, self._session.options, reason)
        self._launcher, words, variables = launcher.launch_program(size, self._words, environ)
        return words, variables

    def _read(self, seconds: float) -> list[Measurement]:
        """Return the figures in what the program printed.

        They are the seconds of its run if no reader is named.
        """
        figures = self._figures
        if not figures.reader:
            return [self._measurement("", JOB_METRIC, (seconds,))]
        # A program with {out} in its command writes its figures into that file.
        output = self._printed.output(from_out=any(OUT in word for word in self._command))
        if figures.reader in READERS:
            text = output.decode("utf-8", "replace")
            return [
                self._measurement(_name_of(figure), figure.direction, figure.seconds)
                for figure in read_figures(text, figures.reader, figures.paths)
            ]
        source = printable(shlex.join(self._command))
        return [self._of_test(line) for line in _read_tool(output, source, figures, self._ranks)]

    def _measurement(self, name: str, metric: str, seconds: Sequence[float]) -> Measurement:
        """Return a figure as a measurement of the test.

        Args:
            name: of the figure; empty for the time of the command.
            metric: the direction of the figure, or that of times of commands.
            seconds: samples; of a figure for which higher is better, the inverse of each.
        """
        planned = self._test.planned
        key = Key(
            planned.benchmark,
            planned.parameters,  # type: ignore[arg-type]
            metric,
            self._hardware(self._ranks or 1),
            "warm",
            "wall",
            name,
        )
        # A program does not tell the resolution of its clock, nor the bytes or FLOPs of its work.
        samples = Samples(tuple(seconds), iterations=1, tick_s=0.0)
        return Measurement(
            key, self._test.test_id, self._test.label(name), "", Work(calls=1), samples
        )

    def _of_test(self, measurement: Measurement) -> Measurement:
        """Return a figure of a tool as one of the test.

        Its key is that of an imported log. The parameters of the test are added to those of the tool.
        """
        hardware = self._hardware(measurement.key.hardware.devices or 1)
        parameters = measurement.key.parameters | self._test.planned.parameters
        key = replace(measurement.key, hardware=hardware, parameters=parameters)  # type: ignore[arg-type]
        work = measurement.work
        ceiling = self._session.under_test.rooflines.ceiling(work, key.metric, hardware)
        return replace(measurement, key=key, label=key.label, device="", ceiling=ceiling)

    def _hardware(self, devices: int) -> HardwareKey:
        """Return the hardware of a figure over so many devices."""
        under_test = self._session.under_test
        if devices == 1:
            return under_test.hardware
        is_cuda = under_test.environment.device.type == "cuda"
        link = kind_among([f"cuda:{index}" for index in range(devices)]) if is_cuda else "unknown"
        return replace(under_test.hardware, devices=devices, link=link)

    def _identify(self) -> None:
        """Add the program to the software of the run.

        It is the hashes of its files, and its version.
        """
        software = identity_of(
            self._command,
            self._around,
            self._printed.text,
            f"version of {self._name}",
        )
        self._programs.software |= software
        under_test = self._session.under_test
        under_test.environment = replace(
            under_test.environment, software=under_test.environment.software | software
        )

    def _record(self, measurement: Measurement) -> ProgramFigure:
        """Record a figure, and return it as its test sees it."""
        session, test = self._session, self._test
        self._claim(measurement.key)
        ranks = measurement.ranks
        if self._ranks is not None:
            ranks = Ranks(self._ranks, self._launcher, "")
        measurement = replace(
            measurement,
            test_id=test.test_id,
            process=session.process,
            round=session.repetition,
            samples=self._drilled(measurement.samples),
            gate=test.marks.gate,
            tolerance=test.marks.tolerance,
            tier=test.marks.tier,
            marks=marks_of(test.item),
            ranks=ranks,
        )
        session.record(with_sanity(measurement, session.under_test.rooflines))
        return _figure_of(measurement)

    def _drilled(self, samples: Samples) -> Samples:
        """Return samples, slower by the share of a drill.

        A drill cannot slow the program itself down, so its figures are made worse instead.
        """
        drill = self._session.options.drill
        if drill is None:
            return samples
        return replace(
            samples,
            seconds=tuple(value * (1 + drill) for value in samples.seconds),
            labels=(*samples.labels, REPLACED),
        )

    def _claim(self, key: Key) -> None:
        """Note that a figure with this key belongs to this test.

        Only one test may measure a key.

        Raises:
            BadInput: another test has such a figure, or this test has it twice.
        """
        test = self._test
        # The figures of a tool differ in more than their names.
        name = key.label if is_of_tool(key.benchmark) else key.name
        test.unique_name("measurement", name or None)
        owner = self._programs.tests.setdefault(key.identity, test.test_id)
        if owner != test.test_id:
            raise BadInput(
                f"{printable(key.label)} is a figure of {printable(owner)} already; give one of both tests a "
                "parameter, which is part of the key"
            )


def _read_tool(
    output: bytes, source: str, figures: ReadPlan, ranks: int | None
) -> list[Measurement]:
    """Return the figures in a tool's output.

    They are read as `roofline import` reads them.

    Args:
        source: the command, which may name what the output does not.
        ranks: that it ran on, where a launcher started it.

    Raises:
        ProgramFailed: a test of the tool failed.
    """
    require("exchange")
    from ..exchange.building import build, user_facts_of
    from ..exchange.formats import read
    from ..exchange.records import UserFacts

    # Other tools print how many devices there were, which need not be one a rank.
    devices = ranks if figures.reader == "osu" else None
    facts = user_facts_of(figures, UserFacts(devices=devices))
    logs = read(output, source, facts, figures.reader)
    failures = [failure for log in logs for failure in log.failed]
    if failures:
        name, reason = failures[0]
        raise ProgramFailed(f"{name}: {reason}")
    return [line for line in build(logs, facts, "", "", ()) if isinstance(line, Measurement)]


def _name_of(figure: ProgramFigure) -> str:
    """Return the name of a figure: `tok/s[llama]`.

    It tells the figure from others of its path.
    """
    cases = "-".join(figure.cases.values())
    return f"{figure.name}[{cases}]" if cases else figure.name


def _figure_of(measurement: Measurement) -> ProgramFigure:
    """Return a measurement as the figure that the program stated.

    That is a rate of a tool, a time of a tool or of the command, or a figure that the test named.
    """
    key, seconds = measurement.key, measurement.samples.seconds
    suffix = rate_suffix(key.metric)
    if suffix is not None:
        # Rates are recorded as the seconds of an amount of work.
        amount = measurement.work.amount(key.metric) or 0.0
        rates = tuple(amount / value / RATE_UNITS[suffix] for value in seconds)
        unit = "TFLOP/s" if suffix == "TFLOPS" else "GB/s"
        return ProgramFigure("higher", measurement.label, {}, rates, unit)
    if key.metric not in ("higher", "lower"):
        return ProgramFigure("lower", measurement.label, {}, seconds, "s")
    direction: Direction = "higher" if key.metric == "higher" else "lower"
    values = tuple(inverse_if_higher(direction, value) for value in seconds)
    return ProgramFigure(direction, key.name, {}, values, unit_of(key.name))
