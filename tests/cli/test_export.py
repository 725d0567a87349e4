"""`roofline export` as a user types it."""

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.files import write_baseline
from pytest_roofline.cli.main import main
from pytest_roofline.core.entries import Baseline
from pytest_roofline.exchange import EXPORT_NAMES as NAMES

RUNS = Path(__file__).parents[2] / "docs" / "results" / "runs" / "memcpy-gate"
LABEL = "memcpy_d2d[64MiB]"


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(main, ["export", *map(str, arguments)])

    return run


@pytest.fixture
def saved(make, tmp_path):
    """Saves a run under its name."""

    def saved(name, *records, **changes):
        return make.save(tmp_path / ".roofline" / "runs" / f"{name}.jsonl", *records, **changes)

    return saved


@pytest.mark.parametrize("name", NAMES)
def test_standard_output_is_the_file_and_nothing_else(command, saved, make, name):
    saved("night", make.measurement())
    done = command("night", "--to", name)
    assert (0, "1 of 1 measurements exported\n") == (done.exit_code, done.stderr)
    assert json.loads(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_a_real_run_goes_out_whole(command, tmp_path, name):
    path = tmp_path / "new folder" / "out.json"
    done = command(RUNS / "again-1.jsonl", "--to", name, "-o", path)
    assert (0, f"7 of 7 measurements exported to {path}\n") == (done.exit_code, done.stdout)
    skipped = "without a time: test_memcpy_d2d[4KiB], test_memcpy_d2d[32KiB], test_memcpy_d2d[512KiB] and 39 more: "
    assert done.stderr.startswith(f"{skipped}its test was skipped: needs an accelerator")
    document = json.loads(path.read_text(encoding="utf-8"))
    assert 7 == len(document["benchmarks"] if name == "pytest-benchmark" else document)


@pytest.mark.parametrize("name", NAMES)
def test_a_drill_goes_nowhere(command, tmp_path, name):
    done = command(RUNS / "drill.jsonl", "--to", name, "-o", "out.json")
    assert (2, "", False) == (done.exit_code, done.stdout, (tmp_path / "out.json").exists())
    assert 7 == done.stderr.count("had been replaced through pytest_roofline_function")
    assert f"roofline: none of 7 measurements may go out as {name}; expected one at least\n" in done.stderr


def test_a_file_that_is_there_is_replaced_whole(command, saved, make, tmp_path):
    saved("night", make.measurement())
    (tmp_path / "out.json").write_text("x" * 10**5, encoding="utf-8")
    command("night", "--to", "bencher", "-o", "out.json")
    assert [LABEL] == list(json.loads((tmp_path / "out.json").read_text(encoding="utf-8")))


def test_a_hyphen_is_standard_output(command, saved, make, tmp_path):
    saved("night", make.measurement())
    done = command("night", "--to", "bencher", "-o", "-")
    assert (0, [LABEL], False) == (done.exit_code, list(json.loads(done.stdout)), (tmp_path / "-").exists())


def test_the_help_names_every_format():
    option = next(one for one in main.commands["export"].params if one.name == "format_name")
    assert f"{', '.join(NAMES[:-1])} or {NAMES[-1]}." == option.help


@pytest.mark.parametrize(
    "output", [".roofline/runs/night.jsonl", "link", "new.jsonl", "day.json", ".roofline/../day.json"]
)
def test_neither_a_run_nor_a_name_of_runs_is_written_over(command, saved, make, tmp_path, output):
    night = saved("night", make.measurement())
    day = make.save(tmp_path / "day.json", make.measurement(test_id="test_day"), run_id="day")
    (tmp_path / "link").symlink_to(night)
    before = night.read_bytes(), day.read_bytes()
    done = command("night", "./day.json", "--to", "bencher", "-o", output)
    assert (2, "", True) == (done.exit_code, done.stdout, "expected another name" in done.stderr), done.stderr
    assert (before, False) == ((night.read_bytes(), day.read_bytes()), (tmp_path / "new.jsonl").exists())


def test_a_baseline_is_not_written_over(command, saved, make, tmp_path):
    saved("night", make.measurement())
    path = tmp_path / "h200.json"
    write_baseline(path, Baseline("h200", (make.measured(1e-3),)))
    before = path.read_bytes()
    done = command("night", "--to", "bencher", "-o", "h200.json")
    assert (2, before) == (done.exit_code, path.read_bytes())
    assert "h200.json is a baseline, or another file that pytest-roofline reads" in done.stderr


def test_a_pipe_stays_one(command, saved, make, tmp_path):
    saved("night", make.measurement())
    os.mkfifo(tmp_path / "pipe")
    done = command("night", "--to", "bencher", "-o", "pipe")
    assert (2, True) == (done.exit_code, (tmp_path / "pipe").is_fifo())
    assert "pipe cannot be written: it is a pipe or a device; expected a file, or a new name" in done.stderr


def test_a_run_that_was_cut_is_noted(command, saved, make):
    path = saved("night", make.measurement())
    path.write_text(path.read_text(encoding="utf-8") + '{"type": "footer", "fin', encoding="utf-8")
    done = command("night", "--to", "bencher")
    assert (0, True) == (done.exit_code, "night.jsonl ends in the middle of a line" in done.stderr)


def test_names_cannot_steer_the_terminal(command, saved, make):
    saved("night", make.measurement(label="x\x1b[31m", invalid="busy\x1b[2J"), make.measurement(key=make.key("y")))
    assert "\x1b" not in command("night", "--to", "bencher").stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("night", "--to", "junit"), "--to is 'junit'; expected one of pytest-benchmark"),
        (("absent", "--to", "bencher"), "absent.jsonl"),
        (("night", "night", "--to", "bencher"), "stands twice in .roofline/runs/night.jsonl; expected"),
        (("night", "--to", "bencher", "-o", "night.d"), "night.d cannot be written: "),
    ],
    ids=["format", "run", "twice", "folder"],
)
def test_what_cannot_be_used_is_a_sentence_and_status_2(command, saved, make, tmp_path, arguments, sentence):
    saved("night", make.measurement())
    (tmp_path / "night.d").mkdir()
    done = command(*arguments)
    assert (2, "", True) == (done.exit_code, done.stdout, sentence in done.stderr), done.stderr
    assert "Traceback" not in done.stderr
