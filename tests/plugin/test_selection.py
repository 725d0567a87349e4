"""Which tests measure: selection, stopping, tiers, collisions, hardware that is missing."""

import pytest

TIERS = """
import pytest
from pytest_roofline import Work

def run(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))

def test_quick(roofline, busy):
    run(roofline, busy)

@pytest.mark.roofline(tier="nightly")
def test_nightly(roofline, busy):
    run(roofline, busy)

@pytest.mark.roofline(tier="full")
@pytest.mark.parametrize("way", ["up", "down"])
def test_full(roofline, busy, way):
    run(roofline, busy)
"""


def measured(desk):
    return [measurement.label for measurement in desk.last_run().measurements]


def test_collect_only_never_opens_the_device(desk):
    desk.suite()
    result = desk.run("--collect-only", "-q")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["test_suite.py::test_copy[[]64MiB]", "test_suite.py::test_copy[[]1GiB]"])
    assert not (desk.path / "opened").exists()
    assert not (desk.path / ".roofline").exists()


def test_collect_only_works_where_the_device_is_missing(desk):
    desk.suite()
    desk.pytester.makeconftest("import pytest\n@pytest.fixture\ndef busy(): pass\n")
    assert desk.run("--collect-only", "--roofline-device=cuda:9").ret == 0


def test_k_measures_only_what_it_selects(desk):
    desk.suite()
    desk.run("-k", "1GiB").assert_outcomes(passed=1, deselected=1)
    assert measured(desk) == ["copy[1GiB]"]


def test_m_selects_by_the_marker(desk):
    desk.suite(TIERS)
    desk.run("-m", "roofline", "--roofline-tier=nightly")
    assert measured(desk) == ["nightly"]


def test_x_stops_after_a_regression(desk):
    desk.suite(TIERS)
    # By a limit one process may be red: a test that waits for another stops nothing.
    result = desk.run("-x", "--roofline-tier=full", "--roofline-min-percent=50")
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    assert measured(desk) == ["quick"]


def test_x_goes_on_while_all_is_well(desk):
    against = desk.five_runs()
    desk.run("-x", *against).assert_outcomes(passed=2)


def test_maxfail_counts_regressions(desk):
    desk.suite(TIERS)
    for count in (2, 1):
        result = desk.run(f"--maxfail={count}", "--roofline-tier=full", "--roofline-min-percent=50")
        result.assert_outcomes(failed=count)


@pytest.mark.parametrize(
    ("tier", "expected"),
    [
        ("quick", ["quick"]),
        ("nightly", ["quick", "nightly"]),
        ("full", ["quick", "nightly", "full[up]", "full[down]"]),
    ],
)
def test_a_tier_measures_itself_and_those_below(desk, tier, expected):
    desk.suite(TIERS)
    desk.run(f"--roofline-tier={tier}")
    assert measured(desk) == expected


def test_quick_is_the_default_and_the_rest_counts_as_deselected(desk):
    desk.suite(TIERS)
    desk.run().assert_outcomes(passed=1, deselected=3)


def test_a_test_that_is_asked_for_by_its_id_is_measured_in_any_tier(desk):
    desk.suite(TIERS)
    desk.run("test_suite.py::test_full[down]").assert_outcomes(passed=1)
    assert measured(desk) == ["full[down]"]


def test_a_size_that_a_threshold_names_is_measured_in_any_tier(desk):
    (desk.path / "baselines").mkdir()
    (desk.path / "baselines" / "h100.json").write_text(
        '{"schema": 1, "family": "h100", "entries": [{"benchmark": "full", "kind": "threshold", "metric": "time_s",'
        '"parameters": {"way": "up"}, "value": 1.0, "unit": "s", "convention": "time", "source": "the maker",'
        '"confidence": "high"}]}'
    )
    desk.suite(TIERS)
    desk.run()
    assert measured(desk) == ["quick", "full[up]"]


def test_two_tests_of_one_name_and_parameters_are_refused_by_name(desk, sentence):
    one = "from pytest_roofline import Work\ndef test_copy(roofline): pass\n"
    desk.suite(one, "test_a")
    desk.suite(one, "test_b")
    sentence(desk.run(), "test_a.py::test_copy", "test_b.py::test_copy", "'copy'")


