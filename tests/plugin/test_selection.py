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


def test_where_nothing_runs_no_device_is_opened_or_needed(desk):
    desk.suite()
    for options in (("--collect-only", "-q"), ("--fixtures",), ("--setup-plan",)):
        result = desk.run(*options)
        assert result.ret == 0
        assert "nothing was compared" not in result.stdout.str(), options
        if "-q" in options:
            result.stdout.fnmatch_lines(
                ["test_suite.py::test_copy[[]64MiB]", "test_suite.py::test_copy[[]1GiB]"]
            )
    assert not (desk.path / "opened").exists()
    assert not (desk.path / ".roofline").exists()
    desk.pytester.makeconftest("import pytest\n@pytest.fixture\ndef busy(): pass\n")
    assert desk.run("--collect-only", "--roofline-device=cuda:9").ret == 0


def test_pytests_own_selection_and_stopping_do_what_they_say(desk):
    desk.suite()
    desk.run("-k", "1GiB").assert_outcomes(passed=1, deselected=1)
    assert measured(desk) == ["copy[1GiB]"]
    desk.suite(TIERS)
    desk.run("-m", "roofline", "--roofline-tier=nightly")
    assert measured(desk) == ["nightly"]
    # By a limit one process may be red: a test that waits for another stops nothing.
    for option, count in (("-x", 1), ("--maxfail=2", 2)):
        result = desk.run(option, "--roofline-tier=full", "--roofline-min-percent=50")
        result.assert_outcomes(failed=count)
    desk.run("-x").assert_outcomes(passed=1, deselected=3)


def test_a_tier_measures_itself_and_those_below_and_what_was_asked_for_or_has_a_limit(desk):
    desk.suite(TIERS)
    for options, expected in (
        ((), ["quick"]),
        (("--roofline-tier=quick",), ["quick"]),
        (("--roofline-tier=nightly",), ["quick", "nightly"]),
        (("--roofline-tier=full",), ["quick", "nightly", "full[up]", "full[down]"]),
        (("test_suite.py::test_full[down]",), ["full[down]"]),
    ):
        desk.run(*options)
        assert measured(desk) == expected, options
    (desk.path / "baselines").mkdir()
    (desk.path / "baselines" / "mpl.json").write_text('{"images": 1}')
    (desk.path / "baselines" / "h100.json").write_text(
        '{"schema": 1, "family": "h100", "entries": [{"benchmark": "full", "kind": "threshold", "metric": "time_s",'
        '"parameters": {"way": "up"}, "value": 1.0, "unit": "s", "convention": "time", "source": "the maker",'
        '"confidence": "high"}]}'
    )
    desk.run()
    assert measured(desk) == ["quick", "full[up]"]


def test_where_all_that_is_selected_is_of_a_higher_tier_the_run_names_it(desk):
    desk.suite(TIERS)
    desk.run("-k", "full").stdout.fnmatch_lines([
        "roofline: this run measures tier quick, but the command selects 2 tests of tier full. "
        "Pass --roofline-tier=full"
    ])  # fmt: skip
    assert "selected test" not in desk.run("-k", "full or quick").stdout.str()


def test_two_tests_of_one_name_and_parameters_fail_and_the_others_run(desk):
    measured = """
from pytest_roofline import Work
def test_copy(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""
    for folder, more in (("a", ""), ("b", measured.replace("copy", "alone"))):
        (desk.path / folder).mkdir()
        (desk.path / folder / "test_same.py").write_text(measured + more)
    result = desk.run("--import-mode=importlib")
    result.assert_outcomes(errors=2, passed=1)
    assert [one.label for one in desk.last_run().measurements] == ["alone"]
    text = " ".join(result.stdout.str().split())
    assert (
        "a/test_same.py::test_copy and b/test_same.py::test_copy have the same name: benchmark 'copy'"
        in text
    )
    assert "Rename one of the functions, for example to test_copy_b" in text
    result = desk.run("--import-mode=importlib", "--roofline-rounds=2")
    result.assert_outcomes(errors=2, passed=1)
    assert len(desk.last_run().measurements) == 2


def test_tests_of_one_name_in_two_classes_are_two(desk):
    text = """
class {}:
    def test_copy(self, roofline, busy):
        roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""
    inner = "    " + text.format("TestInner").strip().replace("\n", "\n    ")
    desk.suite(
        "from pytest_roofline import Work" + text.format("TestUp") + f"class TestDown:\n{inner}\n"
    )
    desk.run("test_suite.py").assert_outcomes(passed=2)
    assert [m.label for m in desk.last_run().measurements] == [
        "TestUp.copy",
        "TestDown.TestInner.copy",
    ]


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


def test_missing_hardware_skips_with_need_and_finding_and_fails_where_it_is_required(cpu):
    result = cpu.run("-rs")
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["0 measured, 1 not measured (needs an accelerator, found only the CPU)"]
    )
    result.stdout.fnmatch_lines(["SKIPPED*needs an accelerator, found only the CPU"])
    result = cpu.run("--roofline-fail-on=+no-hardware")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "*needs an accelerator, found only the CPU; missing hardware fails a test here (no-hardware in *"
        ]
    )


def test_a_test_skips_itself_for_lack_of_hardware_or_room(desk):
    desk.script(memory_bytes=2**30)
    desk.suite(
        "def test_big(roofline): roofline.require_memory(2**31)\n"
        "def test_two(roofline): roofline.skip_for_hardware('needs 2 GPUs, found 1')\n"
    )
    result = desk.run()
    result.assert_outcomes(skipped=2)
    result.stdout.fnmatch_lines(["*needs 2.15 GB of device memory, found 1.07 GB*"])
    result = desk.run("--roofline-fail-on=+no-hardware")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*needs 2 GPUs, found 1; missing hardware fails a test here (no-hardware in --roofline-fail-on)*"
        ]
    )
    desk.suite(NEEDS.replace('raise AssertionError("must not run")', "pass"))
    desk.run("--roofline-fail-on=+no-hardware").assert_outcomes(passed=2)


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
    result = desk.run("--roofline-fail-on=+no-baseline")
    result.assert_outcomes(failed=1, errors=1, passed=0)
    text = desk.run("-k", "dynamic").stdout.str()
    assert "KeyError" not in text
    assert "StashKey" not in text
