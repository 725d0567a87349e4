"""Programs that tests start and that no Python package brings: launchers, a browser, a compiler, benchmarks.

A test that starts one asks `require_tools` for it first, and is skipped where it is missing. `.ci/run` runs all tests
with these hidden, then installs what the machine lacks, and runs those that were skipped:

* `python tests/tools.py hide FOLDER` prints a PATH that has all but these; its links are made in FOLDER;
* `python tests/tools.py packages` prints the packages of those that are missing, a line each.
"""

import os
import shutil
import sys
from pathlib import Path

# By a program the packages of Debian that bring it; mpi4py needs the libraries that those of MPI bring.
PACKAGES = {
    "mpirun": ("openmpi-bin", "libopenmpi-dev"),
    "munged": ("munge",),
    **dict.fromkeys(
        ("slurmctld", "slurmd", "salloc", "sbatch", "scancel", "scontrol", "sinfo", "srun"),
        ("slurm-wlm",),
    ),
    "chromium": ("chromium",),
    "chromedriver": ("chromium-driver",),
    # For torch.compile.
    "g++": ("g++",),
    # For `roofline ab --run`.
    **{name: (name,) for name in ("hyperfine", "mbw", "sysbench")},
}
# What could stand in for one of them.
OTHERS = ("mpiexec", "orterun", "prterun", "cc", "c++", "gcc", "clang", "clang++")


def find_tool(name: str) -> str | None:
    """Where a program lies: in PATH, or in the `sbin` beside a `bin` of it, since daemons lie where only root looks."""
    return shutil.which(
        name, path=os.pathsep.join(place for folder in _folders() for place in _with_sbin(folder))
    )


def require_tools(*names: str) -> None:
    """Skip a test that starts what this machine does not have; at the end of `.ci/run` a skip is a failure."""
    import pytest

    if lacks := what_lacks(*names):
        pytest.skip(lacks)


def what_lacks(*names: str) -> str:
    """Which of these programs are missing, and how to get them; empty where all are there."""
    missing = [name for name in names if find_tool(name) is None]
    needed = f"needs {', '.join(missing)}, found none in PATH; on Debian: apt-get install"
    return " ".join([needed, *packages(missing)]) if missing else ""


def packages(names: list[str]) -> list[str]:
    """The packages that bring these programs, each once."""
    return list(dict.fromkeys(package for name in names for package in PACKAGES[name]))


def hide(folder: Path) -> str:
    """A PATH that has everything but these programs, for a process and its children.

    A folder of PATH that has one of them gives way to a folder of links to all else that it has; the others stay.
    """
    hidden = {*PACKAGES, *OTHERS}
    return os.pathsep.join(
        _linked(place, folder / str(number), hidden)
        if any(shutil.which(name, path=near) for near in _with_sbin(place) for name in hidden)
        else place
        for number, place in enumerate(_folders())
    )


def _linked(place: str, folder: Path, hidden: set[str]) -> str:
    folder.mkdir(parents=True)
    for path in Path(place).absolute().iterdir():
        if path.name not in hidden:
            (folder / path.name).symlink_to(path)
    return str(folder)


def _folders() -> list[str]:
    """Of PATH; an empty one would be the current folder."""
    return [place for place in os.environ.get("PATH", os.defpath).split(os.pathsep) if place]


def _with_sbin(place: str) -> list[str]:
    path = Path(place)
    return [place, str(path.with_name("sbin"))] if path.name == "bin" else [place]


if __name__ == "__main__":
    if sys.argv[1] == "hide":
        print(hide(Path(sys.argv[2])))
    else:
        for package in packages([name for name in PACKAGES if find_tool(name) is None]):
            print(package)
