"""`roofline bisect`: which version, which commit or which difference made it slower."""

import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from ..ab.cli import (
    free_name,
    program_options,
    refuse_beside_resume,
    require_folder,
    resume_text,
    running_sides,
)
from ..ab.command_plan import make_plan
from ..ab.results import read_state, save_state, state_folder
from ..ab.sides import SIDES, SideSpec
from ..ab.tolerance import tolerance_in_force
from ..baselines.run_files import run_path
from ..baselines.runs import read_run
from ..cli.options import command, folder_option, print_json, say
from ..core.errors import BadInput
from ..core.storage import check_name
from ..core.units import count, parse_duration, printable
from .candidates import EXPECTED, row_between
from .differences import SettingGroup, group_text, groups_between
from .environments import set_variables
from .searching import Search
from .state import BisectState

# By option, the variables of pip and of uv that say the same.
_INDEX = {
    "index_url": ("PIP_INDEX_URL", "UV_DEFAULT_INDEX"),
    "find_links": ("PIP_FIND_LINKS", "UV_FIND_LINKS"),
}
_PRE = {"PIP_PRE": "1", "UV_PRERELEASE": "allow"}
# Options of this command that an `ab` of two candidates needs as well.
_OF_BOTH = ("tolerance", "run", "higher", "lower", "read", "prepare", "cleanup", "shell", "timeout")


@command(folder_option)
@click.argument("good", default="")
@click.argument("bad", default="")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--pre", is_flag=True, help="Versions before a release count, such as nightlies.")
@click.option("--index-url", metavar="URL", help="The index of packages, as pip has it.")
@click.option("--find-links", metavar="PLACE", help="A folder or page of wheels, as pip has it.")
@click.option("--budget", metavar="DURATION", help="Begin no further step after this time: 30m.")
@click.option("--tolerance", help="Slowdown that still counts as the same: 5% or 0.05.")
@click.option(
    "--seed", type=click.IntRange(min=0), help="Seed of the order of processes (default: random)."
)
@click.option("--name", help="Name of the search (default: made from the time).")
@click.option("--resume", metavar="NAME", help="Continue a search that was interrupted.")
@program_options
def bisect(
    good: str, bad: str, arguments: tuple[str, ...], budget: str | None, resume: str | None,
    as_json: bool, folder: Path, **settings: Any,
) -> int:  # fmt: skip
    """Find the first version, commit or difference between GOOD, which is fast, and BAD, which is slow.

    Two versions of a package, `with:triton==3.6.*` and `with:triton==3.9.*`; two commits, `v1.4` and `.`; or two saved
    runs, whose packages and variables are searched. ARGUMENTS, behind --, are pytest's.

    Example: roofline bisect with:triton==3.6.* with:triton==3.9.* -- perf_tests -k flash

    Exit status: 0 each step is named and confirmed, 2 there is nothing to bisect, it cannot tell, or the input cannot
    be used.
    """
    deadline_s = math.inf
    if budget is not None:
        deadline_s = time.monotonic() + parse_duration(budget, "--budget")
    if resume is not None:
        refuse_beside_resume("bisect", settings, (good, bad, *arguments))
        state = read_state(folder, check_name(resume, "--resume"), BisectState, "bisect")
        require_folder(state.name, state.cwd)
    elif not bad:
        raise BadInput(f"an end is missing; {EXPECTED}, the fast end first")
    else:
        state = _new_state(folder, good, bad, arguments, **settings)
    return _run(state, folder, deadline_s, as_json=as_json)


