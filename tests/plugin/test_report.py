"""Reports of a live run: what was asked for is written, whatever happened; what GitHub shows comes by itself."""

import json
import os
import xml.etree.ElementTree as ET

import pytest

import pytest_roofline.report.files  # noqa: F401
from pytest_roofline.plugin.report_files import ANNOTATING

# An inner run that imported these first would leave them behind, half forgotten.

FILES = ["index.html", "results.csv", "run.json", "summary.md"]
BROKEN = """
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9)

def test_broken_before(roofline):
    raise AssertionError("never measured")

def test_fine(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)

@pytest.mark.roofline(needs="cpu")
def test_elsewhere(roofline):
    pass

def test_broken_after(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK, name="half")
    {last}
"""


@pytest.fixture
def report(desk):
    """What a report in the desk's folder `out` holds."""

    class Report:
        path = desk.path / "out"

        @property
        def files(self):
            return sorted(path.name for path in self.path.iterdir()) if self.path.exists() else []

        @property
        def plain(self):
            return json.loads((self.path / "run.json").read_text())

        @property
        def words(self):
            return {result["label"]: result["verdict"] for result in self.plain["results"]}

        @property
        def summary(self):
            return (self.path / "summary.md").read_text()

    return Report()


@pytest.fixture
def github(desk, monkeypatch):
    """The variables of a job on GitHub, whose checkout is the folder of the desk."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(desk.path))


@pytest.fixture
def step_summary(desk, monkeypatch):
    """The file that GitHub shows as a step's summary."""
    path = desk.path / "step.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    return path


def lines_of(result):
    return result.stdout.str().splitlines()


def test_the_report_of_a_live_run_is_that_of_its_file_however_that_is_named(
    desk, report, monkeypatch
):
    monkeypatch.chdir(desk.path)
    desk.suite()
    result = desk.run("--roofline-report=out", "--roofline-save=night")
    assert (0, FILES) == (result.ret, report.files)
    assert f"report written to {report.path}; open {report.path}/index.html" in lines_of(result)
    assert {"copy[64MiB]": "NO BASELINE", "copy[1GiB]": "NO BASELINE"} == report.words
    run, (told,) = desk.saved("night"), report.plain["runs"]
    assert run.header.run_id == told["header"]["run_id"]
    samples = [list(one.samples.seconds) for one in run.measurements]
    assert samples == [one["samples"]["seconds"] for one in told["measurements"]]
    done = desk.cli("report", desk.run_path("night"), "-o", desk.path / "again")
    written = [
        str(desk.path / "again" / name)
        for name in ("run.json", "results.csv", "summary.md", "index.html")
    ]
    assert (0, written) == (done.exit_code, done.output.splitlines())
    desk.suite(BROKEN.format(last="assert 0"))
    assert 1 == desk.run("--roofline-report=red", "--roofline-save=red").ret
    for given, ours, theirs in (
        ("night", "out", "again"),
        ("red", "red", "by-name"),
        (os.path.relpath(desk.run_path("red")), "red", "by-path"),
    ):
        assert theirs == "again" or 0 == desk.cli("report", given, "-o", theirs).exit_code
        for name in FILES:
            assert (desk.path / ours / name).read_bytes() == (
                desk.path / theirs / name
            ).read_bytes(), (theirs, name)


@pytest.mark.parametrize("broken", ["page", "rows_of", "annotations"])
def test_nothing_of_a_report_costs_anything_else(
    desk, report, github, step_summary, monkeypatch, broken
):
    import pytest_roofline.plugin.report_files as report_files
    import pytest_roofline.report.page as page

    module = page if broken == "page" else report_files
    monkeypatch.setattr(module, broken, lambda *args, **kwargs: 1 / 0)
    desk.suite(BROKEN.format(last="pass"))
    result = desk.run("--roofline-report=out", "-k", "fine")
    lines = lines_of(result)
    (warning,) = [line for line in lines if line.startswith("WARNING: ")]
    assert "ZeroDivisionError: division by zero" in warning
    assert "INTERNALERROR" not in result.stdout.str()
    assert any("NO BASELINE" in line for line in lines)
    lost = {"page": {"index.html"}, "rows_of": set(FILES), "annotations": set()}[broken]
    assert set(FILES) - lost == set(report.files)
    assert ("annotations" == broken) == (result.ret == 0)
    assert step_summary.exists() == (broken != "rows_of")
    assert any(line.startswith("::warning ") for line in lines) == (broken == "page")


