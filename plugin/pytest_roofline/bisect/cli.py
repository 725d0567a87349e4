"""`roofline bisect`: which version, which commit or which difference made it slower."""

import datetime
import math
import random
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..ab.cli import program_options
from ..ab.command_plan import make_plan
from ..ab.sides import SIDES, SideSpec
from ..ab.tolerance import tolerance_in_force
from ..baselines.run_files import run_path
from ..baselines.runs import read_run
from ..cli.options import command, folder_option, print_json, say
from ..core.errors import BadInput
from ..core.storage import check_name
from ..core.units import parse_duration, printable
from .candidates import EXPECTED, row_between
from .differences import SettingGroup, groups_between
from .environments import set_variables
from .searching import Search
from .state import BisectState, read_state, state_folder

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
        source = click.get_current_context().get_parameter_source
        given = [name for name in settings if source(name) is ParameterSource.COMMANDLINE]
        if good or given:
            raise BadInput(
                "--resume keeps the search's own options; type: roofline bisect --resume NAME"
            )
        state = read_state(folder, check_name(resume, "--resume"))
    elif not bad:
        raise BadInput(f"an end is missing; {EXPECTED}, the fast one first")
    else:
        state = _new_state(folder, good, bad, arguments, **settings)
    if str(Path.cwd().resolve()) != state.cwd:
        raise BadInput(f"{state.name} was begun in {state.cwd}; resume it there")
    return _run(state, folder, deadline_s, as_json=as_json)


def _new_state(
    folder: Path, good: str, bad: str, arguments: tuple[str, ...], *, pre: bool, tolerance: str | None,
    seed: int | None, name: str | None, index_url: str | None, find_links: str | None, **program: Any,
) -> BisectState:  # fmt: skip
    """Return the state of a new search. Its name is free."""
    here = SideSpec(".", ".")
    plan = make_plan(dict.fromkeys(SIDES, here), arguments, **program)
    name = check_name(
        name or f"bisect-{datetime.datetime.now(datetime.UTC):%Y%m%dT%H%M%S.%f}", "--name"
    )
    if state_folder(folder, name).exists():
        raise BadInput(
            f"a search is called {name!r} already; continue it with --resume {name}, or choose another --name"
        )
    index = {"index_url": index_url, "find_links": find_links}
    variables = _PRE if pre else {}
    variables |= {
        variable: value
        for option, value in index.items()
        if value is not None
        for variable in _INDEX[option]
    }
    runs = _saved_runs((good, bad), folder)
    if runs:
        groups, _ = _differences(runs)
        row = [group.text for group in groups]
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
    """Return options as words of a command line."""
    words = []
    for name in _OF_BOTH:
        value = options.get(name)
        if value is True:
            words.append(f"--{name}")
        elif value:
            values = value if isinstance(value, tuple) else (value,)
            words += [word for text in values for word in (f"--{name}", text)]
    return words


def _run(state: BisectState, folder: Path, deadline_s: float, *, as_json: bool) -> int:
    """Search, and print the search_end. Return the exit status."""
    groups, fixed = _differences(state.runs) if state.runs else ([], [])
    for text in fixed:
        _tell(f"not searched, since one machine cannot switch it: {text}")
    _tell(f"{state.name}: {len(state.row)} candidates; continue with --resume {state.name}")
    with set_variables(state.variables):
        search = Search(state, folder, groups, _tell, deadline_s)
        try:
            search_end = search.run()
        except KeyboardInterrupt:
            _tell(f"interrupted; continue with: roofline bisect --resume {state.name}")
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
