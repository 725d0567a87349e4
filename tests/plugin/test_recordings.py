"""A recording of which nothing can become a baseline ends early, with status 1 and a line that says why."""

import pytest

from pytest_roofline.engine.devices import cpu
from pytest_roofline.engine.quiet import CoreWatch
from pytest_roofline.settings.options import SIDE_BY_SIDE

BUSY = "other processes kept 1.6 of 2 cores busy during the measurement; run the test on a quiet machine"
NOW = "other processes keep 1.6 of 2 cores busy (cc1 (7) 1.0)"
RECORDING = ("--roofline-rounds=5", "--roofline-save=r")
# Above the datasheet's peak.
ABSURD = 0.25
REFUSED = "No baseline can be made of this run, after "


@pytest.fixture
def busy_machine(monkeypatch):
    """Neighbours that spoil whatever this process measures."""
    monkeypatch.setattr(CoreWatch, "disturbance", lambda _: BUSY)
    monkeypatch.setattr(cpu, "neighbours_now", lambda: NOW)


def last_line(result):
    """The last line of our section in what a run printed."""
    lines = [line for line in result.stdout.lines if line and not line.startswith("=")]
    return next(
        line for line in reversed(lines) if line.startswith((REFUSED, "GREEN", "GREY", "RED"))
    )


def rounds_of(desk, name="r"):
    """The rounds in which the tests of a saved run were measured."""
    return [one.round for one in desk.saved(name).tested]


@pytest.mark.parametrize("options", [(), ("-q",), ("-v",)])
def test_a_recording_on_a_busy_machine_ends_after_its_first_process_and_says_who_is_busy(
    desk, busy_machine, options
):
    desk.suite()
    result = desk.run(*RECORDING, *options)
    expected = (
        f"{REFUSED}1 of 5 rounds: {NOW}. Expected at least one valid result, so pytest ended with status 1. End "
        "the busy processes, or wait until they end, and run this again, under the same name. To wait for a quiet "
        "machine, add --roofline-wait=10m."
    )
    assert (result.ret, last_line(result)) == (pytest.ExitCode.TESTS_FAILED, expected)
    # Said once, and what was measured is kept.
    assert result.stdout.str().count(NOW) == 1
    run = desk.saved("r")
    assert [(one.round, one.invalid) for one in run.tested] == [(1, BUSY)] * 2
    assert run.footer.exit_status == pytest.ExitCode.TESTS_FAILED
    # The same command again is taken.
    assert "is kept as" in desk.run(*RECORDING).stdout.str()


def test_what_is_no_recording_keeps_its_status_on_a_busy_machine(desk, busy_machine):
    desk.suite()
    for options in (
        ("--roofline-save=plain",),
        ("--roofline-save=once", "--roofline-rounds=1"),
        ("--roofline-save=open", "--roofline-rounds=auto"),
        ("--roofline-rounds=1",),
        ("--roofline-save=look", "--roofline-rounds=5", "--collect-only"),
    ):
        result = desk.run(*options)
        assert (result.ret, REFUSED in result.stdout.str()) == (0, False), options


