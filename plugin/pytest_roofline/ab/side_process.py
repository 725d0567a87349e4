"""One process of a side: how it is started, and what makes its side unusable."""

from collections.abc import Sequence
from pathlib import Path

from ..baselines.runs import Run
from ..core.errors import BadInput
from ..core.units import listed
from ..processes.children import ChildEnd, run_child
from ..processes.round_parent import RoundParent
from ..settings.options import ROUND_VARIABLE
from .command_process import run_program
from .making import CommandError
from .results import State
from .sides import PreparedSide

# The longest time without output of a warm-up process, in seconds: it may compile for long.
WARMING_S = 3600.0
# The times of a warm-up process do not count, so a short budget is enough.
WARMING_BUDGET = "--roofline-budget=0.01"
# Exit statuses of pytest after tests that passed (0) or failed (1), or without a test (5).
_FINE = (0, 1, 5)


def run_side(
    setup: PreparedSide,
    state: State,
    folder: Path,
    number: int,
    ids: Sequence[str] | None,
    quiet_s: float,
    *options: str,
    side: str,
    parent: RoundParent | None = None,
) -> ChildEnd:
    """Run a new process of a side, and return its end.

    It runs the tests or the program of a run.

    Args:
        setup: the side.
        state: the settings of the run.
        folder: for the files of the process.
        number: the round in which the process measures.
        ids: the tests to run; None for all.
        quiet_s: the longest time without output.
        options: arguments of pytest, behind those of the user.
        side: A or B, whose command runs where both have one.
        parent: forks the process, if any.
    """
    if state.program is not None:
        return run_program(state.program, side, setup, folder, ids)
    command = [setup.python, "-m", "pytest", *state.arguments, *options]
    if "no:cacheprovider" not in f"{state.arguments} {setup.environ.get('PYTEST_ADDOPTS', '')}":
        # With a cache of its own, no option prefers tests that failed in an earlier process.
        command += ["-o", f"cache_dir={folder / 'cache'}"]
    task = {
        "round": number,
        "ids": None if ids is None else list(ids),
        "deadline": None,
        "side": {"checkout": setup.checkout, "folder": setup.folder},
    }
    return run_child(
        command,
        folder,
        task,
        variable=ROUND_VARIABLE,
        cwd=setup.cwd,
        environ=setup.environ,
        quiet_s=quiet_s,
        parent=parent,
    )


def check_end(side: str, setup: PreparedSide, end: ChildEnd, runs: Sequence[Run]) -> None:
    """Raise BadInput for a side that could not start, or ran code of another commit.

    Args:
        side: A, B, or the second A.
        setup: how the side runs.
        end: how its process ended.
        runs: the runs of that process.
    """
    if not end.started and end.status not in _FINE:
        raise CommandError(
            f"side {side} ({setup}) could not start: {end.cause}; correct the fault that its output shows",
            end.tail,
        )
    if end.stray:
        raise BadInput(
            f"side {side} ({setup}) ran code of the checkout instead of its commit: "
            f"{listed(list(end.stray), 2)}; name tests by paths relative to this folder, or install the code of "
            "the commit with commit:REF,build='pip install .'"
        )
    for run in runs:
        # The first repository is that of the tests, if its name is a dot.
        repository = next(iter(run.header.environment.code), None)
        if not setup.commit or repository is None or repository.name != ".":
            continue
        if repository.commit != setup.commit:
            raise BadInput(
                f"side {side} ({setup}) ran commit {repository.commit[:10]}; expected {setup.commit[:10]}"
            )
