"""Logs of many nodes: a run of each, by the node that the file, its path or the user names."""

import json

import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.runs import read_run
from pytest_roofline.cli.main import main
from pytest_roofline.core.errors import BadFile
from pytest_roofline.exchange.nodes import with_node
from pytest_roofline.exchange.records import ImportedLog, MachineFacts, Tool

BABELSTREAM = """Using CUDA device NVIDIA H100 80GB HBM3
Driver: {driver}
function,num_times,n_elements,sizeof,max_mbytes_per_sec,min_runtime,max_runtime,avg_runtime
Triad,50,268435456,8,3.0e+06,0.00214748,0.0023,0.00219
"""


def nvbandwidth(node, rate=55.3, driver="550.54.15"):
    """The JSON of a node with two GPUs."""
    case = {
        "name": "host_to_device_memcpy_ce",
        "status": "Passed",
        "bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
        "bandwidth_matrix": [[f"{rate}", "55.1"]],
    }
    devices = [
        f"{index}: NVIDIA H100 80GB HBM3 (00000000:{index}d:00): ({node})" for index in range(2)
    ]
    top = {"Driver Version": driver, "GPU Device list": devices, "testcases": [case]}
    return json.dumps({"nvbandwidth": top})


TEXT = """nvbandwidth Version: v0.9
Built from Git version: v0.9

CUDA Runtime Version: 13000
CUDA Driver Version: 13000
Driver Version: 580.65.06

{node}
Device 0: NVIDIA H100 80GB HBM3 (00000000:01:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0
 0     {rate}

SUM host_to_device_memcpy_ce {rate}

"""


