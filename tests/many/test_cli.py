"""`roofline fleet` and `roofline history` as a user types them."""

import dataclasses
import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.runs import encode_line
from pytest_roofline.cli.main import main

SLOW = math.log(1.4)


@pytest.fixture
def runs(make, tmp_path):
    """Writes run files of `nodes` with a GPU each; `effect(node, night)` is added in log seconds."""

    def write(effect, nodes=12, nights=10):
        rng = np.random.default_rng(2)
        folder = tmp_path / "fleet"
        folder.mkdir()
        for night in range(nights):
            for node in range(nodes):
                measurement = make.measurement(1e-3 * math.exp(rng.normal(0, 0.01) + effect(node, night)))
                environment = make.environment(uuid=f"GPU-{node}", driver="570.86" if night < 6 else "580.10")
                environment = dataclasses.replace(
                    environment, host=dataclasses.replace(environment.host, name=f"node{node}")
                )
                header = make.header("nightly", f"2026-01-{night + 1:02}T03:{node:02}:00Z")
                header = dataclasses.replace(header, environment=environment)
                path = folder / f"node{node}-{night}.jsonl"
                path.write_text("".join(map(encode_line, [header, measurement, make.outcome(measurement)])))
        return folder

    return write


@pytest.fixture
def command(tmp_path):
    def invoke(*arguments, **given):
        return CliRunner().invoke(main, [*map(str, arguments), "--dir", str(tmp_path / "kept")], **given)

    return invoke


def test_fleet_names_the_slow_gpu_its_node_and_what_to_look_at_and_fails(runs, command):
    done = command("fleet", runs(lambda node, night: SLOW * (node == 3)))
    assert done.exit_code == 1
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("1  ")]
    assert row.split()[:4] == ["1", "GPU", "GPU-3:", "memory"]
    assert "1. GPU GPU-3 on node3, h200-sxm, 141gb" in done.stdout
    assert "slow in memory: memcpy_d2d[64MiB] in 10 runs" in done.stdout
    assert "look at: memory clock" in done.stdout
    assert done.stdout.splitlines()[-1] == "slower than their peers: 1 GPU"
    assert "12 nodes, 12 devices, 0 links, 1 test in 120 runs; would have found" in done.stdout


def test_fleet_as_json_is_in_shares_of_time_and_by_link_shows_links_alone(runs, command):
    folder = runs(lambda node, night: SLOW * (node == 3))
    (finding,) = json.loads(command("fleet", folder, "--json").stdout)["findings"]
    assert ("gpu", "GPU-3", "node3") == (finding["level"], finding["part"], finding["node"])
    assert finding["change"] == pytest.approx(0.4, abs=0.03)
    (slow,) = finding["slow"]
    assert slow["change_low"] < 0.4 < slow["change_high"]
    done = command("fleet", folder, "--by", "link")
    assert (0, "slower than their peers: none") == (done.exit_code, done.stdout.splitlines()[-1])


def test_fleet_of_too_few_says_so_and_ends_with_2(runs, command):
    done = command("fleet", runs(lambda node, night: SLOW * (node == 1), nodes=3))
    assert done.exit_code == 2
    assert "3 nodes, 3 devices" in done.stdout
    assert "too few to say which of them is slow; expected 4" in done.stdout
    assert "no hardware has 4 devices" in done.stderr


def test_history_tells_the_step_when_where_and_what_changed_and_fails(runs, command):
    done = command("history", runs(lambda node, night: 0.1 * (night >= 6)))
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("SLOWER step +10.")
    assert lines[0].endswith("between 2026-01-06 03:11 and 2026-01-07 03:00")
    assert lines[1] == "  tests: memcpy_d2d[64MiB]"
    assert lines[2] == "  on: all 12 of 12; h200-sxm, 141gb"
    assert lines[5] == "  changed then: driver 570.86 → 580.10"
    (row,) = [line for line in lines if line.startswith("memcpy_d2d")]
    assert row.split()[:3] == ["memcpy_d2d[64MiB]", "12", "120"]
    assert row.split()[-1].startswith("▁")
    assert row.split()[-1].endswith("█")


def test_history_of_what_became_faster_ends_with_0(runs, command):
    done = command("history", runs(lambda node, night: -0.1 * (night >= 6)))
    assert done.exit_code == 0
    assert done.stdout.startswith("faster step -9.")


def test_history_as_json_names_the_runs_around_a_step(runs, command):
    done = command("history", runs(lambda node, night: 0.1 * (night >= 6) * (node == 2)), "--json")
    (change,) = json.loads(done.stdout)["changes"]
    assert (["GPU-2"], 12, True) == (change["units"], change["of_units"], change["slower"])
    assert change["after"]["started"] == "2026-01-07T03:02:00+00:00"
    assert change["after"]["path"].endswith("node2-6.jsonl")


def test_runs_and_tests_are_chosen_by_date_and_pattern(runs, command):
    folder = runs(lambda node, night: 0.1 * (night >= 3))
    assert [1, 0] == [command("history", folder, *since).exit_code for since in ((), ("--since", "2026-01-04"))]
    assert command("history", folder, "--tests", "memcpy_*").exit_code == 1
    for chosen, why in (
        (("--since", "2027-01-01"), "no run began on 2027-01-01 or later"),
        (("--tests", "matmul*"), "no test matches --tests matmul*; there are memcpy_d2d"),
    ):
        done = command("history", folder, *chosen)
        assert (2, True) == (done.exit_code, why in done.stderr)


def test_too_few_runs_for_a_history_end_with_2(runs, command):
    done = command("history", runs(lambda node, night: 0.0, nodes=2, nights=4))
    assert done.exit_code == 2
    assert "no test has 6 runs that count on one device" in done.stderr
    assert "shorter series; what is INVALID or failed is left out\n" in done.stderr


def test_broken_files_are_counted_and_named_and_the_rest_is_judged(runs, command):
    folder = runs(lambda node, night: SLOW * (node == 3))
    for number in range(7):
        (folder / f"broken{number}.jsonl").write_text("nonsense\n")
    done = command("fleet", folder)
    assert done.exit_code == 1
    assert "7 of 127 files are left out:" in done.stderr
    assert "broken0.jsonl, line 1 is not JSON" in done.stderr
    assert "… and 2 more" in done.stderr


def test_a_list_on_stdin_names_the_runs_and_the_cache_changes_nothing(runs, command, tmp_path):
    folder = runs(lambda node, night: SLOW * (node == 3))
    without = command("fleet", folder, "--no-cache")
    assert not (tmp_path / "kept").exists()
    first, later = command("fleet", folder), command("fleet", folder)
    assert without.stdout == first.stdout == later.stdout
    assert {"runs.msgpack", ".gitignore"} == {path.name for path in (tmp_path / "kept" / "cache").iterdir()}
    listed = "\n".join(str(path) for path in folder.iterdir() if path.stem.split("-")[0] != "node3")
    assert command("fleet", "-", input=listed).exit_code == 0


def test_text_from_files_cannot_steer_the_terminal(runs, command):
    folder = runs(lambda node, night: SLOW * (node == 3))
    for path in folder.glob("node3-*.jsonl"):
        path.write_text(path.read_text().replace("GPU-3", "GPU-\\u001b[2J3"))
    done = command("fleet", folder)
    assert done.exit_code == 1
    assert "\x1b" not in done.stdout
    assert "GPU-\\x1b[2J3" in done.stdout
