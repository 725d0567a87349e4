"""Our files are pytest-benchmark's: its own commands read them, and so do we."""

import csv
import json
import subprocess
import sys

import pytest

from pytest_roofline.core.samples import Samples
from pytest_roofline.exchange import read
from pytest_roofline.exchange.records import Given

NAME = "pytest-benchmark"
TEST = "test_live.py::test_live[64MiB]"
LIVE = """
import pytest

@pytest.mark.parametrize("size_bytes", [pytest.param(64 * 2**20, id="64MiB")])
def test_live(benchmark, size_bytes):
    benchmark.pedantic(lambda: None, rounds=2, iterations=1)
"""


@pytest.fixture
def write(exported, tmp_path):
    """A file of pytest-benchmark, of one run of these records."""

    def write(name, *records):
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps(exported(NAME, *records).document), encoding="utf-8")
        return path

    return write


@pytest.fixture
def live(tmp_path, monkeypatch):
    """Run pytest-benchmark on a test that takes no time, against a file; plugins of others stay out."""
    # Beside xdist it would disable itself.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

    def live(*options):
        (tmp_path / "test_live.py").write_text(LIVE, encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:roofline", *options]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)

    return live


def shape(value):
    """The names in a JSON object, at every depth that is not free text of a user's."""
    if not isinstance(value, dict):
        return None
    return {name: shape(inner) for name, inner in value.items() if name not in ("params", "extra_info", "cpu")}


def test_a_live_run_compares_with_our_file_and_has_its_layout(make, write, live, tmp_path):
    slow = write("slow", make.measurement(3600.0, test_id=TEST))
    done = live(f"--benchmark-compare={slow}", "--benchmark-compare-fail=median:5%", "--benchmark-json=theirs.json")
    assert (0, True) == (done.returncode, f"{slow}" in done.stdout + done.stderr), done.stdout + done.stderr
    theirs, ours = (json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("theirs.json", "slow.json"))
    assert {"device": {"type": None, "product": None, "driver": None, "memory_bytes": None}} == (
        {name: value for name, value in shape(ours["machine_info"]).items() if name not in theirs["machine_info"]}
    )
    ours["machine_info"].pop("device")
    assert shape({**theirs, "benchmarks": None}) == shape({**ours, "benchmarks": None})
    (one,), (other,) = theirs["benchmarks"], ours["benchmarks"]
    known = {name: None for name in one["options"] if name in other["options"]}
    assert set(other["options"]) == set(known)
    assert shape({**one, "options": None}) == shape({**other, "options": None})
    assert (one["fullname"], one["name"], one["param"], one["params"]) == tuple(
        other[name] for name in ("fullname", "name", "param", "params")
    )


def test_a_live_run_fails_against_our_faster_file(make, write, live):
    fast = write("fast", make.measurement(1e-12, test_id=TEST))
    done = live(f"--benchmark-compare={fast}", "--benchmark-compare-fail=median:5%")
    assert (1, True) == (done.returncode, "Performance has regressed" in done.stdout + done.stderr), done.stdout


def test_its_compare_command_reads_two_of_our_files(make, write, tmp_path):
    sizes = {"1KiB": 1024, "2KiB": 2048}
    paths = [
        write(
            name,
            *(
                make.measurement(
                    factor * size * 1e-9, key=make.key(size_bytes=size), test_id=f"test_m.py::test_copy[{label}]"
                )
                for label, size in sizes.items()
            ),
        )
        for name, factor in (("old", 1), ("new", 2))
    ]
    command = [sys.executable, "-m", "pytest_benchmark", "compare", *paths, "--csv=out.csv", "--group-by=param"]
    command += ["--columns=min,median,rounds", "--sort=min"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert 0 == done.returncode, done.stderr
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [
        ("1024", 1.024e-6, "1"),
        ("1024", 2.048e-6, "1"),
        ("2048", 2.048e-6, "1"),
        ("2048", 4.096e-6, "1"),
    ] == [(row["param:size_bytes"], pytest.approx(float(row["median"])), row["rounds"]) for row in rows]


def test_we_read_our_own_file_back(processes, write):
    path = write("run", *processes([1e-3, 1.5e-3, 1.1e-3], [2e-3]))
    (imported,) = read(path.read_bytes(), str(path), Given(), None)
    (reading,) = imported.readings
    assert ((1e-3, 1.5e-3, 1.1e-3, 2e-3), 10) == (reading.seconds, reading.iterations)
    assert ("node", "AMD EPYC", 8, "6.8") == (imported.host, imported.cpu_model, imported.cores, imported.kernel)


def test_the_extra_info_says_what_the_format_has_no_field_for(exported, processes, judged):
    (measurement,) = processes([1e-3])
    document = exported(NAME, measurement, judged(measurement, estimate=0.0, new_s=1e-3)).document
    extra = document["benchmarks"][0]["extra_info"]
    wanted = {
        "label": "memcpy_d2d[64MiB]",
        "metric": "traffic_GBps",
        "rate": pytest.approx(134.217728),
        "rate_unit": "GB/s",
        "share_of_roofline": pytest.approx(0.134217728),
        "verdict": "PASSED",
        "change": 0.0,
        "hardware": "h200-sxm, 141gb",
        "driver": "570.86",
        "run_id": "run",
    }
    assert wanted == {name: extra[name] for name in wanted}


def test_the_time_is_that_of_the_run_and_not_of_the_export(exported, make):
    assert "2026-01-02T03:04:05+00:00" == exported(NAME, make.measurement()).document["datetime"]


def test_the_clock_of_a_device_is_called_none_of_pythons(make, write):
    timers = {}
    for mode in ("events", "host", "unknown"):
        measurement = make.measurement(samples=Samples((1e-3,), 10, 1e-9, mode=mode))
        document = json.loads(write(mode, measurement).read_text(encoding="utf-8"))
        timers[mode] = document["benchmarks"][0]["options"]["timer"]
    assert {"events": "device_events", "host": "perf_counter_ns", "unknown": None} == timers


@pytest.mark.parametrize(
    ("test_id", "name", "param"),
    [
        ("d[1]/test_m.py::test_m", "test_m", None),
        ("test_m.py::TestM::TestN::test_m[64MiB]", "test_m[64MiB]", "64MiB"),
        ("test_m.py::TestM::test_odd[x::y]", "test_odd[x::y]", "x::y"),
        ("test_m.py::test_odd[a]b[c]::d]", "test_odd[a]b[c]::d]", "a]b[c]::d"),
        ("test_m.py::test_odd[]", "test_odd[]", ""),
    ],
)
def test_what_stands_in_brackets_may_hold_anything(exported, make, test_id, name, param):
    first = make.measurement(test_id=test_id)
    second = make.measurement(test_id=test_id, key=make.key(name="back]ward[x]"))
    one, other = exported(NAME, first, second).document["benchmarks"]
    assert (test_id, name, param) == (one["fullname"], one["name"], one["param"])
    assert (f"{test_id}.back]ward[x]", f"{name}.back]ward[x]", param) == (
        other["fullname"],
        other["name"],
        other["param"],
    )


def test_a_benchmark_is_its_own_group_as_it_is_live(exported, make):
    first, second = make.measurement(), make.measurement(key=make.key("matmul"), test_id="test_m.py::test_matmul")
    assert ["memcpy_d2d", "matmul"] == [one["group"] for one in exported(NAME, first, second).document["benchmarks"]]
