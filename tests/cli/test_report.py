"""`roofline report` as a user types it."""

import json
from pathlib import Path

import jsonschema
import pandas as pd
import pytest
from click.testing import CliRunner

from pytest_roofline.cli.main import main


@pytest.fixture
def report(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def command(*arguments):
        return CliRunner().invoke(main, ["report", *map(str, arguments)])

    return command


@pytest.fixture
def saved(make, tmp_path):
    """Two saved runs."""
    folder = tmp_path / ".roofline" / "runs"
    return [make.save(folder / f"{name}.jsonl", make.measurement(), make.footer()) for name in ("old", "new")]


def test_several_runs_by_name_or_path_are_one_report(report, saved, tmp_path):
    assert 0 == report("old", saved[1], "-o", "out").exit_code
    assert ["old", "new"] == list(pd.read_csv(tmp_path / "out/results.csv")["run"])
    assert ["old", "new"] == [
        run["header"]["run_id"] for run in json.loads((tmp_path / "out/run.json").read_text())["runs"]
    ]


def test_a_deeper_folder_is_made(report, saved, tmp_path):
    assert 0 == report("old", "-o", "a/b/c").exit_code
    assert (tmp_path / "a/b/c/index.html").is_file()


def test_json_is_what_the_file_holds(report, saved, tmp_path):
    done = report("old", "-o", "out", "--json")
    assert (0, (tmp_path / "out/run.json").read_text()) == (done.exit_code, done.output)
    assert done.output == report("old", "--json").output


def test_the_schema_describes_what_json_prints(report, saved):
    schema = json.loads(report("--schema").output)
    jsonschema.validate(json.loads(report("old", "new", "--json").output), schema)


def test_the_summary_of_a_job_is_appended(report, saved, tmp_path, monkeypatch):
    path = tmp_path / "step.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    for _ in range(2):
        assert 0 == report("old", "-o", "out").exit_code
    assert 2 * (tmp_path / "out/summary.md").read_text() == path.read_text()
    report("old", "--json")
    assert 2 * (tmp_path / "out/summary.md").read_text() == path.read_text()


def test_a_run_that_was_cut_is_reported_with_a_note(report, saved):
    saved[0].write_text(saved[0].read_text() + '{"type":')
    done = report("old", "-o", "out")
    assert 0 == done.exit_code
    assert "note: .roofline/runs/old.jsonl ends in the middle of a line, which is left out" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no RUN is given"),
        (("old",), "neither -o DIR nor --json is given"),
        (("old", "old", "-o", "out"), "'old' and 'old' are the same run; expected each once"),
        (("old", ".roofline/runs/old.jsonl", "-o", "out"), "'old' and '.roofline/runs/old.jsonl' are the same run"),
        (("old", "new", "copy.jsonl", "-o", "out"), "'new' and 'copy.jsonl' are the same run"),
        (("none", "-o", "out"), "run file .roofline/runs/none.jsonl does not exist"),
        (("../x", "-o", "out"), "run file ../x does not exist"),
        (("old", "-o", "taken"), "-o=taken: taken is no directory"),
        (("old", "-o", "taken/out"), "taken is no directory"),
        (("old", "-o", "nested"), "-o=nested: nested/summary.md is a directory"),
        (("old", "-o", ""), "-o is empty"),
        (("baseline.json", "-o", "out"), "baseline.json, line 1 has type None"),
        (("old", "--schema"), "--schema is given beside others"),
    ],
)
def test_what_cannot_be_used_is_one_sentence_and_status_2(report, saved, tmp_path, arguments, told):
    (tmp_path / "taken").write_text("")
    (tmp_path / "nested/summary.md").mkdir(parents=True)
    (tmp_path / "copy.jsonl").write_bytes(saved[1].read_bytes())
    (tmp_path / "baseline.json").write_text("{}\n")
    done = report(*arguments)
    assert (2, 1) == (done.exit_code, len(done.stderr.splitlines()))
    assert told in done.stderr
    assert not (tmp_path / "out").exists()


