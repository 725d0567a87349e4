"""`roofline fleet` and `roofline history` as a user types them."""

import dataclasses
import json
import math
import re
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.runs import encode_line
from pytest_roofline.cli.main import main

SLOW = math.log(1.4)


@pytest.fixture
def runs(make, tmp_path):
    """Writes run files of `nodes` with a GPU each; `effect(node, night)` is added in log seconds."""

    def write(effect, nodes=12, nights=10, key=None):
        rng = np.random.default_rng(2)
        folder = tmp_path / "fleet"
        folder.mkdir()
        for night in range(nights):
            for node in range(nodes):
                measurement = make.measurement(
                    1e-3 * math.exp(rng.normal(0, 0.01) + effect(node, night)), key=key
                )
                environment = make.environment(
                    uuid=f"GPU-{node}", driver="570.86" if night < 6 else "580.10"
                )
                environment = dataclasses.replace(
                    environment, host=dataclasses.replace(environment.host, name=f"node{node}")
                )
                header = make.header("nightly", f"2026-01-{night + 1:02}T03:{node:02}:00Z")
                header = dataclasses.replace(header, environment=environment)
                path = folder / f"node{node}-{night}.jsonl"
                path.write_text(
                    "".join(map(encode_line, [header, measurement, make.outcome(measurement)]))
                )
        return folder

    return write


@pytest.fixture
def command(tmp_path):
    def invoke(*arguments, **given):
        return CliRunner().invoke(
            main, [*map(str, arguments), "--dir", str(tmp_path / "kept")], **given
        )

    return invoke


def test_fleet_names_the_slow_gpu_its_node_and_what_to_look_at_and_fails(runs, command, tmp_path):
    folder = runs(lambda node, night: SLOW * (node == 3))
    for number in range(7):
        (folder / f"broken{number}.jsonl").write_text("nonsense\n")
    done = command("fleet", folder)
    assert (done.exit_code, (tmp_path / "kept").exists()) == (1, False)
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("1  ")]
    assert row.split()[:4] == ["1", "GPU", "GPU-3:", "memory"]
    for told in (
        "1. GPU GPU-3 on node3, h200-sxm, 141gb",
        "slow in memory: memcpy_d2d[64MiB] in 10 runs",
        "look at: memory clock",
        "12 nodes, 12 devices, 1 test in 120 runs; detectable in",
    ):
        assert told in done.stdout
    assert done.stdout.splitlines()[-1] == "slower than their peers: 1 GPU"
    for told in (
        "7 of 127 files are left out:",
        "broken0.jsonl, line 1 is not JSON",
        "… and 2 more",
    ):
        assert told in done.stderr
    first, later = command("fleet", folder), command("fleet", folder)
    assert done.stdout == first.stdout == later.stdout
    (finding,) = json.loads(command("fleet", folder, "--json").stdout)["findings"]
    assert ("gpu", "GPU-3", "node3") == (finding["level"], finding["part"], finding["node"])
    (slow,) = finding["slow"]
    assert slow["change_low"] < 0.4 < slow["change_high"]
    done = command("fleet", folder, "--by", "link")
    # A file that cannot be read may be that of a slow node.
    assert (2, "slower than their peers: none was found") == (
        done.exit_code,
        done.stdout.splitlines()[-1],
    )
    # What is not found is no proof of health: how slow a part may be all the same.
    sound = [path for path in folder.glob("node*") if path.stem.split("-")[0] != "node3"]
    listed = "\n".join(map(str, sound))
    done = command("fleet", "-", input=listed)
    (reach,) = re.findall(r"a GPU from \+([\d.]+) %", done.stdout)
    told = f"none was found; a GPU that is less than {float(reach):g} % slower would not have been found"
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, f"slower than their peers: {told}")
    # Text from files cannot steer the terminal.
    for path in folder.glob("node3-*.jsonl"):
        path.write_text(path.read_text().replace("GPU-3", "GPU-\\u001b[2J3"))
    done = command("fleet", folder)
    assert (done.exit_code, "\x1b" in done.stdout, "GPU-\\x1b[2J3" in done.stdout) == (
        1,
        False,
        True,
    )


