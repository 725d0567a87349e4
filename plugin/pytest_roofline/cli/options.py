"""What several commands of `roofline` share."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

# Where the output is no terminal, so that two runs of a command can be compared.
WIDTH = 80

folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=Path(".roofline"),
    show_default=True,
    help="Where runs are kept; a NAME means DIR/runs/NAME.jsonl.",
)
into_option = click.option(
    "--into",
    type=click.Path(path_type=Path),
    default=Path("baselines"),
    show_default=True,
    help="The folder that holds one baseline file a hardware family.",
)


def json_option_for(what: str) -> Callable[[Command], Command]:
    """The option `--json`, whose help says what is printed."""
    return click.option("--json", "as_json", is_flag=True, help=what)


json_option = json_option_for("Print machine-readable JSON.")


def print_json(plain: Any) -> None:
    """One JSON document on standard output, which then holds nothing else.

    In ASCII, since the name of a file may hold bytes that are no text.
    """
    print_document(json.dumps(plain, indent=2, allow_nan=False) + "\n")


def print_document(text: str) -> None:
    """A whole file on standard output: in UTF-8, whatever a terminal takes here."""
    click.echo(text.encode(), nl=False)


def width() -> int:
    """Columns for tables: the terminal's."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH
