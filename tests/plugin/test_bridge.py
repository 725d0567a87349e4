"""What pytest-benchmark is told of device times, of which tests, and that an export of the same run says the same."""

import json
import re
from statistics import median

import pytest

from .conftest import CONFTEST, texts

pytestmark = pytest.mark.feature("exchange")
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


def test_every_sample_is_a_round_to_the_last_bit_under_the_name_that_pytest_has(bench):
    found, result = replayed(bench)
    assert (result.ret, set(found)) == (0, {"test_walk", "test_copy[once]", "test_copy[twice]"})
    walk = found["test_walk"]["stats"]
    assert kept(bench, "walk") == walk["data"]
    assert {0.020000003, 0.021000007, 0.019000001} == {round(value, 9) for value in walk["data"]}
    assert (len(walk["data"]), 1) == (walk["rounds"], walk["iterations"])
    copy = found["test_copy[twice]"]
    assert copy["stats"]["median"] == pytest.approx(2e-3)
    assert copy["fullname"] == "test_suite.py::TestGroup::test_copy[twice]"
    assert ("TestGroup.copy", "twice", {"factor": 2}) == (
        copy["group"],
        copy["param"],
        copy["params"],
    )
    told = found["test_copy[once]"]["extra_info"]
    expected = {
        "label": "TestGroup.copy[once]", "verdict": "NO BASELINE", "metric": "traffic_GBps", "rate_unit": "GB/s",
        "work": {"read_bytes": 10**9}, "samples_left_out": 0, "calls_per_sample": 1, "cache": "warm", "processes": 1,
        "device": "NVIDIA H100 80GB HBM3", "driver": "550.54", "run_id": bench.last_run().header.run_id,
    }  # fmt: skip
    assert expected == {name: told[name] for name in expected}
    # One GB in a millisecond, of 3350 GB/s.
    assert (1000.0, 1000 / 3350, 1e-3) == pytest.approx(
        (told["rate"], told["share_of_roofline"], told["seconds"])
    )
    assert found["test_copy[once]"]["stats"]["rounds"] == told["samples"]
    # No option of theirs touches our times.
    options = (
        "--benchmark-timer=time.process_time",
        "--benchmark-min-rounds=1000",
        "--benchmark-cprofile=tottime",
    )
    again, _ = replayed(bench, *options)
    assert again["test_walk"]["stats"] == walk
    assert "device_events" == again["test_walk"]["options"]["timer"]


MARKED = """
import pytest
from pytest_roofline import Work

@pytest.mark.benchmark(group="mine", min_rounds=7, timer=max, disable_gc=False)
def test_marked(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9), name="first")
    roofline.measure(lambda: busy(3e-3), work=Work(read_bytes=10**9), name="second")
"""


def test_the_marker_of_the_test_keeps_its_say_but_for_the_clock_and_the_first_measurement_counts(
    bench,
):
    bench.suite(MARKED)
    marked = replayed(bench)[0]["test_marked"]
    assert ("mine", 7) == (marked["group"], marked["options"]["min_rounds"])
    assert (True, "device_events") == (marked["options"]["disable_gc"], marked["options"]["timer"])
    assert kept(bench, "marked.first") == marked["stats"]["data"]
    (second,) = marked["extra_info"]["others"]
    assert ("marked.second", "NO BASELINE") == (second["label"], second["verdict"])
    assert (3e-3, 1000 / 3) == pytest.approx((second["seconds"], second["rate"]))


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


def test_to_benchmark_only_our_tests_are_benchmarks_and_where_they_time_nothing_ours_measure(bench):
    bench.suite(ONLY)
    found, result = replayed(bench, "--benchmark-only")
    result.assert_outcomes(passed=3, skipped=1)
    assert {"test_ours[1]", "test_ours[2]", "test_theirs"} == set(found)
    for option, passed, skipped in (("--benchmark-skip", 3, 1), ("-pno:benchmark", 3, 0)):
        result = bench.run(option, *(["-k=not theirs"] if "no:" in option else []))
        result.assert_outcomes(passed=passed, skipped=skipped, deselected=4 - passed - skipped)
        assert ("2 measured" in texts(result), "tests ---" in texts(result)) == (True, False), (
            option
        )
        assert "arning" not in texts(result), option


