"""`roofline rollout` as a user types it; what it finds is tested beside `many.rollout`."""

import json
import math
import random
import re
from dataclasses import replace

import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.runs import encode_line
from pytest_roofline.baselines.test_texts import environment_of
from pytest_roofline.cli.main import main
from pytest_roofline.figures.plan import plan_of_options
from pytest_roofline.many.files import read_files

CONTROL = ("--control", "kept-before", "kept-after")


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the command in a folder of its own."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(main, ["rollout", *map(str, arguments)])

    return run


@pytest.fixture
def save(make, tmp_path):
    """Saves a run of two tests on one device: `copy` and `step`, which takes `step_s`."""

    def write(folder, index, driver="550.54", step_s=1e-3, copy_s=1e-3, node=None):
        header = make.header(f"{folder}-{index}", driver=driver, uuid=f"GPU-{index}")
        host = replace(header.environment.host, name=node or f"node{index}")
        header = replace(header, environment=replace(header.environment, host=host))
        measured = [
            make.measurement(
                seconds * (1 + index / 1000),
                key=make.key(name, parameters={}),
                process=header.run_id,
            )
            for name, seconds in (("copy", copy_s), ("step", step_s))
        ]
        path = tmp_path / folder / f"node{index}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            "".join(map(encode_line, (header, *measured, *map(make.outcome, measured))))
        )

    return write


@pytest.fixture
def rollout(save):
    """Three nodes that got the new driver, on which `step` takes so much longer, and three that did not."""

    def write(slower=0.0):
        for index in range(3):
            save("before", index)
            save("after", index, "570.86", 1e-3 * (1 + slower))
            save("kept-before", index + 3)
            save("kept-after", index + 3)

    return write


def test_the_first_line_and_the_exit_status_tell_a_regression(command, rollout, save):
    for slower, status, line in (
        (
            0.2,
            1,
            r"AFTER is 20\.0 % slower than BEFORE on 3 nodes \(99 %: \+[\d.]+ … \+[\d.]+ %\), in 1 of 2 tests; "
            r"differs: driver 550\.54 → 570\.86\. REGRESSED",
        ),
        (
            0.0,
            0,
            r"no slowdown above 7 %; would have found [\d.]+ %; differs: driver 550\.54 → 570\.86\. PASSED",
        ),
    ):
        rollout(slower)
        result = command("before", "after", *CONTROL, "--tolerance", "7%")
        first = result.stdout.splitlines()[0]
        assert (result.exit_code, result.stderr) == (status, "")
        assert re.fullmatch(line, first), first
    rollout(0.2)
    assert command("before", "after", *CONTROL, "--tolerance", "40%").exit_code == 0
    # Three nodes that differ so much decide nothing.
    for index, seconds in enumerate((0.8e-3, 1.2e-3, 1.8e-3)):
        save("after", index, "570.86", seconds)
    undecided = command("before", "after", *CONTROL)
    first, *_, last = undecided.stdout.splitlines()
    assert first.startswith("cannot tell: AFTER may be ")
    assert (undecided.exit_code, first.rpartition(". ")[2]) == (2, "INCONCLUSIVE")
    assert last.startswith("1 INCONCLUSIVE, 1 ")


def test_what_the_files_do_not_say_is_named_by_a_label(command, rollout):
    rollout(0.2)
    labelled = command("before", "after", *CONTROL, "--label", "BIOS 1.2", "BIOS 1.3").stdout
    assert "; differs: driver 550.54 → 570.86, BIOS 1.2 → BIOS 1.3. REGRESSED\n" in labelled


