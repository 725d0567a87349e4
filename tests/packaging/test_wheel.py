"""What the wheel holds, and that installing it never replaces the torch and triton that a machine already has."""

import re
import subprocess
import tarfile
import venv
import zipfile
from pathlib import Path

from hatchling.build import build_editable

from .conftest import PLAIN, ROOT, build, stand_in

# As pip sees a ROCm container: versions with a local part, and a triton under another distribution name.
VENDOR = {"torch": "2.9.0+rocm6.4", "pytorch-triton-rocm": "3.5.0"}
# What an index would offer: newer, and wrong for this machine.
TEMPTATIONS = {"torch": "99.0", "triton": "99.0"}


def contents(path):
    """Every file of a wheel with what is in it."""
    archive = zipfile.ZipFile(path)
    return {name: archive.read(name) for name in archive.namelist()}


def test_wheel_installs_exactly_two_top_level_names(wheel):
    names = {Path(name).parts[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {"pytest_roofline", "roofline_kernels"} == {name for name in names if not name.endswith(".dist-info")}


def test_wheel_carries_types_and_hardware_data(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {"pytest_roofline/py.typed", "roofline_kernels/py.typed", "pytest_roofline/judging/hardware/specs.json"}
    assert wanted <= names


def test_wheel_carries_every_file_of_both_packages(wheel):
    sources = {"pytest_roofline": ROOT / "plugin", "roofline_kernels": ROOT / "kernels"}
    files = {
        str(path.relative_to(folder))
        for name, folder in sources.items()
        for path in (folder / name).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    # What the page of a report is made of, and the programs that a bundle takes along.
    assets = {f"reporting/report/assets/{name}" for name in ("page.html.j2", "page.css", "page.js")}
    programs = {f"standalone/{name}.py" for name in ("reproduce", "plugin", "fixture", "timing")}
    assert {f"pytest_roofline/{name}" for name in assets | programs} <= files
    assert files <= set(contents(wheel))


def test_wheel_carries_what_init_writes_and_not_what_makes_it(wheel):
    shipped = {
        *(f"perf_tests/{path.name}" for path in (ROOT / "perf_tests").glob("*.py")),
        *(f"baselines/{path.name}" for path in (ROOT / "baselines").glob("*.json")),
        *(f"ci/{path.name}" for path in (ROOT / "docs" / "ci").iterdir()),
        *(path.name for path in (ROOT / "plugin" / "pytest_roofline" / "starter").iterdir()),
    }
    start = "pytest_roofline/starter/"
    assert shipped == {name.removeprefix(start) for name in contents(wheel) if name.startswith(start)}


def test_wheel_made_from_the_source_distribution_is_the_same(wheel, tmp_path):
    build(tmp_path)
    assert contents(wheel) == contents(next(tmp_path.glob("*.whl")))


def test_source_distribution_holds_the_tests_and_nothing_of_a_run(sdist):
    with tarfile.open(sdist) as archive:
        roots = {Path(name).parts[1] for name in archive.getnames()}
    assert {"plugin", "kernels", "perf_tests", "baselines", "docs", "tests", "benchmarks"} <= roots
    assert {".ci", ".roofline", ".git", ".tox"} & roots == set()


def test_editable_install_exposes_the_two_source_roots(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    archive = contents(tmp_path / build_editable(str(tmp_path)))
    (paths,) = (data.decode().split() for name, data in archive.items() if name.endswith(".pth"))
    assert {str(ROOT / "plugin"), str(ROOT / "kernels")} == set(paths)


def test_wheel_declares_no_upper_bound_on_torch_and_no_triton(needs):
    assert [need for need in needs if need.startswith("torch")] == ["torch>=2.4"]
    assert [need for need in needs if need.startswith("triton")] == []


def test_installing_leaves_a_vendor_torch_and_triton_untouched(wheel, needs, tmp_path):
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    ordinary = {re.match(r"[\w-]+", need)[0] for need in needs} - {"torch"}
    for name, version in [*VENDOR.items(), *TEMPTATIONS.items(), *((name, "90.0") for name in ordinary)]:
        stand_in(shelf, name, version)
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=True)
    python = str(environment / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", str(shelf)]
    vendor = [f"{name}=={version}" for name, version in VENDOR.items()]
    subprocess.run([*pip, *vendor], check=True, capture_output=True, env=PLAIN)
    installed = subprocess.run([*pip, str(wheel)], capture_output=True, text=True, env=PLAIN)
    assert installed.returncode == 0, installed.stderr
    told = subprocess.run(
        [python, "-c", "import torch, triton; print(torch.made_for, triton.made_for)"], capture_output=True, text=True
    )
    assert told.stdout.strip() == "('torch', '2.9.0+rocm6.4') ('pytorch-triton-rocm', '3.5.0')"


def test_version_is_told_by_package_and_metadata_alike(wheel):
    from pytest_roofline import __version__

    assert f"pytest_roofline-{__version__}-py3-none-any.whl" == wheel.name
