"""What all tests of a session share: taken out of each, and judged once as if they were one."""

from dataclasses import replace

import numpy as np
import pytest

from pytest_roofline.baselines.reasons import reason_text
from pytest_roofline.core.reasons import text_reasons
from pytest_roofline.core.units import format_percent
from pytest_roofline.core.verdicts import Group, Kind, Reference
from pytest_roofline.stats.analyses import Analyses
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.shared import Side, hold_shared, shared_of
from pytest_roofline.stats.spread import priors
from pytest_roofline.stats.stats import growth
from pytest_roofline.stats.verdicts import judge

TESTS, DAYS, PROCESSES = 20, 3, 5
PRIOR = priors()["device"]
# What is over is analysed once.
ONCE = Analyses()


def _sides(*, shared=0.0, today=0.0, new=3, tests=TESTS, days=DAYS, seed=1, canaries=0):
    """Tests of a suite whose days differ by `shared` in all of them, and that are `today` slower."""
    rng = np.random.default_rng(seed)
    day = shared * rng.standard_normal(days)
    sides = {}
    for number in range(tests + canaries):
        logs = 0.003 * rng.standard_normal((days, PROCESSES)) + day[:, None]
        groups = tuple(
            Group(tuple(np.exp(row).tolist()), "GPU-0", f"2026-01-{place:02}T03:00:00Z")
            for place, row in enumerate(logs, 1)
        )
        times = np.exp(today + 0.003 * rng.standard_normal(new))
        sides[f"t{number}"] = Side(
            Group(tuple(times.tolist()), "GPU-0"), Reference(groups, "drawn"), number >= tests
        )
    return sides


def _held(sides, analyses=ONCE):
    return hold_shared(sides, [0.05] * TESTS, ["device"] * TESTS, analyses)


def test_a_slow_day_that_all_tests_share_is_taken_out_of_each():
    sides = _sides(shared=0.02, today=0.03)
    shared, moved = _held(sides)
    assert shared.coefficient == pytest.approx(1.0, abs=0.1)
    assert [reference.shift for reference in moved.values()] == pytest.approx(
        [0.03] * TESTS, abs=0.01
    )
    for name, side in sides.items():
        assert judge([side.new], side.reference, Policy(prior=PRIOR)).kind is not Kind.REGRESSED
        assert judge([side.new], moved[name], Policy(prior=PRIOR)).estimate == pytest.approx(
            0.0, abs=0.02
        )


def test_a_test_that_is_slower_than_the_others_is_found_on_a_day_that_hides_it():
    sides = _sides(shared=0.02, today=-0.04)
    slower = Side(
        Group(tuple(value * 1.08 for value in sides["t0"].new.medians_s), "GPU-0"),
        sides["t0"].reference,
    )
    _, moved = _held(sides | {"t0": slower})
    assert judge([slower.new], moved["t0"], Policy(prior=PRIOR)).kind is Kind.REGRESSED
    assert judge([slower.new], slower.reference, Policy(prior=PRIOR)).kind is not Kind.REGRESSED


def test_where_nothing_is_shared_nothing_is_taken_out():
    for seed in range(20):
        _, moved = _held(_sides(seed=seed))
        assert max(abs(reference.shift) for reference in moved.values()) < 0.002


def test_a_slow_test_on_a_fast_day_is_not_red_while_it_is_no_slower_than_it_was():
    sides = _sides(shared=0.04, today=-0.07, seed=3)
    same = Side(Group((1.0, 1.001, 0.999), "GPU-0"), sides["t0"].reference)
    _, moved = _held(sides | {"t0": same})
    assert moved["t0"].shift < -0.05
    assert judge([same.new], moved["t0"], Policy(prior=PRIOR)).kind is not Kind.REGRESSED


def test_all_tests_together_are_judged_once_and_from_three_processes_on():
    together = _held(_sides(today=0.10))[0].verdict
    assert together.kind is Kind.REGRESSED
    assert growth(together.estimate) == pytest.approx(0.105, abs=0.01)
    # A run is analysed where its plan says so, and by itself after one process and after five.
    for new, analyses, kind in [
        *(
            (3, Analyses(3), Kind.REGRESSED),
            (3, None, Kind.INCONCLUSIVE),
            (5, None, Kind.REGRESSED),
        ),
        (3, Analyses(12), Kind.INCONCLUSIVE),
    ]:
        shared, _ = _held(_sides(today=0.10, new=new), analyses)
        assert shared.verdict.kind is kind, (new, analyses)
    shared, moved = _held(_sides(today=0.10, new=1))
    assert shared.verdict.kind is Kind.INCONCLUSIVE
    # Until that is decided nothing is taken out, so that further rounds are asked for.
    assert {reference.shift for reference in moved.values()} == {0.0}


