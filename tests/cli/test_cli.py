import subprocess
import sys

import pytest
from click.testing import CliRunner

from pytest_roofline.cli.main import main
from pytest_roofline.version import __version__


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def runs(make, tmp_path):
    """Saved runs of five processes: those of `fast` and `same` take a second, those of `slow` two."""
    for name, seconds in (("fast", 1.0), ("same", 1.0), ("slow", 2.0)):
        processes = [make.measurement(seconds, process=f"process-{number}", round=number) for number in range(1, 6)]
        make.save(tmp_path / ".roofline" / "runs" / f"{name}.jsonl", *processes)
    return tmp_path / ".roofline" / "runs"


def refused(result):
    """The one sentence of a command that could not use its input."""
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("roofline: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("roofline: ").rstrip("\n")


def test_a_run_is_given_by_name_or_by_path(command, runs):
    assert command("compare", runs / "fast.jsonl", "slow").exit_code == 1


def test_runs_can_be_kept_elsewhere(command, make, tmp_path):
    make.save(tmp_path / "elsewhere" / "runs" / "r.jsonl", make.measurement())
    assert command("compare", "r", "r", "--dir", "elsewhere").exit_code == 0


def test_the_tolerance_decides(command, runs):
    assert command("compare", "fast", "slow", "--tolerance", "200%!").exit_code == 0


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "run file bad.jsonl does not exist"),
        ("", "run file bad.jsonl is empty; expected JSON"),
        ("{", "run file bad.jsonl, line 1 is not JSON"),
        ("not json\n", "run file bad.jsonl, line 1 is not JSON"),
        ("[]\n", "run file bad.jsonl, line 1 has type None; expected one of header"),
        ('{"type": "header", "schema": 2}\n', "schema version 2; this pytest-roofline reads version 1"),
        ('{"type": "header", "schema": 1}\n', "missing required field `run_id`"),
        ('{"type": "header", "schema": NaN}\n', "holds NaN, which is no number"),
        ('{"type": "header", "schema": ' + "1" * 5000 + "}\n", "bad.jsonl, line 1"),
        ('{"type": "header", "\\ud800": 1, "schema": 1}\n', "bad.jsonl, line 1"),
    ],
)
@pytest.mark.parametrize("order", [("bad.jsonl", "fast"), ("fast", "bad.jsonl")])
def test_an_unusable_file_gets_one_sentence_on_stderr_and_status_2(command, runs, tmp_path, content, sentence, order):
    if content is not None:
        (tmp_path / "bad.jsonl").write_text(content)
    assert sentence in refused(command("compare", *order))


def test_a_file_of_bytes_is_refused(command, runs, tmp_path):
    (tmp_path / "bad.jsonl").write_bytes(b"\x80\x04\x95pickle")
    assert "is not UTF-8 text" in refused(command("compare", "bad.jsonl", "fast"))


def test_a_folder_means_its_runs_unless_a_saved_run_is_called_so(command, runs, tmp_path):
    (tmp_path / "same").mkdir()
    assert "holds no run file" in refused(command("compare", "fast", "same/"))
    assert command("compare", "fast", "same").exit_code == 0
    (runs / "slow.jsonl").rename(tmp_path / "same" / "slow.jsonl")
    assert command("compare", "fast", "same/").exit_code == 1


def test_a_measurement_without_samples_is_refused(command, runs):
    text = (runs / "slow.jsonl").read_text()
    (runs / "slow.jsonl").write_text(text.replace('"seconds": [2.0]', '"seconds": []'))
    assert "slow.jsonl, line 2" in refused(command("compare", "fast", "slow"))


@pytest.mark.parametrize("seconds", ["1e300", "1e-300"])
def test_times_at_the_ends_of_the_range_are_compared_or_refused_but_never_a_crash(command, runs, seconds):
    text = (runs / "slow.jsonl").read_text()
    (runs / "slow.jsonl").write_text(text.replace('"seconds": [2.0]', f'"seconds": [{seconds}]'))
    other = {"1e300": "1e-300", "1e-300": "1e300"}[seconds]
    text = (runs / "fast.jsonl").read_text()
    (runs / "fast.jsonl").write_text(text.replace('"seconds": [1.0]', f'"seconds": [{other}]'))
    result = command("compare", "fast", "slow")
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_hostile_names_of_a_run_are_shown_harmlessly(command, make, tmp_path):
    key = make.key("x\x1b[31m[/red]\n", parameters={"memory": "a\r"})
    make.save(tmp_path / "r.jsonl", make.measurement(key=key))
    result = command("compare", "r.jsonl", "r.jsonl")
    assert result.exit_code == 0
    assert "x\\x1b[31m[/red]\\n[a\\r]" in result.stdout.replace("\n", "")


def test_other_hardware_is_refused_with_both_names(command, make, runs):
    other = make.measurement(key=make.key(hardware=make.hardware(product="h100-sxm")))
    make.save(runs / "other.jsonl", other)
    sentence = refused(command("compare", "fast", "other"))
    assert "h100-sxm, 141gb" in sentence
    assert "h200-sxm, 141gb" in sentence


@pytest.mark.parametrize("tolerance", ["0", "-5%", "nan", "5", "many"])
def test_an_impossible_tolerance_is_refused(command, runs, tolerance):
    assert refused(command("compare", "fast", "slow", "--tolerance", tolerance)).startswith(
        f"--tolerance is '{tolerance}'"
    )


@pytest.mark.parametrize("name", ["no such run", ".hidden"])
def test_a_name_that_no_run_can_have_is_refused(command, runs, name):
    assert f"run name is {name!r}" in refused(command("compare", "fast", name))


@pytest.mark.parametrize(
    "arguments", [["compare", "fast"], ["compare"], ["baseline", "propose"], ["nonsense"], ["compare", "--nonsense"]]
)
def test_a_command_that_is_not_understood_exits_2(command, runs, arguments):
    result = command(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")


@pytest.mark.parametrize(
    "arguments",
    [[], ["compare"], ["baseline"], ["baseline", "propose"], ["baseline", "approve"]],
    ids=lambda arguments: " ".join(arguments) or "roofline",
)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_explains_itself(command, arguments, flag):
    result = command(*arguments, flag)
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")


def test_the_version_is_printed(command):
    assert command("--version").stdout == f"roofline, version {__version__}\n"


def test_a_cut_run_is_noted_by_compare_too(command, runs):
    whole = (runs / "fast.jsonl").read_text()
    (runs / "fast.jsonl").write_text(whole + whole[:20])
    assert "fast.jsonl ends in the middle of a line" in command("compare", "fast", "same").stderr


def as_a_user(*arguments, cwd):
    command = [sys.executable, "-c", "from pytest_roofline.cli.main import main; main()", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize(("new", "status"), [("same", 0), ("slow", 1), ("gone", 2)])
def test_the_process_ends_with_the_status_and_without_a_traceback(runs, tmp_path, new, status):
    result = as_a_user("compare", "fast", new, cwd=tmp_path)
    assert result.returncode == status
    assert "Traceback" not in result.stderr
