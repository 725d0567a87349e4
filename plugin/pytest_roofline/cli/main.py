"""The command `roofline` and its exit status. 0 is fine, 1 is a finding, 2 is bad input."""

from pathlib import Path

import click

from ..ab.cli import ab
from ..core.errors import BadInput
from ..core.facts import HARDWARE_FILE
from ..many.cli import fleet, history
from ..version import __version__
from .baseline import baseline
from .drill import drill
from .exchange import export, import_
from .machine import doctor, hardware
from .options import Commands, use_hardware_of
from .output import init, report
from .profiler import profiler
from .runs import compare, explain


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="roofline")
@click.option(
    "--hardware", "extra_folders", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
    help="A folder whose hardware.json is read before that of ./baselines and the shipped one (repeatable).",
)  # fmt: skip
@click.pass_context
def main(ctx: click.Context, extra_folders: tuple[Path, ...]) -> None:
    """Is this machine as fast as it should be? Offline companion of the pytest plugin.

    `roofline COMMAND --help` has an example of each. Exit status of every command: 0 all is well or done, 1 it found
    what it looks for (a regression, a flaw), 2 the input cannot be used; standard error says why in a sentence.
    """
    for folder in extra_folders:
        if not (folder / HARDWARE_FILE).exists():
            raise BadInput(
                f"--hardware is {folder}, a folder without {HARDWARE_FILE}; expected a folder that holds one"
            )
    ctx.obj = folders = (*extra_folders, Path("baselines"))
    # These two read such files themselves: one of them lists all mistakes in a file.
    if ctx.invoked_subcommand not in ("hardware", "baseline"):
        use_hardware_of(ctx, folders)


_COMMANDS = (
    baseline, compare, doctor, drill, explain, export, hardware, import_, init, profiler, report,
    # A feature in a folder of its own has its import above and a line here; the rest works without it.
    ab,
    *(fleet, history),
)  # fmt: skip
for _command in _COMMANDS:
    main.add_command(_command)
