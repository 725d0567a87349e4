"""The program of `roofline ab --run`: its commands, and the figures that are judged."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..core.errors import BadInput
from ..core.features import require
from ..core.units import parse_duration
from ..figures.plan import ReadPlan, plan_of_options
from ..processes.programs import TIMEOUT_S, program_name
from .sides import SIDES, SideSpec

# What a command may hold in place of a word that differs between the sides.
PYTHON, FOLDER = "{python}", "{folder}"


@dataclass(frozen=True, slots=True)
class CommandPlan:
    """The commands of both sides, and how their figures are read.

    Args:
        commands: by side, as the user wrote it.
        figures: how they are read; without a reader the time of the command is judged.
        prepare: the command that runs before each process, untimed; `cleanup` runs after it.
        shell: whether a shell runs them.
    """

    commands: dict[str, str]
    figures: ReadPlan = field(default_factory=ReadPlan)
    prepare: str = ""
    cleanup: str = ""
    shell: bool = False
    timeout_s: float = TIMEOUT_S

    @property
    def title(self) -> str:
        """The name of the program. It is `command` where the sides run two programs."""
        titles = {program_name(text.split(), PYTHON) for text in self.commands.values()}
        return titles.pop() if len(titles) == 1 else "command"


def make_plan(
    specs: Mapping[str, SideSpec],
    arguments: Sequence[str],
    *,
    run: str | None,
    higher: Sequence[str],
    lower: Sequence[str],
    read: str | None,
    prepare: str | None,
    cleanup: str | None,
    shell: bool,
    timeout: str | None,
) -> CommandPlan | None:
    """Return the plan of a program. It is None where tests are measured.

    Raises:
        BadInput: the options contradict each other or the sides.
    """
    commands = _commands_of(specs, run)
    if not commands:
        options = {
            "--higher": higher,
            "--lower": lower,
            "--read": read,
            "--prepare": prepare,
            "--cleanup": cleanup,
            "--shell": shell,
            "--timeout": timeout,
        }
        if names := [name for name, value in options.items() if value]:
            raise BadInput(f"no command is given for {', '.join(names)}; add --run 'COMMAND'")
        return None
    _refuse_contradictions(specs, arguments, commands, shell=shell)
    plan = plan_of_options(read, higher, lower)
    if plan.facts:
        require("exchange")
        from ..exchange.building import check_plan

        # A fact that cannot be true is refused before a program runs.
        check_plan(plan, "--read")
    return CommandPlan(
        commands=commands,
        figures=plan,
        prepare=prepare or "",
        cleanup=cleanup or "",
        shell=shell,
        timeout_s=TIMEOUT_S if timeout is None else parse_duration(timeout, "--timeout"),
    )


def _commands_of(specs: Mapping[str, SideSpec], run: str | None) -> dict[str, str]:
    """Return the command of each side; empty where tests are measured.

    Raises:
        BadInput: both `--run` and a side give a command.
    """
    commands = {side: spec.value for side, spec in specs.items() if spec.kind == "cmd"}
    if run is None:
        return commands
    if commands:
        raise BadInput(
            "--run was given together with a side cmd:COMMAND; expected a command in only one place"
        )
    return dict.fromkeys(SIDES, run)


def _refuse_contradictions(
    specs: Mapping[str, SideSpec],
    arguments: Sequence[str],
    commands: Mapping[str, str],
    *,
    shell: bool,
) -> None:
    """Raise BadInput for what a command excludes, and for an empty one.

    A command has no arguments of pytest, and no parameter of tests.
    """
    if arguments:
        raise BadInput(
            f"a command was given together with arguments for pytest: {shlex.join(arguments)}; "
            "leave out -- and everything after it"
        )
    if any(spec.parameter for spec in specs.values()):
        raise BadInput(
            "a side param:NAME=VALUE names a parameter of tests, but a command has no tests; expected another side"
        )
    for text in commands.values():
        if not shell and not split_words(text):
            raise BadInput("the command is empty; expected a program and its arguments")


def split_words(text: str) -> list[str]:
    """Return the words of a command, without a shell.

    Raises:
        BadInput: a quotation mark is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise BadInput(
            f"the command {text!r} cannot be split into words ({error}); close the quotation mark"
        ) from None


def fill_words(text: str, values: Mapping[str, str], *, shell: bool) -> list[str]:
    """Return a command to start, with the values of a process.

    They stand in place of their names, such as `{python}`.
    """
    if shell:
        quoted_values = {name: shlex.quote(value) for name, value in values.items()}
        return ["sh", "-c", _fill(text, quoted_values)]
    return [_fill(word, values) for word in split_words(text)]


def _fill(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word
