"""The distributions, built once for all tests of them; and wheels that stand in for other packages."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Neither tox's constraint on torch nor anybody's pip configuration may decide what these tests show.
PLAIN = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")} | {
    "PIP_CONFIG_FILE": os.devnull
}


def build(folder, *kinds, source=ROOT):
    """Build these kinds of distribution into a folder."""
    options = [f"--{kind}" for kind in kinds]
    command = [
        sys.executable,
        "-m",
        "build",
        *options,
        "--no-isolation",
        "--outdir",
        str(folder),
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def wheel(tmp_path_factory):
    """The wheel, built from the source tree."""
    folder = tmp_path_factory.mktemp("wheel")
    build(folder, "wheel")
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def sdist(tmp_path_factory):
    """The source distribution, built from the source tree."""
    folder = tmp_path_factory.mktemp("sdist")
    build(folder, "sdist")
    return next(folder.glob("*.tar.gz"))


def stand_in(folder: Path, name: str, version: str) -> Path:
    """A wheel with nothing but a name, a version and one module that tells them."""
    base = name.replace("-", "_")
    path = folder / f"{base}-{version}-py3-none-any.whl"
    info = f"{base}-{version}.dist-info"
    module = "triton" if "triton" in name else base
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{module}/__init__.py", f"made_for = {name!r}, {version!r}\n")
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture(scope="session")
def needs(wheel):
    """What the wheel asks for without any extra, as its metadata say."""
    archive = zipfile.ZipFile(wheel)
    metadata = archive.read(
        next(name for name in archive.namelist() if name.endswith("METADATA"))
    ).decode()
    told = [
        line.removeprefix("Requires-Dist: ")
        for line in metadata.splitlines()
        if line.startswith("Requires-Dist")
    ]
    return [need for need in told if "extra ==" not in need]
