"""The program of `roofline ab --run`: its commands, and the figures that are judged."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..core.errors import BadInput
from ..core.features import require
from ..core.units import parse_duration
from ..figures.reading import READERS, FigurePath, parse_path
from ..processes.programs import TIMEOUT_S, program_name
from .sides import SIDES, SideSpec

if TYPE_CHECKING:
    from ..exchange.records import UserFacts

# What a command may hold in place of a word that differs between the sides.
PYTHON, FOLDER = "{python}", "{folder}"
# What a user may say of the output of a tool.
FACTS = ("product", "devices", "link", "operation", "unit")


@dataclass(frozen=True, slots=True)
class CommandPlan:
    """The commands of both sides, and how their figures are read.

    Args:
        commands: by side, as the user wrote it.
        reader: a form of text, or the name of a tool; empty where the time of the command is judged.
        paths: the figures; none of a tool, which has its own.
        prepare: the command that runs before each process, untimed; `cleanup` runs after it.
        shell: whether a shell runs them.
        facts: what the user says of a tool's output that it does not say itself.
    """

    commands: dict[str, str]
    reader: str = ""
    paths: tuple[FigurePath, ...] = ()
    prepare: str = ""
    cleanup: str = ""
    shell: bool = False
    timeout_s: float = TIMEOUT_S
    facts: dict[str, str] = field(default_factory=dict)

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
    default_reader = "json" if higher or lower else ""
    # The name of a tool may be followed by facts: osu,devices=8.
    reader, *settings = (read or default_reader).split(",")
    return CommandPlan(
        commands=commands,
        reader=reader,
        paths=_parse_paths(reader, higher, lower),
        prepare=prepare or "",
        cleanup=cleanup or "",
        shell=shell,
        timeout_s=TIMEOUT_S if timeout is None else parse_duration(timeout, "--timeout"),
        facts=_parse_facts(reader, settings),
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


def _parse_paths(
    reader: str, higher: Sequence[str], lower: Sequence[str]
) -> tuple[FigurePath, ...]:
    """Return the figures to read from the output, as a user names them.

    It is empty for a tool, which has figures of its own, and where only the time of the command is measured.
    """
    tools = _tools() if reader and reader not in READERS else ()
    if reader and reader not in (*READERS, *tools):
        raise BadInput(f"--read is {reader!r}; expected one of {', '.join((*READERS, *tools))}")
    if reader in tools and (higher or lower):
        raise BadInput(
            f"--read={reader} takes the tool's own figures; leave --higher and --lower out"
        )
    if reader in READERS and not (higher or lower):
        raise BadInput(
            f"--read={reader} was given without a figure; add --higher PATH or --lower PATH"
        )
    return (
        *(parse_path(reader, "higher", text) for text in higher),
        *(parse_path(reader, "lower", text) for text in lower),
    )


def _tools() -> tuple[str, ...]:
    """Return the names of the tools whose output `roofline import` reads."""
    require("exchange")
    from ..exchange.formats import NAMES

    return tuple(NAMES)


def _parse_facts(reader: str, settings: Sequence[str]) -> dict[str, str]:
    """Return the facts behind the name of a tool, as `devices=8`.

    Their names are those of the options of `roofline import`.
    """
    facts: dict[str, str] = {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if reader in ("", *READERS) or name not in FACTS or not value:
            expected = ", ".join(f"{fact}=…" for fact in FACTS)
            raise BadInput(
                f"--read has {setting!r} after {reader!r}; expected the name of a tool, then {expected}"
            )
        facts[name] = value
    if facts:
        user_facts_of(facts)
    return facts


def user_facts_of(facts: Mapping[str, str]) -> "UserFacts":
    """Return the facts of a plan as `roofline import` takes them.

    Raises:
        BadInput: a fact cannot be true, such as a number of devices that is no number.
    """
    require("exchange")
    from ..exchange.building import check_user_facts
    from ..exchange.records import UserFacts

    devices = facts.get("devices")
    if devices is not None and not devices.isdecimal():
        raise BadInput(f"--read has devices={devices}; expected a whole number")
    values: dict[str, Any] = {**facts}
    if devices is not None:
        values["devices"] = int(devices)
    return check_user_facts(UserFacts(**values))


def _refuse_contradictions(
    specs: Mapping[str, SideSpec],
    arguments: Sequence[str],
    commands: Mapping[str, str],
    *,
    shell: bool,
) -> None:
    """Raise BadInput for arguments of pytest, or a parameter of tests, beside a command; and for an empty command."""
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
    """Return a command to start, with the values of a process in place of their names, such as `{python}`."""
    if shell:
        for name, value in values.items():
            text = text.replace(name, shlex.quote(value))
        return ["sh", "-c", text]
    return [_fill(word, values) for word in split_words(text)]


def _fill(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word
