"""What fails, how many rounds, how long: the options of the gate, their ini twins, and what each of them means."""

import json

from ..golden.cases import THRESHOLD

# Against five sessions 1 % apart, and by one process: surely the same, doubtful, surely slower.
SAME, DOUBTFUL, SURE = 1.0, 1.035, 1.3
# Twice what the datasheet allows.
INVALID = 0.25


# A published limit, which a single process may miss surely.
LIMIT = THRESHOLD | {"benchmark": "slower", "value": 1800}
# What each policy makes of each verdict: 1 fails, 0 passes.
POLICIES = {
    "default": (),
    "ci": ("--roofline-ci",),
    "new driver": ("--roofline-ci", "--roofline-fail-on=+inconclusive"),
    "added": ("--roofline-fail-on=+Invalid, +no-baseline",),
    "regressed only": ("--roofline-fail-on=regressed",),
    "ci, regressed only": ("--roofline-ci", "--roofline-fail-on=regressed"),
    "all": ("--roofline-fail-on=regressed,degraded,invalid,no-baseline,inconclusive",),
    "spaced": ("--roofline-fail-on= Regressed , INVALID ",),
}
FAILS = {
    #                     same, slower, doubtful, invalid, nothing to compare with
    "default": (0, 1, 0, 0, 0),
    "ci": (0, 1, 0, 1, 1),
    "new driver": (0, 1, 1, 1, 1),
    "added": (0, 1, 0, 1, 1),
    "regressed only": (0, 1, 0, 0, 0),
    "ci, regressed only": (0, 1, 0, 0, 0),
    "all": (0, 1, 1, 1, 1),
    "spaced": (0, 1, 0, 1, 0),
}
FIVE = """
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9)

def test_same(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)
def test_slower(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)
def test_doubtful(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)
def test_invalid(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)
"""
NEW = "\ndef test_new(roofline, busy): roofline.measure(lambda: busy(1e-3), work=WORK)\n"
NAMES = ("same", "slower", "doubtful", "invalid", "new")


def test_a_policy_says_which_verdicts_fail_and_each_message_what_to_do(desk):
    against = desk.sessions(FIVE)
    desk.suite(FIVE + NEW)
    (desk.path / "baselines").mkdir()
    (desk.path / "baselines" / "h100.json").write_text(
        json.dumps({"schema": 1, "family": "h100", "entries": [LIMIT]})
    )
    desk.script(slow={"test_slower": SURE, "test_doubtful": DOUBTFUL, "test_invalid": INVALID})
    for policy, options in POLICIES.items():
        result = desk.run(*against, *options, "--roofline-rounds=1")
        outcomes = {
            outcome.test_id.rpartition("_")[2]: outcome for outcome in desk.last_run().outcomes
        }
        assert {name: outcome.verdicts for name, outcome in outcomes.items()} == {
            "same": ("PASSED",), "slower": ("REGRESSED",), "doubtful": ("INCONCLUSIVE",), "invalid": ("INVALID",),
            "new": ("NO BASELINE",),
        }  # fmt: skip
        assert tuple(int(outcomes[name].outcome == "failed") for name in NAMES) == FAILS[policy], (
            policy
        )
        assert result.ret == 1
        # Whatever a verdict turned red is red by verdict alone.
        assert all(
            outcome.by_verdict == (outcome.outcome == "failed") for outcome in outcomes.values()
        )
        if policy == "new driver":
            result.stdout.fnmatch_lines(
                [
                    "doubtful: +3.5 % time * INCONCLUSIVE, *",
                    "*a verdict needs about * processes; measure with --roofline-rounds=*",
                ]
            )
            result.stdout.fnmatch_lines(["invalid: INVALID (*datasheet*"])
            result.stdout.fnmatch_lines(
                ["new: NO BASELINE (*", "*record a baseline with `pytest … --roofline-record`*"]
            )


LACK = """
from pytest_roofline import Work

def test_same(roofline, busy): roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
def test_lack(roofline): roofline.skip_for_hardware("needs 2 GPUs, found 1")
"""


def test_under_a_gate_missing_hardware_fails_whatever_the_list_says(desk):
    desk.suite(LACK)
    for options, failed in (
        ((), 0),
        (("--roofline-fail-on=regressed",), 0),
        (("--roofline-fail-on=+no-hardware",), 1),
        (("--roofline-fail-on=regressed,no-hardware",), 1),
        (("--roofline-ci", "--roofline-fail-on=regressed"), 1),
        (("--roofline-ci", "--roofline-fail-on=+inconclusive"), 1),
    ):
        desk.run(*options, "--roofline-rounds=1")
        ends = [outcome.outcome for outcome in desk.last_run().outcomes]
        assert failed == sum(end == "failed" for end in ends[:2]), options


def test_the_ini_sets_the_policy_and_the_command_line_goes_before(desk):
    against = desk.five_sessions_of_one()
    for line, slow, options, status in (
        ("roofline_ci = true", None, (), 1),
        ("roofline_ci = false", None, (), 0),
        ("roofline_fail_on = +no-baseline", None, (), 1),
        ("roofline_fail_on = regressed,inconclusive", DOUBTFUL, (), 1),
        (
            "roofline_fail_on = regressed,inconclusive",
            DOUBTFUL,
            ("--roofline-fail-on=regressed",),
            0,
        ),
    ):
        desk.ini(line)
        desk.script(slow=slow or SAME)
        known = [] if slow is None else against
        assert desk.run(*known, *options, "--roofline-rounds=1").ret == status, (line, options)


def test_without_being_asked_a_run_starts_no_child_and_says_what_would_decide(desk):
    against = desk.five_sessions_of_one()
    desk.script(slow=1.03)
    result = desk.run(*against)
    assert result.ret == 0
    assert "round 2" not in result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            "INCONCLUSIVE one: the change may be *; a verdict needs about * processes; measure with --roofline-rounds=*"
        ]
    )
    # Nor counts what it could have seen on rounds that did not run.
    desk.run(*against, "--roofline-rounds=auto", "--roofline-time=0.001s")
    assert [verdict.reach for verdict in desk.last_run().verdicts] == [None]
