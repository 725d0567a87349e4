"""Shared parts of the commands: groups, options, output and exit status."""

import functools
import importlib
import io
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..core.directions import TOOLS
from ..core.errors import NO_TORCH, BadInput, CannotStore, RooflineError
from ..core.facts import HARDWARE_FILE
from ..core.features import FEATURES, not_installed
from ..core.units import printable, without_commands
from ..core.writing import json_text

if TYPE_CHECKING:
    from ..baselines.runs import Run

Command = TypeVar("Command", bound=Callable[..., Any])

# The width of tables where the output is no terminal. It is fixed, so that outputs can be compared.
WIDTH = 80
# The number of labels that are named under each reason for leaving them out.
MOST_NAMED = 3


def json_option_for(help_text: str) -> Callable[[Command], Command]:
    """Return the option `--json` with this help."""
    return click.option("--json", "as_json", is_flag=True, help=help_text)


json_option = json_option_for("Print machine-readable JSON.")
folder_option = click.option(
    "--dir", "folder", type=click.Path(path_type=Path), default=Path(".roofline"), show_default=True,
    help="The folder of saved runs; NAME stands for DIR/runs/NAME.jsonl.",
)  # fmt: skip
into_option = click.option(
    "--into", type=click.Path(path_type=Path), default=Path("baselines"), show_default=True,
    help="The folder of the baseline files, one for each hardware family.",
)  # fmt: skip


def read_options(scope: str) -> Callable[[Command], Command]:
    """Return a decorator for the options on figures.

    These are `--read`, `--higher` and `--lower`, on figures of other programs. `scope` begins the help of each: where
    or when the option counts.
    """

    read_help = f"{scope}: the form, json (default with a figure), csv or regex; or the tool: {', '.join(TOOLS)}."
    options = (
        click.option("--read", metavar="FORM", help=read_help),
        click.option(
            "--higher",
            multiple=True,
            metavar="[NAME=]PATH",
            help=f"{scope}: a figure of which more is better (repeatable).",
        ),
        click.option(
            "--lower",
            multiple=True,
            metavar="[NAME=]PATH",
            help=f"{scope}: a figure of which less is better (repeatable).",
        ),
    )

    def decorate(function: Command) -> Command:
        """Return a command with the options."""
        # Decorators apply from the last to the first.
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def command(
    *shared_options: Callable[..., Any], name: str | None = None,
    json_option: Callable[..., Any] = json_option, **settings: Any,
) -> Callable[[Callable[..., int | None]], click.Command]:  # fmt: skip
    """Return a decorator that makes a command of a function.

    In the help the command's own options come first, then `--json` and the shared options. The return value of the
    function is the exit status, None is 0.
    """

    def decorate(function: Callable[..., int | None]) -> click.Command:
        """Return a command that exits with the function's status."""

        @functools.wraps(function)
        def run(*args: Any, **options: Any) -> None:
            sys.exit(function(*args, **options) or 0)

        parameters: list[click.Parameter] = getattr(function, "__click_params__", [])
        # click keeps the parameters of a function in `__click_params__`. Decorators apply from the last to the first,
        # so click reverses the parameters. The options that come last in the help are added first here.
        run.__click_params__ = []  # type: ignore[attr-defined]
        for option in reversed((json_option, *shared_options)):
            option(run)
        run.__click_params__ += parameters  # type: ignore[attr-defined]
        make: Callable[[Callable[..., None]], click.Command] = click.command(name, **settings)
        return make(run)

    return decorate


def use_hardware_of(ctx: click.Context, folders: tuple[Path, ...]) -> None:
    """Use the hardware.json of these folders until the command ends.

    Most folders have none; then the slow import is saved.
    """
    if any((folder / HARDWARE_FILE).exists() for folder in folders):
        from ..hardware import use_hardware

        ctx.call_on_close(use_hardware(folders))


# Raised by click from version 8.2 on, to show the help of a group without a command. Older versions lack the class;
# BrokenPipeError takes its place here, as it is caught anyway.
_HELP = getattr(click.exceptions, "NoArgsIsHelpError", BrokenPipeError)


# Words of the documentation that pytest does and no command here, with the call to type.
OF_PYTEST = {
    "gate": "pytest perf_tests --roofline-ci",
    "record": "pytest perf_tests --roofline-record",
}


