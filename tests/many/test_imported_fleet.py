"""GPUs and links inside the nodes of imported logs: a slow one is named, and what no log tells apart is said."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.runs import encode_line
from pytest_roofline.cli.main import main
from pytest_roofline.exchange.building import build, run_id_of
from pytest_roofline.exchange.formats import read
from pytest_roofline.exchange.nodes import with_node
from pytest_roofline.exchange.records import UserFacts
from pytest_roofline.many.files import parse_run
from pytest_roofline.many.fleet import fleet
from pytest_roofline.many.reading import tables_of
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
        given = UserFacts(host=host)
        run_id = run_id_of([log.encode()])
        entries = [with_node(entry, "log", host) for entry in read(log.encode(), "log", given)]
        lines = build(entries, given, run_id, "", ("roofline", "import", "log"))
        content = "".join(map(encode_line, lines))
        files.append(parse_run(content.encode(), f"{number:03}.jsonl"))
    return tables_of(files)


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
        "h100-sxm5, 80gb: devices and links inside a node are not identified in 96 imported runs, so a slow device "
        "or link is not found"
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
    done = CliRunner().invoke(main, ["fleet", "nodes"])
    assert done.exit_code == 1, done.output
    assert "12 nodes, 96 devices, 3 tests in 12 runs; detectable in" in done.output
    assert "1. GPU node003:5 on node003, h100-sxm5, 80gb" in done.output
    assert done.output.splitlines()[-1] == "slower than their peers: 1 GPU"


FAILED = "CUDA_ERROR_ECC_UNCORRECTABLE"


def broken(log, statuses):
    """A log whose test cases of these places ended with these statuses."""
    document = json.loads(log)
    for place, status in statuses.items():
        case = document["nvbandwidth"]["testcases"][place]
        error = {"error": FAILED} if status == "Error" else {}
        document["nvbandwidth"]["testcases"][place] = {
            "name": case["name"],
            "status": status,
            **error,
        }
    return json.dumps(document)


def without_gpu(log, gpu, places=(0, 1, 2)):
    """A log in whose test cases of these places a GPU has no figure."""
    document = json.loads(log)
    for place in places:
        for row in document["nvbandwidth"]["testcases"][place]["bandwidth_matrix"]:
            row[gpu] = "N/A"
    return json.dumps(document)


def too_fast(log):
    """A log whose rates no such device can reach."""
    document = json.loads(log)
    for case in document["nvbandwidth"]["testcases"]:
        case["bandwidth_matrix"] = [["990000.0"] * 8]
    return json.dumps(document)


@pytest.fixture
def judge(tmp_path, monkeypatch):
    """Imports twelve nodes, of which node003 left another log, and calls `roofline fleet`."""
    monkeypatch.chdir(tmp_path)

    def call(log, *words, slow=None):
        names = [f"node{number:03}" for number in range(12)]
        for at, name in enumerate(names):
            (tmp_path / f"{name}.json").write_text(nvbandwidth(name, at, (slow or {}).get(name)))
        (tmp_path / "node003.json").write_text(log)
        files = [f"{name}.json" for name in names]
        done = CliRunner().invoke(main, ["import", *files, "--by", "node", "-o", "nodes"])
        assert done.exit_code == 0, done.output
        return CliRunner().invoke(main, ["fleet", "nodes", *words])

    return call


def lines_of(done, node="node003"):
    return [line for line in done.stdout.splitlines() if line.startswith(node)]


LOG = nvbandwidth("node003", 3)
NOTHING = "node003: no part of this node is judged: 0 of 3 tests, 0 of 8 GPUs: "
ALL_FAILED = broken(LOG, dict.fromkeys(range(3), "Error"))


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (ALL_FAILED, FAILED),
        (broken(too_fast(LOG), {2: "Waived"}), "(63.0 GB/s)"),
    ],
)
def test_a_node_of_which_nothing_is_judged_is_named_and_is_no_all_clear(judge, log, reason):
    done = judge(log)
    (line,) = lines_of(done)
    assert (2, NOTHING, True) == (done.exit_code, line[: len(NOTHING)], reason in line)


def test_a_slow_part_weighs_more_than_a_node_of_which_nothing_is_judged(judge):
    done = judge(ALL_FAILED, slow={"node007": {2: 1.5}})
    assert (1, [f"{NOTHING}{FAILED}"]) == (done.exit_code, lines_of(done))


def test_a_run_that_was_cut_before_its_first_row_is_no_all_clear(judge, tmp_path):
    judge(LOG)
    path = tmp_path / "nodes" / "node003.jsonl"
    header = path.read_text().splitlines(keepends=True)[0]
    path.write_text(header)
    done = CliRunner().invoke(main, ["fleet", "nodes"])
    assert (2, [f"{NOTHING}the runs of this node hold no measurement"]) == (
        done.exit_code,
        lines_of(done),
    )


@pytest.mark.parametrize(
    ("log", "line"),
    [
        (broken(LOG, {1: "Error"}), f"node003: 2 of 3 tests: {FAILED}"),
        (broken(LOG, {1: "Waived"}), "node003: 2 of 3 tests"),
        (without_gpu(LOG, 5), "node003: 7 of 8 GPUs"),
        (without_gpu(LOG, 5, places=(1,)), "node003: 23 of 24 measurements"),
    ],
)
def test_a_node_of_which_less_is_judged_than_of_its_peers_is_named(judge, log, line):
    done = judge(log)
    assert (0, [line]) == (done.exit_code, lines_of(done))


def test_no_node_is_named_where_all_have_the_same(judge):
    done = judge(LOG)
    assert (0, []) == (done.exit_code, lines_of(done, "node"))


def test_what_is_missing_of_a_node_stands_in_the_json(judge):
    done = judge(ALL_FAILED, "--json")
    (entry,) = json.loads(done.stdout)["incomplete"]
    assert {
        "node": "node003",
        "hardware": "h100-sxm5, 80gb",
        "judged": {"test": 0, "gpu": 0, "link": 0, "measurement": 0},
        "expected": {"test": 3, "gpu": 8, "measurement": 24},
        "reason": FAILED,
    } == entry
    assert 2 == done.exit_code


def test_a_choice_of_tests_leaves_out_no_node_that_failed_in_them(judge):
    done = judge(broken(LOG, {1: "Error"}), "--tests", "nvbandwidth.device_to_host*")
    line = f"node003: no part of this node is judged: 0 of 1 test, 0 of 8 GPUs: {FAILED}"
    assert (2, [line]) == (done.exit_code, lines_of(done))
