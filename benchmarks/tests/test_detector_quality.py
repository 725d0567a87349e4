"""The page on how good verdicts are: its twin of the rule is the rule, and it counts what it says."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from pytest_roofline.core.verdicts import Group, Reference
from pytest_roofline.stats.analyses import Analyses
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.spread import lend, priors
from pytest_roofline.stats.verdicts import default_analyses, judge, may_be_red, settle

KINDS = {"INCONCLUSIVE": 0, "REGRESSED": 1, "IMPROVED": 2, "PASSED": 3}
PLANS = (Analyses(12), Analyses(5, slow_only=True), Analyses(1), Analyses(5, ended=True))
SHAPES = [(1,), (5,), (1, 1), (1, 1, 1), (1,) * 5, (1,) * 14, (5, 5, 5), (3, 1, 2)]


@pytest.fixture(scope="module")
def lab(program):
    modules = ("drawing", "rows", "twin", "peers")
    return SimpleNamespace(
        detector_quality=program("detector_quality"),
        **{name: program(f"detectors.{name}") for name in modules},
    )


def _groups(logs, shape, *, sitting=False):
    """A baseline as the plugin has it, its sessions each on a day of its own."""
    groups, place = [], 0
    for number, count in enumerate(shape):
        started = (
            f"2026-01-01T{3 + number % 20:02}:00:00Z"
            if sitting
            else f"2026-01-{1 + number:02}T03:00:00Z"
        )
        groups.append(Group(tuple(np.exp(logs[place : place + count]).tolist()), "GPU-0", started))
        place += count
    return tuple(groups)


def _drawn(lab, shape, spreads, tests, seed):
    rng = np.random.default_rng(seed)
    logs, new = lab.drawing.draw(rng, lab.drawing.Setup(spreads, session=0.01), tests, shape)
    new[: tests // 3] += 0.1
    new[tests // 2 :] += 0.05
    new[-1, 1:] += 0.06
    return logs, new


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("spreads", ["calm", "mix"])
@pytest.mark.parametrize("tests", [5, 16])
def test_the_twin_says_what_judge_says(lab, shape, spreads, tests):
    logs, new = _drawn(lab, shape, spreads, tests, 3)
    references = [Reference(_groups(row, shape), "drawn") for row in logs]
    prior = lend(priors()["device"], [reference.groups for reference in references])
    baseline = lab.twin.Baseline(logs, shape, priors()["device"])
    assert default_analyses(references[0], "GPU-0", prior) == lab.twin.default_analyses(baseline)
    for analyses in PLANS:
        for count in range(1, analyses.most + 1):
            seen = lab.twin.look(baseline, new, count, lab.twin.Rule(0.05, analyses))
            for index, reference in enumerate(references):
                group = Group(tuple(np.exp(new[index, :count]).tolist()), "GPU-0")
                verdict = judge([group], reference, Policy(0.05, tests, prior, analyses))
                told = (
                    KINDS[verdict.kind.value],
                    verdict.p_spent,
                    may_be_red(verdict),
                    verdict.futile,
                )
                mine = (
                    seen.kind[index],
                    seen.spent[index],
                    seen.may_be_red[index],
                    seen.futile[index],
                )
                assert mine == pytest.approx(told, rel=1e-6), (analyses, count, index)


@pytest.mark.parametrize("device", ["GPU-0", "GPU-1"])
def test_the_twin_knows_a_sitting_and_another_device(lab, device):
    shape = (1, 1, 1)
    logs, new = _drawn(lab, shape, "calm", 20, 5)
    references = [Reference(_groups(row, shape, sitting=True), "drawn") for row in logs]
    prior = lend(priors()["device"], [reference.groups for reference in references])
    baseline = lab.twin.Baseline(logs, shape, priors()["device"], sitting=True)
    rule = lab.twin.Rule(0.05, Analyses(12), device == "GPU-1")
    for count in (1, 4, 12):
        seen = lab.twin.look(baseline, new, count, rule)
        for index, reference in enumerate(references):
            group = Group(tuple(np.exp(new[index, :count]).tolist()), device)
            verdict = judge([group], reference, Policy(0.05, 20, prior, Analyses(12)))
            assert (seen.kind[index], seen.spent[index]) == pytest.approx(
                (KINDS[verdict.kind.value], verdict.p_spent)
            )


def test_the_twin_settles_as_a_suite_is_settled(lab):
    shape, tests = (5, 5, 5), 30
    logs, new = _drawn(lab, shape, "mix", tests, 7)
    references = [Reference(_groups(row, shape), "drawn") for row in logs]
    prior = lend(priors()["device"], [reference.groups for reference in references])
    policy = Policy(0.05, tests, prior, Analyses(3))
    groups = [Group(tuple(np.exp(row[:3]).tolist()), "GPU-0") for row in new]
    verdicts = {str(i): judge([group], references[i], policy) for i, group in enumerate(groups)}
    settled = settle(verdicts, tests)
    spent = np.array([verdict.p_spent for verdict in verdicts.values()])
    assert lab.twin.adjusted(spent) == pytest.approx(
        [verdict.p_adjusted for verdict in settled.values()]
    )
    assert sum(verdict.kind.value == "REGRESSED" for verdict in settled.values()) >= tests // 3


def test_one_slower_test_is_judged_beside_the_others_as_they_were(lab):
    logs, new = lab.drawing.draw(np.random.default_rng(2), lab.drawing.Setup(), 40, (5, 5, 5))
    baseline = lab.twin.Baseline(logs, (5, 5, 5), priors()["device"])
    rule = lab.twin.Rule(0.05, Analyses(12))
    course = lab.twin.run(baseline, new, rule)
    alone = lab.twin.each_alone(baseline, new, 0.10, rule, course)
    for index in (0, 7, 39):
        slowed = new.copy()
        slowed[index] += np.log(1.10)
        assert lab.twin.run(baseline, slowed, rule).kinds[index] == alone[index]


def test_more_rounds_never_find_less(lab, monkeypatch):
    monkeypatch.setattr(lab.rows, "SLOWED", 0.5)
    plan = lab.rows.Plan(40, 100, 0.05, "device", 3)
    rows = [
        row
        for row in lab.rows.rows()
        if row.group == "rounds" and row.shape == "3 × 5" and row.rounds in ("auto", "3")
    ]
    found = {}
    for row, count in zip(rows, lab.rows.count_all(plan, rows, 1), strict=True):
        tests, red, _ = count.alone[0.08]
        found[row.name, row.rounds] = red / tests
        assert count.red_suites <= 0.15 * count.suites
    for spreads in ("calm", "mix"):
        assert found[spreads, "auto"] >= found[spreads, "3"] - 0.01


def test_what_is_shared_is_taken_out_and_where_nothing_is_nothing(lab):
    rng, shape = np.random.default_rng(4), (5, 5, 5)
    setup = lab.drawing.Setup("calm", session=0.0)
    drawn = [lab.drawing.draw(rng, replace(setup, shared=0.02), 60, shape) for _ in range(20)]
    before = np.mean([np.abs(new.mean(axis=1)).mean() for _, new in drawn])
    after = np.mean(
        [
            np.abs(lab.twin.without_shared(logs, shape, new)[1].mean(axis=1)).mean()
            for logs, new in drawn
        ]
    )
    assert after < before / 3
    for _ in range(20):
        logs, new = lab.drawing.draw(rng, setup, 60, shape)
        assert np.abs(lab.twin.without_shared(logs, shape, new)[1] - new).max() < 0.001


def test_the_page_names_goals_that_are_missed(lab, capsys):
    arguments = [
        "--draws",
        "2",
        "--tests",
        "8",
        "--only",
        "rounds mix 3 × 5",
        "--jobs",
        "1",
        "--json",
    ]
    assert lab.detector_quality.main(arguments) == 0
    told = json.loads(capsys.readouterr().out)
    assert [goal["reached"] for goal in told["goals"] if "found, at least 78 %" in goal["goal"]]


@pytest.mark.parametrize("shape", [(5, 5, 5), (1,) * 14], ids=str)
def test_what_a_run_says_it_would_have_caught_it_catches_eighty_times_in_a_hundred(lab, shape):
    rng, tests, found, told = np.random.default_rng(1), 100, 0, 0
    rule = lab.twin.Rule(0.05, Analyses(12))
    for _ in range(4):
        logs, new = lab.drawing.draw(rng, lab.drawing.Setup("calm"), tests, shape)
        references = [Reference(_groups(row, shape), "drawn") for row in logs]
        policy = Policy(
            0.05, tests, lend(priors()["device"], [one.groups for one in references]), Analyses(12)
        )
        groups = [Group((float(np.exp(row[0])),), "GPU-0") for row in new]
        reach = np.array(
            [
                judge([group], one, policy).reach
                for group, one in zip(groups, references, strict=True)
            ]
        )
        baseline = lab.twin.Baseline(logs, shape, priors()["device"])
        course = lab.twin.run(baseline, new, rule)
        kinds = lab.twin.each_alone(baseline, new + np.log1p(reach)[:, None], 0.0, rule, course)
        found += int(np.sum(kinds == KINDS["REGRESSED"]))
        told += tests
    assert 0.70 <= found / told <= 0.92
