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


REFUSED = (
    (("benchmarks", 0, "stats", "median"), -1.0, "Expected `float` >= 0.0 - at `$.benchmarks[0].stats.median`"),
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
