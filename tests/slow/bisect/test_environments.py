"""Whole searches over made-up wheels of a folder, and over the variables of two saved runs."""

import sys
import zipfile
from pathlib import Path

import pytest

from ...bisect.conftest import RUN, program, steps, write

VERSIONS = ("1.0", "1.1", "1.2", "1.3", "1.4")
WHEEL = "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def make_wheel(folder, version, source):
    """A wheel of the package `demo`."""
    about = f"demo-{version}.dist-info"
    files = {
        "demo.py": source,
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: demo\nVersion: {version}\n",
        f"{about}/WHEEL": WHEEL,
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"demo-{version}-py3-none-any.whl", "w") as archive:
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


def test_a_wheel_that_cannot_be_imported_stays_in_the_range(bisect, wheels):
    make_wheel(wheels, "1.2", "import absent")
    write("bench.py", program("from demo import SLOW as slow"))
    words = ("--seed=1", f"--find-links={wheels}", "with:demo==1.0", "with:demo==1.4")
    report = bisect(*words, "--run", "{python} bench.py", "--lower=ms")
    assert steps(report) == [("with:demo==1.1", "with:demo==1.3")]
    (reason,) = report["steps"][0]["broken"]
    assert reason.startswith("with:demo==1.2 (")
    assert "No module named 'absent'" in reason


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


def test_two_variables_that_need_each_other_are_both_named(bisect, save_run):
    both = 'all(os.environ.get(name) == "new" for name in ("OMP_PROC_BIND", "UCX_TLS"))'
    write("bench.py", program(f"slow = 1.3 if {both} else 1.0"))
    good, bad = save_run("good"), save_run("bad", **dict.fromkeys(NAMES, "new"))
    report = bisect("--seed=1", good, bad, *RUN)
    assert {*report["steps"][0]["bad"].split(" and ")} == {
        "$OMP_PROC_BIND unset → new",
        "$UCX_TLS unset → new",
    }
