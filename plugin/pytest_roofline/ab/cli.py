"""`roofline ab`: two sides of a change, measured in turn and judged without a stored baseline."""

import contextlib
import datetime
import random
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import click
from click.core import ParameterSource

from ..baselines.run_files import refuse_existing
from ..cli.options import (
    Command,
    command,
    folder_option,
    print_json,
    read_options,
    say,
    width,
)
from ..core.errors import BadInput
from ..core.storage import check_name
from ..core.units import parse_duration, printable
from ..core.writing import write_atomically
from .command_plan import make_plan
from .making import CommandError
from .results import SidesResults, State, read_state, run_name, save_state, state_folder
from .running import Runner
from .sides import NOTHING, PLUGIN, SIDES, parse_sides, pin_commit, prepare_sides
from .telling import make_report, report_as_json, report_markdown, report_text
from .tolerance import tolerance_in_force

# The number of processes of a side, unless all tests are decided earlier.
DEFAULT = 8
# The signals that interrupt a run: Ctrl-C, and the end of a job.
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


# The options of a program that is run in place of tests.
_PROGRAM_OPTIONS = (
    click.option(
        "--run",
        metavar="COMMAND",
        help="Measure this program in place of tests. In COMMAND, {python} stands for the side's interpreter, {folder} "
        "for its folder and {out} for a file that the program writes its figures to.",
    ),
    read_options("With --run"),
    click.option(
        "--prepare",
        metavar="COMMAND",
        help="With --run: a command to run before each process of the program, untimed.",
    ),
    click.option(
        "--cleanup",
        metavar="COMMAND",
        help="With --run: a command to run after each process of the program, untimed.",
    ),
    click.option("--shell", is_flag=True, help="With --run: run the commands in a shell."),
    click.option(
        "--timeout",
        metavar="DURATION",
        help="With --run: kill a command after this time: 90s or 30m (default: 1h).",
    ),
)


def program_options(function: Command) -> Command:
    """Add the options of a program to a command."""
    for option in reversed(_PROGRAM_OPTIONS):
        function = option(function)
    return function


@command(folder_option)
@click.argument("a", default="")
@click.argument("b", default="")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--processes", type=int, default=DEFAULT, show_default=True,
              help="Most processes of each side, an even number up to 12; spoiled ones are replaced.")  # fmt: skip
@click.option(
    "--budget",
    metavar="DURATION",
    help="Start no further block of processes after this time: 1800 (seconds), 30m or 1h.",
)
@click.option(
    "--tolerance",
    help="Largest slowdown that passes: 5% or 0.05 (default: 5%, on a CPU 15%). The option "
    "--roofline-tolerance after -- means the same.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    help="Seed of the random order of the processes (default: a random number).",
)
@click.option("--name", help="Name of the run (default: made from the time).")
@click.option("--resume", metavar="NAME", help="Continue a run that was interrupted.")
@click.option(
    "--markdown",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the report to FILE as Markdown, for a comment on a pull request.",
)
@program_options
def ab(
    a: str, b: str, arguments: tuple[str, ...], budget: str | None, resume: str | None, markdown: Path | None,
    as_json: bool, folder: Path, **settings: Any,
) -> int:  # fmt: skip
    """Measure side A, the base, and side B in turn by fresh processes on one device, and judge each test.

    A side is one of

    \b
    .                            the code as it stands
    commit:REF[,build=COMMAND]   a commit, or a branch; REF alone is one too
    merge-base[:BRANCH]          where the branch at hand left the one it goes into
    python:PATH                  another interpreter, or environment
    with:REQUIREMENT             another version of a package (by uv, else by pip)
    lock:FILE                    an environment of its own (by uv)
    var:NAME=VALUE               an environment variable
    param:NAME=VALUE             on both sides: two values of a parameter of the tests
    cmd:COMMAND                  on both sides: two commands, in place of --run

    ARGUMENTS, behind --, are pytest's; both sides get them. Each test is measured until its verdict is out; compiled
    kernels are compared exactly, without a GPU. Both sides are saved as runs, NAME-a and NAME-b. With --run the
    figures of any program are judged in place of tests, or without --higher, --lower and --read its time.

    Example: roofline ab merge-base . -- perf_tests -k memcpy

    Example: roofline ab main . --run '{python} bench.py' --higher tokens/s=throughput

    Exit status: 0 nothing is slower on B, 1 something is, or fails there alone, 2 it cannot tell: nothing was
    compared, what is undecided looks slower than its tolerance, or the input cannot be used.
    """
    if resume is not None:
        refuse_beside_resume("ab", settings, (a, b, *arguments))
        state = read_state(folder, check_name(resume, "--resume"), State)
        require_folder(state.name, state.cwd)
        return _run(state, folder, budget, markdown, as_json)
    if not b:
        raise BadInput(
            "a side is missing; expected two sides, A and B; "
            "type, for example: roofline ab merge-base . -- perf_tests -k memcpy"
        )
    return _run(_new_state(folder, a, b, arguments, **settings), folder, budget, markdown, as_json)


