"""`roofline init` and `roofline report`: what they write, and that they overwrite nobody's work."""

import errno
import json
import os
import re
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from pytest_roofline.cli import output as cli_init
from pytest_roofline.cli.main import main
from pytest_roofline.core.errors import CannotStore
from pytest_roofline.report import files as report_files

from .. import warm

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ".github/workflows/roofline.yml"
ACTION = ".github/actions/roofline/action.yml"
MEMCPY = "perf_tests/test_memcpy.py"
H100 = "baselines/h100.json"


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty folder, in which the command is called."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*arguments):
    """The command's result."""
    return CliRunner().invoke(main, ["init", *map(str, arguments)])


def done(*arguments):
    """What a command that succeeds says of what it did."""
    result = init(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused_by_init(*arguments):
    """The one sentence of a command that refuses."""
    result = init(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("roofline: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def tree(folder):
    """Every file below a folder with what is in it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_it_writes_what_ships_and_a_workflow(home):
    first, last = init("a folder").stdout.splitlines()
    assert re.fullmatch(
        r"\d+ files written into a folder: \.github/ 2, baselines/ \d+, perf_tests/ \d+, pytest\.ini",
        first,
    )
    assert last == "next: cd 'a folder' && pytest perf_tests -k memcpy"
    sources = [*(ROOT / "perf_tests").glob("*.py"), *(ROOT / "baselines").glob("*.json")]
    texts = {"pytest.ini", "perf_tests/README.md", "baselines/README.md", WORKFLOW, ACTION}
    written = tree(home / "a folder")
    assert {str(path.relative_to(ROOT)) for path in sources} | texts == set(written)
    assert all(path.read_bytes() == written[str(path.relative_to(ROOT))] for path in sources)
    text = written["pytest.ini"].decode()
    assert {"--import-mode=importlib", "--strict-markers"} <= set(
        re.search("addopts = (.*)", text)[1].split()
    )
    # A second call writes nothing, and says what stands there.
    told = init("a folder").stdout.splitlines()
    assert told == [
        f"nothing to write: a folder already holds all {len(written)} files, unchanged",
        last,
    ]
    again = done("a folder")
    assert ([], written, set(written)) == (
        again["written"],
        tree(home / "a folder"),
        set(again["same"]),
    )


def test_the_suite_is_collected_there_also_where_pytest_is_configured_already(home):
    (home / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    init(".", "--ci=none")
    assert not (home / "pytest.ini").exists()
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    found = warm.run(
        ["-m", "pytest", "-p", "no:cacheprovider", "perf_tests", "-q", "--collect-only"],
        cwd=home,
        env=plain,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "perf_tests/test_memcpy.py::test_memcpy_h2h[4KiB]" in found.stdout


def test_files_that_differ_are_refused_by_name_and_overwritten_by_force(home):
    for name in (MEMCPY, H100):
        (home / name).parent.mkdir()
        (home / name).write_text("mine\n")
    said = (
        f"these files exist and differ from the shipped ones: {H100}, {MEMCPY}; nothing was written; "
        "overwrite them with --force\n"
    )
    assert said in refused_by_init(".")
    assert {MEMCPY: b"mine\n", H100: b"mine\n"} == tree(home)
    assert {MEMCPY, H100} <= set(done(".", "--force")["written"])
    assert (home / MEMCPY).read_bytes() == (ROOT / MEMCPY).read_bytes()


def test_a_file_is_written_for_the_ci_that_was_asked_for_and_pytest_keeps_the_configuration_that_it_has(
    home,
):
    every = {target for paths in cli_init.CI.values() for target in paths.values()}
    for number, (options, expected) in enumerate((
        ([], {WORKFLOW, ACTION}),
        (["--ci=github-ab"], {".github/workflows/roofline-ab.yml", ACTION}),
        (["--ci=slurm", "--ci=gitlab"], {".gitlab-ci.yml", "roofline.sbatch"}),
        (["--ci=none"], set()),
    )):  # fmt: skip
        assert expected == set(done(f"new{number}", *options)["written"]) & every
    for number, (name, text) in enumerate((
        ("pytest.toml", "[pytest]\n"),
        ("pyproject.toml", "[project]\nname = 'x'\n[tool.pytest.ini_options]\n"),
        ("tox.ini", "[tox]\n[pytest]\n"),
        ("setup.cfg", "[tool:pytest]\n"),
    )):  # fmt: skip
        (home / str(number)).mkdir()
        (home / str(number) / name).write_text(text)
        assert (
            f"note: no pytest.ini is written, since {name} configures pytest here"
            in init(number).stdout
        )
        assert not (home / str(number) / "pytest.ini").exists()
    (home / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert "pytest.ini" in done(".")["written"]


def test_a_workflow_below_the_top_of_a_repository_is_told_where_it_belongs(home):
    (home / ".git").mkdir()
    # That a job works after these changes is tested in tests/slow/ci.
    told = init("bench/gpu", "--ci=github", "--ci=gitlab", "--ci=slurm").stdout
    assert (
        f"note: CI reads {ACTION}, {WORKFLOW} only at the top of a repository; move .github to the top, and write "
        "`suite: bench/gpu` below `package:`" in told
    )
    assert "note: CI reads .gitlab-ci.yml only at the top" in told
    assert "roofline.sbatch is read" not in told
    assert "note" not in init(".", "--ci=github").stdout


def test_the_suite_of_a_workflow_is_named_from_the_top_and_only_where_it_measures(
    home, monkeypatch
):
    (home / ".git").mkdir()
    (home / "bench").mkdir()
    monkeypatch.chdir(home / "bench")
    assert "write `suite: bench` below `package:`" in init(".", "--ci=github-ab").stdout
    lines = init("gpu", "--ci=github-ab-comment").stdout
    assert ("only at the top" in lines, "suite:" in lines) == (True, False)


def test_a_full_disk_is_one_sentence_and_the_command_can_be_called_again(home, monkeypatch):
    real, calls = Path.write_bytes, []

    def limited(path, data):
        calls.append(path)
        if len(calls) > 5:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return real(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", limited)
        assert "cannot be written: No space left on device; 5 of" in refused_by_init("new")
    assert init("new", "--force").exit_code == 0
    # What is in the way and no file is refused, then cannot be overwritten either.
    for name, make in (("perf_tests", Path.touch), ("pytest.ini", Path.mkdir)):
        (home / "at").mkdir(exist_ok=True)
        make(home / "at" / name)
    assert "pytest.ini; nothing was written" in refused_by_init("at")
    assert "cannot be written: " in refused_by_init("at", "--force")


def test_no_text_that_is_written_leads_to_a_page_that_an_installed_user_does_not_have(home):
    init(".", "--ci=github", "--ci=gitlab", "--ci=slurm")
    for path in home.rglob("*.md"):
        targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", path.read_text())
        assert [target for target in targets if not (path.parent / target).exists()] == []
    written = [path for path in tree(home) if not path.endswith((".py", ".json"))]
    assert len(written) == 7
    assert [path for path in written if "docs/" in (home / path).read_text()] == []


@pytest.fixture
def report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def command(*arguments):
        return CliRunner().invoke(main, ["report", *map(str, arguments)])

    return command


@pytest.fixture
def runs(make, tmp_path):
    """Two saved runs."""
    folder = tmp_path / ".roofline" / "runs"
    return [
        make.save(folder / f"{name}.jsonl", make.measurement(), make.footer())
        for name in ("old", "new")
    ]


def test_several_runs_by_name_or_path_are_one_report_and_json_is_what_the_file_holds(
    report, runs, tmp_path
):
    result = report("old", runs[1], "-o", "a/out", "--json")
    text = (tmp_path / "a/out/run.json").read_text()
    assert (0, text) == (result.exit_code, result.output)
    assert text == report("old", "new", "--json").output
    assert ["old", "new"] == list(pd.read_csv(tmp_path / "a/out/results.csv")["run"])
    assert ["old", "new"] == [run["header"]["run_id"] for run in json.loads(text)["runs"]]


def test_the_summary_of_a_job_is_appended(report, runs, tmp_path, monkeypatch):
    path = tmp_path / "step.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    runs[0].write_text(runs[0].read_text() + '{"type":')
    for _ in range(2):
        result = report("old", "-o", "out")
        assert 0 == result.exit_code
    assert (
        "note: .roofline/runs/old.jsonl ends in the middle of a line; that line is left out"
        in result.stderr
    )
    report("old", "--json")
    assert 2 * (tmp_path / "out/summary.md").read_text() == path.read_text()
    # One that cannot be appended is an error after the files.
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    result = report("old", "-o", "new")
    assert (2, 4) == (result.exit_code, len(list((tmp_path / "new").iterdir())))
    assert "cannot be written: Is a directory" in result.stderr


def test_what_cannot_be_reported_is_one_sentence_and_status_2(report, runs, tmp_path):
    (tmp_path / "taken").write_text("")
    (tmp_path / "nested/summary.md").mkdir(parents=True)
    (tmp_path / "copy.jsonl").write_bytes(runs[1].read_bytes())
    (tmp_path / "baseline.json").write_text("{}\n")
    cases = [
        ((), "no RUN is given; name one run, or several: roofline report RUN -o DIR"),
        (("old",), "neither -o DIR nor --json is given; type: roofline report old -o report"),
        (("old", "old", "-o", "out"), "'old' and 'old' are the same run; name this run once"),
        (("old", "new", "copy.jsonl", "-o", "out"), "'new' and 'copy.jsonl' are the same run"),
        (("none", "-o", "out"), "run file .roofline/runs/none.jsonl does not exist"),
        (("old", "-o", "taken"), "-o=taken: taken is not a directory"),
        (("old", "-o", "nested"), "-o=nested: nested/summary.md is a directory"),
        (("old", "-o", ""), "-o is empty"),
        (("baseline.json", "-o", "out"), "baseline.json, line 1 has type None"),
    ]
    for arguments, told in cases:
        result = report(*arguments)
        assert (2, 1) == (result.exit_code, len(result.stderr.splitlines())), arguments
        assert told in result.stderr
    assert not (tmp_path / "out").exists()


def test_one_file_that_cannot_be_written_does_not_take_the_others_along(
    report, runs, tmp_path, monkeypatch
):
    write = report_files.write_atomically

    def no_room(path, text):
        if path.name == "run.json":
            raise CannotStore(f"{path} cannot be written: No space left on device")
        write(path, text)

    monkeypatch.setattr(report_files, "write_atomically", no_room)
    result = report("old", "-o", "out")
    assert (result.exit_code, result.stderr) == (
        2,
        "roofline: out/run.json cannot be written: No space left on device\n",
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "index.html",
        "results.csv",
        "summary.md",
    }


def test_runs_of_one_file_name_are_told_apart_in_every_file(report, make, tmp_path):
    for folder in "ab":
        make.save(tmp_path / folder / "n.jsonl", make.measurement(), make.footer(), run_id=folder)
    assert 0 == report("a/n.jsonl", "b/n.jsonl", "-o", "out").exit_code
    plain = json.loads((tmp_path / "out/run.json").read_text())
    assert (
        ["a/n", "b/n"]
        == [run["name"] for run in plain["runs"]]
        == [row["run"] for row in plain["results"]]
    )
    assert ["a/n", "b/n"] == list(pd.read_csv(tmp_path / "out/results.csv")["run"])
    for name in ("summary.md", "index.html"):
        text = (tmp_path / "out" / name).read_text()
        assert "a/n" in text, name
        assert "b/n" in text, name
    make.save(tmp_path / "empty.jsonl", ended=False)
    assert 0 == report("empty.jsonl", "-o", "none").exit_code
    assert "## roofline: `GREY: nothing was compared" in (tmp_path / "none/summary.md").read_text()
