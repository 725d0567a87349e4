"""What several commands of `roofline` share."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import click

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


json_option = click.option("--json", "as_json", is_flag=True, help="Print machine-readable JSON.")


def print_json(plain: Any) -> None:
    """One JSON document on standard output, which then holds nothing else."""
    click.echo(json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False))


def width() -> int:
    """Columns for tables: the terminal's."""
    return shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH
