"""What several commands of `roofline` share."""

from pathlib import Path

import click

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
