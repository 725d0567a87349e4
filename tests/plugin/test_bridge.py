"""What pytest-benchmark is told of device times, and what its own options and commands make of it."""

import csv
import json
import subprocess
import sys

import pytest

from .conftest import CONFTEST, texts

# Asking for the machine takes a second, and no test here is about it.
MACHINE = """

@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_generate_machine_info():
    return {"node": "desk", "cpu": {}}
"""
# Three lengths of call that a clock of nanoseconds resolves; each sample is one call. Then one test a millisecond.
SUITE = """
import itertools
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9)

def test_walk(roofline, fake):
    seconds = itertools.cycle([0.020000003, 0.021000007, 0.019000001])
    roofline.measure(lambda: fake.work(next(seconds)), work=WORK)

class TestGroup:
    @pytest.mark.parametrize("factor", [1, 2], ids=["once", "twice"])
    def test_copy(self, roofline, busy, factor):
        roofline.measure(lambda: busy(factor * 1e-3), work=WORK)

def test_plain(): pass
"""
STORED = "--benchmark-storage=file://kept"


@pytest.fixture
def bench(desk, monkeypatch):
    """A desk with the suite and a machine that is known at once."""
    # In a worker of xdist pytest-benchmark times nothing, and takes these runs for ones of the worker.
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    desk.pytester.makeconftest(CONFTEST + MACHINE)
    desk.suite(SUITE)
    return desk


def benchmarks_of(path):
    """The benchmarks in one of their files, by name."""
    return {one["name"]: one for one in json.loads(path.read_text())["benchmarks"]}


def replayed(bench, *args):
    """Run with a file of theirs; its benchmarks by name, and the run's result."""
    result = bench.run("--benchmark-json=b.json", *args)
    return benchmarks_of(bench.path / "b.json"), result


def kept(bench, label):
    """The samples that our own run file has of a measurement."""
    (found,) = [one for one in bench.last_run().measurements if one.label == label]
    return list(found.samples.kept)


def table(result, *lines):
    """Whether their table holds these lines, in this order."""
    result.stdout.fnmatch_lines([f"*{line}*" for line in lines])


def test_every_sample_is_a_round_to_the_last_bit(bench):
    found, result = replayed(bench)
    assert result.ret == 0
    walk = found["test_walk"]["stats"]
    assert kept(bench, "walk") == walk["data"]
    assert {0.020000003, 0.021000007, 0.019000001} == {round(value, 9) for value in walk["data"]}
    assert (0.019000001, 0.020000003, 0.021000007) == tuple(round(walk[name], 9) for name in ("min", "median", "max"))
    assert (len(walk["data"]), 1) == (walk["rounds"], walk["iterations"])
    copies = [found[f"test_copy[{name}]"]["stats"] for name in ("once", "twice")]
    for name in ("min", "median", "max"):
        assert [1e-3, 2e-3] == pytest.approx([stats[name] for stats in copies], rel=1e-12)
    assert {"test_walk", "test_copy[once]", "test_copy[twice]"} == set(found)


def test_the_test_is_named_as_pytest_names_it_and_grouped_by_benchmark(bench):
    found, _ = replayed(bench)
    copy = found["test_copy[twice]"]
    assert copy["fullname"] == "test_suite.py::TestGroup::test_copy[twice]"
    assert ("TestGroup.copy", "twice", {"factor": 2}) == (copy["group"], copy["param"], copy["params"])
    assert found["test_walk"]["group"] == "walk"


def test_rate_share_verdict_work_and_run_stand_in_the_extra_info(bench):
    found, _ = replayed(bench)
    told = found["test_copy[once]"]["extra_info"]
    expected = {
        "label": "TestGroup.copy[once]", "verdict": "NO BASELINE", "metric": "traffic_GBps", "rate_unit": "GB/s",
        "work": {"read_bytes": 10**9}, "samples_left_out": 0, "calls_per_sample": 1, "cache": "warm", "processes": 1,
        "device": "NVIDIA H100 80GB HBM3", "driver": "550.54", "run_id": bench.last_run().header.run_id,
    }  # fmt: skip
    assert expected == {name: told[name] for name in expected}
    # One GB in a millisecond, of 3350 GB/s.
    assert (1000.0, 1000 / 3350, 1e-3) == pytest.approx((told["rate"], told["share_of_roofline"], told["seconds"]))
    assert found["test_copy[once]"]["stats"]["rounds"] == told["samples"]
    assert "baseline_s" not in told


