"""`roofline explain` and `roofline drill` as a user types them."""

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_roofline.cli.main import main
from pytest_roofline.core.memory import MemoryUse
from pytest_roofline.core.profiles import Figure, Profile
from pytest_roofline.core.records import Judgement, SessionRecord, SpreadRecord
from pytest_roofline.core.samples import Samples


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return run


def judged(measurement, verdict="REGRESSED", **changes):
    """A judgement as of three new processes against two sessions of five, 30 % slower."""
    facts = {
        "test_id": measurement.test_id,
        "label": measurement.label,
        "verdict": verdict,
        "tolerance": 0.05,
        "estimate": math.log(1.3),
        "interval": (math.log(1.27), math.log(1.33)),
        "error": 0.009,
        "freedom": 11.0,
        "p": 1e-6,
        "p_adjusted": 4e-5,
        "mde": 0.031,
        "reach": 0.06,
        "processes": 3,
        "new_s": 1.3e-3,
        "reference_s": 1e-3,
        "source": "baselines/h200.json",
        "reference": (
            SessionRecord((1e-3, 1.01e-3, 0.99e-3, 1e-3, 1e-3), "GPU-1", "2026-01-01T12:00:00Z"),
            SessionRecord((1e-3, 1.02e-3, 0.98e-3, 1e-3, 1e-3), "GPU-1", "2026-01-02T12:00:00Z"),
        ),
        "process_spread": SpreadRecord(0.01, "estimated", 8.0),
        "session_spread": SpreadRecord(0.005, "prior, 2 sessions"),
        "paired": True,
    }
    return Judgement(**(facts | changes))


@pytest.fixture
def saved(make, tmp_path):
    """A run of two tests, one of them judged after three processes of which one does not count."""

    def numbers(seconds, **changes):
        samples = Samples((seconds, seconds * 1.01, seconds * 0.99), iterations=10, tick_s=1e-9)
        return make.measurement(key=make.key("slow"), samples=samples, **changes)

    slow = [
        numbers(1.30e-3, process="aaaaaaaaaa"),
        numbers(1.31e-3, process="bbbbbbbbbb", round=2),
        numbers(0.50e-3, process="cccccccccc", round=3, invalid="239% of the datasheet's peak"),
    ]
    other = make.measurement(2e-3, key=make.key("other"))
    path = tmp_path / ".roofline" / "runs" / "new.jsonl"
    return make.save(path, *slow, other, judged(slow[0]), judged(other, "PASSED", estimate=0.001))


def test_explain_shows_every_process_with_its_round_and_median(command, saved):
    lines = command("explain", "new", "slow").stdout.splitlines()
    shown = [line for line in lines if line.lstrip().startswith("round ")]
    assert [re.match(r" *round (\d), process (\w+): ([0-9.]+ \w+)", line).groups() for line in shown] == [
        ("1", "aaaaaa", "1.30 ms"),
        ("2", "bbbbbb", "1.31 ms"),
        ("3", "cccccc", "500 µs"),
    ]
    assert ["does not count" in line for line in shown] == [False, False, True]
    assert "datasheet" in shown[2]


def test_a_name_under_which_nothing_is_saved_is_answered_with_those_that_are(command, saved):
    for words in (("explain", "newer"), ("compare", "new", "newer"), ("baseline", "propose", "newer", "-o", "p.json")):
        result = command(*words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "run file .roofline/runs/newer.jsonl does not exist; saved runs: new\n" in result.stderr


def test_a_proposal_that_is_not_there_is_asked_of_propose(command, saved):
    result = command("baseline", "approve", "new")
    assert result.exit_code == 2
    assert result.stderr == (
        "roofline: proposal new does not exist; expected a file that `roofline baseline propose` wrote\n"
    )


def test_of_many_saved_runs_the_newest_are_named(command, saved, make):
    for number in range(7):
        path = make.save(saved.with_name(f"b{6 - number}.jsonl"), make.measurement())
        os.utime(path, (number, number))
    assert command("explain", "newer").stderr.endswith("; saved runs: …, b3, b2, b1, b0, new\n")


def test_where_nothing_is_saved_the_option_that_saves_is_named(command):
    assert command("explain", "new").stderr.endswith(
        "no run is saved in .roofline yet, save one with --roofline-save=NAME\n"
    )


def test_explain_prefers_a_size_to_one_whose_name_ends_as_it_does(command, make, tmp_path):
    names = ["copy[4MiB]", "copy[fp32-4MiB]", "copy[2004MiB]"]
    measured = [make.measurement(label=name, test_id=f"t.py::test_{name}") for name in names]
    make.save(tmp_path / ".roofline" / "runs" / "new.jsonl", *measured)
    for text, found in {"4MiB": names[:2], "4Mi": names, "[4MiB": names[:1], "copy": names}.items():
        shown = command("explain", "new", text).stdout
        assert found == [name for name in names if f"{name} in " in shown]


def test_explain_without_a_test_shows_all(command, saved):
    text = command("explain", "new").stdout
    assert text.count("samples by process") == 2


@pytest.mark.parametrize("test", ["slow", "low[", "test_memcpy.py::test_slow[64MiB]", "slow[64MiB]"])
def test_a_test_is_named_by_part_of_its_label_or_by_its_id(command, saved, test):
    result = command("explain", "new", test)
    assert result.exit_code == 0
    assert result.stdout.count("samples by process") == 1


def test_an_exact_name_goes_before_its_part_in_others(command, make, tmp_path):
    short, longer = (make.measurement(key=make.key(name, parameters={})) for name in ("copy", "copy_twice"))
    make.save(tmp_path / "r.jsonl", short, longer, judged(short), judged(longer))
    text = command("explain", "r.jsonl", "copy").stdout
    assert text.count("samples by process") == 1
    assert "copy_twice" not in text


def test_what_a_test_found_besides_times_can_be_read_again(command, make, tmp_path):
    step, told = make.measurement(key=make.key("step", parameters={})), {"process": "process-1"}
    use = MemoryUse(
        **told, test_id=step.test_id, label="step.forward", name="forward", device="cpu", peak_bytes=24,
        phase="forward", categories={"parameters": 8, "activations": 16}, before_bytes=8,
    )  # fmt: skip
    notes = (
        Figure(**told, test_id=step.test_id, label="step", name="efficiency", value=0.873, unit="share"),
        Figure(**told, test_id="t.py::test_other", label="other", name="efficiency", value=0.5, unit="share"),
        use,
        Profile(**told, test_id=step.test_id, label="step", device="cpu", calls=3, span_s=1.0),
    )
    make.save(tmp_path / "r.jsonl", step, *notes)
    text = command("explain", "r.jsonl", "step").stdout
    assert "step: efficiency 87.3 %" in text
    assert "profile of step on cpu, 3 calls" in text
    assert "other" not in text
    # Memory is followed under a name of its own, in a test that may have measured nothing.
    assert "activations 16 B (67 %)" in command("explain", "r.jsonl", "step.forward").stdout
    assert command("explain", "r.jsonl", "other").stdout.splitlines()[-1] == "other: efficiency 50.0 %"


def test_a_test_that_was_not_measured_is_refused_with_those_that_were(command, saved):
    result = command("explain", "new", "nothing")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "'nothing'" in result.stderr
    assert "slow[64MiB], other[64MiB]" in result.stderr


def test_a_run_that_measured_nothing_is_refused(command, make, tmp_path):
    make.save(tmp_path / "r.jsonl")
    result = command("explain", "r.jsonl")
    assert result.exit_code == 2
    assert "nothing at all" in result.stderr


def test_a_run_that_is_not_there_is_refused(command):
    result = command("explain", "gone")
    assert result.exit_code == 2
    assert "gone.jsonl does not exist" in result.stderr


def test_hostile_text_in_a_run_is_shown_harmlessly(command, make, tmp_path):
    measurement = make.measurement(key=make.key("x\x1b[31m"), invalid="a\x07b\nc")
    make.save(tmp_path / "r.jsonl", measurement, judged(measurement, reason="d\x1be", source="f\rg"))
    text = command("explain", "r.jsonl").stdout
    assert not {"\x1b", "\x07", "\r"} & set(text)


def test_all_samples_alike_are_shown_too(command, make, tmp_path):
    measurement = make.measurement(1e-3, 1e-3, 1e-3)
    make.save(tmp_path / "r.jsonl", measurement, judged(measurement))
    assert command("explain", "r.jsonl").exit_code == 0


def test_lines_keep_within_eighty_columns_or_are_whole_sentences(command, saved):
    strips = [line for line in command("explain", "new", "slow").stdout.splitlines() if "|" in line]
    assert strips
    assert all(len(line.partition(";")[0]) <= 80 for line in strips)


class Pytest:
    """Stands for the pytest that a drill starts: notes its command, leaves a run, ends with a status."""

    def __init__(self, make, monkeypatch):
        self.make, self.records, self.status = make, (), 1
        self.command = []
        monkeypatch.setattr(subprocess, "run", self)

    def __call__(self, command, **options):
        self.command = command
        values = dict(argument.split("=", 1) for argument in command if argument.startswith("--roofline-"))
        if self.records is not None:
            folder = Path(values.get("--roofline-dir", ".roofline")) / "runs"
            path = self.make.save(folder / f"{values['--roofline-save']}.jsonl", *self.records)
            # As a run does, wherever its ini file keeps it.
            Path(options["env"]["ROOFLINE_SAVED"]).write_text(str(path))
        return subprocess.CompletedProcess(command, self.status)


@pytest.fixture
def drilled(make, monkeypatch):
    return Pytest(make, monkeypatch)


def red_and_other(make, **changes):
    red, other = (make.measurement(key=make.key(name)) for name in ("red", "other"))
    return red, other, dosed(red), dosed(other, **({"verdict": "PASSED"} | changes))


def dosed(measurement, seen=0.10, **changes):
    """A judgement in a drill that made a test slower by so much, give or take 3 %."""
    estimate = math.log1p(seen)
    return judged(measurement, **({"estimate": estimate, "interval": (estimate - 0.03, estimate + 0.03)} | changes))


def test_a_drill_in_which_every_compared_test_turned_red_is_a_success(command, make, drilled):
    red, other, first, _ = red_and_other(make)
    missing = Judgement(other.test_id, other.label, "NO BASELINE", 0.05, reason="none")
    drilled.records = (red, other, first, missing)
    result = command("drill", "10%")
    said = "drill of +10 %: 1 of 1 tests turned red\nagainst their baselines +10.0 % time; +10.0 % was asked for\n"
    assert (result.exit_code, result.stdout) == (0, said)


@pytest.mark.parametrize(
    ("seen", "missed"),
    [
        (0.12, ""),
        (0.89, "takes +89.0 % time (+82.9…+95.3 %)"),
        (0.06, "takes +6.0 % time (+2.6…+9.5 %)"),
    ],
)
def test_a_drill_that_slowed_a_test_down_by_something_else_than_was_asked_for_proves_nothing(
    command, make, drilled, seen, missed
):
    red, other = (make.measurement(key=make.key(name)) for name in ("red", "other"))
    drilled.records = (red, other, dosed(red), dosed(other, seen))
    result = command("drill", "10%")
    assert result.exit_code == bool(missed)
    assert "drill of +10 %: 2 of 2 tests turned red\n" in result.stdout
    assert (f"not the drill's doing: other[64MiB] {missed}" in result.stdout) == bool(missed)
    told = json.loads(command("drill", "10%", "--json").stdout)
    assert [one["missed"] for one in told["tests"]] == ["", missed]


def test_what_is_held_against_a_limit_alone_tells_nothing_of_the_dose(command, make, drilled):
    red = make.measurement(key=make.key("red"))
    drilled.records = (red, dosed(red, 0.89, reference=(), limit_s=1e-3))
    result = command("drill", "10%")
    assert (result.exit_code, result.stdout) == (0, "drill of +10 %: 1 of 1 tests turned red\n")


@pytest.mark.parametrize("verdict", ["PASSED", "INCONCLUSIVE", "IMPROVED"])
def test_a_drill_in_which_a_test_did_not_turn_red_is_a_failure(command, make, drilled, verdict):
    drilled.records = red_and_other(make, verdict=verdict, estimate=math.log(1.1), reach=0.04, reason="too noisy")
    result = command("drill", "10%")
    assert result.exit_code == 1
    assert "1 of 2 tests turned red" in result.stdout
    assert f"not red: other[64MiB] {verdict}, seen as +10.0 %: too noisy" in result.stdout


def test_a_drill_within_the_tolerance_says_that_it_is(command, make, drilled):
    drilled.records = red_and_other(make, estimate=math.log(1.1), tolerance=0.2)
    assert "within its tolerance of 20 %" in command("drill", "10%").stdout


def test_a_drill_below_what_the_run_can_find_says_from_where_on_it_can(command, make, drilled):
    drilled.records = red_and_other(make, verdict="INCONCLUSIVE", estimate=math.log(1.1), reach=0.15)
    text = command("drill", "10%").stdout
    assert "from 15.0% up" in text
    assert "--roofline-rounds=auto" in text


def test_a_drill_that_compared_nothing_is_told_apart(command, make, drilled):
    measurement = make.measurement()
    drilled.records = (measurement, Judgement(measurement.test_id, measurement.label, "NO BASELINE", 0.05))
    drilled.status = 0
    result = command("drill", "10%")
    assert result.exit_code == 2
    assert "nothing was compared" in result.stderr


@pytest.mark.parametrize("status", [2, 3, 4, -9])
def test_a_drill_whose_pytest_did_not_come_to_its_end_proves_nothing(command, make, drilled, status):
    drilled.records = red_and_other(make)
    drilled.status = status
    result = command("drill", "10%")
    assert result.exit_code == 2
    assert str(status) in result.stderr


def test_a_drill_that_selected_no_test_says_so(command, drilled):
    drilled.records, drilled.status = None, 5
    result = command("drill", "20%", "-k", "nothing")
    said = "pytest selected no test, so nothing was measured; look at its paths and at -k"
    assert (result.exit_code, result.stderr) == (2, f"roofline: {said}\n")


def test_a_drill_of_which_nothing_can_be_trusted_asks_for_no_baseline(command, make, drilled):
    one, other = (make.measurement(key=make.key(name)) for name in ("one", "other"))
    reason = "others kept a core busy; run it on a quiet machine"
    invalid = Judgement(one.test_id, one.label, "INVALID", 0.05, reason=reason)
    drilled.records = (one, other, invalid, Judgement(other.test_id, other.label, "NO BASELINE", 0.05))
    result = command("drill", "10%")
    said = f"nothing was compared, so nothing could turn red; one[64MiB] is INVALID: {reason}"
    assert (result.exit_code, result.stderr) == (2, f"roofline: {said}\n")


def test_a_drill_that_left_no_run_proves_nothing(command, drilled):
    drilled.records = None
    assert command("drill", "10%").exit_code == 2


@pytest.mark.parametrize("share", ["0", "lots", "10", "nan"])
def test_an_impossible_share_is_refused_before_anything_runs(command, drilled, share):
    result = command("drill", share)
    assert result.exit_code == 2
    assert f"SHARE is {share!r}" in result.stderr
    assert drilled.command == []


def test_the_arguments_of_a_drill_are_pytests_in_their_order(command, make, drilled):
    drilled.records = red_and_other(make)
    arguments = [
        "perf_tests",
        "-k",
        "copy and not 1GiB",
        "-m",
        "gate",
        "-vv",
        "--roofline-against=old",
        "-x",
        "-p",
        "no:x",
    ]
    command("drill", "10%", *arguments)
    assert drilled.command[: 4 + len(arguments)] == [
        sys.executable,
        "-m",
        "pytest",
        "--roofline-rounds=auto",
        *arguments,
    ]
    assert "--roofline-drill=10%" in drilled.command


def test_a_drill_keeps_its_run_where_it_is_told_and_names_it_anew_each_time(command, make, drilled, tmp_path):
    drilled.records = red_and_other(make)
    command("drill", "10%", "--roofline-dir=results")
    command("drill", "10%", "--roofline-dir=results")
    names = [path.stem for path in (tmp_path / "results" / "runs").glob("*.jsonl")]
    assert len(names) == len(set(names)) == 2
    assert all(name.startswith("drill-") for name in names)


def test_a_test_that_was_judged_only_after_others_moved_counts_as_it_ended(command, make, drilled):
    # The judgement of the run's end, and not the outcome, is what a drill reads: an expected failure is red too.
    red, other, first, second = red_and_other(make, verdict="REGRESSED")
    drilled.records = (red, other, first, replace(second), make.outcome(other, "passed"))
    assert command("drill", "10%").exit_code == 0
