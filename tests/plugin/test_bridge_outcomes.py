"""Which tests pytest-benchmark hears of: whose numbers can be trusted, once, and beside whatever else they use."""

import json
import re
from statistics import median

import pytest

from .conftest import CONFTEST, texts
from .test_bridge import MACHINE, STORED, benchmarks_of, kept, replayed
from .test_bridge import bench as bench

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
    assert ["test_good", "test_old"] == sorted(re.findall(r"^(test_\w+) +\d", texts(result), re.MULTILINE))


def test_a_run_of_which_nothing_is_trusted_ends_well(bench):
    bench.suite(f"""{HEAD}
@pytest.fixture
def breaking():
    yield
    raise RuntimeError("torn")
def test_torn_down_badly(breaking, roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)
""")
    found, result = replayed(bench)
    result.assert_outcomes(passed=1, errors=1)
    assert {} == found
    assert "Rounds" not in texts(result)
    assert "Traceback" not in texts(result)


@pytest.mark.parametrize("marks", ["", "@pytest.mark.xfail(strict=True, reason='known')"], ids=["red", "acknowledged"])
def test_a_regression_is_replayed_and_says_so(bench, marks):
    against = bench.five_runs_of_one(marks)
    bench.script(slow=1.3)
    found, result = replayed(bench, *against)
    result.assert_outcomes(**({"xfailed": 1} if marks else {"failed": 1}))
    told = found["test_one"]["extra_info"]
    assert "REGRESSED" == told["verdict"]
    assert (0.3, 1e-3) == (pytest.approx(told["change"], abs=0.01), pytest.approx(told["baseline_s"], rel=0.01))
    assert pytest.approx(1.3e-3) == found["test_one"]["stats"]["median"]


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

@pytest.mark.usefixtures("benchmark")
def test_named_by_a_marker(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)

def test_next(roofline, busy): roofline.measure(lambda: busy(2e-3), work=WORK)
"""


def test_a_test_that_uses_their_fixture_keeps_it_for_itself(bench):
    bench.suite(OWN)
    found, result = replayed(bench)
    result.assert_outcomes(passed=5)
    assert {"test_by_argument": 3, "test_asked_late": 3, "test_next": 100} == {
        name: one["stats"]["rounds"] for name, one in found.items()
    }
    assert all(found[name]["options"]["timer"] == "perf_counter" for name in ("test_by_argument", "test_asked_late"))
    assert all(found[name]["extra_info"] == {} for name in ("test_by_argument", "test_asked_late"))


def test_our_fixture_may_come_by_a_marker_a_fixture_or_an_override(bench):
    bench.suite(f"""{HEAD}
@pytest.fixture
def through(roofline, busy): return lambda: roofline.measure(lambda: busy(1e-3), work=WORK)

def test_fixture(through): through()

@pytest.mark.usefixtures("roofline")
def test_marker(request, busy): request.getfixturevalue("roofline").measure(lambda: busy(1e-3), work=WORK)

class TestOverridden:
    @pytest.fixture
    def roofline(self, roofline): return roofline
    def test_override(self, roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)
""")
    found, result = replayed(bench)
    result.assert_outcomes(passed=3)
    assert {"test_fixture", "test_marker", "test_override"} == set(found)


def test_their_own_fixture_may_be_extended(bench):
    extended = '\n@pytest.fixture\ndef benchmark(benchmark):\n    benchmark.group = "ours"\n    return benchmark\n'
    bench.pytester.makeconftest(CONFTEST + MACHINE + extended)
    found, _ = replayed(bench)
    assert "ours" == found["test_walk"]["group"]
    assert kept(bench, "walk") == found["test_walk"]["stats"]["data"]


@pytest.mark.parametrize(
    "broken", ["raise KeyError('broken')", "pytest.skip('none today')", "pytest.fail('none today')", "return 3"]
)
def test_what_goes_wrong_with_their_fixture_is_a_warning_and_no_failure(bench, broken):
    bench.pytester.makeconftest(f"{CONFTEST}\n@pytest.fixture\ndef benchmark():\n    {broken}\n")
    result = bench.run("-k=walk")
    result.assert_outcomes(passed=1, warnings=1, deselected=3)
    result.stdout.fnmatch_lines(["*test_walk was measured, but could not be replayed into pytest-benchmark: *"])


def test_their_fixture_of_a_wider_scope_is_left_alone(bench):
    shared = "\n@pytest.fixture(scope='module')\ndef benchmark(): return None\n"
    bench.pytester.makeconftest(CONFTEST + shared)
    result = bench.run()
    result.assert_outcomes(passed=4)
    assert "arning" not in texts(result)


RERUN = f"""{HEAD}
attempts = []
def test_one(roofline, fake):
    attempts.append(1)
    seconds = 1.5e-3 if len(attempts) == 1 else 1e-3
    roofline.measure(lambda: fake.work(seconds), work=WORK)
    assert len(attempts) > 2