def test_calls_between_two_stamps_are_told_as_iterations_and_change_no_sample(bench):
    bench.script(tick_s=1e-6)
    bench.suite("""
from pytest_roofline import Work
def test_short(roofline, fake): roofline.measure(lambda: fake.work(3e-5), work=Work(read_bytes=100))
""")
    found, _ = replayed(bench)
    short = found["test_short"]
    (one,) = bench.last_run().measurements
    assert 1 < one.samples.iterations == short["extra_info"]["calls_per_sample"] == short["stats"]["iterations"]
    assert kept(bench, "short") == short["stats"]["data"]
    assert pytest.approx(3e-5) == short["stats"]["median"]


def test_no_option_of_theirs_touches_our_times(bench):
    plain, _ = replayed(bench)
    found, _ = replayed(
        bench,
        "--benchmark-timer=time.process_time",
        "--benchmark-disable-gc",
        "--benchmark-min-rounds=1000",
        "--benchmark-max-time=9",
        "--benchmark-min-time=0.5",
        "--benchmark-warmup=on",
        "--benchmark-calibration-precision=99",
        "--benchmark-cprofile=tottime",
    )
    assert plain["test_walk"]["stats"] == found["test_walk"]["stats"]
    assert "device_events" == found["test_walk"]["options"]["timer"]
    assert plain["test_walk"]["options"]["warmup"] == found["test_walk"]["options"]["warmup"]
    assert "cprofile" not in found["test_walk"]


MARKED = """
import pytest
from pytest_roofline import Work

@pytest.mark.benchmark(group="mine", min_rounds=7, timer=max, disable_gc=False)
def test_marked(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9), name="first")
    roofline.measure(lambda: busy(3e-3), work=Work(read_bytes=10**9), name="second")
"""


def test_the_marker_of_the_test_keeps_its_say_but_for_the_clock(bench):
    bench.suite(MARKED)
    found, _ = replayed(bench)
    marked = found["test_marked"]
    assert ("mine", 7) == (marked["group"], marked["options"]["min_rounds"])
    assert (True, "device_events") == (marked["options"]["disable_gc"], marked["options"]["timer"])
    assert pytest.approx(1e-3) == marked["stats"]["median"]


def test_the_first_measurement_is_replayed_and_the_others_are_told(bench):
    bench.suite(MARKED)
    found, _ = replayed(bench)
    assert kept(bench, "marked.first") == found["test_marked"]["stats"]["data"]
    (second,) = found["test_marked"]["extra_info"]["others"]
    assert ("marked.second", "NO BASELINE") == (second["label"], second["verdict"])
    assert (3e-3, 1000 / 3) == pytest.approx((second["seconds"], second["rate"]))


def test_parameters_that_json_does_not_know_end_no_run(bench):
    bench.suite("""
import pytest
from pytest_roofline import Work
@pytest.mark.parametrize("kind", [object, b"\\xff", float("nan"), "\\udcff<b>"], ids=["a", "b", "c", "d"])
def test_odd(roofline, busy, kind): roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
""")
    found, result = replayed(bench)
    assert result.ret == 0, texts(result)
    assert 4 == len(found)


def test_the_table_is_sorted_grouped_and_cut_to_columns_as_asked(bench):
    result = bench.run(
        "--benchmark-columns=median,rounds,ops",
        "--benchmark-sort=name",
        "--benchmark-group-by=param:factor",
        "--benchmark-time-unit=us",
        "-k=copy",
    )
    table(
        result, "benchmark 'factor=1': 1 tests", "Name (time in us)*Median*Rounds*OPS (uops/s)", "once*1,000.0000 *200*"
    )
    table(result, "benchmark 'factor=2': 1 tests", "twice*2,000.0000 *100*")
    assert "StdDev  " not in texts(result)


