"""The project's own tests in CI: all without the tools that tests start, then with them those that were skipped."""

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from . import tools
from .waiting import until

ROOT = Path(__file__).resolve().parents[1]
# pytest with xdist, and without what else is installed.
PLAIN = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
INI = "[pytest]\naddopts = --import-mode=importlib\n"
pytestmark = pytest.mark.skipif(
    not (ROOT / ".ci").is_dir(), reason="needs .ci, which a source distribution leaves out"
)


def test_the_readme_names_the_package_of_every_tool():
    (named,) = re.findall(
        r"^`apt-get install ([^`]+)`",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert set(named.split()) == {name for names in tools.PACKAGES.values() for name in names}


def test_ci_runs_the_readmes_test_command_before_it_installs_a_tool():
    (command,) = re.findall(
        r"/(tox run -e cpu)$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    script = (ROOT / ".ci/run").read_text(encoding="utf-8")
    (first, *_) = re.findall(r'^.*"\$tox" (run .*)$', script, re.MULTILINE)
    assert command == f"tox {first}"
    ahead, _, behind = script.partition(first)
    # Nothing is installed ahead of it, only fetched.
    assert ["--download-only"] == re.findall(r'(\S+) install "', ahead)
    assert ['"${apt[@]}"'] == re.findall(r'(\S+) install "', behind.partition("-- slow")[0])


# Stand-ins: the wheel's job starts a process of its own and goes on until it is ended, and the first tests fail once
# that process has begun.
WHEEL = """#!/usr/bin/env bash
tail -f /dev/null &
echo $! > begun
wait
"""
TOX = """#!/usr/bin/env bash
read -r pid < begun
echo "$pid" > pid
exit 3
"""
PYTHON = """#!/usr/bin/env bash
case "$*" in
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp tox "$3/bin/tox" && ln -s /bin/true "$3/bin/pip" ;;
"tests/tools.py hide "*) echo "$PATH" ;;
"tests/tools.py packages") ;;
*) exit 99 ;;
esac
"""


def test_a_failed_first_step_ends_the_wheels_job_and_leaves_no_folder(tmp_path):
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    temporary, programs = tmp_path / "temporary", tmp_path / "programs"
    for folder in (temporary, programs):
        folder.mkdir()
    for path, text in (
        (tmp_path / ".ci/wheel", WHEEL),
        (tmp_path / "tox", TOX),
        (programs / "python3", PYTHON),
    ):
        path.write_text(text)
        path.chmod(0o755)
    os.mkfifo(tmp_path / "begun")
    environ = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}", "TMPDIR": str(temporary)}
    done = subprocess.run(
        [tmp_path / ".ci/run"], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3, done.stdout + done.stderr
    pid = int((tmp_path / "pid").read_text())
    status = Path(f"/proc/{pid}/status")
    # A container may have nobody who waits for it.
    has_ended = until(lambda: not status.exists() or "Z (zombie)" in status.read_text(), 10)
    if not has_ended:
        os.kill(pid, signal.SIGKILL)
    assert has_ended
    assert [] == list(temporary.iterdir())


# The command that runs all tests.


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a test in each part; they fail where they are told to."""
    shutil.copytree(
        ROOT / "tests", tmp_path / "tests", ignore=lambda _, names: {*names} - {"run.py"}
    )
    (tmp_path / "pytest.ini").write_text(INI)
    for name in ("tests/test_fast", "tests/slow/test_slow", "benchmarks/tests/test_programs"):
        path = tmp_path / f"{name}.py"
        part = path.stem.removeprefix("test_")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            "import os\n"
            f"def {path.stem}():\n"
            "    assert os.environ['PYTEST_XDIST_WORKER']\n"
            f"    assert os.environ['FAIL'] != {part!r}\n"
        )
    (tmp_path / "baselines/published/tests").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "fail", "status", "expected"),
    [
        ([], "slow", 0, {"fast": ["passed"]}),
        ([], "fast", 1, {"fast": ["failure"]}),
        (["slow", "tests/test_fast.py::test_fast"], "", 0, {"slow": ["passed", "passed"]}),
        (["programs"], "programs", 1, {"programs": ["failure"]}),
    ],
    ids=["fast", "a-failure", "slow-and-a-test", "programs"],
)
def test_a_part_runs_with_the_tests_that_are_named_and_its_failure_is_the_commands(
    project, reports, arguments, fail, status, expected
):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "tests/run.py", str(project), *arguments],
        env=environ | PLAIN | {"FAIL": fail},
        capture_output=True,
        text=True,
        check=False,
    )
    outcomes = {
        path.stem: [outcome for _, outcome in reports.outcomes(path)]
        for path in project.glob("*.xml")
    }
    assert (status, expected) == (done.returncode, outcomes), done.stdout + done.stderr


# What is made of the reports.


@pytest.fixture(scope="module")
def reports():
    """`.ci/reports.py`."""
    spec = importlib.util.spec_from_file_location("own_ci_reports", ROOT / ".ci/reports.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SUITE = """
import os, pytest

def test_plain(): pass

class TestMore:
    @pytest.mark.parametrize("n", ["under srun and mpirun", "a.b::c", "[x]", "ü$(y)'", "1"])
    def test_needs(self, n):
        if "TOOL" not in os.environ and n != "1":
            pytest.skip("needs a tool")
        assert "BROKEN" not in os.environ or n == "1"

@pytest.fixture
def untidy():
    yield
    assert "UNTIDY" not in os.environ

def test_cleans_up(untidy): pass
"""


@pytest.fixture
def ci(tmp_path, monkeypatch, capsys, reports):
    """Both runs of a project of one file, as `.ci/run` has them; what is wrong with them."""
    (tmp_path / "tests").mkdir()
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "tests/test_suite.py").write_text(SUITE)
    monkeypatch.chdir(tmp_path)

    def pytest_with(report, environ, *arguments):
        command = [sys.executable, "-m", "pytest", "-q", *arguments, f"--junitxml={report}"]
        own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        subprocess.run(command, env=own | PLAIN | environ, capture_output=True, check=False)

    def ci(again=None, first=None, leave_out=0):
        pytest_with("fast.xml", first or {}, "tests")
        assert reports.main("skipped", tmp_path / "fast.xml") is None
        skipped = capsys.readouterr().out.splitlines()
        tests = skipped[leave_out:] or ["-k", "nothing"]
        pytest_with("slow.xml", {"TOOL": "1"} if again is None else again, *tests)
        return reports.main("check", tmp_path / "fast.xml", tmp_path / "slow.xml") or (
            capsys.readouterr().out
        )

    return ci


ADDRESS = "tests/test_suite.py::TestMore::test_needs[under srun and mpirun]"


def test_what_was_skipped_runs_again_and_nothing_else_does(ci):
    assert ci() == "3 tests passed without the tools, 4 with them, of 1 files\n"


@pytest.mark.parametrize(
    ("scene", "sentence"),
    [
        ({"again": {}}, f"skipped: {ADDRESS}"),
        ({"again": {"TOOL": "1", "BROKEN": "1"}}, f"failure: {ADDRESS}"),
        ({"leave_out": 1}, f"skipped, and not run again: {ADDRESS}"),
        ({"first": {"TOOL": "1"}}, "no test was skipped while the tools were hidden"),
        ({"first": {"UNTIDY": "1"}}, "error: tests/test_suite.py::test_cleans_up"),
        ({"first": {"PYTEST_ADDOPTS": "-k nothing"}}, "no test of tests/test_suite.py passed"),
    ],
    ids=[
        "skipped-again",
        "fails-with-the-tool",
        "left-out",
        "not-hidden",
        "fails-in-its-teardown",
        "no-test",
    ],
)
def test_what_did_not_pass_fails_ci_and_is_named(ci, scene, sentence):
    text = ci(**scene)
    assert sentence in text.partition("every tool that a test needs:\n")[2]


def test_a_file_of_which_no_test_ran_fails_ci(ci):
    Path("tests/test_empty.py").write_text("def helper(): pass\n")
    assert ci().splitlines()[1:] == ["no test of tests/test_empty.py passed"]
