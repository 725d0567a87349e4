"""docs/reference/offline.md as it is: from an index of stand-ins to a measurement on a machine without a network."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_roofline.version import __version__

from .conftest import PLAIN, ROOT, stand_in

PAGE = ROOT / "docs" / "reference" / "offline.md"
# Nothing but the folders that it is told of is asked for packages.
OFFLINE = {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def blocks():
    """The commands of the page: what the machine has, filling the wheelhouse, installing from it, the documentation."""
    return re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def bash(script, folder, python, **environ):
    """The output of commands that succeed, with the programs of an environment of Python first on the path."""
    plain = {
        name: value for name, value in PLAIN.items() if not name.startswith(("PYTEST_", "PYTHON"))
    }
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=folder,
        env=plain | OFFLINE | {"PATH": f"{python}:{os.environ['PATH']}"} | environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """A machine that has all of this environment's packages but ours: its folder, and that of its programs."""
    folder = tmp_path_factory.mktemp("machine")
    packages = folder / "packages"
    packages.mkdir()
    for kind in ("purelib", "platlib"):
        for path in Path(sysconfig.get_path(kind)).iterdir():
            ours = "roofline" in path.name or path.suffix == ".pth"
            if not ours and not (packages / path.name).exists():
                (packages / path.name).symlink_to(path)
    # pip comes with the packages, and a second copy of it takes seconds.
    venv.create(folder / "venv", symlinks=True)
    version = "python{}.{}".format(*sys.version_info)
    (folder / "venv" / "lib" / version / "site-packages" / "packages.pth").write_text(
        f"{packages}\n"
    )
    return SimpleNamespace(folder=folder, programs=folder / "venv" / "bin")


@pytest.fixture(scope="module")
def filled(machine, wheel, needs, tmp_path_factory):
    """The wheelhouse as it was filled, and what the machine had printed: from an index that has more than it should."""
    first, second, *_ = blocks()
    told = bash(first, machine.folder, machine.programs)
    shelf = tmp_path_factory.mktemp("shelf")
    (shelf / wheel.name).symlink_to(wheel)
    frozen = dict(
        re.findall(r"^(\S+)==(\S+)$", (machine.folder / "installed.txt").read_text(), re.MULTILINE)
    )
    versions = {name.lower(): version for name, version in frozen.items()}
    for need in [*needs, "torch", "triton"]:
        name = re.match(r"[\w-]+", need)[0]
        for version in {versions.get(name, "99.0"), "99.0"}:
            stand_in(shelf, name, version)
    bash(second, machine.folder, machine.programs, PIP_FIND_LINKS=str(shelf))
    return SimpleNamespace(told=told, versions=versions, wheels=machine.folder / "wheelhouse")


def test_the_wheelhouse_has_what_is_needed_at_the_versions_of_the_machine_and_no_torch(
    filled, needs
):
    major, minor, processor, *_ = filled.told.split()
    assert [major, minor, processor] == [*map(str, sys.version_info[:2]), os.uname().machine]
    names = {re.match(r"[\w-]+", need)[0] for need in needs}
    expected = {
        f"{name.replace('-', '_')}-{filled.versions[name]}-py3-none-any.whl" for name in names
    }
    ours = f"pytest_roofline-{__version__}-py3-none-any.whl"
    assert expected | {ours, "SHA256SUMS"} == {path.name for path in filled.wheels.iterdir()}


def test_a_first_measurement_comes_out_of_the_wheelhouse_with_the_torch_that_was_there(
    machine, filled
):
    options = "-p no:cacheprovider --roofline-device=cpu --roofline-budget=0.05"
    said = bash(
        blocks()[2], machine.folder, machine.programs, PYTEST_ADDOPTS=options, COLUMNS="300"
    )
    assert f"roofline, version {__version__}" in said
    where = machine.folder / "benchmarks"
    assert re.search(rf"roofline {re.escape(__version__)}: cpu .*, against no baseline", said)
    assert "1 passed, 6 skipped" in said
    assert len(list((where / ".roofline" / "runs").glob("*.jsonl"))) == 1
    code = "import pytest_roofline, importlib.metadata as m; print(pytest_roofline.__file__, m.version('torch'))"
    place, version = bash(f'python -c "{code}"', machine.folder, machine.programs).split()
    assert Path(place).is_relative_to(machine.folder / "venv")
    assert version == filled.versions["torch"]
    # A wheel that was damaged on the way is named.
    path = next(filled.wheels.glob("pytest_roofline-*.whl"))
    path.write_bytes(path.read_bytes()[:-1])
    check = blocks()[2].splitlines()[0]
    done = subprocess.run(
        ["bash", "-c", check], cwd=machine.folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, f"{path.name}: FAILED\n")


def test_the_documentation_comes_out_of_the_source_distribution(machine, sdist, tmp_path):
    # Its build system is that of this environment, since no index is asked for one.
    offline = {"PIP_FIND_LINKS": str(sdist.parent), "PIP_NO_BUILD_ISOLATION": "false"}
    bash(blocks()[3], tmp_path, machine.programs, **offline)
    (unpacked,) = (tmp_path / "documentation").glob("pytest_roofline-*/")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert pages == {path.name for path in (unpacked / "docs").glob("*.md")}
    assert (unpacked / "README.md").is_file()
