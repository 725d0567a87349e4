"""JSON of pytest-benchmark."""

import json
import os
import subprocess
import sys

import pytest

from pytest_roofline.core.errors import BadFile

LABEL = "pytest_benchmark.tests/test_normal.py::test_xfast_parametrized[0].median"
SUITE = """
import pytest

@pytest.mark.parametrize("count", [10, 1000])
def test_sum(benchmark, count):
    benchmark(sum, range(count))
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """A file that pytest-benchmark wrote a moment ago, with the data of every round."""
    folder = tmp_path_factory.mktemp("live")
    (folder / "test_live.py").write_text(SUITE, encoding="utf-8")
    options = [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:pytest-roofline",
        "--benchmark-max-time=0.01",
        "--benchmark-json=b.json",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "test_live.py", "--benchmark-min-rounds=5", *options]
    # Beside xdist pytest-benchmark measures nothing, and it sees xdist by what stands in the environment.
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "b.json").read_text(encoding="utf-8")


def test_a_file_without_data_gives_its_median(text, take):
    (found,) = take(text("pytest-benchmark-storage-0030.json"))
    (reading,) = found.readings
    assert (reading.label, reading.seconds) == (LABEL, (2.2016379230260297e-07,))
    assert (reading.metric, reading.iterations, reading.verified) == ("time_s", 431, None)
    assert (found.host, found.kernel, found.started) == (
        "minibox",
        "3.13.0-55-generic",
        "2015-08-15T00:04:18.687119+00:00",
    )
    assert found.software["commit"] == "5b78858eb718649a31fb93d8dc96ca2cee41a4cd"
    assert found.software["pytest-benchmark"] == "2.5.0"


def test_a_file_with_data_gives_every_round(live, take):
    (found,) = take(live)
    raw = json.loads(live)
    assert [reading.label for reading in found.readings] == [
        "pytest_benchmark.test_live.py::test_sum[10].median",
        "pytest_benchmark.test_live.py::test_sum[1000].median",
    ]
    assert [reading.seconds for reading in found.readings] == [tuple(one["stats"]["data"]) for one in raw["benchmarks"]]
    assert [reading.iterations for reading in found.readings] == [
        one["stats"]["iterations"] for one in raw["benchmarks"]
    ]
    assert found.cores == raw["machine_info"]["cpu"].get("count")


def test_a_clock_that_stands_still_while_waiting_is_another_key(text, one):
    (reading,) = one(
        text("pytest-benchmark-storage-0030.json").replace('"timer": "time"', '"timer": "process_time"')
    ).values()
    assert reading.parameters == {"id": "0", "timer": "process_time"}


def test_a_round_that_took_no_time_is_left_out_by_name(live, take):
    raw = json.loads(live)
    stats = raw["benchmarks"][0]["stats"]
    stats["data"] = [0.0, *stats["data"][1:]]
    ordered = sorted(stats["data"])
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    stats |= {"min": 0.0, "max": ordered[-1], "median": middle}
    (found,) = take(json.dumps(raw, indent=1))
    assert len(found.readings) == 1
    assert found.left_out[0].endswith("test_live.py::test_sum[10]: a round that took no time at all")


REFUSED = {
    "another median": ("median", 9e-7, "stats.median lies outside of its quartiles"),
    "a mean beyond the largest": ("mean", 1.0, "stats.mean or the quartiles lie outside"),
    "ops of another mean": ("ops", 1.0, "stats.ops is not one by the mean"),
    "a total of another mean": ("total", 1.0, "stats.total is not the mean times the rounds"),
    "a negative number": ("median", -1.0, "stats.median is -1.0; expected 0 or more"),
    "a number as text": ("median", "fast", "stats.median is the text 'fast'; expected a number"),
    "no median": ("median", ..., "stats has no 'median'"),
    "no iterations": ("iterations", 0, "stats.iterations is 0; expected 1 or more"),
    "other data": ("data", [1e-7, 2e-7], "stats.rounds is 9710, but the data make 2"),
    "data that are none": ("data", "none", "stats.data is the text 'none'; expected a list"),
    "a round that is none": ("data", [None], "stats.data.0 is null; expected a number"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_mutilated_file_is_refused_with_its_line(case, text, take):
    name, value, message = REFUSED[case]
    raw = json.loads(text("pytest-benchmark-storage-0030.json"))
    if value is ...:
        del raw["benchmarks"][0]["stats"][name]
    else:
        raw["benchmarks"][0]["stats"][name] = value
    with pytest.raises(BadFile) as refused:
        take(json.dumps(raw, indent=1))
    assert message in str(refused.value)
    assert str(refused.value).startswith("file, line ")


def test_a_round_that_was_changed_is_refused(live, take):
    raw = json.loads(live)
    stats = raw["benchmarks"][0]["stats"]
    stats["data"][stats["data"].index(stats["max"])] *= 1.001
    with pytest.raises(BadFile, match=r"stats\.max is .*, but the data make"):
        take(json.dumps(raw, indent=1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda raw: raw["benchmarks"].append(raw["benchmarks"][0]), "benchmarks.1.fullname stands in this file twice"),
        (lambda raw: raw["benchmarks"].clear(), "benchmarks is empty; expected at least one"),
        (lambda raw: raw.update(benchmarks=3), "benchmarks is the number 3; expected a list"),
        (lambda raw: raw.update(machine_info=None), "machine_info is null; expected an object"),
    ],
)
def test_a_file_that_is_none_of_its_kind_is_refused(change, message, text, take):
    raw = json.loads(text("pytest-benchmark-storage-0030.json"))
    change(raw)
    with pytest.raises(BadFile) as refused:
        take(json.dumps(raw, indent=1))
    assert message in str(refused.value)