"""


def test_of_several_attempts_one_is_kept(bench):
    against = bench.five_runs_of_one()
    bench.suite(RERUN.replace("assert len(attempts) > 2", "").replace("WORK = Work(read_bytes=10**9)", (
        "WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)"
    )))  # fmt: skip
    found, result = replayed(bench, "--reruns=1", *against)
    assert 0 == result.ret
    (entry,) = json.loads((bench.path / "b.json").read_text())["benchmarks"]
    assert "INCONCLUSIVE" == entry["extra_info"]["verdict"]
    # Of the attempts the slowest stands, as in the verdict.
    assert pytest.approx(1.5e-3) == found["test_one"]["stats"]["median"]


def test_attempts_that_failed_are_not_heard_of(bench):
    bench.suite(RERUN)
    _, result = replayed(bench, "--reruns=2")
    result.assert_outcomes(passed=1)
    (entry,) = json.loads((bench.path / "b.json").read_text())["benchmarks"]
    assert "test_one" == entry["name"]


def test_stopping_and_repeating_what_failed_last_work_as_ever(bench):
    bench.suite(f"""{HEAD}
from pathlib import Path
BEEN = Path(__file__).parent / "been"
def test_a(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)
def test_b(roofline, busy):
    roofline.measure(lambda: busy(2e-3), work=WORK)
    if not BEEN.exists():
        BEEN.touch()
        assert False
def test_c(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)
""")
    found, result = replayed(bench, "-x")
    result.assert_outcomes(passed=1, failed=1)
    assert {"test_a"} == set(found)
    found, result = replayed(bench, "--lf")
    result.assert_outcomes(passed=1)
    assert {"test_b"} == set(found)
    assert pytest.approx(2e-3) == found["test_b"]["stats"]["median"]


HELD = f"""{HEAD.replace("10**9", "10**9, write_bytes=10**9, payload_bytes=10**9")}
@pytest.fixture
def measure(roofline, busy): return lambda: roofline.measure(lambda: busy(1e-3), work=WORK)

def test_one(measure): measure()
def test_fails_later(measure): measure()
def test_both(measure, benchmark):
    benchmark.pedantic(lambda: None, rounds=1, iterations=1)
    measure()
"""


def test_a_held_test_has_its_first_process_there_and_its_last_verdict(bench, monkeypatch):
    monkeypatch.setenv("WITHOUT_TORCH", "1")
    against = bench.sessions(HELD, (1.0, 1.005, 0.995, 1.0025, 0.9975))
    bench.script(slow={"test_one": [1.035, 1.0], "test_both": [1.035, 1.0], "test_fails_later": [1.035, "fail"]})
    found, result = replayed(
        bench, STORED, "--benchmark-autosave", "--roofline-rounds=4", "--roofline-save=r", *against
    )
    result.assert_outcomes(passed=2, failed=1)
    assert {"test_one", "test_both"} == set(found)
    told, first = found["test_one"]["extra_info"], bench.saved("r").measurements[0]
    assert ("PASSED", 2, 1) == (told["verdict"], told["processes"], first.round)
    assert list(first.samples.kept) == found["test_one"]["stats"]["data"]
    assert pytest.approx(1.035e-3) == median(found["test_one"]["stats"]["data"])
    # The processes of the rounds, which have the same command line, kept nothing.
    assert 1 == len(list((bench.path / "kept").rglob("*.json")))


HOT = """

@pytest.hookimpl(tryfirst=True, optionalhook=True)
def pytest_roofline_device(config, name):
    from pytest_roofline.engine.devices.fake import FakeDevice
    hot = lambda busy_s: frozenset(["thermal slowdown"] if {when} else [])
    config.fake = FakeDevice(throttle=hot)
    return config.fake
"""


def heated(bench, when):
    """Have the device slow down for heat, and say so, at some times."""
    others = CONFTEST.replace("def pytest_roofline_device", "def nothing")
    bench.pytester.makeconftest(others + MACHINE + HOT.format(when=when))


def test_nothing_of_a_drill_is_replayed(bench):
    result = bench.run("--roofline-drill=10%")
    result.assert_outcomes(passed=4)
    assert "Rounds" not in texts(result)


def test_what_a_spoiled_block_held_is_no_round(bench):
    heated(bench, "0.55 < busy_s < 0.61")
    found, _ = replayed(bench, "-k=once")
    (one,) = bench.last_run().measurements
    told, stats = found["test_copy[once]"]["extra_info"], found["test_copy[once]"]["stats"]
    assert 0 < told["samples_left_out"] == len(one.samples.seconds) - len(one.samples.kept)
    assert stats["rounds"] == told["samples"] == len(one.samples.kept)


def test_an_invalid_number_fails_no_comparison_of_theirs(bench):
    bench.suite(f"""{HEAD}
def test_ours(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)
def test_theirs(benchmark): benchmark.pedantic(lambda: None, rounds=1, iterations=1)
""")
    bench.run(STORED, "--benchmark-save=base", "-k=ours")
    compare = (STORED, "--benchmark-compare=0001", "--benchmark-compare-fail=median:10%")
    bench.script(slow=1.5)
    assert "Performance has regressed" in texts(bench.run(*compare))
    heated(bench, "True")
    result = bench.run(*compare)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["test_theirs *", "*INVALID*"])
    assert "Performance has regressed" not in texts(result)
