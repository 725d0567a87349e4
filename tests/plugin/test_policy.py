"""What fails, how many rounds, how long: the options of the gate, their ini twins, and what each of them means."""

import json

import pytest

# Against five sessions 1 % apart, and by one process: surely the same, doubtful, surely slower.
SAME, DOUBTFUL, SURE = 1.0, 1.035, 1.3
# Twice what the datasheet allows.
INVALID = 0.25


def test_the_words_of_the_header_tell_rounds_and_time(desk):
    desk.one()
    desk.script(slow="skip")
    result = desk.run("--roofline-rounds=5", "--roofline-time=30m")
    result.stdout.fnmatch_lines(["roofline: 1 measuring test* planned, *up to 5 rounds*30 min*"])


@pytest.mark.parametrize("text", ['{"schema": 1', "[]", '{"schema": 1, "gpus": [], "colour": 1}', ""])
def test_an_expectation_that_cannot_be_read_is_one_sentence_before_anything_is_measured(desk, sentence, text):
    desk.one()
    (desk.path / "node.json").write_text(text)
    sentence(desk.run("--roofline-expect=node.json"), "node.json")
    assert not (desk.path / ".roofline").exists()


# A published limit, which a single process may miss surely.
LIMIT = {
    "benchmark": "slower", "kind": "threshold", "metric": "traffic_GBps", "value": 1800, "unit": "GB/s",
    "convention": "traffic, 1e9", "source": "the maker", "confidence": "high",
}  # fmt: skip
# What each policy makes of each verdict: 1 fails, 0 passes.
POLICIES = {
    "default": (),
    "ci": ("--roofline-ci",),
    "qualify": ("--roofline-qualify",),
    "regressed only": ("--roofline-fail-on=regressed",),
    "ci, regressed only": ("--roofline-ci", "--roofline-fail-on=regressed"),
    "all": ("--roofline-fail-on=regressed,degraded,invalid,no-baseline,inconclusive",),
    "spaced": ("--roofline-fail-on= Regressed , INVALID ",),
}
FAILS = {
    #                     same, slower, doubtful, invalid, nothing to compare with
    "default": (0, 1, 0, 0, 0),
    "ci": (0, 1, 0, 1, 1),
    "qualify": (0, 1, 1, 1, 1),
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


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_says_which_verdicts_fail(desk, policy):
    against = desk.sessions(FIVE)
    desk.suite(FIVE + NEW)
    (desk.path / "baselines").mkdir()
    (desk.path / "baselines" / "h100.json").write_text(json.dumps({"schema": 1, "family": "h100", "entries": [LIMIT]}))
    desk.script(slow={"test_slower": SURE, "test_doubtful": DOUBTFUL, "test_invalid": INVALID})
    result = desk.run(*against, *POLICIES[policy], "--roofline-rounds=1")
    outcomes = {outcome.test_id.rpartition("_")[2]: outcome for outcome in desk.last_run().outcomes}
    assert {name: outcome.verdicts for name, outcome in outcomes.items()} == {
        "same": ("PASSED",), "slower": ("REGRESSED",), "doubtful": ("INCONCLUSIVE",), "invalid": ("INVALID",),
        "new": ("NO BASELINE",),
    }  # fmt: skip
    assert tuple(int(outcomes[name].outcome == "failed") for name in NAMES) == FAILS[policy]
    assert result.ret == 1
    # Whatever a verdict turned red is red by verdict alone.
    assert all(outcome.by_verdict == (outcome.outcome == "failed") for outcome in outcomes.values())


def test_the_message_of_each_failing_verdict_says_what_to_do(desk):
    against = desk.sessions(FIVE)
    desk.suite(FIVE + NEW)
    desk.script(slow={"test_doubtful": DOUBTFUL, "test_invalid": INVALID})
    result = desk.run(*against, *POLICIES["qualify"], "--roofline-rounds=1")
    result.stdout.fnmatch_lines(["doubtful: +3.5 % time * INCONCLUSIVE, *", "*would decide*--roofline-rounds=*"])
    result.stdout.fnmatch_lines(["invalid: INVALID (*datasheet*"])
    result.stdout.fnmatch_lines(["new: NO BASELINE (*", "*record one with `roofline baseline propose`*"])


@pytest.mark.parametrize("flag", ["ci", "qualify"])
def test_a_gate_requires_hardware(desk, flag):
    desk.suite("def test_two(roofline): roofline.skip_for_hardware('needs 2 GPUs, found 1')\n")
    assert desk.run().ret == 0
    result = desk.run(f"--roofline-{flag}")
    # The other is the gate's own, which compared nothing.
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*needs 2 GPUs, found 1*"])


@pytest.mark.parametrize("flag", ["ci", "qualify"])
def test_a_gate_goes_on_for_up_to_twelve_rounds_and_half_an_hour(desk, flag):
    desk.one()
    header = next(line for line in desk.run(f"--roofline-{flag}").stdout.lines if "planned" in line)
    assert "12 rounds" in header
    assert "30 min" in header


@pytest.mark.parametrize(
    ("line", "slow", "status"),
    [
        ("roofline_ci = true", None, 1),
        ("roofline_ci = false", None, 0),
        ("roofline_qualify = true", None, 1),
        ("roofline_require_baseline = true", None, 1),
        ("roofline_fail_on = regressed, invalid", INVALID, 1),
        ("roofline_fail_on = regressed", INVALID, 0),
        ("roofline_fail_on = regressed,inconclusive", DOUBTFUL, 1),
    ],
)
def test_the_ini_sets_the_policy(desk, line, slow, status):
    against = [] if slow is None else desk.five_sessions_of_one()
    desk.one()
    desk.ini(line)
    desk.script(slow=slow or SAME)
    assert desk.run(*against, "--roofline-rounds=1").ret == status


def test_the_command_line_goes_before_the_ini_in_what_fails(desk):
    against = desk.five_sessions_of_one()
    desk.ini("roofline_fail_on = regressed,inconclusive")
    desk.script(slow=DOUBTFUL)
    assert desk.run(*against).ret == 1
    assert desk.run(*against, "--roofline-fail-on=regressed").ret == 0


def test_the_ini_sets_rounds_and_time(desk):
    desk.one()
    desk.script(slow="skip")
    desk.ini("roofline_rounds = 7", "roofline_time = 2h")
    header = next(line for line in desk.run().stdout.lines if "planned" in line)
    assert "7 rounds" in header
    assert "120 min" in header or "2 h" in header


def test_the_command_line_goes_before_the_gates_own_rounds_and_time(desk):
    desk.one()
    desk.script(slow="skip")
    result = desk.run("--roofline-ci", "--roofline-rounds=3", "--roofline-time=5m")
    header = next(line for line in result.stdout.lines if "planned" in line)
    assert "3 rounds" in header
    assert "5 min" in header


def test_without_being_asked_a_run_starts_no_child_and_says_what_would_decide(desk):
    against = desk.five_sessions_of_one()
    desk.script(slow=DOUBTFUL)
    result = desk.run(*against)
    assert result.ret == 0
    assert "round 2" not in result.stdout.str()
    result.stdout.fnmatch_lines(["INCONCLUSIVE one: may be *; about * processes would decide*--roofline-rounds=*"])


def with_baseline(desk, *, tolerance=None):
    """A baseline of five sessions whose only entry has a tolerance of its own."""
    against = desk.five_sessions_of_one()
    names = [option.partition("=")[2] for option in against]
    answer = desk.cli("baseline", "propose", *names, "-o", "p.json")
    assert answer.exit_code == 0, answer.output
    raw = json.loads((desk.path / "p.json").read_text())
    raw["entries"][0]["tolerance"] = tolerance
    (desk.path / "baselines").mkdir()
    (desk.path / "baselines" / "h100.json").write_text(json.dumps(raw))


def tolerance_of(desk, *options):
    desk.run(*options)
    (judgement,) = desk.last_run().judgements
    return judgement.tolerance


def test_the_tolerance_of_marker_entry_command_line_ini_and_default_go_before_each_other_in_this_order(desk):
    with_baseline(desk, tolerance=0.12)
    desk.ini("roofline_tolerance = 20%")
    assert tolerance_of(desk, "--roofline-tolerance=15%") == 0.12
    desk.one("@pytest.mark.roofline(tolerance=0.10)")
    assert tolerance_of(desk, "--roofline-tolerance=15%") == 0.10
    desk.one()
    raw = json.loads((desk.path / "baselines" / "h100.json").read_text())
    raw["entries"][0]["tolerance"] = None
    (desk.path / "baselines" / "h100.json").write_text(json.dumps(raw))
    assert tolerance_of(desk, "--roofline-tolerance=15%") == 0.15
    assert tolerance_of(desk) == 0.20
    desk.ini()
    assert tolerance_of(desk) == 0.05


def test_what_a_run_could_have_seen_counts_on_no_rounds_that_did_not_run(desk):
    against = desk.five_sessions_of_one()
    desk.script(slow=DOUBTFUL)
    desk.run(*against, "--roofline-rounds=auto", "--roofline-time=0.001s")
    # One process alone could not have turned red.
    assert [judgement.reach for judgement in desk.last_run().judgements] == [None]
