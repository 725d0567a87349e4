"""The project's own tests in CI: all without the tools that tests start, then with them those that were skipped."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from . import tools

ROOT = Path(__file__).resolve().parents[1]
# pytest with xdist, and without what else is installed.
PLAIN = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
INI = "[pytest]\naddopts = --import-mode=importlib\nmarkers = serial\n"
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
    assert script.index(first) < script.index("apt-get") < script.index("-- slow")


# The command that runs all tests.


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a test that runs alone and others that do not; they fail where they are told to."""
    (tmp_path / "tests/slow").mkdir(parents=True)
    (tmp_path / "pytest.ini").write_text(INI)
    shutil.copy(ROOT / "tests/run.py", tmp_path / "tests")
    (tmp_path / "tests/test_any.py").write_text(
        "import os\ndef test_any(): assert 'any' not in os.environ['FAIL']\n"
    )
    (tmp_path / "tests/test_alone.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.serial\n"
        "def test_alone():\n    assert 'PYTEST_XDIST_WORKER' not in os.environ and 'alone' not in os.environ['FAIL']\n"
        "def test_beside(): assert os.environ['PYTEST_XDIST_WORKER']\n"
    )
    slow = "import os\ndef test_slow(): assert os.environ['FAIL'] != 'slow'\n"
    (tmp_path / "tests/slow/test_slow.py").write_text(slow)
    for folder in ("benchmarks", "baselines/published"):
        (tmp_path / folder / "tests").mkdir(parents=True)
    (tmp_path / "benchmarks/tests/test_program.py").write_text(slow.replace("slow", "program"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_all(project, fail="", *arguments):
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "tests/run.py", str(project), *arguments],
        env=environ | PLAIN | {"FAIL": fail},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("fail", "status", "said"),
    [
        ("", 0, {"others": ["passed", "passed"], "serial": ["passed"]}),
        ("any", 1, {"others": ["failure", "passed"], "serial": ["passed"]}),
        ("alone", 1, {"others": ["passed", "passed"], "serial": ["failure"]}),
    ],
    ids=["none-fails", "the-first-part-fails", "the-second-part-fails"],
)
def test_both_parts_run_and_either_fails_the_command(project, reports, fail, status, said):
    done = run_all(project, fail)
    told = {
        name: sorted(outcome for _, outcome in reports.outcomes(project / f"{name}.xml"))
        for name in said
    }
    assert (done.returncode, told) == (status, said), done.stdout + done.stderr


def test_slow_ones_and_those_of_programs_run_by_their_name_with_those_that_are_named_behind_it(
    project, reports
):
    plain, alone = "tests/test_any.py", "tests/test_alone.py::test_alone"
    for fail, arguments, status, expected in (
        ("program", ["programs"], 1, {"programs-others": ["failure"]}),
        ("", ["slow", plain, alone], 0, {"slow-others": ["passed"] * 2, "slow-serial": ["passed"]}),
    ):
        done = run_all(project, fail, *arguments)
        outcomes = {
            path.stem: [outcome for _, outcome in reports.outcomes(path)]
            for path in project.glob("*.xml")
        }
        assert (status, expected) == (done.returncode, outcomes), done.stdout + done.stderr
        for path in project.glob("*.xml"):
            path.unlink()


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
        pytest_with("first-others.xml", first or {}, "tests")
        assert reports.main("skipped", tmp_path) is None
        skipped = capsys.readouterr().out.splitlines()
        if len(skipped) > leave_out:
            pytest_with(
                "slow-others.xml", {"TOOL": "1"} if again is None else again, *skipped[leave_out:]
            )
        return reports.main("check", tmp_path) or capsys.readouterr().out

    return ci


ADDRESS = "tests/test_suite.py::TestMore::test_needs[under srun and mpirun]"


def test_what_was_skipped_runs_again_and_nothing_else_does(ci):
    assert ci() == "3 tests passed without the tools, 4 with them, of 1 files\n"


@pytest.mark.parametrize(
    ("scene", "said"),
    [
        ({"again": {}}, f"skipped: {ADDRESS}"),
        ({"again": {"TOOL": "1", "BROKEN": "1"}}, f"failure: {ADDRESS}"),
        ({"leave_out": 1}, f"skipped, and not run again: {ADDRESS}"),
        ({"first": {"TOOL": "1"}}, "no test was skipped while the tools were hidden"),
        ({"first": {"UNTIDY": "1"}}, "error: tests/test_suite.py::test_cleans_up"),
        ({"first": {"PYTEST_ADDOPTS": "-k nothing"}}, "first-others.xml holds no test"),
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
def test_what_did_not_pass_fails_ci_and_is_named(ci, scene, said):
    found = ci(**scene)
    assert said in found.partition("every tool that a test needs:\n")[2]


def test_a_slow_test_that_runs_alone_must_pass_too(ci, tmp_path):
    (tmp_path / "slow-serial.xml").write_text(
        '<testsuite><testcase classname="tests.slow.test_it" name="test_it"><skipped/></testcase></testsuite>'
    )
    assert ci().splitlines()[1:] == ["skipped: tests.slow.test_it::test_it"]


def test_a_file_of_which_no_test_ran_fails_ci(ci):
    Path("tests/test_empty.py").write_text("def helper(): pass\n")
    assert ci().splitlines()[1:] == ["no test of tests/test_empty.py passed"]