def _new_state(
    folder: Path, good: str, bad: str, arguments: tuple[str, ...], *, pre: bool, tolerance: str | None,
    seed: int | None, name: str | None, index_url: str | None, find_links: str | None, **program: Any,
) -> BisectState:  # fmt: skip
    """Return the state of a new search, from the options of `roofline bisect`.

    `program` are the options that say what is run and measured, as `roofline ab` has them.

    Raises:
        BadInput: a search has this name, or nothing lies between both ends.
    """
    # A plan names sides, but how a program runs is the same for all candidates.
    here = SideSpec(".", ".")
    plan = make_plan(dict.fromkeys(SIDES, here), arguments, **program)
    name = free_name("bisect", name, folder)
    variables = _index_variables({"index_url": index_url, "find_links": find_links}, pre=pre)
    runs = _saved_runs((good, bad), folder)
    if runs:
        groups, _ = _differences(runs)
        row = list(map(group_text, groups))
    else:
        with set_variables(variables):
            row = row_between(good, bad, Path.cwd(), pre=pre)
    return BisectState(
        name=name,
        ends=(good, bad),
        row=tuple(row),
        arguments=arguments,
        cwd=str(Path.cwd().resolve()),
        seed=random.randrange(2**16) if seed is None else seed,
        tolerance=tolerance_in_force(tolerance, arguments),
        program=plan,
        options=tuple(_words(program | {"tolerance": tolerance})),
        variables=variables,
        runs=runs,
    )


def _index_variables(options: dict[str, str | None], *, pre: bool) -> dict[str, str]:
    """Return the environment variables by which pip and uv use an index of packages.

    Args:
        options: the values of `--index-url` and `--find-links`; None for an option that is not given.
        pre: True if versions before a release count.
    """
    variables = dict(_PRE) if pre else {}
    for option, value in options.items():
        if value is not None:
            variables |= dict.fromkeys(_INDEX[option], value)
    return variables


def _saved_runs(ends: tuple[str, str], folder: Path) -> tuple[str, ...]:
    """Return the paths of both ends if they are saved runs, else nothing."""
    try:
        paths = [run_path(end, folder) for end in ends]
    except BadInput:
        # A name such as v1.4~2 is that of a commit.
        return ()
    return tuple(map(str, paths)) if all(path.is_file() for path in paths) else ()


def _differences(runs: Sequence[str]) -> tuple[list[SettingGroup], list[str]]:
    good, bad = (read_run(Path(path)).environment for path in runs)
    return groups_between(good, bad)


def _words(options: dict[str, Any]) -> list[str]:
    """Return options as words of a command line.

    They are those that `roofline ab` of two candidates needs too.
    """
    words = []
    for name in _OF_BOTH:
        value = options.get(name)
        if value is True:
            words.append(f"--{name}")
        elif value:
            # An option that may be repeated has a tuple of values.
            values = value if isinstance(value, tuple) else (value,)
            for text in values:
                words += [f"--{name}", text]
    return words


def _run(state: BisectState, folder: Path, deadline_s: float, *, as_json: bool) -> int:
    """Run the search, and print the result. Return the exit status.

    The time is over at `deadline_s` of the monotonic clock.
    """
    groups, fixed = _differences(state.runs) if state.runs else ([], [])
    for text in fixed:
        _tell(f"the search leaves out {text}, which one machine cannot switch")
    candidates = count(len(state.row), "candidate")
    resume_command = resume_text("bisect", state.name, folder)
    _tell(
        f"the search {state.name} has {candidates}; to continue the search after a break, type: {resume_command}"
    )
    save_state(state_folder(folder, state.name, "bisect"), state)
    try:
        with set_variables(state.variables), running_sides():
            search = Search(state, folder, groups, _tell, deadline_s)
            search_end = search.run()
    except KeyboardInterrupt:
        _tell(f"the search is interrupted; to continue it, type: {resume_command}")
        return 2
    if as_json:
        document = {
            "name": state.name,
            "candidates": state.row,
            "steps": [asdict(culprit) for culprit in search_end.culprits],
            "processes": search.bench.state.processes,
            "sentence": search_end.sentence,
        }
        print_json(document)
    else:
        say(search_end.sentence)
    return search_end.status


def _tell(text: str) -> None:
    """Print a line on standard error."""
    say(printable(f"roofline bisect: {text}"), err=True)
