"""What the wheel holds, and that installing it never replaces the torch and triton that a machine already has."""

import re
import subprocess
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

from hatchling.build import build_editable

from .conftest import PLAIN, ROOT, build, stand_in

# As pip sees a ROCm container: versions with a local part, and a triton under another distribution name.
VENDOR = {"torch": "2.9.1+rocm6.4", "pytorch-triton-rocm": "3.6.0"}
# What an index would offer: newer, and wrong for this machine.
TEMPTATIONS = {"torch": "99.0", "triton": "99.0"}


def contents(path):
    """Every file of a wheel with what is in it."""
    archive = zipfile.ZipFile(path)
    return {name: archive.read(name) for name in archive.namelist()}


def below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_wheel_has_both_packages_whole_and_what_init_writes_and_nothing_else(wheel):
    names = set(contents(wheel))
    tops = {Path(name).parts[0] for name in names}
    assert {"pytest_roofline", "roofline_kernels"} == {
        name for name in tops if not name.endswith(".dist-info")
    }
    files = {
        name
        for name in below(ROOT / "plugin") | below(ROOT / "kernels")
        if "__pycache__" not in name
    }
    assert files <= names
    wanted = {
        "pytest_roofline/py.typed",
        "pytest_roofline/hardware/specs.json",
        "roofline_kernels/py.typed",
    }
    assets = ("page.html.j2", "page.css", "page.js", "plotly-basic.min.js", "plotly-LICENSE")
    assert wanted | {f"pytest_roofline/report/assets/{name}" for name in assets} <= files
    start = "pytest_roofline/starter/"
    shipped = {
        *(f"perf_tests/{path.name}" for path in (ROOT / "perf_tests").glob("*.py")),
        *(f"baselines/{path.name}" for path in (ROOT / "baselines").glob("*.json")),
        *(f"ci/{path.name}" for path in (ROOT / "docs" / "ci").iterdir()),
        *(path.name for path in (ROOT / "plugin" / "pytest_roofline" / "starter").iterdir()),
    }
    assert shipped == {name.removeprefix(start) for name in names if name.startswith(start)}
    from pytest_roofline import __version__

    assert f"pytest_roofline-{__version__}-py3-none-any.whl" == wheel.name


def test_the_source_distribution_makes_the_same_wheel_and_holds_the_tests_and_nothing_of_a_run(
    wheel, sdist, tmp_path
):
    with tarfile.open(sdist) as archive:
        roots = {Path(name).parts[1] for name in archive.getnames()}
        archive.extractall(tmp_path, filter="data")
    assert {"plugin", "kernels", "perf_tests", "baselines", "docs", "tests", "benchmarks"} <= roots
    assert {".ci", ".roofline", ".git", ".tox"} & roots == set()
    build(tmp_path / "again", "wheel", source=next(tmp_path.glob("pytest_roofline-*")))
    assert contents(wheel) == contents(next((tmp_path / "again").glob("*.whl")))


def test_editable_install_exposes_the_two_source_roots(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    archive = contents(tmp_path / build_editable(str(tmp_path)))
    (paths,) = (data.decode().split() for name, data in archive.items() if name.endswith(".pth"))
    assert {str(ROOT / "plugin"), str(ROOT / "kernels")} == set(paths)


def test_wheel_declares_neither_torch_nor_triton_and_its_lowest_versions_are_tried(needs):
    assert [need for need in needs if "torch" in need or "triton" in need] == []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = ("docs", "mpi", "report", "test", "torch", "triton")
    asked = project["dependencies"] + [
        need
        for extra in extras
        for need in project["optional-dependencies"][extra]
        if need != "pytest-roofline[torch]"
    ]
    lowest = dict(re.fullmatch(r"([\w-]+)>=([\w.]+)(?:;.*)?", need).groups() for need in asked)
    text = (ROOT / "constraints-oldest.txt").read_text(encoding="utf-8")
    assert lowest == dict(re.findall(r"^([\w-]+)==(\S+)$", text, re.MULTILINE))


def installed_over(vendor, wheel, needs, folder):
    """pip's answer where a vendor's torch and triton are, and which of them are there after it."""
    shelf = folder / "shelf"
    shelf.mkdir()
    ordinary = {re.match(r"[\w-]+", need)[0] for need in needs}
    for name, version in [
        *vendor.items(),
        *TEMPTATIONS.items(),
        *((name, "90.0") for name in ordinary),
    ]:
        stand_in(shelf, name, version)
    programs = folder / "venv" / "bin"
    venv.create(programs.parent, with_pip=True)
    environ = PLAIN | {
        "PATH": f"{programs}:{PLAIN['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(shelf),
    }
    pinned = [f"{name}=={version}" for name, version in vendor.items()]
    subprocess.run(
        [programs / "pip", "install", "--quiet", *pinned],
        check=True,
        capture_output=True,
        env=environ,
    )
    done = subprocess.run(
        [programs / "pip", "install", wheel], capture_output=True, text=True, env=environ
    )
    tell = "import torch, triton; print(*torch.made_for, *triton.made_for)"
    told = subprocess.run(
        [programs / "python", "-c", tell], capture_output=True, text=True, check=True
    )
    return done, told.stdout.split()


def test_installing_leaves_a_vendor_torch_and_triton_untouched_however_old(wheel, needs, tmp_path):
    done, after = installed_over(VENDOR, wheel, needs, tmp_path)
    assert done.returncode == 0, done.stderr
    assert after == [word for pair in VENDOR.items() for word in pair]