def test_a_folder_that_cannot_be_is_refused_before_anything_is_measured(desk, sentence):
    desk.one()
    (desk.path / "file").touch()
    (desk.path / "taken/index.html").mkdir(parents=True)
    for asked, words in (
        ("file", ("--roofline-report=", "is not a directory")),
        ("file/out", ("--roofline-report=", "file is not a directory")),
        ("taken", ("index.html is a directory",)),
        ("", ("--roofline-report is empty",)),
    ):
        sentence(desk.run(f"--roofline-report={asked}"), *words)
    assert not (desk.path / "opened").exists()


def test_a_report_that_could_not_be_written_fails_the_run_and_says_why(desk):
    desk.suite("from pathlib import Path\n" + BROKEN.format(last="Path('out').touch()"))
    result = desk.run("--roofline-report=out", "-k", "fine or after")
    assert pytest.ExitCode.TESTS_FAILED == result.ret
    result.assert_outcomes(passed=2)
    (line,) = [
        line
        for line in lines_of(result)
        if line.startswith("WARNING: the report is not complete: ")
    ]
    assert "out/run.json cannot be written: " in line
    assert 2 == len(desk.last_run().measurements)


def test_whatever_became_of_the_tests_the_report_has_what_there_is(desk, report):
    first = {"test_broken_before": "FAILED", "fine": "NO BASELINE", "test_elsewhere": "SKIPPED"}
    for last, status, word in (
        ("assert 0, 'wrong'", 1, "FAILED"),
        ("raise KeyboardInterrupt", 2, "INTERRUPTED"),
    ):
        desk.suite(BROKEN.format(last=last))
        assert status == desk.run("--roofline-report=out").ret
        assert first | {"broken_after.half": word} == report.words
        assert f"which ended with status {status}" in report.summary
    # Also where nothing was measured at all; a run that nobody asked to report then writes no file.
    before = desk.run_paths()
    assert 1 == desk.run("-k", "before").ret
    assert before == desk.run_paths()
    assert 1 == desk.run("--roofline-report=out", "-k", "before or elsewhere").ret
    assert {"test_broken_before": "FAILED", "test_elsewhere": "SKIPPED"} == report.words


def test_where_nothing_is_measured_nothing_is_written(desk, report, step_summary, github):
    desk.one()
    for option in ("--collect-only", "--setup-plan", "-k=nothing"):
        desk.run(option, "--roofline-report=out")
        assert ([], False) == (report.files, step_summary.exists()), option


def test_rounds_are_one_report_that_the_parent_writes(desk, report, step_summary):
    against = desk.sessions(scatter=(1.0, 1.013, 0.987, 1.008, 0.992))
    step_summary.unlink(missing_ok=True)
    desk.script(slow=1.06)
    # A round that wrote one would be here with another process than this.
    writer = desk.path / "conftest.py"
    writer.write_text(desk.conftest + WRITERS)
    desk.run(*against, "--roofline-rounds=2", "--roofline-report=out", "-k", "64MiB")
    assert [str(os.getpid())] == (desk.path / "writers").read_text().split()
    (result,) = report.plain["results"]
    assert (2, 2) == (result["processes"], len(report.plain["runs"][0]["measurements"]))
    assert 5 == result["baseline_processes"]
    assert 1 == step_summary.read_text().count("## roofline: ")


WRITERS = """

from pytest_roofline.plugin import report_files as writing

_write = writing.write_report

def noted(*args):
    with (HERE / "writers").open("a") as file:
        file.write(f"{os.getpid()}\\n")
    return _write(*args)

@pytest.fixture(autouse=True, scope="session")
def _noting():
    writing.write_report = noted
    yield

def pytest_unconfigure():
    writing.write_report = _write
"""