REASONS = {
    "failed": (
        "assert busy is None, 'wrong'",
        (),
        "broken of r: the test failed: AssertionError: wrong",
    ),
    "drilled": ("pass", ("--roofline-drill=20%",), "in a drill of 20%"),
    "profiled": ("pass", (), "a profiler was attached"),
}
MEASURING = """
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9)
"""
BROKEN = """
def test_broken(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)
    {}
"""
SOUND = """
def test_sound(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""


@pytest.mark.parametrize(("end", "options", "why"), REASONS.values(), ids=REASONS)
def test_whatever_propose_refuses_ends_a_recording_after_its_first_process(
    desk, monkeypatch, end, options, why
):
    if "profiler" in why:
        monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    desk.suite(MEASURING + BROKEN.format(end))
    result = desk.run(*RECORDING, *options)
    said = last_line(result)
    assert (result.ret, rounds_of(desk)) == (pytest.ExitCode.TESTS_FAILED, [1])
    assert said.startswith(f"{REFUSED}1 of 5 rounds: broken")
    assert why in said
    assert said.endswith(
        "Correct the cause of the invalid results, and run this again, under another name."
    )
    assert desk.cli("baseline", "propose", "r", "-o", "p.json").exit_code == 2


def test_a_failing_test_beside_invalid_ones_is_named_with_who_keeps_the_machine_busy(
    desk, busy_machine, monkeypatch
):
    desk.suite(MEASURING + BROKEN.format("assert busy is None, 'wrong'") + SOUND)
    expected = (
        f"{REFUSED}1 of 5 rounds: broken of r: the test failed: AssertionError: wrong; {NOW}. Expected at least one "
        "valid result, so pytest ended with status 1. Correct the cause of the invalid results, end the busy "
        "processes, or wait until they end, and run this again, under another name. To wait for a quiet machine, add "
        "--roofline-wait=10m."
    )
    disturbed = iter(("", BUSY))
    monkeypatch.setattr(CoreWatch, "disturbance", lambda _: next(disturbed))
    result = desk.run(*RECORDING)
    assert (result.ret, rounds_of(desk)) == (pytest.ExitCode.TESTS_FAILED, [1, 1])
    assert last_line(result) == expected
    # No round follows a run that -x has ended.
    desk.run_path("r").unlink()
    monkeypatch.setattr(CoreWatch, "disturbance", lambda _: "")
    result = desk.run(*RECORDING, "-x")
    assert (result.ret, rounds_of(desk)) == (pytest.ExitCode.TESTS_FAILED, [1])
    assert last_line(result).startswith(f"{REFUSED}1 of 5 rounds: broken of r: the test failed")


def test_one_result_that_is_fit_lets_a_recording_go_on_with_all_of_its_tests(desk):
    desk.suite(MEASURING + SOUND + BROKEN.format("pass"))
    desk.script(slow={"test_broken": [ABSURD, 1.0]})
    result = desk.run("--roofline-rounds=3", "--roofline-save=r")
    assert (result.ret, REFUSED in result.stdout.str()) == (0, False)
    assert rounds_of(desk) == [1, 1, 2, 2, 3, 3]
    assert desk.cli("baseline", "propose", "r", "-o", "p.json").exit_code == 0


def test_a_recording_that_was_spoiled_in_later_rounds_ends_with_status_1_as_well(desk):
    desk.suite(MEASURING + SOUND)
    desk.script(slow=[1.0, ABSURD])
    result = desk.run("--roofline-rounds=3", "--roofline-save=r", "-q")
    assert (result.ret, rounds_of(desk)) == (pytest.ExitCode.TESTS_FAILED, [1, 2, 3])
    assert last_line(result).startswith(f"{REFUSED}3 of 3 rounds: sound of r: ")
    assert desk.cli("baseline", "propose", "r", "-o", "p.json").exit_code == 2


def test_a_recording_whose_tests_were_all_skipped_says_why(desk):
    desk.suite(MEASURING + "def test_big(roofline):\n    pytest.skip('needs 2 GPUs, found 1')\n")
    result = desk.run(*RECORDING)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert last_line(result).startswith(f"{REFUSED}1 of 5 rounds: needs 2 GPUs, found 1. Expected")


def test_a_recording_that_measures_nothing_ends_with_status_1_whatever_kept_it_from_measuring(desk):
    desk.suite(MEASURING + SOUND + "def test_plain(): pass\n")
    for options, why in (
        (("-k", "plain"), "no test that measures was selected"),
        (("-k", "plain", "-q"), "no test that measures was selected"),
        (("-n", "1", "-p", "no:rerunfailures", "-q"), SIDE_BY_SIDE),
    ):
        result = desk.run(*RECORDING, *options)
        expected = (
            f"{REFUSED}0 of 5 rounds: {why}. Expected at least one valid result, so pytest ended with status 1. "
            "Correct the cause of the invalid results, and run this again, under the same name."
        )
        assert (result.ret, last_line(result)) == (pytest.ExitCode.TESTS_FAILED, expected)
    # Pytest has a status of its own for this one, and says it.
    assert desk.run(*RECORDING, "-k", "nosuchtest").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert not desk.run_path("r").exists()


def test_a_gate_and_a_drill_that_compared_are_judged_as_ever(desk):
    against = desk.five_runs()
    desk.script(slow=ABSURD)
    result = desk.run(*against, "--roofline-ci", "--roofline-rounds=2", "--roofline-save=gate")
    assert (result.ret, max(rounds_of(desk, "gate"))) == (pytest.ExitCode.TESTS_FAILED, 2)
    assert REFUSED not in result.stdout.str()
    desk.script(slow=[1.0])
    result = desk.run(
        *against, "--roofline-drill=10%", "--roofline-rounds=5", "--roofline-save=drill"
    )
    assert (len(rounds_of(desk, "drill")), last_line(result)) == (
        10,
        "RED: 2 REGRESSED, 0 of 2 fast enough",
    )


def test_ctrl_c_in_the_first_process_of_a_recording_keeps_its_status(desk):
    desk.suite(MEASURING + BROKEN.format("raise KeyboardInterrupt"))
    result = desk.run(*RECORDING)
    assert (result.ret, REFUSED in result.stdout.str()) == (pytest.ExitCode.INTERRUPTED, False)
    assert rounds_of(desk) == [1]
