"""Files of pytest-benchmark: read whole, written so that its own commands read them, with its own statistics."""

import csv
import json
import subprocess
import sys

import pytest
from pytest_benchmark.stats import Stats

from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.facts import Code
from pytest_roofline.core.samples import Samples
from pytest_roofline.exchange.formats import read
from pytest_roofline.exchange.pytest_benchmark import round_stats
from pytest_roofline.exchange.records import UserFacts

NAME = "pytest-benchmark"
TEST = "test_live.py::test_live[64MiB]"
LABEL = "pytest_benchmark.tests/test_normal.py::test_xfast_parametrized[0].median"
LIVE = """
import pytest

@pytest.mark.parametrize("size_bytes", [pytest.param(64 * 2**20, id="64MiB")])
def test_live(benchmark, size_bytes):
    benchmark.pedantic(lambda: None, rounds=5, iterations=3)
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
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:roofline",
            *options,
        ]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
        )

    return live


def test_a_file_without_data_gives_its_median(text, take):
    (found,) = take(text("pytest-benchmark-storage-0030.json"))
    (reading,) = found.readings
    assert (reading.label, reading.seconds) == (LABEL, (2.2016379230260297e-07,))
    assert (reading.key.metric, reading.iterations, reading.verified) == ("time_s", 431, None)
    assert (found.machine.host, found.machine.kernel, found.started) == (
        "minibox",
        "3.13.0-55-generic",
        "2015-08-15T00:04:18.687119+00:00",
    )
    assert found.machine.software["commit"] == "5b78858eb718649a31fb93d8dc96ca2cee41a4cd"
    assert found.machine.software["pytest-benchmark"] == "2.5.0"
    timed = text("pytest-benchmark-storage-0030.json").replace(
        '"timer": "time"', '"timer": "process_time"'
    )
    (reading,) = take(timed)[0].readings
    # A clock that stands still while waiting is another key.
    assert reading.key.parameters == {"id": "0", "timer": "process_time"}


REFUSED = (
    (
        ("benchmarks", 0, "stats", "median"),
        -1.0,
        "Expected `float` >= 0.0 - at `$.benchmarks[0].stats.median`",
    ),
    (("benchmarks", 0, "stats", "median"), "fast", "Expected `float`, got `str`"),
    (("benchmarks", 0, "stats", "iterations"), 0, "Expected `int` >= 1"),
    (("benchmarks", 0, "stats", "data"), "none", "Expected `array | null`, got `str`"),
    (("benchmarks", 0, "stats", "data"), [None], "Expected `float`, got `null`"),
    (("benchmarks",), [], "Expected `array` of length >= 1"),
    (("benchmarks",), 3, "Expected `array`, got `int`"),
    (("machine_info",), None, "Expected `object`, got `null`"),
)


def test_what_is_no_file_of_pytest_benchmark_is_refused_with_the_path_of_the_value(text, take):
    def refused(raw):
        with pytest.raises(BadFile) as caught:
            take(json.dumps(raw, indent=1))
        return str(caught.value)

    for path, value, message in REFUSED:
        raw = at = json.loads(text("pytest-benchmark-storage-0030.json"))
        for part in path[:-1]:
            at = at[part]
        at[path[-1]] = value
        assert message in refused(raw)
    raw = json.loads(text("pytest-benchmark-storage-0030.json"))
    raw["benchmarks"].append(raw["benchmarks"][0])
    assert "test_xfast_parametrized[0] twice; expected it once" in refused(raw)


def shape(value):
    """The names in a JSON object, at every depth that is not free text of a user's."""
    if not isinstance(value, dict):
        return None
    return {
        name: shape(inner)
        for name, inner in value.items()
        if name not in ("params", "extra_info", "cpu")
    }