def test_a_test_whose_verdict_waited_has_failed_where_its_fixture_did_before(desk, report):
    against = desk.sessions(scatter=(1.0, 1.013, 0.987, 1.008, 0.992))
    desk.script(slow=1.06)
    writer = desk.path / "conftest.py"
    writer.write_text(desk.conftest + TORN)
    result = desk.run(
        *against, "--roofline-rounds=2", "--roofline-report=out", "--junitxml=j.xml", "-k", "64MiB"
    )
    assert 1 == result.ret
    assert (desk.path / "torn").exists()
    (found,) = report.plain["results"]
    assert ("FAILED", "failed") == (found["verdict"], found["outcome"])
    assert "in teardown" in found["reason"]
    cases = ET.parse(desk.path / "j.xml").getroot().iter("property")
    assert {"FAILED"} == {
        one.get("value") for one in cases if one.get("name") == "roofline.verdict"
    }


TORN = """

@pytest.fixture(autouse=True)
def _torn():
    yield
    if not (HERE / "torn").exists():
        (HERE / "torn").touch()
        raise RuntimeError("in teardown")
"""


def test_the_summary_of_a_job_is_appended_to_what_is_there_without_being_asked(desk, step_summary):
    step_summary.write_text("before, without a line end")
    desk.one()
    assert 0 == desk.run().ret
    assert 0 == desk.run().ret
    heading = "## roofline: `GREY: nothing was compared"
    text = step_summary.read_text()
    assert text.startswith(f"before, without a line end\n{heading}")
    assert 2 == text.count(heading)


def commands(result):
    return [line for line in lines_of(result) if line.startswith("::")]


def test_github_is_told_of_failures_and_of_what_could_not_be_judged(desk, github):
    desk.suite(BROKEN.format(last="pass"))
    error, *warnings = commands(desk.run())
    line = 1 + BROKEN.splitlines().index("def test_broken_before(roofline):")
    assert (
        f"::error file=test_suite.py,line={line},title=FAILED test_broken_before::AssertionError: never measured"
        == error
    )
    assert ["NO BASELINE fine", "NO BASELINE broken_after.half"] == [
        text.split("title=")[1].split("::")[0] for text in warnings
    ]

    # A plugin that annotates failures itself leaves the warnings to us.
    (desk.path / f"{ANNOTATING}.py").touch()
    desk.pytester.syspathinsert()
    found = commands(desk.run("-p", ANNOTATING))
    assert [True, True] == [line.startswith("::warning ") for line in found]


def test_a_summary_that_finds_no_room_is_a_warning_and_fails_nothing(desk, step_summary):
    desk.one()
    step_summary.write_bytes(b"x" * (2**20 - 100))
    result = desk.run()
    (line,) = [
        one
        for one in lines_of(result)
        if one.startswith("WARNING: the summary of this CI job was not written: ")
    ]
    assert (0, True) == (
        result.ret,
        line.endswith("has no room for a summary; the limit of GitHub is 1 MiB"),
    )
    assert 2**20 - 100 == step_summary.stat().st_size


def test_what_could_not_be_saved_stands_in_the_report(desk, report, monkeypatch):
    def full(**options):
        raise OSError(28, "No space left on device")

    desk.one()
    (desk.path / ".roofline").write_text("in the way")
    monkeypatch.setattr("tempfile.mkdtemp", full)
    assert "are only printed here" in desk.run("--roofline-report=out").stdout.str()
    (run,) = report.plain["runs"]
    assert (1, True) == (len(run["measurements"]), run["footer"] is not None)
    assert "The run file could not be saved" in report.summary


def test_a_file_is_named_from_the_root_of_the_repository(desk, github, monkeypatch):
    below = desk.path / "perf" / "gpu"
    below.mkdir(parents=True)
    desk.one().rename(below / "test_below.py")
    monkeypatch.chdir(below)
    (warning,) = commands(desk.run(f"--rootdir={desk.path / 'perf'}"))
    assert warning.startswith("::warning file=perf/gpu/test_below.py,line=")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(desk.path / "another"))
    (warning,) = commands(desk.run(f"--rootdir={desk.path / 'perf'}"))
    assert warning.startswith("::warning title=")