def _new_state(
    folder: Path, a: str, b: str, arguments: tuple[str, ...], *, processes: int, tolerance: str | None,
    seed: int | None, name: str | None, **program: Any,
) -> State:  # fmt: skip
    """Return the state of a new run, from the options of `roofline ab`.

    Raises:
        BadInput: a run has this name, or an option cannot be used.
    """
    plan = make_plan(dict(zip(SIDES, parse_sides(a, b), strict=True)), arguments, **program)
    if name is not None:
        check_name(name, "--name")
        for side in SIDES:
            refuse_existing(folder, run_name(name, side))
    name = free_name("ab", name, folder)
    return State(
        name=name,
        sides=(a, b),
        arguments=arguments,
        cwd=str(Path.cwd().resolve()),
        seed=random.randrange(2**16) if seed is None else seed,
        processes=processes,
        tolerance=tolerance_in_force(tolerance, arguments),
        program=plan,
    )


def free_name(command_name: str, name: str | None, folder: Path) -> str:
    """Return the name of a new run of `ab` or `bisect`.

    It is the user's, or one made from the time.

    Raises:
        BadInput: a run of this command has the name.
    """
    # To the microsecond, so that two in a second have names of their own.
    made_name = f"{command_name}-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S.%f}"
    name = check_name(made_name if name is None else name, "--name")
    if state_folder(folder, name, command_name).exists():
        raise BadInput(
            f"a run named {name!r} exists already; continue that run with --resume {name}, or choose another --name"
        )
    return name


def refuse_beside_resume(
    command_name: str, settings: Iterable[str], arguments: Iterable[str]
) -> None:
    """Raise BadInput for an option or an argument beside --resume.

    A resumed run keeps its own. `settings` are the names of the options of the command.
    """
    source_of = click.get_current_context().get_parameter_source
    options = [
        f"--{option.replace('_', '-')}"
        for option in settings
        if source_of(option) is ParameterSource.COMMANDLINE
    ]
    options += ["sides and arguments"] if any(arguments) else []
    if options:
        raise BadInput(
            f"--resume was given together with {', '.join(options)}; a resumed run keeps its options, so type only: "
            f"roofline {command_name} --resume NAME"
        )


def require_folder(name: str, cwd: str) -> None:
    """Raise BadInput for a resumed run of another folder.

    It must be the one in which the run began.
    """
    if str(Path.cwd().resolve()) != cwd:
        raise BadInput(f"run {name} was started in the folder {cwd}; resume the run in that folder")


def resume_text(command_name: str, name: str, folder: Path) -> str:
    """Return the command line that continues a run of `ab` or `bisect`."""
    text = f"roofline {command_name} --resume {name}"
    return f"{text} --dir {shlex.quote(str(folder))}" if folder != Path(".roofline") else text


@contextlib.contextmanager
def running_sides() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first Ctrl-C or SIGTERM.

    So no process of a side stays behind. Further ones are ignored while this context is open, so that nothing cuts the
    clean-up short. A signal that was ignored before stays so. Of a command that failed for a side the last lines are
    printed.
    """
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in handlers.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        yield
    except CommandError as error:
        for text in error.lines.splitlines():
            say(printable(f"    {text}"), err=True)
        raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _run(
    state: State, folder: Path, budget: str | None, markdown: Path | None, as_json: bool
) -> int:
    """Prepare both sides, run them, and print the report. Return the exit status.

    An interrupted run keeps and reports its measurements, and names the command that continues it. SIGTERM counts as
    an interruption.
    """
    budget_s = None if budget is None else parse_duration(budget, "--budget")
    specs = dict(zip(("A", "B"), parse_sides(*state.sides), strict=True))
    # A run that goes on measures the commits that its branches meant when it began.
    specs = {side: pin_commit(spec, state.commits.get(side, "")) for side, spec in specs.items()}
    interrupted, began_s = False, time.monotonic()
    resume_command = resume_text("ab", state.name, folder)
    try:
        # The interpreter of a side that runs a program need not have this plugin.
        module = PLUGIN if state.program is None else NOTHING
        with running_sides(), prepare_sides(specs, Path(state.cwd), module) as sides:
            state = replace(
                state,
                commits={side: setup.commit for side, setup in sides.items() if setup.commit},
            )
            save_state(state_folder(folder, state.name), state)
            results = SidesResults(
                folder, state, {side: spec.parameter for side, spec in specs.items()}
            )
            runner = Runner(results, sides, _tell, began_s)
            try:
                paired_by_twin = runner.run(budget_s)
            except KeyboardInterrupt:
                # Without a test on both sides and a process there is nothing to report.
                if not (results.twins and results.state.taken):
                    raise
                interrupted, paired_by_twin = True, runner.judge(state.processes, ended=False)
            report = make_report(results, paired_by_twin, sides, interrupted=interrupted)
    except KeyboardInterrupt:
        has_state = state_folder(folder, state.name).exists()
        advice = f"; continue with: {resume_command}" if has_state else ""
        _tell(f"interrupted before the first process{advice}")
        return 2
    if markdown is not None:
        write_atomically(markdown, report_markdown(report))
    if as_json:
        print_json(report_as_json(report))
    else:
        say(report_text(report, width(), sys.stdout.isatty()))
    if interrupted:
        _tell(f"interrupted; the measurements are kept; continue with: {resume_command}")
    return report.status


def _interrupt(*_: object) -> NoReturn:
    """Ignore further signals, and raise KeyboardInterrupt. The signal and its frame are not used."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _tell(text: str) -> None:
    """Print a line on standard error."""
    say(printable(f"roofline ab: {text}"), err=True)
