"""The run file: written as things happen, kept whatever happens, and never in the way of a result."""

import re
import subprocess
from pathlib import Path

import pytest

from pytest_roofline.baselines.runs import read_run
from pytest_roofline.engine import checkout, identity

# Taken before the fixture of all tests puts stand-ins in their place.
REAL = {name: getattr(identity, name) for name in ("identified", "packages", "libraries")}

THREE = """
import os
import signal
from pytest_roofline import Work
WORK = Work(read_bytes=10**9, write_bytes=10**9)

def test_first(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)

def test_second(roofline, busy):
    calls = []
    def fn():
        calls.append(1)
        busy(1e-3)
        if len(calls) == {after}:
            {event}
    roofline.measure(fn, work=WORK)

def test_third(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""
# A millisecond a call: 0.1 s of warm-up are over by then, some samples are taken, and the end is far.
IN_THE_MIDDLE = 200


def test_a_killed_run_keeps_every_finished_measurement(desk):
    desk.suite(THREE.format(after=IN_THE_MIDDLE, event="os.kill(os.getpid(), signal.SIGKILL)"))
    desk.subprocess("--roofline-save=killed", "-p", "no:hypothesispytest")
    run = desk.saved("killed")
    assert [measurement.label for measurement in run.measurements] == ["first"]
    assert not run.measurements[0].invalid
    assert run.outcomes[0].outcome == "passed"
    assert run.footer is None


def interrupted(desk, after=IN_THE_MIDDLE):
    desk.suite(THREE.format(after=after, event="os.kill(os.getpid(), signal.SIGINT)"))
    return desk.run("--roofline-save=stopped")


def test_ctrl_c_keeps_what_is_finished_and_marks_the_rest(desk):
    result = interrupted(desk)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert desk.saved("stopped").footer.exit_status == 2
    first, second = desk.saved("stopped").measurements
    assert (first.label, first.invalid) == ("first", "")
    assert (second.label, second.invalid) == ("second", "interrupted")
    assert len(second.samples.seconds) < len(first.samples.seconds)
    lines = result.stdout.lines
    assert any(line.startswith("first ") and "NO BASELINE" in line for line in lines)
    assert any(
        line.startswith("second ") and "NO BASELINE" not in line and "PASSED" not in line
        for line in lines
    )
    answer = desk.cli("baseline", "propose", "stopped", "-o", "p.json")
    assert answer.exit_code == 0
    assert "left out: second of stopped: interrupted" in answer.output
    assert '"benchmark": "second"' not in (desk.path / "p.json").read_text()
    # During the warm-up it leaves no measurement.
    desk.run_path("stopped").unlink()
    interrupted(desk, after=3)
    assert [measurement.label for measurement in desk.saved("stopped").measurements] == ["first"]


def fallback(result):
    """The file that the one WARNING names."""
    warnings = [line for line in result.stdout.lines if line.startswith("WARNING: ")]
    assert len(warnings) == 1, result.stdout.str()
    return Path(re.search(r"saved as (\S+\.jsonl) instead", warnings[0])[1])


def test_an_unwritable_folder_costs_a_warning_and_no_measurement(desk, tmp_path, monkeypatch):
    """Something that no run folder can be made of, also not by root."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (desk.path / "a-file").write_text("in the way")
    desk.suite()
    for unwritable in ("a-file", "/proc/x"):
        result = desk.run(f"--roofline-dir={unwritable}")
        assert result.ret == 0
        result.assert_outcomes(passed=2)
        result.stdout.fnmatch_lines(["copy[[]64MiB] *", "copy[[]1GiB] *", "2 measured"])
        run = read_run(fallback(result))
        assert (len(run.measurements), run.footer is None) == (2, False)
        # A named run that cannot be saved is no success.
        result = desk.run(f"--roofline-dir={unwritable}", "--roofline-save=kept")
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        assert fallback(result).stem == "kept"
    desk.script(slow=1.3)
    result = desk.run("--roofline-dir=/dev/null/x", "--roofline-min-percent=55")
    result.assert_outcomes(failed=1, passed=1)


def test_asking_for_a_name_is_answered_when_nothing_was_measured(desk):
    desk.suite("def test_two(roofline): roofline.skip_for_hardware('needs 2 GPUs, found 1')\n")
    result = desk.run("--roofline-save=kept")
    assert desk.run_path("kept").exists() or "kept" in result.stdout.str()


def git(desk, *words):
    own = ["-c", "user.name=n", "-c", "user.email=e@x"]
    done = subprocess.run(
        ["git", "-C", str(desk.path), *own, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_run_file_tells_it_and_a_comparison_names_every_difference(desk, monkeypatch):
    for name, real in REAL.items():
        monkeypatch.setattr(identity, name, real)
    # This machine may be busy.
    monkeypatch.setattr(checkout, "GIT_S", 60.0)
    desk.suite()
    git(desk, "init", "-q")
    (desk.path / ".gitignore").write_text("__pycache__\nopened\n", encoding="utf-8")
    git(desk, "add", "--all")
    git(desk, "commit", "-qm", "suite")
    desk.run("--roofline-save=old")
    environment = desk.saved("old").environment
    assert (environment.code[0].name, environment.code[0].commit) == (
        ".",
        git(desk, "rev-parse", "HEAD"),
    )
    assert environment.packages["pytest"].startswith(pytest.__version__)
    git(desk, "commit", "-q", "--allow-empty", "-m", "another")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    checkout._code_at.cache_clear()
    desk.run("--roofline-save=new")
    lines = desk.cli("compare", "old", "new").output.splitlines()
    changed = next(line for line in lines if line.startswith("changed: "))
    # What runs leave in the folder is no change.
    assert re.search(r"code [0-9a-f]{10} → [0-9a-f]{10}\b", changed)
    assert "$NCCL_ALGO unset → Ring" in changed
