"""GPUs and links inside the nodes of imported logs: a slow one is named, and what no log tells apart is said."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.runs import Run
from pytest_roofline.cli.main import main
from pytest_roofline.core.records import Header, Measurement, Outcome
from pytest_roofline.exchange import read
from pytest_roofline.exchange.building import build, run_id_of
from pytest_roofline.exchange.nodes import located
from pytest_roofline.exchange.records import Given
from pytest_roofline.many.fleet import fleet
from pytest_roofline.many.reading import file_of, many_of
from pytest_roofline.many.text import fleet_text

CASES = (
    ("host_to_device_memcpy_ce", "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)", 55.3),
    ("device_to_host_memcpy_ce", "memcpy CE CPU(row) <- GPU(column) bandwidth (GB/s)", 55.9),
    ("device_local_copy", "memcpy local GPU(column) bandwidth (GB/s)", 1450.0),
)
PEERS = (
    "device_to_device_memcpy_read_ce",
    "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
    390.0,
)
BABELSTREAM = """Using CUDA device NVIDIA H100 80GB HBM3
function,num_times,n_elements,sizeof,max_mbytes_per_sec,min_runtime,max_runtime,avg_runtime
Triad,50,268435456,8,{rate:.1f},{best:.7f},{worst:.7f},{best:.7f}
"""


def matrix(rng, rate, rows, slow):
    """Cells with 1 % of noise, `slow` by (row, column); nothing of a GPU beside itself where there are several rows."""
    cells = rate * np.exp(rng.normal(0, 0.01, (rows, 8)))
    for (row, column), factor in slow.items():
        cells[row if rows > 1 else 0, column] /= factor
    return [
        ["N/A" if rows > 1 and row == column else f"{cell:.2f}" for column, cell in enumerate(line)]
        for row, line in enumerate(cells)
    ]


def nvbandwidth(node, seed, slow=None, peers=False):
    """The JSON of a node with eight GPUs, of which those of `slow` take so many times as long."""
    rng = np.random.default_rng(seed)
    cases = [(case, 1, {(0, gpu): by for gpu, by in (slow or {}).items()}) for case in CASES]
    if peers:
        cases = [(PEERS, 8, slow or {})]
    listed = [
        f"{index}: NVIDIA H100 80GB HBM3 (00000000:{index}d:00): ({node})" for index in range(8)
    ]
    tests = [
        {"name": name, "status": "Passed", "bandwidth_description": text,
         "bandwidth_matrix": matrix(rng, rate, rows, slower)}
        for (name, text, rate), rows, slower in cases
    ]  # fmt: skip
    return json.dumps({"nvbandwidth": {"GPU Device list": listed, "testcases": tests}})


def many(*logs):
    """Imported runs, one of each log and host, as they are once their files were read."""
    files = []
    for number, (log, host) in enumerate(logs):
        given = Given(host=host)
        run_id = run_id_of([log.encode()])
        entries = [located(entry, "log", host) for entry in read(log.encode(), "log", given)]
        header, *lines = build(entries, given, run_id, "", ("roofline", "import", "log"))
        assert isinstance(header, Header)
        measured, outcomes = (
            tuple(line for line in lines if isinstance(line, kind))
            for kind in (Measurement, Outcome)
        )
        run = Run(Path(f"{number:03}.jsonl"), header, measured, outcomes, None)
        files.append(file_of(run, str(run.path), 1, 1))
    return many_of(files)


def of_nodes(seed, nodes=12, peers=False, **slow):
    """A log of each node; `slow` by its name."""
    names = [f"node{number:03}" for number in range(nodes)]
    return many(
        *(
            (nvbandwidth(name, [seed, at], slow.get(name), peers), "")
            for at, name in enumerate(names)
        )
    )


def told(found):
    return [(one.level, one.part, one.node) for one in found.findings]


def test_one_gpu_of_a_matrix_that_is_slower_is_named_and_nothing_else():
    expected = [("gpu", "node003:5", "node003")]
    for seed in range(8):
        assert told(fleet(of_nodes(seed, node003={5: 1.1}))) == expected, seed
        assert told(fleet(of_nodes(seed))) == [], seed
    for factor in (1.3, 7):
        assert told(fleet(of_nodes(0, node003={5: factor}))) == expected
    # Two nodes have enough GPUs to tell one of them apart.
    assert told(fleet(of_nodes(0, nodes=2, node001={2: 1.5}))) == [("gpu", "node001:2", "node001")]


def test_the_columns_of_a_matrix_are_one_test_on_as_many_devices():
    (part,) = fleet(of_nodes(0)).hardware
    assert (part.nodes, part.devices, part.links, part.tests, part.runs) == (12, 96, 0, 3, 12)
    assert (part.unplaced, set(part.detectable)) == (0, {"node", "gpu"})
    (part,) = fleet(of_nodes(0, peers=True)).hardware
    assert (part.links, part.tests) == (12 * 28, 1)


def test_the_link_of_a_slow_pair_is_named_and_a_gpu_whose_links_are_all_slow():
    slow = {"node004": {(1, 6): 1.5, (6, 1): 1.5}}
    assert told(fleet(of_nodes(0, peers=True, **slow))) == [
        ("link", "node004 GPU 1 – GPU 6", "node004")
    ]
    slow = {"node004": {pair: 1.5 for at in range(8) for pair in ((6, at), (at, 6))}}
    assert told(fleet(of_nodes(0, peers=True, **slow))) == [("gpu", "node004:6", "node004")]


def test_what_a_slow_column_is_slow_in_is_told_by_what_it_crosses():
    (finding,) = fleet(of_nodes(0, node003={5: 1.5})).findings
    assert {one.kind for one in finding.slow} == {"host link", "memory"}


def test_where_logs_name_no_device_their_nodes_are_the_parts_and_it_is_said():
    def log(node, at, seconds):
        return BABELSTREAM.format(
            rate=3 * 2**31 / seconds / 1e6, best=seconds, worst=1.1 * seconds
        ), f"node{node}"

    noise = np.random.default_rng(0).normal(0, 0.01, (12, 8))
    runs = many(
        *(log(node, at, 2e-3 * np.exp(noise[node, at])) for node in range(12) for at in range(8))
    )
    found = fleet(runs)
    (part,) = found.hardware
    assert (part.devices, part.unplaced, set(part.detectable)) == (0, 96, {"node"})
    lines = fleet_text(runs, found, found.findings, 100, colour=False).splitlines()
    assert lines[-2] == (
        "h100-sxm5, 80gb: devices and links inside a node are not told apart in 96 imported runs; a slow one among "
        "them does not show"
    )
    assert "a GPU" not in lines[-1] + lines[-3]


@pytest.mark.parametrize("peers", [False, True])
def test_of_a_log_over_several_nodes_no_node_is_blamed(peers):
    logs = []
    for at in range(6):
        log = json.loads(nvbandwidth(f"node{at}", at, peers=peers))
        listed = log["nvbandwidth"]["GPU Device list"]
        log["nvbandwidth"]["GPU Device list"] = [
            *listed[:4],
            *(text.replace(f"node{at}", "other") for text in listed[4:]),
        ]
        logs.append((json.dumps(log), ""))
    found = fleet(many(*logs))
    assert (found.findings, found.over_several_nodes) == ((), 6 * (56 if peers else 24))


def test_a_folder_of_logs_is_imported_by_node_and_the_slow_gpu_turns_the_command_red(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    names = [f"node{number:03}" for number in range(12)]
    for at, name in enumerate(names):
        slow = {5: 7.0} if name == "node003" else None
        (tmp_path / f"{name}.json").write_text(nvbandwidth(name, at, slow))
    files = [f"{name}.json" for name in names]
    done = CliRunner().invoke(main, ["import", *files, "--by", "node", "-o", "nodes"])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(main, ["fleet", "nodes", "--no-cache"])
    assert done.exit_code == 1, done.output
    assert "12 nodes, 96 devices, 0 links, 3 tests in 12 runs; would have found" in done.output
    assert "1. GPU node003:5 on node003, h100-sxm5, 80gb" in done.output
    assert done.output.splitlines()[-1] == "slower than their peers: 1 GPU"