def test_half_of_the_tests_being_slower_is_no_shift_of_all():
    sides = _sides()
    slow = {
        name: Side(
            Group(tuple(value * 1.2 for value in side.new.medians_s), "GPU-0"), side.reference
        )
        for name, side in list(sides.items())[: TESTS // 2 - 1]
    }
    shared, moved = _held(sides | slow)
    assert shared.verdict.kind is not Kind.REGRESSED
    for name, side in slow.items():
        assert judge([side.new], moved[name], Policy(prior=PRIOR)).kind is Kind.REGRESSED


def test_where_nothing_is_taken_out_each_test_is_red_by_itself_and_all_together_are_not_red_once_more():
    shared = _held(_sides(shared=0.02, today=0.10))[0]
    assert shared.regressed is shared.verdict
    assert replace(shared, coefficient=0.0).regressed is None


def _shown(sides):
    """Return the verdicts as they are shown, and those on each test against its untouched reference."""
    shared, moved = _held(sides)
    policy = Policy(prior=PRIOR)
    left = {name: judge([side.new], moved[name], policy) for name, side in sides.items()}
    alone = {name: judge([side.new], side.reference, policy) for name, side in sides.items()}
    return {name: shared.with_whole_change(verdict) for name, verdict in left.items()}, alone


def test_while_all_together_are_red_each_test_is_shifted_and_shows_its_whole_change():
    sides = _sides(shared=0.02, today=0.10)
    shown, alone = _shown(sides)
    assert {verdict.kind for verdict in shown.values()} == {Kind.SHIFTED}
    for name, verdict in shown.items():
        low, high = verdict.interval
        assert verdict.estimate == pytest.approx(alone[name].estimate, abs=0.02)
        assert verdict.estimate - low == pytest.approx(high - verdict.estimate)
        times = verdict.difference
        assert times.new_s / times.reference_s == pytest.approx(1 + growth(verdict.estimate))
        assert verdict.reference == sides[name].reference
    together = format_percent(growth(_held(sides)[0].regressed.estimate))
    left = format_percent(
        growth(judge([sides["t0"].new], _held(sides)[1]["t0"], Policy(prior=PRIOR)).estimate)
    )
    assert reason_text(shown["t0"]) == (
        f"all 20 tests changed together by {together}; beyond that, this test changed by {left}"
    )


def test_a_test_that_is_slower_than_the_shared_change_stays_red_and_shows_the_whole():
    sides = _sides(shared=0.02, today=0.10)
    slower = Side(
        Group(tuple(value * 1.2 for value in sides["t0"].new.medians_s), "GPU-0"),
        sides["t0"].reference,
    )
    shown, alone = _shown(sides | {"t0": slower})
    assert [verdict.kind for verdict in shown.values()].count(Kind.REGRESSED) == 1
    assert shown["t0"].kind is Kind.REGRESSED
    assert growth(shown["t0"].estimate) == pytest.approx(growth(alone["t0"].estimate), abs=0.03)
    assert reason_text(shown["t0"]).startswith(
        "all 20 tests changed together by +9.4 %; beyond that, this test"
    )


def test_while_all_together_are_not_red_a_verdict_is_shown_as_it_is():
    sides = _sides(shared=0.02, today=0.03)
    shared, moved = _held(sides)
    for name, side in sides.items():
        verdict = judge([side.new], moved[name], Policy(prior=PRIOR))
        assert shared.with_whole_change(verdict) is verdict
    shared, moved = _held(_sides(shared=0.02, today=0.10))
    for verdict in (
        judge([], None, Policy()),
        judge([], moved["t0"], Policy(), invalid=text_reasons("busy")),
    ):
        assert shared.with_whole_change(verdict) is verdict


@pytest.mark.parametrize("few", [{"tests": 1}, {"tests": 3}, {"days": 1}, {"days": 2}], ids=str)
def test_where_few_tests_or_sessions_are_known_a_slowdown_of_all_is_green_in_none(few):
    sides = _sides(shared=0.01, today=0.10, new=5, **few)
    shared, moved = _held(sides)
    assert shared is None
    verdicts = [judge([side.new], moved[name], Policy(prior=PRIOR)) for name, side in sides.items()]
    assert {verdict.kind for verdict in verdicts} <= {Kind.REGRESSED, Kind.INCONCLUSIVE}
    assert all(verdict.looks_slow for verdict in verdicts)


def test_too_few_tests_or_sessions_share_nothing():
    for changed in [{"tests": 3}, {"days": 2}]:
        assert shared_of(_sides(**changed), 0.05, PRIOR, ONCE) is None, changed


def test_canaries_are_members_of_the_median_and_are_not_judged():
    sides = _sides(shared=0.02, today=0.03, tests=1, canaries=3)
    _, moved = hold_shared(sides, [0.05], ["device"], ONCE)
    assert list(moved) == ["t0"]
    assert moved["t0"].shift == pytest.approx(0.03, abs=0.015)


def test_sessions_without_a_date_cannot_be_told_to_be_the_same():
    undated = {
        name: Side(
            side.new,
            Reference(tuple(Group(g.medians_s, g.device) for g in side.reference.groups), "drawn"),
        )
        for name, side in _sides().items()
    }
    assert shared_of(undated, 0.05, PRIOR, ONCE) is None


def test_tests_of_other_days_than_the_rest_do_not_stop_the_estimate():
    first, later = _sides(shared=0.02, today=0.03), _sides(shared=0.02, today=0.03, seed=2)
    for name, side in later.items():
        groups = tuple(
            replace(group, started=group.started.replace("-01-", "-02-"))
            for group in side.reference.groups
        )
        later[name] = replace(side, reference=Reference(groups, "drawn"))
    both = first | {f"later {name}": side for name, side in later.items()}
    shared, moved = hold_shared(both, [0.05] * 2 * TESTS, ["device"] * 2 * TESTS, ONCE)
    assert shared is not None
    assert [reference.shift for reference in moved.values()] == pytest.approx(
        [0.03] * 2 * TESTS, abs=0.02
    )
