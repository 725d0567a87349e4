"""Whole searches over made-up wheels of a folder, and over the packages and variables of two saved runs."""

import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_roofline.baselines.runs import encode_line, read_run

from ...bisect.conftest import RUN, program, steps, write

VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
WHEEL = "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def make_wheel(folder, version, source, name="demo", requires=""):
    """A wheel of a package, and the line of what it requires."""
    about = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}"
    files = {
        f"{name}.py": source,
        f"{about}/METADATA": metadata,
        f"{about}/WHEEL": WHEEL,
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for name, text in (files | {f"{about}/RECORD": record}).items():
            archive.writestr(name, text)


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """Five wheels in a folder; the third and those behind it are slower."""
    for name in ("PIP_NO_INDEX", "UV_NO_INDEX"):
        monkeypatch.setenv(name, "1")
    for version in VERSIONS:
        make_wheel(tmp_path / "wheels", version, f"SLOW = {1.3 if version >= '1.2' else 1.0}\n")
    return tmp_path / "wheels"


def test_the_first_slow_wheel_of_a_folder_is_named(bisect, wheels):
    write("bench.py", program("from demo import SLOW as slow"))
    before = sorted(Path(sys.prefix).rglob("*demo*"))
    words = ("--seed=1", f"--find-links={wheels}", "with:demo==1.0", "with:demo==1.*")
    report = bisect(*words, "--run", "{python} bench.py", "--lower=ms")
    assert report["candidates"] == [f"with:demo=={version}" for version in VERSIONS]
    assert steps(report) == [("with:demo==1.1", "with:demo==1.2")]
    (step,) = report["steps"]
    assert step["command"] == (
        f"PIP_FIND_LINKS={wheels} UV_FIND_LINKS={wheels} roofline ab with:demo==1.1 with:demo==1.2 "
        "--run '{python} bench.py' --lower ms"
    )
    # Nothing was installed into the present environment.
    assert before == sorted(Path(sys.prefix).rglob("*demo*"))


def test_wheels_that_cannot_be_installed_or_imported_stay_in_the_range(bisect, wheels):
    make_wheel(wheels, "1.1", "SLOW = 1.0", requires="Requires-Dist: absent\n")
    make_wheel(wheels, "1.2", "import absent")
    write("bench.py", program("from demo import SLOW as slow"))
    words = ("--seed=1", f"--find-links={wheels}", "with:demo==1.0", "with:demo==1.4")
    report = bisect(*words, "--run", "{python} bench.py", "--lower=ms")
    assert steps(report) == [("with:demo==1.0", "with:demo==1.3")]
    not_installed, not_imported = report["steps"][0]["broken"]
    assert not_installed.startswith("with:demo==1.1 (side 'with:demo==1.1': ")
    assert "absent" in not_installed
    assert not_imported.startswith("with:demo==1.2 (")
    assert "No module named 'absent'" in not_imported


NAMES = ("OMP_NUM_THREADS", "OMP_PROC_BIND", "MKL_DYNAMIC", "NCCL_ALGO", "NCCL_PROTO", "UCX_TLS")


@pytest.fixture
def save_run(bisect, monkeypatch):
    """Return a function that saves a run of a program under variables."""

    def save(name, **variables):
        for variable in NAMES:
            monkeypatch.delenv(variable, raising=False)
        for variable, value in variables.items():
            monkeypatch.setenv(variable, value)
        bisect(f"--name={name}", "--processes=2", ".", ".", *RUN, command="ab")
        return f"{name}-a"

    return save


def test_the_guilty_one_of_six_variables_is_named(bisect, save_run):
    write("bench.py", program('slow = 1.3 if os.environ.get("NCCL_ALGO") == "Ring" else 1.0'))
    good = save_run("good", OMP_NUM_THREADS="1", NCCL_ALGO="Tree", UCX_TLS="tcp")
    changed = dict.fromkeys(NAMES, "new") | {"NCCL_ALGO": "Ring"}
    bad = save_run("bad", **changed)
    report = bisect("--seed=1", good, bad, *RUN)
    assert len(report["candidates"]) == len(NAMES)
    (step,) = report["steps"]
    assert (step["good"], step["bad"]) == ("none of the differences", "$NCCL_ALGO Tree → Ring")
    assert step["verdict"] == "REGRESSED"


def test_the_guilty_one_of_two_packages_is_named(bisect, wheels):
    for version in ("1.0", "1.4"):
        # What it requires is not installed beside it.
        make_wheel(wheels, version, "", "other", "Requires-Dist: absent\n")
    write("bench.py", program("from demo import SLOW as slow; import other"))
    names = []
    for version in ("1.0", "1.4"):
        # A figure that never changes: the time of a program would be this machine's.
        write("anything.py", """print('{"ms": 31}')""")
        bisect(
            f"--name={version}",
            "--processes=2",
            ".",
            ".",
            "--run={python} anything.py",
            "--lower=ms",
            command="ab",
        )
        path = Path(f".roofline/runs/{version}-a.jsonl")
        header = read_run(path).header
        packages = {"demo": version, "other": version}
        header = replace(header, environment=replace(header.environment, packages=packages))
        _, *lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        write(path, "".join([encode_line(header), *lines]))
        names.append(path.stem)
    words = ("--seed=1", f"--find-links={wheels}", *names)
    report = bisect(*words, "--run", "{python} bench.py", "--lower=ms")
    assert report["candidates"] == ["demo 1.0 → 1.4", "other 1.0 → 1.4"]
    assert steps(report) == [("none of the differences", "demo 1.0 → 1.4")]


def test_two_variables_that_need_each_other_are_both_named(bisect, save_run):
    both = 'all(os.environ.get(name) == "new" for name in ("OMP_PROC_BIND", "UCX_TLS"))'
    write("bench.py", program(f"slow = 1.3 if {both} else 1.0"))
    good, bad = save_run("good"), save_run("bad", **dict.fromkeys(NAMES, "new"))
    report = bisect("--seed=1", good, bad, *RUN)
    assert {*report["steps"][0]["bad"].split(" and ")} == {
        "$OMP_PROC_BIND unset → new",
        "$UCX_TLS unset → new",
    }