def test_nothing_is_replayed_unasked_or_under_codspeed(bench, monkeypatch):
    option = '\n\ndef pytest_addoption(parser):\n    parser.addoption("--codspeed", action="store_true")\n'
    bench.pytester.makeconftest(CONFTEST + option)
    for options in ((), ("--codspeed", "--benchmark-enable")):
        assert "Rounds" not in texts(bench.run(*options)), options
    assert "Rounds" in texts(bench.run("--benchmark-enable"))
    monkeypatch.setenv("PYTEST_ADDOPTS", "--benchmark-sort=name")
    assert "Rounds" in texts(bench.run())
    monkeypatch.delenv("PYTEST_ADDOPTS")
    bench.ini("addopts = --benchmark-enable")
    assert "Rounds" in texts(bench.run())


HEAD = """
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9)
"""
OUTCOMES = f"""{HEAD}
import unittest
import torch

OutOfMemoryError = getattr(torch, "OutOfMemoryError", type("OutOfMemoryError", (RuntimeError,), {{}}))

@pytest.fixture
def measure(roofline, busy): return lambda **more: roofline.measure(lambda: busy(1e-3), work=WORK, **more)

def test_good(measure): measure()

def test_wrong_data(measure): measure(verify=lambda: False)

def test_failing_assert(measure):
    measure()
    assert 1 == 2

def test_skipped_late(measure):
    measure()
    pytest.skip("not here")

@pytest.mark.xfail
def test_failing_as_expected(measure):
    measure()
    assert 1 == 2

def test_nothing_measured(roofline): pass

def test_impossible(roofline, fake):
    roofline.measure(lambda: fake.work(1e-4), work=WORK, name="impossible")
    roofline.measure(lambda: fake.work(1e-3), work=WORK, name="possible")

@pytest.mark.roofline(oom="record")
def test_without_memory(measure, roofline):
    measure(name="first")
    def run_out(): raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    roofline.measure(run_out, work=WORK, name="second")

@pytest.fixture
def breaking():
    yield
    raise RuntimeError("torn")

def test_torn_down_badly(breaking, measure): measure()

class TestOld(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def tools(self, measure): self.measure = measure
    def test_old(self): self.measure()
    def test_old_that_fails(self):
        self.measure()
        self.fail("for itself")
"""


def test_only_numbers_that_can_be_trusted_are_replayed(bench):
    bench.suite(OUTCOMES)
    found, result = replayed(bench, STORED, "--benchmark-save=all")
    result.assert_outcomes(passed=6, failed=3, skipped=1, xfailed=1, errors=1)
    assert {"test_good", "test_old"} == set(found)
    (saved,) = (bench.path / "kept").rglob("0001_all.json")
    assert {"test_good", "test_old"} == set(benchmarks_of(saved))
    assert ["test_good", "test_old"] == sorted(
        re.findall(r"^(test_\w+) +\d", texts(result), re.MULTILINE)
    )


OWN = f"""{HEAD}
def theirs(benchmark): benchmark.pedantic(lambda: None, rounds=3, iterations=1)

def test_by_argument(roofline, busy, benchmark):
    roofline.measure(lambda: busy(1e-3), work=WORK)
    theirs(benchmark)

def test_asked_late(roofline, busy, request):
    roofline.measure(lambda: busy(1e-3), work=WORK)
    theirs(request.getfixturevalue("benchmark"))

def test_asked_and_left(roofline, busy, request):
    request.getfixturevalue("benchmark")
    roofline.measure(lambda: busy(1e-3), work=WORK)

@pytest.mark.usefixtures("roofline")
def test_marker(request, busy): request.getfixturevalue("roofline").measure(lambda: busy(1e-3), work=WORK)

def test_next(roofline, busy): roofline.measure(lambda: busy(2e-3), work=WORK)
"""