class Commands(click.Group):
    """A group that imports a command when it is needed, and turns our own errors into exit status 2.

    `sections` holds the commands by the title of their section, in the order of the help. Each has the place of its
    function, such as `cli.runs:compare`, and its line of the help.
    """

    def __init__(
        self, *args: Any, sections: Mapping[str, Mapping[str, tuple[str, str]]], **settings: Any
    ) -> None:
        super().__init__(*args, **settings)
        self._places = {
            name: place for section in sections.values() for name, (place, _) in section.items()
        }
        # Commands of features whose folder was removed.
        self._missing = {name for name, place in self._places.items() if not _is_installed(place)}
        self._sections = {
            title: {name: line for name, (_, line) in section.items() if name not in self._missing}
            for title, section in sections.items()
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every installed command, in the order of the sections."""
        # click passes the context, which is not needed here.
        del ctx
        return [name for section in self._sections.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of a command, and return the command; None if unknown.

        Raises:
            BadInput: the command belongs to a feature whose folder was removed.
        """
        if cmd_name in self._missing:
            raise BadInput(not_installed(f"the command {cmd_name}"))
        if cmd_name not in self._places:
            # A command that was added to the group after it was made, if any.
            return super().get_command(ctx, cmd_name)
        module, _, name = self._places[cmd_name].partition(":")
        click_command: click.Command = getattr(
            importlib.import_module(f"..{module}", __package__), name
        )
        return click_command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every command on a line of its section."""
        # click passes the context, which is not needed here.
        del ctx
        # All sections have the same width, so that their lines are aligned.
        widest = max(map(len, self._places), default=0)
        for title, section in self._sections.items():
            if section:
                with formatter.section(title):
                    formatter.write_dl(
                        [(name.ljust(widest), line) for name, line in section.items()]
                    )

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run as click does.

        A character that the encoding of standard output lacks is printed as a question mark.
        """
        if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
            sys.stdout.reconfigure(errors="replace")
        return super().main(*args, **settings)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Print our own errors as a sentence, and exit with status 2."""
        try:
            if sys.stdout is None:
                raise CannotStore(
                    "standard output is closed; redirect standard output to a file, such as /dev/null"
                )
            return super().invoke(ctx)
        except (BrokenPipeError, _HELP):
            # click handles both: a pipe that its reader closed, as `head` does, and the help of a group.
            raise
        except (RooflineError, click.UsageError, ModuleNotFoundError, OSError) as error:
            say(f"roofline: {_sentence(error)}", err=True)
            ctx.exit(2)


def _is_installed(place: str) -> bool:
    """Return True for a command that is present.

    It is one of `cli`, or of a feature whose folder is there.
    """
    module, _, name = place.partition(":")
    folder = module.partition(".")[0]
    return folder == "cli" or name in FEATURES.get(folder, ())


def _usage(error: click.UsageError) -> str:
    """Return a mistake in the arguments as a sentence.

    It ends with the command to type.
    """
    path, help_text = "roofline", ""
    if error.ctx is not None:
        path, help_text = error.ctx.command_path, error.ctx.command.help or ""
    text = error.format_message().rstrip(".")
    unknown_command = re.match(r"No such command '(?P<name>\w+)'", text)
    if unknown_command is not None and unknown_command["name"] in OF_PYTEST:
        name = unknown_command["name"]
        return f"no such command '{name}'; type, for example: {OF_PYTEST[name]}"
    # Messages of click begin with a capital, but ours follow `roofline: `.
    text = f"{text[0].lower()}{text[1:]}"
    example = re.search("Example: (?P<command>.*)", help_text)
    if isinstance(error, click.MissingParameter) and example is not None:
        return f"{text}; type, for example: {example['command']}"
    return f"{text} Type: {path} --help" if text.endswith("?") else f"{text}; type: {path} --help"


def _sentence(error: Exception) -> str:
    """Return an error as one line.

    A missing module other than torch is a bug here, so its error is raised again.
    """
    if isinstance(error, click.UsageError):
        return printable(_usage(error))
    if isinstance(error, ModuleNotFoundError):
        if error.name != "torch":
            raise error
        return NO_TORCH
    if isinstance(error, OSError):
        # An error without a file name comes from a stream, mostly standard output.
        where = "" if error.filename is None else f"{error.filename}: "
        return printable(f"{where}{error.strerror or error}")
    return printable(str(error))


def say(text: str = "", *, err: bool = False) -> None:
    """Print lines for a person, without control characters.

    All commands print through this function, so that no text of a file can control the terminal. On a terminal colours
    are kept; the caller has made the texts between them printable.
    """
    is_coloured = not err and sys.stdout.isatty()
    clean = without_commands if is_coloured else printable
    click.echo("\n".join(clean(line) for line in text.split("\n")), err=err)


def print_json(plain: Any) -> None:
    """Print one JSON document as the whole of standard output.

    It is ASCII, since the name of a file may contain bytes that are not UTF-8.
    """
    print_document(json_text(plain, ensure_ascii=True))


def print_document(text: str) -> None:
    """Print a whole document on standard output, always in UTF-8."""
    click.echo(text.encode(), nl=False)


def note_cuts(runs: "Iterable[Run]") -> None:
    """Print a note for each run that is cut.

    Such a run ends inside a line. The note goes to standard error.
    """
    from ..baselines.runs import cut_note

    for run in runs:
        if run.cut:
            say(printable(f"note: {cut_note(run.path)}"), err=True)


def width() -> int:
    """Return the width of tables: the terminal's, else 80 columns."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH
