"""`roofline qualify` as a user types it; what it finds is tested beside `judging.qualifying`."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from pytest_roofline.cli import main
from pytest_roofline.judging.runs import encode_line

OLD, NEW = "550.54", "570.86"


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def save(make, tmp_path):
    """Saves a run of two tests on one device: `copy` and `step`, which takes `step_s`."""

    def write(folder, index, driver, step_s=1e-3, node=None, torch="2.13.0"):
        header = make.header(f"{folder}-{index}", driver=driver, uuid=f"GPU-{index}")
        host = replace(header.environment.host, name=node or f"node{index}")
        header = replace(header, environment=replace(header.environment, host=host, software={"torch": torch}))
        measured = [
            make.measurement(seconds * (1 + index / 1000), key=make.key(name, parameters={}), process=header.run_id)
            for name, seconds in (("copy", 1e-3), ("step", step_s))
        ]
        path = tmp_path / folder / f"{index}.jsonl"
        path.parent.mkdir(exist_ok=True)
        lines = [header, *measured, *(make.outcome(measurement) for measurement in measured)]
        path.write_text("".join(map(encode_line, lines)))
        return path

    return write


@pytest.fixture
def rollout(save):
    """Three devices that got the new driver, on which `step` takes so much longer, and three that did not."""

    def write(slower=0.0, controls=3):
        for index in range(3 + controls):
            upgraded = index < 3
            save("before", index, OLD)
            save("after", index, NEW if upgraded else OLD, 1e-3 * (1 + slower * upgraded))

    return write


def refused(result):
    """The one sentence of a command that could not use its input."""
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("roofline: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("roofline: ").rstrip("\n")


SIDES = ("--before", "before", "--after", "after")


@pytest.mark.parametrize(
    ("slower", "status", "end"),
    [
        (0.2, 1, "1 of 2 tests slower (worst step +20.0 %), 1 the same: do not roll out"),
        (0.0, 0, "0 of 2 tests slower, 2 the same: roll out"),
        (-0.2, 0, "0 of 2 tests slower, 1 faster, 1 the same: roll out"),
    ],
)
def test_the_last_line_and_the_exit_status_tell_what_to_do(command, rollout, slower, status, end):
    rollout(slower)
    result = command("qualify", *SIDES)
    assert (result.exit_code, result.stderr) == (status, "")
    assert result.stdout.splitlines()[-1] == (
        f"driver 570.86 against 550.54 on 3 devices of 3 nodes, 3 controls of 3 nodes: {end}"
    )


def test_a_table_has_the_changes_of_both_sides_beside_the_effect(command, rollout):
    rollout(0.2)
    lines = command("qualify", *SIDES).stdout.splitlines()
    assert lines[:2] == [
        "upgraded 550.54 → 570.86: GPU-0 (node0), GPU-1 (node1), GPU-2 (node2)",
        "controls: GPU-3 (node3), GPU-4 (node4), GPU-5 (node5)",
    ]
    assert lines[2].split() == ["test", "upgraded", "controls", "effect", "99", "%", "interval", "n", "verdict"]
    assert lines[4].split()[:7] == ["step", "+20.0", "%", "+0.0", "%", "+20.0", "%"]
    assert lines[4].split()[-2:] == ["3:3", "REGRESSED"]
    assert max(map(len, lines[2:6])) <= 80


def test_without_a_control_it_is_said_that_time_and_driver_cannot_be_told_apart(command, rollout):
    rollout(0.2, controls=0)
    result = command("qualify", *SIDES)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].startswith("no control: no device kept its driver, so what the fleet or the")
    assert "on 3 devices of 3 nodes, no control: " in result.stdout


def test_runs_are_given_by_name_by_path_by_folder_or_many_behind_one_option(command, rollout, save, tmp_path):
    rollout(0.2)
    many = command("qualify", "--before", *(f"before/{index}.jsonl" for index in range(6)), "--after", "after")
    repeated = [part for index in range(6) for part in ("--before", f"before/{index}.jsonl")]
    assert many.stdout == command("qualify", *SIDES).stdout == command("qualify", *repeated, "--after=after").stdout
    (tmp_path / "kept").mkdir()
    (tmp_path / "before").rename(tmp_path / "kept" / "runs")
    named = command(
        "qualify", "--dir", "kept", "--before", *map(str, range(6)), "--tolerance", "5%", "--after", "after"
    )
    assert named.stdout == many.stdout


def test_json_holds_every_figure(command, rollout):
    rollout(0.2)
    result = command("qualify", *SIDES, "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (told["driver_old"], told["driver_new"], told["advice"]) == (OLD, NEW, "do not roll out")
    assert [one["device"] for one in told["upgraded"]] == ["GPU-0", "GPU-1", "GPU-2"]
    assert [one["host"] for one in told["controls"]] == ["node3", "node4", "node5"]
    step = told["tests"][0]
    assert (step["label"], step["verdict"]) == ("step", "REGRESSED")
    assert step["change"] == pytest.approx(0.2)
    assert step["control_change"] == pytest.approx(0.0, abs=1e-9)
    assert step["devices"]["GPU-0"] == pytest.approx(0.2)
    assert told["summary"].endswith("do not roll out")


def test_the_tolerance_decides(command, rollout):
    rollout(0.2)
    assert command("qualify", *SIDES, "--tolerance", "30%").exit_code == 0


def test_what_changed_beside_the_driver_is_named(command, rollout, save):
    rollout()
    save("after", 0, NEW, torch="2.14.0")
    save("after", 4, OLD, torch="2.14.0")
    lines = command("qualify", *SIDES).stdout.splitlines()
    assert (
        "changed beside the driver on upgraded devices: torch 2.13.0 → 2.14.0 on 1 of 3; the effect is of all of these "
        "together" in lines
    )
    assert "changed beside the driver on controls: torch 2.13.0 → 2.14.0 on 1 of 3" in lines


def test_devices_on_one_side_only_are_listed_and_left_out(command, rollout, save):
    rollout()
    save("after", 9, NEW)
    result = command("qualify", *SIDES)
    assert result.exit_code == 0
    assert "left out: GPU-9 is only among --after" in result.stdout


def test_the_drivers_that_are_compared_can_be_named(command, rollout, save):
    rollout()
    for index in (7, 8):
        save("before", index, OLD)
        save("after", index, "580.1")
    assert "several drivers were replaced (550.54 → 570.86, 550.54 → 580.1)" in refused(command("qualify", *SIDES))
    named = command("qualify", *SIDES, "--driver-new", "580.1")
    assert "upgraded 550.54 → 580.1: GPU-7 (node7), GPU-8 (node8)" in named.stdout


def test_a_test_that_was_lost_on_some_upgraded_devices_bars_the_rollout(command, rollout, tmp_path):
    rollout()
    for index in (0, 1):
        path = tmp_path / "after" / f"{index}.jsonl"
        path.write_text(path.read_text().replace('"outcome": "passed"', '"outcome": "failed"'))
    result = command("qualify", *SIDES)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert "judged by fewer devices than were upgraded: copy (1 of 3), step (1 of 3)" in lines
    assert (
        "no sound time after the upgrade that may be compared: copy on GPU-0, GPU-1 (2 of 3 upgraded devices); "
        "step on GPU-0, GPU-1 (2 of 3 upgraded devices)" in lines
    )
    assert lines[-1].endswith("2 lost: not yet: first find out why tests have no sound time any more")
    told = json.loads(command("qualify", *SIDES, "--json").stdout)
    assert told["worse"] is True
    assert told["lost"][0] == {
        "label": "copy", "devices": ["GPU-0", "GPU-1"], "known_on": 3, "controls": [], "known_on_controls": 3,
    }  # fmt: skip


def test_devices_that_did_not_come_back_bar_the_rollout(command, rollout, tmp_path):
    rollout()
    (tmp_path / "after" / "0.jsonl").unlink()
    result = command("qualify", *SIDES)
    assert result.exit_code == 1
    assert "ran before the upgrade and not after it: GPU-0" in result.stdout.splitlines()
    assert result.stdout.endswith("not yet: first find out why GPU-0 did not run after the upgrade\n")
    assert json.loads(command("qualify", *SIDES, "--json").stdout)["gone"] == ["GPU-0"]


def test_one_slow_device_among_many_is_told_and_bars_the_rollout(command, save):
    for index in range(8):
        save("before", index, OLD)
        save("after", index, NEW if index < 6 else OLD, 1.2e-3 if index == 3 else 1e-3)
    result = command("qualify", *SIDES)
    assert result.exit_code == 1
    assert (
        "stands out among the upgraded devices on step: GPU-3 on node3 (+20.0 %; its time did not stand out before); "
        "the other 5: +0.0 % to +0.0 %" in result.stdout.splitlines()
    )
    (step,) = (
        one for one in json.loads(command("qualify", *SIDES, "--json").stdout)["tests"] if one["label"] == "step"
    )
    assert step["stand_out"] == [{"device": "GPU-3", "slower": True, "stood_out_before": False}]


def test_two_devices_that_disagree_are_both_listed(command, save):
    for index in range(2):
        save("before", index, OLD)
        save("after", index, NEW, 1.2e-3 if index else 1e-3)
    result = command("qualify", *SIDES)
    assert "upgraded devices disagree on step: GPU-1 on node1 (+20.0 %), GPU-0 on node0 (+0.0 %)" in result.stdout
    assert result.exit_code == 1
    assert "(1 test)" in result.stdout


def test_need_of_more_devices_is_no_failure(command, save):
    save("before", 0, OLD)
    save("after", 0, NEW, 1.04e-3)
    result = command("qualify", *SIDES)
    assert result.exit_code == 0
    assert result.stdout.endswith("need more devices\n")


def test_patterns_are_expanded_where_the_shell_did_not(command, rollout):
    rollout(0.2)
    plain = command("qualify", *SIDES).stdout
    assert command("qualify", "--before", "before/*.jsonl", "--after", "after/[0-9].jsonl").stdout == plain
    assert "--before: no file is named as gone/*.jsonl" in refused(
        command("qualify", "--before", "gone/*.jsonl", "--after", "after")
    )


def test_many_names_follow_an_equals_sign_too(command, rollout):
    rollout(0.2)
    first, *rest = (f"before/{index}.jsonl" for index in range(6))
    many = command("qualify", f"--before={first}", *rest, "--after=after")
    assert many.stdout == command("qualify", *SIDES).stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--after", "after"), "--before names no run"),
        (("--before", "--after", "after"), "--before names no run"),
        (("--before", "before"), "--after names no run"),
        (("--before", "gone", "--after", "after"), "gone.jsonl does not exist"),
        (("--before", "empty", "--after", "after"), "--before: the folder empty holds no run file"),
        (("--before", "before", "--after", "before"), "is given twice"),
        ((*SIDES, "--tolerance", "0"), "--tolerance is '0'"),
    ],
)
def test_what_cannot_be_used_gets_one_sentence(command, rollout, tmp_path, arguments, words):
    rollout()
    (tmp_path / "empty").mkdir()
    assert words in refused(command("qualify", *arguments))


def test_a_file_that_is_no_run_is_named_with_its_line(command, rollout, tmp_path):
    rollout()
    (tmp_path / "after" / "9.jsonl").write_text("not json\n")
    assert "run file after/9.jsonl, line 1 is not JSON" in refused(command("qualify", *SIDES))


def test_a_run_that_was_cut_is_noted(command, rollout, tmp_path):
    rollout()
    path = tmp_path / "after" / "0.jsonl"
    path.write_text(path.read_text() + '{"type": "foo')
    assert "after/0.jsonl ends in the middle of a line" in command("qualify", *SIDES).stderr


def test_hostile_names_are_shown_harmlessly(command, save):
    save("before", 0, "5\x1b[31m", node="a\rb")
    save("after", 0, "6\x07", node="a\rb")
    text = command("qualify", *SIDES).stdout
    assert "GPU-0 (a\\rb)" in text
    assert not {"\x1b", "\x07", "\r"} & set(text)


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_it_explains_itself(command, flag):
    result = command("qualify", flag)
    assert result.exit_code == 0
    assert "Runs are paired by device" in result.stdout


def test_a_word_that_belongs_to_no_option_is_refused(command, rollout):
    rollout()
    result = command("qualify", "stray", *SIDES)
    assert (result.exit_code, result.stdout) == (2, "")