def test_a_test_that_uses_their_fixture_keeps_it_and_ours_may_come_by_any_way(bench):
    bench.suite(OWN)
    found, result = replayed(bench)
    result.assert_outcomes(passed=5)
    theirs = ("test_by_argument", "test_asked_late")
    assert {name: found.pop(name)["stats"]["rounds"] for name in theirs} == dict.fromkeys(theirs, 3)
    assert set(found) == {"test_next", "test_marker"}
    assert all(one["options"]["timer"] == "device_events" for one in found.values())


def test_their_fixture_may_be_extended_and_what_goes_wrong_with_it_fails_nothing(bench):
    extended = '\n@pytest.fixture\ndef benchmark(benchmark):\n    benchmark.group = "ours"\n    return benchmark\n'
    bench.pytester.makeconftest(CONFTEST + MACHINE + extended)
    found, _ = replayed(bench)
    assert ("ours", kept(bench, "walk")) == (
        found["test_walk"]["group"],
        found["test_walk"]["stats"]["data"],
    )
    for broken in ("raise KeyError('broken')", "pytest.skip('none today')"):
        bench.pytester.makeconftest(
            f"{CONFTEST}\n@pytest.fixture\ndef benchmark():\n    {broken}\n"
        )
        result = bench.run("-k=walk", "--benchmark-enable")
        result.assert_outcomes(passed=1, warnings=1, deselected=3)
        result.stdout.fnmatch_lines(
            ["*test_walk was measured, but its times could not be given to pytest-benchmark: *"]
        )


RERUN = f"""{HEAD.replace("10**9", "10**9, write_bytes=10**9, payload_bytes=10**9")}
attempts = []
def test_one(roofline, fake):
    attempts.append(1)
    seconds = 1.5e-3 if len(attempts) == 1 else 1e-3
    roofline.measure(lambda: fake.work(seconds), work=WORK)
"""


def test_of_several_attempts_one_is_kept(bench):
    bench.suite(RERUN)
    # The first is red, and so is the second for it: of the attempts the slowest stands.
    _, result = replayed(bench, "--reruns=1", "--roofline-min-percent=55")
    assert {"failed": 1, "rerun": 1} == result.parseoutcomes()
    (entry,) = json.loads((bench.path / "b.json").read_text())["benchmarks"]
    assert "REGRESSED" == entry["extra_info"]["verdict"]


HELD = f"""{HEAD.replace("10**9", "10**9, write_bytes=10**9, payload_bytes=10**9")}
@pytest.fixture
def measure(roofline, busy): return lambda: roofline.measure(lambda: busy(1e-3), work=WORK)

def test_one(measure): measure()
def test_fails_later(measure): measure()
def test_both(measure, benchmark):
    benchmark.pedantic(lambda: None, rounds=1, iterations=1)
    measure()
"""


def test_a_held_test_has_its_first_process_there_and_its_last_verdict(bench):
    against = bench.sessions(HELD, (1.0, 1.005, 0.995, 1.0025, 0.9975))
    bench.script(
        slow={
            "test_one": [1.035, 1.0],
            "test_both": [1.035, 1.0],
            "test_fails_later": [1.035, "fail"],
        }
    )
    found, result = replayed(
        bench, STORED, "--benchmark-autosave", "--roofline-rounds=4", "--roofline-save=r", *against
    )
    result.assert_outcomes(passed=2, failed=1)
    assert {"test_one", "test_both"} == set(found)
    told, first = found["test_one"]["extra_info"], bench.saved("r").measurements[0]
    assert ("PASSED", 4, 1) == (told["verdict"], told["processes"], first.round)
    assert list(first.samples.kept) == found["test_one"]["stats"]["data"]
    assert pytest.approx(1.035e-3) == median(found["test_one"]["stats"]["data"])
    # The processes of the rounds, which have the same command line, kept nothing.
    assert 1 == len(list((bench.path / "kept").rglob("*.json")))


