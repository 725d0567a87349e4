"""`roofline compare --control` as a user types it; what it finds is tested beside `baselines.rollout`."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.runs import encode_line
from pytest_roofline.cli.main import main

CONTROL = ("--control", "kept-before", "kept-after")


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(main, ["compare", *map(str, arguments)])

    return run


@pytest.fixture
def save(make, tmp_path):
    """Saves a run of two tests on one device: `copy` and `step`, which takes `step_s`."""

    def write(folder, index, driver="550.54", step_s=1e-3, node=None):
        header = make.header(f"{folder}-{index}", driver=driver, uuid=f"GPU-{index}")
        host = replace(header.environment.host, name=node or f"node{index}")
        header = replace(header, environment=replace(header.environment, host=host))
        measured = [
            make.measurement(
                seconds * (1 + index / 1000),
                key=make.key(name, parameters={}),
                process=header.run_id,
            )
            for name, seconds in (("copy", 1e-3), ("step", step_s))
        ]
        path = tmp_path / folder / f"node{index}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            "".join(map(encode_line, (header, *measured, *map(make.outcome, measured))))
        )

    return write


@pytest.fixture
def rollout(save):
    """Three devices that got the new driver, on which `step` takes so much longer, and three that did not."""

    def write(slower=0.0):
        for index in range(3):
            save("before", index)
            save("after", index, "570.86", 1e-3 * (1 + slower))
            save("kept-before", index + 3)
            save("kept-after", index + 3)

    return write


def test_the_last_line_and_the_exit_status_tell_a_regression(command, rollout, save):
    for slower, status, last in (
        (0.2, 1, "1 REGRESSED, 1 PASSED"),
        (0.0, 0, "2 PASSED"),
        (-0.2, 0, "1 IMPROVED, 1 PASSED"),
    ):
        rollout(slower)
        result = command("before", "after", *CONTROL)
        assert (result.exit_code, result.stderr, result.stdout.splitlines()[-1]) == (
            status,
            "",
            last,
        )
    rollout(0.2)
    assert command("before", "after", *CONTROL, "--tolerance", "40%").exit_code == 0
    # Three devices that differ so much decide nothing.
    for index, seconds in enumerate((0.8e-3, 1.2e-3, 1.8e-3)):
        save("after", index, "570.86", seconds)
    undecided = command("before", "after", *CONTROL)
    last = undecided.stdout.splitlines()[-1]
    assert (undecided.exit_code, last.partition(" +")[0]) == (
        2,
        "1 INCONCLUSIVE, 1 PASSED; undecided: step",
    )


def test_the_text_has_both_sides_with_what_changed_and_the_changes_beside_the_effect(
    command, rollout, save
):
    rollout(0.2)
    save("before", 8)
    save("after", 9, "570.86")
    lines = command("before", "after", *CONTROL).stdout.splitlines()
    assert lines[:5] == [
        "changed: GPU-0 (node0), GPU-1 (node1), GPU-2 (node2)",
        "  driver 550.54 → 570.86 on 3 of 3 devices",
        "  only before: GPU-8",
        "  only after: GPU-9",
        "control: GPU-3 (node3), GPU-4 (node4), GPU-5 (node5)",
    ]
    assert lines[5] == "tolerance 5 %"
    assert lines[6].split() == [
        "test",
        "changed",
        "control",
        "effect",
        "99",
        "%",
        "interval",
        "n",
        "verdict",
    ]
    assert lines[8].split()[:7] == ["step", "+20.0", "%", "+0.0", "%", "+20.0", "%"]
    assert lines[8].split()[-2:] == ["3:3", "REGRESSED"]
    assert max(map(len, lines)) <= 80


def test_controls_may_be_named_by_a_pattern_among_all_runs(command, rollout, tmp_path):
    rollout(0.2)
    apart = command("before", "after", *CONTROL).stdout
    for side in ("before", "after"):
        for path in (tmp_path / f"kept-{side}").iterdir():
            path.rename(tmp_path / side / path.name)
    assert (
        command(
            "before", "after", "--control", "before/node[345].jsonl", "after/node[345].jsonl"
        ).stdout
        == apart
    )


def test_json_has_the_fields_of_a_row_and_what_each_device_did(command, rollout):
    rollout(0.2)
    result = command("before", "after", *CONTROL, "--json")
    step, copy = json.loads(result.stdout)
    assert (result.exit_code, step["label"], step["verdict"], copy["verdict"]) == (
        1,
        "step",
        "REGRESSED",
        "PASSED",
    )
    assert [0.2, 0.0, 0.2] == pytest.approx(
        [step["change"], step["control_change"], step["devices"]["GPU-0 (node0)"]]
    )
    assert step["change_low"] < 0.2 < step["change_high"]
    assert list(step["control_devices"]) == ["GPU-3 (node3)", "GPU-4 (node4)", "GPU-5 (node5)"]


def test_a_device_that_stands_out_and_a_test_that_is_lost_are_named(
    command, rollout, save, tmp_path
):
    rollout()
    save("after", 1, "570.86", 1.3e-3)
    path = tmp_path / "after" / "node0.jsonl"
    path.write_text(
        "".join(line for line in path.read_text().splitlines(keepends=True) if '"step' not in line)
    )
    result = command("before", "after", *CONTROL)
    assert result.exit_code == 1
    assert (
        "lost: step has no valid time after the change on GPU-0 (node0) (1 of 3 changed devices)"
        in result.stdout
    )
    save("after", 0, "570.86")
    text = command("before", "after", *CONTROL).stdout
    assert "step: GPU-1 (node1) +30.0 %, but the median of the same side is +0.0 %" in text


def test_what_cannot_be_used_gets_one_sentence(command, rollout, tmp_path):
    rollout()
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        (("before", "after", "--control", "gone", "kept-after"), "gone.jsonl does not exist"),
        (("before", "empty", *CONTROL), "empty holds no run file"),
        (("before", "after/none*", *CONTROL), "no run file matches after/none*"),
        (
            ("before", "kept-after", *CONTROL),
            "no test was measured both before and after on any of the devices",
        ),
    ):
        result = command(*arguments)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        assert words in result.stderr


def test_hostile_names_are_shown_harmlessly(command, save):
    for index, side in enumerate(("", "kept-")):
        save(f"{side}before", index, "5\x1b[31m", node="a\rb")
        save(f"{side}after", index, "6\x07", node="a\rb")
    text = command("before", "after", *CONTROL).stdout
    assert "GPU-0 (a\\rb)" in text
    assert not {"\x1b", "\x07", "\r"} & set(text)