def test_one_file_that_cannot_be_written_does_not_take_the_others_along(report, saved, tmp_path, monkeypatch):
    from pytest_roofline.core.errors import CannotStore
    from pytest_roofline.report import files as writing

    write = writing.write_atomically

    def no_room(path, text):
        if path.name == "run.json":
            raise CannotStore(f"{path} cannot be written: No space left on device")
        write(path, text)

    monkeypatch.setattr(writing, "write_atomically", no_room)
    done = report("old", "-o", "out")
    assert (2, "roofline: out/run.json cannot be written: No space left on device\n") == (done.exit_code, done.stderr)
    assert ["index.html", "results.csv", "summary.md"] == sorted(path.name for path in (tmp_path / "out").iterdir())


def test_a_record_that_one_file_cannot_show_does_not_take_the_others_along(report, saved, tmp_path, monkeypatch):
    from pytest_roofline.core.errors import BadInput
    from pytest_roofline.report import files as writing

    def unshowable(runs, rows):
        raise BadInput("a kernel has no registers")

    monkeypatch.setattr(writing, "_page", unshowable)
    done = report("old", "-o", "out")
    assert (2, "roofline: out/index.html: a kernel has no registers\n") == (done.exit_code, done.stderr)
    assert ["results.csv", "run.json", "summary.md"] == sorted(path.name for path in (tmp_path / "out").iterdir())


def test_any_exception_of_one_file_leaves_the_others_and_is_told_as_a_defect(report, saved, tmp_path, monkeypatch):
    from pytest_roofline.report import page

    monkeypatch.setattr(page, "worst_first", lambda rows: 1 / 0)
    done = report("old", "-o", "out")
    assert (2, 1) == (done.exit_code, len(done.stderr.splitlines()))
    assert "out/index.html: ZeroDivisionError: division by zero (test_report.py, line " in done.stderr
    assert ["results.csv", "run.json", "summary.md"] == sorted(path.name for path in (tmp_path / "out").iterdir())


def test_a_summary_without_room_is_no_empty_file(report, saved, tmp_path, monkeypatch):
    from pytest_roofline.report import files as writing

    monkeypatch.setattr(writing, "summary", lambda runs, rows: "")
    done = report("old", "-o", "out")
    assert (2, False) == (done.exit_code, (tmp_path / "out/summary.md").exists())
    assert "out/summary.md: the summary would be longer than" in done.stderr


def test_runs_of_one_file_name_are_told_apart_in_every_file(report, make, tmp_path):
    for folder in "ab":
        make.save(tmp_path / folder / "n.jsonl", make.measurement(), make.footer(), run_id=folder)
    assert 0 == report("a/n.jsonl", "b/n.jsonl", "-o", "out").exit_code
    plain = json.loads((tmp_path / "out/run.json").read_text())
    assert ["a/n", "b/n"] == [run["name"] for run in plain["runs"]] == [row["run"] for row in plain["results"]]
    assert ["a/n", "b/n"] == list(pd.read_csv(tmp_path / "out/results.csv")["run"])
    for name in ("summary.md", "index.html"):
        text = (tmp_path / "out" / name).read_text()
        assert "a/n" in text, name
        assert "b/n" in text, name


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_folder_where_nothing_can_be_made_is_refused_whoever_asks(report, saved):
    done = report("old", "-o", "/proc/out")
    assert 2 == done.exit_code
    assert "nothing can be written into /proc (" in done.stderr


def test_a_summary_that_cannot_be_appended_is_an_error_after_the_files(report, saved, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    done = report("old", "-o", "out")
    assert (2, 4) == (done.exit_code, len(list((tmp_path / "out").iterdir())))
    assert "cannot be written: Is a directory" in done.stderr


def test_a_run_that_measured_nothing_is_a_report_that_says_so(report, make, tmp_path):
    make.save(tmp_path / "empty.jsonl", ended=False)
    assert 0 == report("empty.jsonl", "-o", "out").exit_code
    assert "## roofline: nothing was measured" in (tmp_path / "out/summary.md").read_text()
    assert 1 == len((tmp_path / "out/results.csv").read_text().splitlines())
    assert "</html>" in (tmp_path / "out/index.html").read_text()