@pytest.mark.feature("exchange")
def test_logs_that_cannot_be_read_are_named_with_the_reason(command, tmp_path):
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "node1.log").write_text("BabelStream\nVersion: 3.4\n")
    (folder / "node2.log").write_text("")
    for words in ([folder], [folder / "*.log"], sorted(folder.iterdir())):
        done = command("fleet", *words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "none of 2 run files can be used: " in done.stderr
        assert "node2.log is empty; expected the output of a tool" in done.stderr


def test_too_few_devices_or_runs_end_with_2(runs, command):
    folder = runs(lambda node, night: SLOW * (node == 1), nodes=3, nights=4)
    done = command("fleet", folder)
    assert (done.exit_code, "no hardware has 4 devices" in done.stderr) == (2, True)
    assert "3 nodes, 3 devices" in done.stdout
    assert "too few to find a slow part; expected at least 4" in done.stdout
    done = command("history", folder)
    assert (done.exit_code, "no test has 6 valid runs on one device" in done.stderr) == (
        2,
        True,
    )
    assert "shorter series; INVALID and failed results do not count\n" in done.stderr
    cut = folder / "node0-0.jsonl"
    cut.write_text(cut.read_text()[:-20])
    assert f"note: {cut} ends in the middle of a line" in command("fleet", folder).stderr


def test_what_many_runs_need_is_an_extra_that_is_named_with_its_command(runs, command, monkeypatch):
    folder = runs(lambda node, night: 0.0, nodes=1, nights=1)
    monkeypatch.setitem(sys.modules, "pandas", None)
    for name in ("history", "fleet"):
        done = command(name, folder)
        assert (done.exit_code, done.stdout) == (2, "")
        assert (
            "history and fleet need pandas, which cannot be imported; "
            "type: pip install 'pytest-roofline[report]'" in done.stderr
        )


def test_history_tells_the_step_when_where_and_what_changed_and_fails(runs, command):
    folder = runs(lambda node, night: 0.1 * (night >= 6) * (node != 2))
    done = command("history", folder)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0].startswith("SLOWER step +10.")
    assert lines[0].endswith("between 2026-01-06 03:11 and 2026-01-07 03:00")
    assert lines[1] == "  tests: memcpy_d2d[64MiB]"
    assert "(11 of 12); h200-sxm, 141gb" in lines[2]
    assert lines[5] == "  changed then: driver 570.86 → 580.10"
    (row,) = [line for line in lines if line.startswith("memcpy_d2d")]
    assert row.split()[:3] == ["memcpy_d2d[64MiB]", "12", "120"]
    assert (row.split()[-1][0], row.split()[-1][-1]) == ("▁", "█")
    (change,) = json.loads(command("history", folder, "--json").stdout)["changes"]
    assert (len(change["units"]), change["of_units"], change["slower"]) == (11, 12, True)
    assert change["after"]["started"] == "2026-01-07T03:00:00+00:00"
    # Runs and tests are chosen by date and pattern.
    chosen = [command("history", folder, *how).exit_code for how in ((), ("--tests", "memcpy_*"))]
    assert chosen == [1, 1]
    for how, why in (
        (("--since", "2027-01-01"), "no run began on 2027-01-01 or later"),
        (("--since", "2026-01-07"), "no test has 6 valid runs"),
        (("--tests", "matmul*"), "no test matches --tests matmul*; the tests are memcpy_d2d"),
    ):
        done = command("history", folder, *how)
        assert (done.exit_code, why in done.stderr) == (2, True), how


def test_history_of_what_became_faster_ends_with_0(runs, command):
    done = command("history", runs(lambda node, night: -0.1 * (night >= 6)))
    assert (done.exit_code, done.stdout.startswith("faster step -9.")) == (0, True)


def test_history_shows_a_figure_of_a_program_as_the_program_does(runs, command, make):
    key = make.key("bench", parameters={}, metric="higher", name="tokens/s")
    (row,) = [
        line
        for line in command("history", runs(lambda node, night: 0.0, key=key)).stdout.splitlines()
        if line.startswith("bench.tokens/s")
    ]
    assert float(row.split()[3]) == pytest.approx(1000, rel=0.02)