def test_what_is_spoiled_or_of_a_drill_is_no_round(bench):
    result = bench.run("--roofline-drill=10%", "--benchmark-enable")
    result.assert_outcomes(passed=4)
    assert "Rounds" not in texts(result)
    bench.script(hot={"*": (["thermal slowdown"], 0.55, 0.61)})
    found, _ = replayed(bench, "-k=once")
    (one,) = bench.last_run().measurements
    told, stats = found["test_copy[once]"]["extra_info"], found["test_copy[once]"]["stats"]
    assert 0 < told["samples_left_out"] == len(one.samples.seconds) - len(one.samples.kept)
    assert stats["rounds"] == told["samples"] == len(one.samples.kept)


EXPORTED = """
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)

def test_plain(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)

class TestGroup:
    @pytest.mark.parametrize("size", [1, 2.5, "a::b", "a]b[c]::d"], ids=str)
    def test_copy(self, roofline, busy, size): roofline.measure(lambda: busy(1e-3), work=WORK, peak_bytes=True)

@pytest.mark.parametrize("kind", [pytest.param("torch", id="aten::mm")])
def test_named(roofline, busy, kind):
    roofline.measure(lambda: busy(2e-3), work=WORK, name="forward")
    roofline.measure(lambda: busy(3e-3), work=Work(flops=10**9), name="back]ward[x]")
    roofline.measure(lambda: busy(1e-3), work=WORK)

def test_short(roofline, fake): roofline.measure(lambda: fake.work(3e-5), work=Work(read_bytes=100))

def test_job(roofline, busy): roofline.measure(lambda: busy(1e-3), work=Work(calls=1))
"""
# The options by which they say how was measured; the others are settings of theirs that change nothing of our tests.
OURS = ("disable_gc", "timer", "warmup")


def both(bench, *options):
    """What is replayed of a run and what its export holds, each by fullname."""
    result = bench.run("--benchmark-json=live.json", "--roofline-save=r", *options)
    exported = bench.cli("export", "r", "--to", "pytest-benchmark", "-o", "exported.json")
    assert 0 == exported.exit_code, exported.output
    files = (
        json.loads((bench.path / name).read_text(encoding="utf-8"))
        for name in ("live.json", "exported.json")
    )
    return [{one["fullname"]: one for one in file["benchmarks"]} for file in files], result


def test_every_value_of_a_replay_is_that_of_the_export(bench):
    bench.script(tick_s=1e-6)
    bench.suite(EXPORTED)
    (live, exported), result = both(bench)
    assert 0 == result.ret
    others = live["test_suite.py::test_named[aten::mm]"]["extra_info"].pop("others")
    for one in (*live.values(), *exported.values()):
        one["options"] = {name: one["options"][name] for name in OURS}
    named = "test_suite.py::test_named[aten::mm]"
    further = {name: exported.pop(name) for name in (f"{named}.back]ward[x]", f"{named}.3")}
    assert live == exported
    assert 8 == len(live)
    # What is a benchmark of its own in one stands beside the first in the other.
    origin = {"device", "device_uuid", "driver", "host", "run_id", "started", "tool"}
    assert others == [
        {name: value for name, value in one["extra_info"].items() if name not in origin}
        for one in further.values()
    ]
    assert {"aten::mm"} == {one["param"] for one in further.values()}
    assert {"a::b", "a]b[c]::d"} < {one["param"] for one in live.values()}
    short = live["test_suite.py::test_short"]
    assert 1 < short["stats"]["iterations"] == short["extra_info"]["calls_per_sample"]
    assert short["options"]["warmup"] > 0