def test_saved_runs_are_compared_and_a_slower_one_fails_as_they_have_it(bench):
    assert 0 == bench.run(STORED, "--benchmark-save=base", "--benchmark-save-data").ret
    (saved,) = (bench.path / "kept").rglob("0001_base.json")
    assert pytest.approx(1e-3) == benchmarks_of(saved)["test_copy[once]"]["stats"]["median"]
    bench.script(slow=1.5)
    compare = (STORED, "--benchmark-compare=0001", "-k=copy")
    lenient = bench.run(*compare, "--benchmark-compare-fail=median:51%")
    assert 0 == lenient.ret, texts(lenient)
    assert "2 measured" == [line for line in lenient.outlines if line][-2]
    table(lenient, "test_copy?once? (0001_base)*1.0000 (1.0)", "test_copy?once? (NOW)*1.5000 (1.50)")
    strict = bench.run(*compare, "--benchmark-compare-fail=median:49%")
    assert 0 != strict.ret
    assert "Performance has regressed" in texts(strict)
    # What they raise out of the summary does not cost ours.
    assert "2 measured" in strict.outlines
    assert "test_copy[once] (0001_base) - Field 'median' has failed PercentageRegressionCheck: 50.0" in texts(strict)


def test_their_command_compares_what_was_saved_by_itself(bench):
    for factor in (1.0, 1.25):
        bench.script(slow=factor)
        bench.run(STORED, "--benchmark-autosave", "-k=copy")
    command = [sys.executable, "-m", "pytest_benchmark", "--storage=file://kept", "compare", "--csv=c.csv"]
    done = subprocess.run(command, cwd=bench.path, capture_output=True, text=True)
    assert 0 == done.returncode, done.stderr
    assert "benchmark 'TestGroup.copy': 4 tests" in done.stdout
    with (bench.path / "c.csv").open() as file:
        medians = [float(row["median"]) for row in csv.DictReader(file)]
    assert [1e-3, 1.25e-3, 2e-3, 2.5e-3] == pytest.approx(sorted(medians))


ONLY = """
import pytest
from pytest_roofline import Work

@pytest.mark.parametrize("factor", [1, 2])
def test_ours(roofline, busy, request, factor):
    assert "benchmark" not in request.fixturenames
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))

def test_theirs(benchmark): benchmark.pedantic(lambda: None, rounds=1, iterations=1)
def test_plain(): pass
"""


def test_to_benchmark_only_our_tests_are_benchmarks(bench):
    bench.suite(ONLY)
    found, result = replayed(bench, "--benchmark-only")
    result.assert_outcomes(passed=3, skipped=1)
    assert {"test_ours[1]", "test_ours[2]", "test_theirs"} == set(found)


@pytest.mark.parametrize(
    ("option", "passed", "skipped"),
    [("--benchmark-skip", 3, 1), ("--benchmark-disable", 4, 0), ("-pno:benchmark", 3, 0)],
)
def test_where_they_time_nothing_our_tests_measure_all_the_same(bench, option, passed, skipped):
    bench.suite(ONLY)
    result = bench.run(option, *(["-k=not theirs"] if "no:" in option else []))
    result.assert_outcomes(passed=passed, skipped=skipped, deselected=4 - passed - skipped)
    table(result, "2 measured")
    assert "tests ---" not in texts(result)
    assert "arning" not in texts(result)


@pytest.mark.parametrize(
    "options", [("--benchmark-disable", "--benchmark-enable"), ("--benchmark-skip", "--benchmark-only")]
)
def test_where_one_of_their_options_takes_another_back_they_are_told(bench, options):
    found, _ = replayed(bench, *options)
    assert kept(bench, "walk") == found["test_walk"]["stats"]["data"]


def test_under_codspeed_nothing_is_replayed(bench):
    option = '\n\ndef pytest_addoption(parser):\n    parser.addoption("--codspeed", action="store_true")\n'
    bench.pytester.makeconftest(CONFTEST + option)
    result = bench.run("--codspeed")
    table(result, "3 measured")
    assert "Rounds" not in texts(result)
    assert "Rounds" in texts(bench.run())
