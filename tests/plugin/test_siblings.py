"""Siblings over several rounds, and what of them neither a baseline nor another test sees."""

import json

import pytest

from pytest_roofline.cli.drill import report_drill

from ..golden.suites import CARDS, SIBLINGS

LINKS = """
import itertools
import pytest
from pytest_roofline import Work

PAIRS = [(f"cuda:{a}", f"cuda:{b}") for a, b in itertools.permutations(range(5), 2)]


@pytest.mark.roofline(needs="siblings")
def test_links(roofline, spend):
    roofline.measure_siblings(
        lambda: spend(1e-3),
        make_args=lambda source, target: tuple,
        among=PAIRS,
        work=Work(payload_bytes=10**7, wire_bytes=10**7),
        cache="warm",
    )
"""


@pytest.fixture
def machine(desk):
    """Runs the suite on cards that are so much slower each, round by round."""

    def run(*cards, arguments=(), suite=SIBLINGS):
        # The children make a device of torch, which the desk's own stand-in for it lacks.
        text = desk.conftest.replace(
            '{"ROOFLINE_ROUND", "WITHOUT_TORCH"} & set(os.environ)', "False"
        )
        desk.pytester.makeconftest(text[: text.index("@pytest.hookimpl")] + CARDS)
        rounds = [card if isinstance(card, list) else [card] for card in cards]
        (desk.path / "cards.json").write_text(json.dumps(rounds))
        desk.suite(suite)
        return desk.run(*arguments)

    return run


# One process is not enough for 8.5 % among cards that lie so far apart.
APART = (1.0, 1.02, 0.98, 1.01, 0.99, 1.0, 1.03)


def test_one_that_stays_slow_in_further_processes_is_named_and_one_that_was_slow_once_is_not(
    machine, desk
):
    result = machine([1.085, 1.12], *APART, arguments=["--roofline-rounds=4"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED, result.stdout.str()
    result.stdout.fnmatch_lines(["*cuda:0 (GPU-0) is * slower than its 7 siblings*"])
    (named,) = [one for one in desk.last_run().verdicts if one.kind == "REGRESSED"]
    assert (named.subject.name, named.processes > 1) == ("cuda:0", True)
    result = machine([1.085, 1.0], *APART, arguments=["--roofline-rounds=4"])
    assert result.ret == 0, result.stdout.str()
    assert {one.kind for one in desk.last_run().verdicts} == {"PASSED"}


def test_siblings_gate_under_the_profile_for_ci_and_are_compared_with_nothing_else(machine, desk):
    timed = SIBLINGS.replace("work=work, ", "")
    result = machine(1.3, *[1.0] * 7, arguments=["--roofline-ci"], suite=timed)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*cuda:0 (GPU-0) is 30.0 % slower than its 7 siblings (1.30 ms*"])
    assert machine(*[1.0] * 8, arguments=["--roofline-ci", "--roofline-save=one"]).ret == 0
    told = desk.cli("baseline", "propose", desk.run_path("one"), "-o", desk.path / "proposal.json")
    assert told.exit_code != 0
    assert "compared with each other" in told.output
    # All of them are slower than they were, which is what baselines of other tests are for.
    result = machine(*[1.5] * 8, arguments=["--roofline-against=one"])
    assert result.ret == 0, result.stdout.str()
    # Nor does a drill, which slows all alike, ask anything of them.
    assert machine(*[1.0] * 8, arguments=["--roofline-drill=30%", "--roofline-save=drill"]).ret == 0
    assert report_drill(desk.saved("drill"), 0.3, as_json=False) == 2


def test_links_are_held_against_those_of_their_class(machine, desk):
    result = machine(1.0, 1.0, 1.25, 1.0, 1.0, suite=LINKS)
    assert result.ret == pytest.ExitCode.TESTS_FAILED, result.stdout.str()
    result.stdout.fnmatch_lines(
        ["*cuda:2 to cuda:0 (GPU-2 to GPU-0) is 25.0 % slower than its 6 siblings*"]
    )
    named = {one.subject.name for one in desk.last_run().verdicts if one.kind == "REGRESSED"}
    assert named == {f"cuda:2 to cuda:{target}" for target in (0, 1, 3, 4)}
    assert {one.key.hardware.devices for one in desk.last_run().measurements} == {2}


def test_a_saved_run_of_siblings_alone_is_no_recording_that_failed(machine, desk):
    result = machine(*APART, arguments=["--roofline-rounds=2", "--roofline-save=node"])
    assert (result.ret, "No baseline can be made" in result.stdout.str()) == (0, False)
    assert len(desk.saved("node").measurements) >= len(APART)