@pytest.fixture
def call(tmp_path, monkeypatch):
    """`roofline …` in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, [*map(str, words)])


@pytest.fixture
def write(tmp_path):
    def write(**logs):
        for name, log in logs.items():
            path = tmp_path / name.replace("__", "/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(log)

    return write


def hosts(folder):
    """Of each run its host, its processes and its driver, by file."""
    return {
        path.name: (run.header.environment.host.name, len({one.process for one in run.measurements}),
                    run.header.environment.device.driver)
        for path in sorted(folder.iterdir())
        for run in [read_run(path)]
    }  # fmt: skip


def test_logs_of_many_nodes_become_a_run_of_each(call, write, tmp_path):
    write(
        a=nvbandwidth("node1"),
        b=nvbandwidth("node2", driver="570.86"),
        c=nvbandwidth("node1", 55.4),
    )
    done = call("import", "a", "b", "c", "--by", "node", "-o", "runs")
    assert done.exit_code == 0, done.output
    assert hosts(tmp_path / "runs") == {
        "node1.jsonl": ("node1", 2, "550.54.15"),
        "node2.jsonl": ("node2", 1, "570.86"),
    }
    assert done.output.count("saved as runs/node") == 2
    # Again it is there already; with another log nothing is written.
    printed = json.loads(
        call("import", "a", "b", "c", "--by", "node", "-o", "runs", "--json").output
    )
    assert [(one["run"], one["written"]) for one in printed["runs"]] == [
        ("runs/node1.jsonl", False),
        ("runs/node2.jsonl", False),
    ]
    write(d=nvbandwidth("node0"))
    done = call("import", "d", "a", "--by", "node", "-o", "runs")
    assert (done.exit_code, "node1.jsonl exists already" in done.output) == (2, True)
    assert not (tmp_path / "runs" / "node0.jsonl").exists()


def test_the_path_of_a_file_names_its_node_by_a_pattern(call, write, tmp_path):
    logs = {
        f"{node}__stream.log": BABELSTREAM.format(driver=at) for at, node in enumerate(("n1", "n2"))
    }
    write(**logs)
    files = sorted(name.replace("__", "/") for name in logs)
    done = call("import", *files, "--by", "node", "-o", "runs", "--host", "{node}/*")
    assert done.exit_code == 0, done.output
    assert [name for name, *_ in hosts(tmp_path / "runs").values()] == ["n1", "n2"]
    for path, pattern, node in (
        ("logs/nvbw-node-07-2026.json", "nvbw-{node}-*.json", "node-07"),
        ("n7.log", "{node}.log", "n7"),
        ("x/n7/out/n7.log", "{node}/out/{node}.log", "n7"),
        ("n7.log", "n8", "n8"),
        ("n7.log", "", None),
    ):
        assert with_node(ImportedLog(path, Tool("", ""), ()), path, pattern).machine.host == node
    with pytest.raises(BadFile, match=r"a\.txt does not match --host=\{node\}\.log;"):
        with_node(ImportedLog("a.txt", Tool("", ""), ()), "a.txt", "{node}.log")


@pytest.mark.parametrize(
    ("path", "pattern", "printed", "node"),
    [
        ("gpu1.a.org.log", "{node}.log", "gpu1", "gpu1.a.org"),
        ("gpu1.b.org.log", "{node}.log", "gpu1", "gpu1.b.org"),
        ("gpu1.log", "{node}.log", "gpu1.a.org", "gpu1.a.org"),
        ("gpu1.log", "gpu1.a.org", "gpu1", "gpu1.a.org"),
        ("gpu1.log", "", "gpu1", "gpu1"),
    ],
)
def test_the_fuller_name_of_a_node_tells_machines_of_several_sites_apart(
    path, pattern, printed, node
):
    log = ImportedLog(path, Tool("", ""), (), MachineFacts(host=printed))
    assert node == with_node(log, path, pattern).machine.host


def test_a_node_among_those_of_a_log_does_not_replace_its_first():
    machine = MachineFacts(host="gpu1", hosts=("gpu1", "gpu2"))
    log = ImportedLog("gpu2.a.org.log", Tool("", ""), (), machine)
    assert machine == with_node(log, "gpu2.a.org.log", "{node}.log").machine


def test_equal_files_are_one_measurement_only_within_a_node(call, write, tmp_path):
    log = BABELSTREAM.format(driver="550.54.15")
    write(n1__a=log, n1__b=log, n2__a=log)
    files = ("n1/a", "n1/b", "n2/a")
    done = call("import", *files, "--by", "node", "-o", "runs", "--host", "{node}/*")
    assert (0, ["note: n1/b holds the same as n1/a, and was ignored"]) == (
        done.exit_code,
        [line for line in done.output.splitlines() if "ignored" in line],
    )
    driver = "550.54.15"
    assert {"n1.jsonl": ("n1", 1, driver), "n2.jsonl": ("n2", 1, driver)} == hosts(
        tmp_path / "runs"
    )
    # Without --by node they are of several nodes, and not of the first alone.
    done = call("import", *files, "--host", "{node}/*", "--save", "x")
    assert (2, True) == (done.exit_code, "the files are of 2 nodes (n1, n2)" in done.output)


def test_the_text_of_nvbandwidth_names_its_node(call, write, take, tmp_path):
    write(
        a=TEXT.format(node="node-1.lab", rate="12.98"),
        b=TEXT.format(node="4329ebc474e0", rate=6.49),
    )
    refused = call("import", "a", "b", "--save", "x")
    assert (2, True) == (refused.exit_code, "of 2 nodes (node-1.lab, 4329" in refused.output)
    assert call("import", "a", "b", "--by", "node", "-o", "nodes").exit_code == 0
    assert {
        "4329ebc474e0.jsonl": ("4329ebc474e0", 1, "580.65.06"),
        "node-1.lab.jsonl": ("node-1.lab", 1, "580.65.06"),
    } == hosts(tmp_path / "nodes")
    # A bare word elsewhere, and a line of several words, are of something else.
    for log in (
        TEXT.format(node="", rate="12.98") + "done\n",
        "done\n" + TEXT.format(node="Loading modules", rate="12.98"),
    ):
        assert [None] == [entry.machine.host for entry in take(log)]


def test_what_is_of_several_nodes_or_drivers_or_of_another_is_refused_with_the_remedy(
    call, write, tmp_path
):
    write(a=nvbandwidth("node1"), b=nvbandwidth("node2"), c=nvbandwidth("node1", 55, "570.86"),
          s=BABELSTREAM.format(driver="550.54.15"))  # fmt: skip
    for words, message in (
        (
            ["a", "b", "--save", "x"],
            "of 2 nodes (node1, node2); `roofline import FILES… --by node -o DIR` writes",
        ),
        (
            ["a", "c", "--save", "x"],
            "a under driver 550.54.15, c under driver 570.86; expected one driver",
        ),
        (
            ["a", "c", "--by", "node", "-o", "x"],
            "a under driver 550.54.15, c under driver 570.86; expected one",
        ),
        (
            ["a", "--host", "node2"],
            "a was measured on node1, but --host=node2 says node2; expected the same",
        ),
        (
            ["a", "s", "--by", "node", "-o", "x"],
            "s names no node; give a pattern that shows where the path names the node: --host '{node}/*'",
        ),
        (
            ["a", "--by", "node"],
            "--by node writes a run for each node; give -o DIR, and leave out --save",
        ),
        (["a", "--by", "node", "--save", "x", "-o", "y"], "give -o DIR, and leave out --save"),
    ):
        done = call("import", *words)
        assert (done.exit_code, message in done.output) == (2, True), done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c", "s"]
    # A log that names no node goes with one that does.
    assert call("import", "a", "s", "--host", "node1", "--save", "x").exit_code == 0
