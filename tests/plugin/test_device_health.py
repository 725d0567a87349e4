"""A device below its rated facts: one red item with the cause first, and fifty slow tests that point to it."""

import json

import pytest

from ..golden.cases import SOUND
from .conftest import ALWAYS

H100 = "NVIDIA H100 80GB HBM3"
# A device whose power limit is down.
SICK = SOUND | {"power_limit_w": 400.0}
CAUSE = "power limit 400 W, default 700 W"


@pytest.fixture
def against(desk):
    """The options that compare two tests with five sessions of theirs."""
    return desk.sessions()


def test_a_sound_device_passes_and_what_cannot_be_checked_is_named(desk, against):
    desk.script(gpu=SOUND)
    result = desk.run(*against)
    assert result.ret == 0
    result.assert_outcomes(passed=3)
    desk.script(gpu=SOUND | {"ecc_errors": None, "ecc": None})
    result = desk.run(*against)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["device health: *ECC errors*withheld*"])
    # Of which no library tells, there is no item.
    desk.script()
    result = desk.run(*against, "-v")
    result.assert_outcomes(passed=2)
    assert not any(line.startswith("device health PASSED") for line in result.stdout.lines)


def test_a_sick_device_is_an_item_of_its_own_whatever_is_selected_unless_it_is_not_to_fail(
    desk, against
):
    desk.script(gpu=SICK)
    for options in (("-k", "64MiB"), ("test_suite.py::test_copy[64MiB]",)):
        desk.run(*against, *options).assert_outcomes(passed=1, failed=1, deselected="-k" in options)
    result = desk.run(*against, "--roofline-fail-on=regressed")
    assert result.ret == 0
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines([f"device health: DEGRADED: {CAUSE}*"])
    # After it, --lf runs all tests and the item again.
    desk.run(*against)
    desk.script(gpu=SOUND)
    desk.run(*against, "--lf").assert_outcomes(passed=3)
    assert (
        json.loads((desk.path / ".pytest_cache" / "v" / "cache" / "lastfailed").read_text()) == {}
    )
    desk.suite("def test_bad(roofline): assert False\n")
    desk.script(gpu=SICK)
    result = desk.run()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines([f"DEGRADED: {CAUSE}*"])


def test_a_regressed_test_points_to_the_sick_device(desk):
    desk.suite()
    desk.script(gpu=SICK, slow=1.3)
    result = desk.run("--roofline-min-percent=55", "-k", "1GiB")
    result.assert_outcomes(failed=2, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "copy[[]1GiB]: *BELOW 55 % OF THE ROOFLINE*",
            f"*the device is DEGRADED: {CAUSE}*",
            "=* roofline =*",
        ]
    )


FALLING = """
def test_copy_last(roofline, busy, fake):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9, write_bytes=10**9))
    fake.gpu_facts["links"] = 16
"""


def test_what_breaks_while_the_tests_run_is_found(desk):
    desk.script(gpu=SOUND)
    desk.suite("from pytest_roofline import Work\n" + FALLING)
    result = desk.run()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["DEGRADED: 16 of 18 NVLinks up*"])
    # Fixtures of the tests are gone before the device is looked at.
    desk.suite("""
import pytest
@pytest.fixture(scope="module")
def holding(pytestconfig):
    yield
    pytestconfig.fake.gpu_facts["power_limit_w"] = 400.0
def test_one(roofline, holding): pass
""")
    desk.run().assert_outcomes(passed=1, failed=1)


def test_a_device_that_was_slowed_down_all_the_time_is_degraded_and_not_only_its_numbers_invalid(
    desk,
):
    desk.suite()
    desk.script(gpu=SOUND, hot={"*": (["thermal slowdown"], *ALWAYS)})
    result = desk.run()
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["DEGRADED: thermal slowdown in * (100%)*"])
    assert [outcome.verdicts for outcome in desk.last_run().outcomes[:2]] == [("INVALID",)] * 2
    # The software power cap is no sickness.
    desk.script(gpu=SOUND, hot={"*": (["software power cap"], *ALWAYS)})
    desk.run().assert_outcomes(passed=3)


def expecting(desk, **changes):
    """The option for an expectation of eight GPUs."""
    text = json.dumps({"schema": 1, "gpus": [{"product": H100, "count": 8}]} | changes)
    (desk.path / "node.json").write_text(text)
    return "--roofline-expect=node.json"


def test_a_node_that_lacks_what_is_expected_is_degraded(desk, against):
    option = expecting(desk)
    for gpu in (SOUND, None):
        # The machine that runs these tests has no eight of them.
        desk.script(gpu=gpu)
        result = desk.run(*against, option)
        result.assert_outcomes(passed=2, failed=1)
        result.stdout.fnmatch_lines([f"DEGRADED: * × {H100}, expected 8*"])
    assert desk.run(*against, expecting(desk, gpus=[{"product": H100, "count": 0}])).ret == 0