def test_a_live_run_compares_with_our_file_and_has_its_layout(make, write, live, tmp_path):
    slow = write("slow", make.measurement(3600.0, test_id=TEST))
    done = live(
        f"--benchmark-compare={slow}",
        "--benchmark-compare-fail=median:5%",
        "--benchmark-json=theirs.json",
    )
    assert (0, True) == (done.returncode, f"{slow}" in done.stdout + done.stderr), (
        done.stdout + done.stderr
    )
    theirs, ours = (
        json.loads((tmp_path / name).read_text(encoding="utf-8"))
        for name in ("theirs.json", "slow.json")
    )
    assert {"device": {"type": None, "product": None, "driver": None, "memory_bytes": None}} == (
        {
            name: value
            for name, value in shape(ours["machine_info"]).items()
            if name not in theirs["machine_info"]
        }
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
    # Its own file is read with every round, and a round that took no time is left out by name.
    (imported,) = read(json.dumps(theirs).encode(), "theirs.json", UserFacts(), None)
    (reading,) = imported.readings
    assert (reading.seconds, reading.iterations) == (tuple(one["stats"]["data"]), 3)
    assert imported.machine.cores == theirs["machine_info"]["cpu"].get("count")
    one["stats"]["data"][0] = 0.0
    theirs["benchmarks"].append(
        {**one, "fullname": "other", "stats": {"median": 1.0, "iterations": 1}}
    )
    (imported,) = read(json.dumps(theirs).encode(), "theirs.json", UserFacts(), None)
    assert (len(imported.readings), imported.left_out) == (
        1,
        (f"{TEST}: a round of 0 s",),
    )


def test_its_compare_command_reads_two_of_our_files(make, write, tmp_path):
    sizes = {"1KiB": 1024, "2KiB": 2048}
    paths = [
        write(
            name,
            *(
                make.measurement(
                    factor * size * 1e-9,
                    key=make.key(size_bytes=size),
                    test_id=f"test_m.py::test_copy[{label}]",
                )
                for label, size in sizes.items()
            ),
        )
        for name, factor in (("old", 1), ("new", 2))
    ]
    command = [
        sys.executable,
        "-m",
        "pytest_benchmark",
        "compare",
        *paths,
        "--csv=out.csv",
        "--group-by=param",
    ]
    command += ["--columns=min,median,rounds", "--sort=min"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert 0 == done.returncode, done.stderr
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [
        ("1024", 1.024e-6, "1"),
        ("1024", 2.048e-6, "1"),
        ("2048", 2.048e-6, "1"),
        ("2048", 4.096e-6, "1"),
    ] == [
        (row["param:size_bytes"], pytest.approx(float(row["median"])), row["rounds"])
        for row in rows
    ]


def test_we_read_our_own_file_back(processes, write):
    path = write("run", *processes([1e-3, 1.5e-3, 1.1e-3], [2e-3]))
    (imported,) = read(path.read_bytes(), str(path), UserFacts(), None)
    (reading,) = imported.readings
    assert ((1e-3, 1.5e-3, 1.1e-3, 2e-3), 10) == (reading.seconds, reading.iterations)
    assert ("node", "AMD EPYC", 8, "6.8") == (
        imported.machine.host,
        imported.machine.cpu_model,
        imported.machine.cores,
        imported.machine.kernel,
    )


def test_the_extra_info_says_what_the_format_has_no_field_for(exported, processes, judged, make):
    (measurement,) = processes([1e-3])
    verdict = judged(
        measurement,
        estimate=0.0,
        difference=make.difference(new_s=1e-3),
        changed=("driver 550.54 → 570.86",),
    )
    code = Code(".", "8c1f0e5a77b1" + "0" * 28)
    document = exported(NAME, measurement, verdict, code=(code,)).document
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
        "changed": ["driver 550.54 → 570.86"],
        "code": {".": "8c1f0e5a77"},
        "run_id": "run",
    }
    assert wanted == {name: extra[name] for name in wanted}
    assert document["datetime"] == "2026-01-02T03:04:05+00:00"
    assert document["benchmarks"][0]["group"] == "memcpy_d2d"


def test_the_clock_of_a_device_is_called_none_of_pythons(make, write):
    timers = {}
    for mode in ("events", "host"):
        measurement = make.measurement(samples=Samples((1e-3,), 10, 1e-9, mode=mode))
        document = json.loads(write(mode, measurement).read_text(encoding="utf-8"))
        timers[mode] = document["benchmarks"][0]["options"]["timer"]
    assert {"events": "device_events", "host": "perf_counter_ns"} == timers


def test_what_stands_in_brackets_may_hold_anything(exported, make):
    cases = [
        ("d[1]/test_m.py::test_m", "test_m", None),
        ("test_m.py::TestM::TestN::test_m[64MiB]", "test_m[64MiB]", "64MiB"),
        ("test_m.py::TestM::test_odd[x::y]", "test_odd[x::y]", "x::y"),
        ("test_m.py::test_odd[a]b[c]::d]", "test_odd[a]b[c]::d]", "a]b[c]::d"),
        ("test_m.py::test_odd[]", "test_odd[]", ""),
    ]
    for test_id, name, param in cases:
        first = make.measurement(test_id=test_id)
        second = make.measurement(test_id=test_id, key=make.key(name="back]ward[x]"))
        found = [
            (one["fullname"], one["name"], one["param"])
            for one in exported(NAME, first, second).document["benchmarks"]
        ]
        assert found == [
            (test_id, name, param),
            (f"{test_id}.back]ward[x]", f"{name}.back]ward[x]", param),
        ]


def test_every_field_but_the_quartiles_is_what_pytest_benchmark_computes():
    for seconds in ([1e-3], [1e-3] * 7, [1.0, 2.0, 3.0, 4.0, 100.0], [1.0, 1.1, 1.2, 1.3, 9.0]):
        theirs = Stats()
        for value in seconds:
            theirs.update(value)
        ours, known = round_stats(seconds), theirs.as_dict()
        names = (
            "min",
            "max",
            "mean",
            "stddev",
            "rounds",
            "median",
            "ops",
            "total",
            "stddev_outliers",
            "outliers",
        )
        assert {name: ours[name] for name in names} == {name: known[name] for name in names}
        assert known.keys() - {"iterations"} <= ours.keys()
    assert (ours["q1"], ours["q3"], ours["iqr"], ours["hd15iqr"]) == (
        1.1,
        1.3,
        pytest.approx(0.2),
        1.3,
    )
