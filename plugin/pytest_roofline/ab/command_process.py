"""A process of a side that is a program: it runs, its figures are read, and a run file holds them."""

import contextlib
import os
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..baselines.runs import Line, encode_line, new_run_id, now
from ..core.errors import BadFile, BadInput, ProgramFailed
from ..core.facts import Environment
from ..core.features import require
from ..core.keys import JOB_METRIC, Key
from ..core.records import Footer, Header, Measurement, Outcome
from ..core.samples import Samples
from ..core.units import printable
from ..core.work import Work
from ..figures.reading import READERS, read_figures
from ..hardware import key_of
from ..processes.children import ChildEnd
from ..processes.programs import OUT, Printed, Surroundings
from ..processes.system import last_words
from ..version import __version__
from .command_identity import environment_of
from .command_plan import FOLDER, PYTHON, CommandPlan, fill_words
from .sides import PreparedSide

# How the files are called that hold what a program printed and wrote.
PRINTED = "printed"


def run_program(
    plan: CommandPlan, name: str, side: PreparedSide, folder: Path, ids: Sequence[str] | None
) -> ChildEnd:
    """Run a program once, and write a run file of its figures.

    If the program fails, all figures fail: those in `ids`, else one that has the name of the program.

    Args:
        plan: the commands of both sides, and how their figures are read.
        side: the interpreter, folder and variables of the process.
        name: of the side, `A` or `B`.
        folder: an empty one, which gets the run file and what the program prints.
        ids: the figures that are undecided; None where no figure is known yet.
    """
    process = _ProgramProcess(plan, name, side, folder)
    reason, status = "", 0
    lines: list[Line] = []
    try:
        lines = process.measure()
    except ProgramFailed as failure:
        reason, status = printable(str(failure)), failure.status or 0
    except (BadFile, BadInput) as error:
        reason = printable(str(error))
    test_ids = tuple(line.test_id for line in lines if isinstance(line, Outcome))
    if reason:
        test_ids = tuple(ids or (plan.title,))
        lines = [Outcome(test_id, "failed", reason=reason) for test_id in test_ids]
    process.write(lines)
    return ChildEnd(test_ids, test_ids, status, process.last_words)