def test_tests_of_one_name_in_two_classes_are_two_benchmarks(desk):
    text = """
from pytest_roofline import Work
class {}:
    def test_copy(self, roofline, busy):
        roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""
    desk.suite(text.format("TestUp") + text.format("TestDown"))
    desk.run().assert_outcomes(passed=2)
    assert [m.key.benchmark for m in desk.last_run().measurements] == ["TestUp.copy", "TestDown.copy"]


def test_one_and_true_are_two_parameters_with_a_baseline_each(desk):
    text = """
import pytest
from pytest_roofline import Work
@pytest.mark.parametrize("value", [1, True, 1.0], ids=["int", "bool", "float"])
def test_copy(roofline, busy, value):
    seconds = {int: 1e-3, bool: 2e-3, float: 4e-3}[type(value)]
    roofline.measure(lambda: busy(seconds), work=Work(read_bytes=10**9))
"""
    desk.baseline(text=text)
    desk.run().stdout.fnmatch_lines(["3 of 3 compared: 3 PASSED"])


def test_the_parameters_are_the_scalars_and_no_file_name(desk):
    desk.suite()
    desk.run()
    key = desk.last_run().measurements[0].key
    assert (key.benchmark, key.parameters) == ("copy", {"size_bytes": 64 * 2**20})


NEEDS = """
import pytest
from pytest_roofline import Work

@pytest.mark.roofline(needs="accelerator")
def test_gpu(roofline): raise AssertionError("must not run")

def test_plain(roofline, fake): pass
"""


@pytest.fixture
def cpu(desk):
    """The desk with a fake device that calls itself a CPU."""
    desk.pytester.makeconftest("""
import dataclasses
import pytest
from pytest_roofline.engine.devices.fake import FakeDevice

class Cpu(FakeDevice):
    def facts(self):
        return dataclasses.replace(super().facts(), type="cpu", product="Fake CPU")

def pytest_roofline_device(config, name):
    config.fake = Cpu()
    return config.fake

@pytest.fixture
def fake(pytestconfig):
    return pytestconfig.fake
""")
    desk.suite(NEEDS)
    return desk


def test_missing_hardware_skips_with_need_and_finding(cpu):
    result = cpu.run("-rs")
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["0 measured, 1 not measured (needs an accelerator, found the CPU only)"])
    result.stdout.fnmatch_lines(["SKIPPED*needs an accelerator, found the CPU only"])


def test_missing_hardware_fails_where_it_is_required(cpu):
    result = cpu.run("--roofline-require-hardware")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*needs an accelerator, found the CPU only, and --roofline-require-hardware is set*"])


def test_require_hardware_speaks_for_skips_inside_a_test_too(desk):
    desk.suite("def test_two(roofline): roofline.skip_for_hardware('needs 2 GPUs, found 1')\n")
    desk.run().assert_outcomes(skipped=1)
    result = desk.run("--roofline-require-hardware")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*needs 2 GPUs, found 1, and --roofline-require-hardware is set*"])


def test_a_size_that_cannot_fit_is_a_skip_with_need_and_finding(desk):
    desk.script(memory_bytes=2**30)
    desk.suite("def test_big(roofline): roofline.require_memory(2**31)\n")
    result = desk.run()
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*not measured (needs 2.15 GB of device memory, found 1.07 GB)"])


def test_an_accelerator_runs_what_needs_one(desk):
    desk.suite(NEEDS.replace('raise AssertionError("must not run")', "pass"))
    desk.run("--roofline-require-hardware").assert_outcomes(passed=2)


DYNAMIC = """
import pytest
from pytest_roofline import Work

@pytest.fixture
def bench(request):
    return request.getfixturevalue("roofline")

def test_named(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))

def test_dynamic(bench, busy):
    bench.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""


def test_a_fixture_asked_for_by_name_at_run_time_is_gated_or_refused(desk):
    # A measurement that nobody judges would be green whatever it takes.
    desk.suite(DYNAMIC)
    result = desk.run("--roofline-require-baseline")
    result.assert_outcomes(failed=1, errors=1, passed=0)


def test_a_fixture_asked_for_only_at_run_time_gives_no_internal_error(desk):
    desk.suite(DYNAMIC)
    text = desk.run("-k", "dynamic").stdout.str()
    assert "KeyError" not in text
    assert "StashKey" not in text
