"""The command `roofline` and its exit status. 0 is fine, 1 is a finding, 2 is bad input."""

from pathlib import Path

import click

from ..core.errors import BadInput
from ..core.facts import HARDWARE_FILE
from ..version import __version__
from .options import Commands, use_hardware_of

# Commands by section, in the order of use: the place of the function, which is imported when the command is called,
# and the line of the help.
SECTIONS = {
    "See a run": {
        "report": (
            "cli.output:report",
            "Write runs as a page with plots, a table and a summary.",
        ),
        "explain": ("cli.runs:explain", "Show why each verdict of a run is what it is."),
        "profiler": (
            "observe.cli:profiler",
            "Show the totals of nsys or rocprofv3 beside measured times.",
        ),
    },
    "Compare runs": {
        "compare": (
            "cli.runs:compare",
            "Compare a run with another run or a baseline.",
        ),
        # Commands of a feature: the others work if its folder is removed.
        "history": ("many.cli:history", "Show when tests became faster or slower over many runs."),
        "rollout": (
            "many.cli:rollout",
            "Judge a change on some nodes against nodes without the change.",
        ),
        "fleet": ("many.cli:fleet", "Find the node, GPU or link that is slower than its peers."),
    },
    "Keep baselines": {
        "init": (
            "cli.output:init",
            "Write the suite, the baselines and a CI file into a folder.",
        ),
        "baseline": ("cli.baseline:baseline", "Make, renew and check baselines."),
    },
    "Gate": {
        "ab": ("ab.cli:ab", "Measure two sides of a change in turn and compare them."),
        "bisect": (
            "bisect.cli:bisect",
            "Find the version, commit or difference that made the tests slower.",
        ),
        "drill": ("cli.drill:drill", "Slow every test down and check that the gate fails."),
    },
    "Look at the machine": {
        "doctor": ("cli.machine:doctor", "List what makes times of this machine unreliable."),
        "hardware": (
            "cli.machine:hardware",
            "List known hardware, or show one product with sources.",
        ),
    },
    "Share": {
        "export": (
            "exchange.cli:export",
            "Write runs as files for dashboards and other gates.",
        ),
        "import": ("exchange.cli:import_", "Read files of other tools into a run."),
    },
}


@click.group(
    cls=Commands, sections=SECTIONS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="roofline")
@click.option(
    "--hardware", "extra_folders", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
    help="A folder whose hardware.json counts before those of ./baselines and of pytest-roofline (repeatable).",
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
                f"--hardware is {folder}, a folder without {HARDWARE_FILE}; expected a folder that holds this file"
            )
    ctx.obj = folders = (*extra_folders, Path("baselines"))
    # These two read hardware.json themselves: `baseline check` lists all mistakes in it.
    if ctx.invoked_subcommand not in ("hardware", "baseline"):
        use_hardware_of(ctx, folders)
