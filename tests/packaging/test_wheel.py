"""What the wheel holds, and that installing it never replaces the torch and triton that a machine already has."""

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# As pip sees a ROCm container: versions with a local part, and a triton under another distribution name.
VENDOR = {"torch": "2.9.0+rocm6.4", "pytorch-triton-rocm": "3.5.0"}
ORDINARY = ("click", "diptest", "msgspec", "numpy", "pandas", "pytest", "rich", "ruptures", "scipy")
# What an index would offer: newer, and wrong for this machine.
TEMPTATIONS = {"torch": "99.0", "triton": "99.0"}
# Neither tox's constraint on torch nor anybody's pip configuration may decide what this test shows.
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")} | {
    "PIP_CONFIG_FILE": os.devnull
}


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def stand_in(folder: Path, name: str, version: str) -> Path:
    """A wheel with nothing but a name, a version and one module that tells them."""
    base = name.replace("-", "_")
    path = folder / f"{base}-{version}-py3-none-any.whl"
    info = f"{base}-{version}.dist-info"
    module = "triton" if "triton" in name else base
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{module}/__init__.py", f"made_for = {name!r}, {version!r}\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def test_wheel_installs_exactly_two_top_level_names(wheel):
    names = {Path(name).parts[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {"pytest_roofline", "roofline_kernels"} == {name for name in names if not name.endswith(".dist-info")}


def test_wheel_carries_types_and_hardware_data(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    wanted = {"pytest_roofline/py.typed", "roofline_kernels/py.typed", "pytest_roofline/judging/hardware/specs.json"}
    assert wanted <= names


def test_wheel_declares_no_upper_bound_on_torch_and_no_triton(wheel):
    archive = zipfile.ZipFile(wheel)
    metadata = archive.read(next(name for name in archive.namelist() if name.endswith("METADATA"))).decode()
    needs = [line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if line.startswith("Requires-Dist")]
    core = [need for need in needs if "extra ==" not in need]
    assert [need for need in core if need.startswith("torch")] == ["torch>=2.4"]
    assert [need for need in core if need.startswith("triton")] == []


def test_installing_leaves_a_vendor_torch_and_triton_untouched(wheel, tmp_path):
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    for name, version in [*VENDOR.items(), *TEMPTATIONS.items(), *((name, "90.0") for name in ORDINARY)]:
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