class _ProgramProcess:
    """One process of a program."""

    def __init__(self, plan: CommandPlan, name: str, side: PreparedSide, folder: Path) -> None:
        """Prepare a process of the side `name`, `A` or `B`. Its files go into `folder`."""
        self._plan, self._side, self._folder = plan, side, folder
        self._text, self._printed = plan.commands[name], Printed(folder / PRINTED)
        # What stands for itself in a command: {python}, {folder} and {out}.
        self._values = {PYTHON: side.python, FOLDER: str(side.cwd), OUT: str(self._printed.out)}
        # Programs of the side's environment are found first.
        places = (str(Path(side.python).parent), side.environ.get("PATH", os.defpath))
        self._side = replace(side, environ=side.environ | {"PATH": os.pathsep.join(places)})
        self._id = uuid.uuid4().hex
        self._environment: Environment | None = None

    @property
    def last_words(self) -> str:
        """The last lines that it printed, those on standard error behind the others."""
        return last_words(self._printed.text)

    @property
    def environment(self) -> Environment:
        """The environment of the process, with the identity of the program."""
        if self._environment is None:
            # The path of the output differs in each process, and is no part of the program.
            values = self._values | {OUT: ""}
            words = fill_words(self._text, values, shell=self._plan.shell)
            if self._plan.shell:
                # The words are sh, -c and a text for the shell, whose quotation marks need not be closed.
                *_, text = words
                words = text.split()
            self._environment = environment_of(self._side, words, self._printed.text)
        return self._environment

    def measure(self) -> list[Line]:
        """Run the program between `--prepare` and `--cleanup`. Return its figures and their outcomes.

        Raises:
            ProgramFailed: a command did not start, ended with another status than 0, or hung.
            BadFile: the output holds no such figures.
        """
        try:
            self._run(self._plan.prepare, "the --prepare command", "prepare")
            seconds = self._run(self._text, "the program", PRINTED)
            lines = self._lines(seconds)
        except BaseException:
            # The first failure is the one to tell.
            with contextlib.suppress(ProgramFailed):
                self._run(self._plan.cleanup, "the --cleanup command", "cleanup")
            raise
        self._run(self._plan.cleanup, "the --cleanup command", "cleanup")
        return lines

    def _run(self, text: str, subject: str, name: str) -> float:
        """Run a command to its end, and return the seconds that it took."""
        if not text:
            return 0.0
        words = fill_words(text, self._values, shell=self._plan.shell)
        around = Surroundings(self._side.cwd, self._side.environ, self._plan.timeout_s)
        return Printed(self._folder / name).run(words, around, subject)

    def _lines(self, seconds: float) -> list[Line]:
        """Return the figures of the program, and an outcome of each.

        `seconds` is the time of the command, which is the figure where none is read from the output.
        """
        reader, paths = self._plan.figures.reader, self._plan.figures.paths
        if not reader:
            measurements = [self._measurement("", {}, JOB_METRIC, (seconds,))]
        elif reader in READERS:
            text = self._output().decode("utf-8", "replace")
            measurements = [
                self._measurement(figure.name, figure.cases, figure.direction, figure.seconds)
                for figure in read_figures(text, reader, paths)
            ]
        else:
            return self._tool_lines()
        return [*measurements, *(Outcome(line.test_id, "passed") for line in measurements)]

    def _measurement(
        self, name: str, cases: dict[str, str], metric: str, seconds: Sequence[float]
    ) -> Measurement:
        """Return a figure as a measurement.

        Args:
            name: of the figure; empty for the time of the command.
            cases: what tells the figure from others of its path, as parameters of the key.
            metric: the direction of the figure, or that of times of commands.
            seconds: samples; of a figure for which higher is better, the inverse of each.
        """
        key = Key(
            self._plan.title, {**cases}, metric, key_of(self.environment), "warm", "wall", name
        )
        return Measurement(
            key=key,
            test_id=key.label,
            label=key.label,
            process=self._id,
            work=Work(calls=1),
            samples=Samples(tuple(seconds), 1, 0.0),
        )

    def _tool_lines(self) -> list[Line]:
        """Return the figures of a known tool as `import` reads them."""
        require("exchange")
        from ..exchange.building import UNKNOWN, build, mark_impossible, user_facts_of
        from ..exchange.formats import read as read_logs
        from ..exchange.records import UserFacts

        figures, command = self._plan.figures, printable(self._text)
        facts = user_facts_of(figures, UserFacts())
        # Its command may name the collective where its output does not.
        logs = mark_impossible(read_logs(self._output(), command, facts, figures.reader), facts)
        logs = [replace(log, source=self._plan.title) for log in logs]
        header, *lines = build(logs, facts, "", "", ())
        assert isinstance(header, Header)
        environment, here = header.environment, self.environment
        self._environment = replace(
            here,
            software=here.software | environment.software,
            device=here.device if environment.device.product == UNKNOWN else environment.device,
        )
        return [
            replace(line, process=self._id) if isinstance(line, Measurement) else line
            for line in lines
            if isinstance(line, Measurement | Outcome)
        ]

    def _output(self) -> bytes:
        """Return what the program wrote.

        That is the file that it was given, or standard output.
        """
        return self._printed.output(from_out=OUT in self._text)

    def write(self, lines: Sequence[Line]) -> None:
        """Write the run file of the process."""
        words = tuple(fill_words(self._text, self._values, shell=self._plan.shell))
        tool = f"pytest-roofline {__version__}"
        measured = sum(isinstance(line, Measurement) for line in lines)
        header = Header(new_run_id(), now(), words, tool, self.environment)
        (self._folder / "runs").mkdir()
        text = "".join(map(encode_line, [header, *lines, Footer(now(), 0, measured)]))
        (self._folder / "runs" / "run.jsonl").write_text(text, encoding="utf-8")