def test_the_text_has_what_is_missing_and_the_changes_of_both_groups_beside_the_effect(
    command, rollout, save
):
    rollout(0.2)
    save("before", 8)
    save("after", 9, "570.86")
    lines = command("before", "after", *CONTROL).stdout.splitlines()
    assert lines[1:4] == [
        "only before (changed): GPU-8 (node8)",
        "only after (changed): GPU-9 (node9)",
        "tolerance 3 %",
    ]
    assert lines[4].split() == [
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
    (step,) = [line.split() for line in lines if line.startswith("step ")]
    assert step[:7] == ["step", "+20.0", "%", "+0.0", "%", "+20.0", "%"]
    assert step[-2:] == ["3:3", "REGRESSED"]
    assert {"changed: node0, node1, node2", "control: node3, node4, node5"} < set(lines)
    assert max(map(len, lines[1:])) <= 80


def test_groups_may_be_told_by_a_list_or_a_pattern_among_all_runs(command, rollout, tmp_path):
    rollout(0.2)
    apart = command("before", "after", *CONTROL).stdout
    for side in ("before", "after"):
        for path in (tmp_path / f"kept-{side}").iterdir():
            path.rename(tmp_path / side / path.name)
    (tmp_path / "nodes").write_text("# the new rack\nnode[0-2]\n")
    for words in (
        ("--control", "before/node[345].jsonl", "after/node[345].jsonl"),
        ("--changed", "node[0-2]"),
        ("--changed", "@nodes"),
    ):
        assert command("before", "after", *words).stdout == apart


def test_json_has_the_sentence_the_rows_and_what_each_node_did(command, rollout):
    rollout(0.2)
    result = command("before", "after", *CONTROL, "--json")
    document = json.loads(result.stdout)
    step, copy = document["tests"]
    assert (result.exit_code, step["label"], step["verdict"], copy["verdict"]) == (
        1,
        "step",
        "REGRESSED",
        "PASSED",
    )
    assert document["sentence"] == command("before", "after", *CONTROL).stdout.splitlines()[0]
    assert [0.2, 0.2, 0.0, 0.2] == pytest.approx(
        [document["change"], step["change"], step["control_change"], step["nodes"]["node0"]]
    )
    assert document["change_low"] < 0.2 < document["change_high"]
    assert (
        ["node3", "node4", "node5"] == list(step["control_nodes"]) == document["control"]["nodes"]
    )
    assert {"driver 550.54 → 570.86": 3} == document["differs"]


def test_a_node_of_the_list_without_file_or_with_fewer_tests_is_named(command, rollout, tmp_path):
    rollout()
    (tmp_path / "kept-after" / "node4.jsonl").unlink()
    path = tmp_path / "after" / "node1.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"step' not in line))
    result = command("before", "after", *CONTROL, "--nodes", "node[0-6]", "--tolerance", "9%")
    silent = [line for line in result.stdout.splitlines() if line.startswith("silent: ")]
    assert (result.exit_code, silent) == (
        1,
        [
            "silent: node1: after: 1 of 2 tests",
            "silent: node4: after: no file",
            "silent: node6: before: no file; after: no file",
        ],
    )
    assert "lost: step has no comparable time after the change on GPU-1 (node1)" in result.stdout


def test_name_only_prints_the_nodes_that_are_slower_than_their_group_one_a_line(command, save):
    for index in range(12):
        for side in ("before", "after"):
            slow = 1.3 if (index, side) == (7, "after") else 1.0
            save(side, index, step_s=slow * 1e-3, copy_s=slow * 1e-3)
    result = command("before", "after", "--changed", "node[0-5]", "--name-only")
    assert (result.exit_code, result.stdout) == (0, "node7\n")
    shown = command("before", "after", "--changed", "node[0-5]").stdout.splitlines()[-1]
    assert re.fullmatch(
        r"slower than its group: node7 \+[\d.]+ % \(control\), in \w+, since the change", shown
    )


def test_what_cannot_be_used_gets_one_sentence(command, rollout, tmp_path):
    rollout()
    (tmp_path / "empty").mkdir()
    for arguments, words in (
        (("before", "after", "--control", "gone", "kept-after"), "gone.jsonl does not exist"),
        (
            ("before", "runs/gone", "--control", "kept-before", "kept-after"),
            "runs/gone does not exist; expected names, paths, folders or patterns of what is there",
        ),
        (("before", "empty", *CONTROL), "empty holds no run file"),
        (("before", "after/none*", *CONTROL), "no run file matches after/none*"),
        (("before", "after"), "expected --control BEFORE AFTER or --changed LIST"),
        (("before", "after", "--changed", "gpu[1-999999999]"), "--changed names 999999999 nodes"),
        (
            ("before", "kept-after", *CONTROL),
            "no test was measured both before and after on any of the changed nodes",
        ),
    ):
        result = command(*arguments)
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (2, "", 1)
        assert words in result.stderr


@pytest.mark.feature("exchange")
def test_a_fact_that_cannot_be_true_is_refused_where_no_log_needs_it(command, rollout):
    rollout()
    result = command("before", "after", *CONTROL, "--read=nccl-tests,link=rope")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--read: link is 'rope'; expected one of nvlink, " in result.stderr


def test_options_on_logs_are_said_to_be_without_effect_on_run_files(command, rollout):
    rollout()
    expected = command("before", "after", *CONTROL)
    result = command("before", "after", *CONTROL, "--higher=rate")
    assert (expected.exit_code, expected.stdout) == (result.exit_code, result.stdout)
    assert expected.stderr == ""
    assert "note: --read, --higher and --lower have no effect on run files" in result.stderr


def test_hostile_names_are_shown_harmlessly(command, save):
    for index in range(6):
        side = "kept-" if index < 3 else ""
        save(f"{side}before", index, "5\x1b[31m", node=f"a\rb{index}")
        save(f"{side}after", index, "6\x07", step_s=2e-3, node=f"a\rb{index}")
    save("before", 9, node="a\rb")
    text = command("before", "after", *CONTROL).stdout
    assert "GPU-9 (a\\rb)" in text
    assert not {"\x1b", "\x07", "\r"} & set(text)


# Logs as other tools wrote them


def log(node, factor=1.0, seed=0, sizes=(2**28, 2**30), ranks=8):
    """A log of nccl-tests on one node, whose times have noise of 0.5 %."""
    rng = random.Random(f"{node}{seed}")
    names = "".join(
        f"#  Rank {rank} Group 0 Pid {rng.randrange(10**5)} on {node} device {rank} [0000:{rank:02x}:00] "
        "NVIDIA H100 80GB HBM3\n"
        for rank in range(ranks)
    )
    rows = ""
    for size in sizes:
        times = [size / 2.7e5 * factor * math.exp(rng.gauss(0, 0.005)) for _ in range(2)]
        cells = [f"{us:.2f} {size / us / 1e3:.2f} {size / us / 1e3 * 1.75:.2f} 0" for us in times]
        rows += f"{size} {size // 4} float sum -1 {' '.join(cells)}\n"
    return (
        "# nThread 1 nGpus 8 minBytes 268435456 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20 "
        f"agg iters: 1 validation: 1 graph: 0\n# Collective test starting: all_reduce_perf\n{names}"
        "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n"
        f"# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)\n{rows}"
        "# Out of bounds values : 0 OK\n# Avg bus bandwidth : 400\n"
    )


@pytest.fixture
def logs(tmp_path):
    """Logs of eight nodes before and after, of which the first four are 10 % slower after."""
    for side in ("before", "after"):
        (tmp_path / side).mkdir()
        for index in range(8):
            slower = 1.1 if side == "after" and index < 4 else 1.0
            name = tmp_path / side / f"gpu{index}.log"
            name.write_text(log(f"gpu{index}", slower, side))
    return tmp_path


@pytest.mark.feature("exchange")
def test_logs_as_they_came_are_judged_in_one_command(command, logs):
    result = command("before", "after", "--changed", "gpu[0-3]", "--label", "550.54", "570.86")
    first = result.stdout.splitlines()[0]
    assert (result.exit_code, result.stderr) == (1, "")
    assert re.fullmatch(
        r"AFTER is (9\.\d|10\.\d) % slower than BEFORE on 4 nodes \(.*\), in 4 of 4 tests; "
        r"differs: 550\.54 → 570\.86\. REGRESSED",
        first,
    ), first


@pytest.mark.feature("exchange")
def test_an_empty_log_is_named_and_one_of_other_ranks_is_not_paired(command, logs):
    (logs / "after" / "gpu5.log").write_text("")
    (logs / "after" / "gpu6.log").write_text(log("gpu6", ranks=4))
    result = command("before", "after", "--changed", "gpu[0-2]", "--nodes", "gpu[0-7]")
    assert result.exit_code == 1
    assert "silent: gpu5: after: log " in result.stdout
    assert "gpu5.log is empty; expected the output of a tool" in result.stdout
    (together,) = [line for line in result.stdout.splitlines() if line.startswith("all tests")]
    assert "3:3" in together


@pytest.mark.feature("exchange")
def test_rows_of_a_log_are_those_of_its_import(logs, tmp_path):
    path = str(tmp_path / "before" / "gpu1.log")
    (file,) = read_files([path])
    imported = CliRunner().invoke(main, ["import", path, "-o", str(tmp_path / "imported.jsonl")])
    assert imported.exit_code == 0, imported.output
    (expected,) = read_files([str(tmp_path / "imported.jsonl")])
    assert (expected.run_id, expected.started, expected.imported) == (
        file.run_id,
        file.started,
        file.imported,
    )
    assert environment_of(expected.environment) == environment_of(file.environment)
    assert list(expected.rows) == list(file.rows)


@pytest.mark.feature("exchange")
def test_fleet_reads_logs_and_names_the_slow_node_and_silent_ones(logs):
    for index in range(8, 40):
        (logs / "before" / f"gpu{index}.log").write_text(log(f"gpu{index}"))
    (logs / "before" / "gpu3.log").write_text(log("gpu3", 1.5))
    done = CliRunner().invoke(main, ["fleet", str(logs / "before"), "--nodes", "gpu[0-40]"])
    assert (done.exit_code, done.stderr) == (1, "")
    assert "silent: gpu40: no file\n" in done.stdout
    assert done.stdout.splitlines()[-1] == "slower than their peers: 1 node"
    assert "1. node gpu3, " in done.stdout
    nodes = CliRunner().invoke(
        main, ["fleet", str(logs / "before"), "--nodes", "gpu[0-40]", "--json"]
    )
    assert json.loads(nodes.stdout)["silent"] == [{"node": "gpu40", "reason": "no file"}]


@pytest.mark.feature("exchange")
def test_the_node_of_a_log_that_names_none_is_in_its_path_or_it_is_left_out(command, logs):
    for side in ("before", "after"):
        for path in (logs / side).iterdir():
            folder = path.with_suffix("")
            folder.mkdir()
            (folder / "all_reduce.log").write_text(
                re.sub("(?m)^#  Rank.*\n", "", path.read_text()).replace("nGpus 8", "nGpus 1")
            )
            path.unlink()
    result = command("before", "after", "--changed", "gpu[0-3]", "--host", "{node}/*.log")
    assert result.exit_code == 2
    assert "give the number behind the tool: --read=nccl-tests,devices=8" in result.stderr
    words = ("before", "after", "--changed", "gpu[0-3]", "--host", "{node}/*.log")
    advised = command(*words, "--read=nccl-tests,devices=8")
    assert (advised.exit_code, advised.stderr) == (1, "")


@pytest.mark.feature("exchange")
def test_a_log_may_name_its_node_with_the_domain_that_its_path_leaves_out(command, logs):
    for path in [path for side in ("before", "after") for path in (logs / side).iterdir()]:
        path.write_text(path.read_text().replace(f"on {path.stem} ", f"on {path.stem}.site.org "))
    words = ("before", "after", "--changed", "gpu[0-3]")
    assert command(*words, "--host", "{node}.log").stdout == command(*words).stdout != ""
    unmatched = command(*words, "--host", "{node}[.log")
    assert (unmatched.exit_code, "does not match --host" in unmatched.stderr) == (2, True)
    (logs / "before" / "gpu0.log").rename(logs / "before" / "gpu9.log")
    misnamed = command(*words, "--host", "{node}.log")
    assert "was measured on gpu0.site.org, but --host={node}.log says gpu9" in misnamed.stderr


SERVED = ("--host={node}.log", "--higher=tok/s=rate", "--lower=p99")


@pytest.fixture
def served(tmp_path):
    """The output of a program on eight nodes before and after, of which the first four serve 10 % less after."""
    for side in ("before", "after"):
        (tmp_path / side).mkdir()
        for index in range(8):
            generator = random.Random(f"{side}{index}")
            slower = 1.1 if side == "after" and index < 4 else 1.0
            rate, p99 = (generator.gauss(value, value * 0.005) for value in (900 / slower, 31))
            text = f'served by gpu\n{{"rate": {rate}, "p99": {p99}}}\n'
            (tmp_path / side / f"gpu{index}.log").write_text(text)
    return tmp_path


@pytest.mark.feature("exchange")
def test_the_figures_of_any_program_are_judged_on_nodes(command, served):
    result = command("before", "after", "--changed", "gpu[0-3]", "--json", *SERVED)
    assert (result.exit_code, result.stderr) == (1, "")
    rows = {row["label"]: row for row in json.loads(result.stdout)["tests"]}
    assert {label: row["verdict"] for label, row in rows.items()} == {
        "command.tok/s": "REGRESSED",
        "command.p99": "PASSED",
    }


@pytest.mark.feature("exchange")
def test_a_node_that_prints_the_same_figures_again_is_measured_again(command, served):
    (served / "after" / "gpu5.log").write_bytes((served / "before" / "gpu5.log").read_bytes())
    result = command("before", "after", "--changed", "gpu[0-3]", *SERVED)
    assert (result.exit_code, result.stderr) == (1, ""), result.output
    # The same file by another name is not.
    (served / "after" / "gpu5.log").unlink()
    (served / "after" / "gpu5.log").symlink_to(served / "before" / "gpu5.log")
    refused = command("before", "after", "--changed", "gpu[0-3]", *SERVED)
    assert (refused.exit_code, "is on both sides" in refused.stderr) == (2, True)


@pytest.mark.feature("exchange")
def test_fleet_names_a_run_of_a_programs_figures_as_import_does(served):
    path = str(served / "before" / "gpu0.log")
    output = str(served / "imported.jsonl")
    done = CliRunner().invoke(main, ["import", path, "-o", output, *SERVED])
    assert done.exit_code == 0, done.output
    (imported,) = read_files([output])
    plan = plan_of_options(None, ["tok/s=rate"], ["p99"])
    (file,) = read_files([path], "{node}.log", plan)
    assert imported.run_id == file.run_id


@pytest.mark.feature("exchange")
def test_fleet_reads_the_figures_of_any_program(served):
    for index in range(8, 40):
        (served / "before" / f"gpu{index}.log").write_text(
            f'{{"rate": {900 + index % 5}, "p99": 31}}'
        )
    (served / "before" / "gpu3.log").write_text('{"rate": 600, "p99": 31}')
    done = CliRunner().invoke(main, ["fleet", str(served / "before"), *SERVED])
    assert (done.exit_code, done.stderr) == (1, ""), done.output
    assert "1. node gpu3, " in done.stdout
    assert done.stdout.splitlines()[-1] == "slower than their peers: 1 node"
