"""Two sides in turn: what a session and a drift do goes out, and neither modes nor a missing side make a verdict."""

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from pytest_roofline.baselines.reasons import reason_text
from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.verdicts import Kind
from pytest_roofline.stats.paired import TimedProcess, judge_paired, order_of_blocks

TOLERANCE = 0.03


def suite(
    tests,
    blocks,
    *,
    spread=0.01,
    slower=None,
    modes=0.0,
    drift=lambda share: 0.0,
    offset=0.0,
    seed=1,
):
    """Of each test its blocks; `slower` is by test how much longer B takes, in logs."""
    rng, orders = np.random.default_rng(seed), order_of_blocks(blocks, seed)
    total = sum(map(len, orders))
    found = {}
    for test in range(tests):
        places = iter(range(total))
        found[f"test_{test}"] = [
            [
                _process(
                    rng,
                    arm,
                    next(places),
                    total,
                    spread=spread,
                    modes=modes,
                    drift=drift,
                    level=offset + (slower or {}).get(test, 0.0) * (arm == "B"),
                )
                for arm in order
            ]
            for order in orders
        ]
    return found


def _process(rng, arm, at, total, *, spread, modes, drift, level):
    logs = (
        level
        + drift(at / total)
        + spread * rng.standard_normal()
        + math.log(1.06) * (rng.random() < modes)
    )
    return TimedProcess(arm, 1e-3 * math.exp(logs), at)


def judged(tests, most=8, **options):
    return judge_paired(tests, dict.fromkeys(tests, TOLERANCE), most, **options)


def course(tests, most):
    """The verdicts of a run that gives each test another block while it is open, and how many blocks each took."""
    taken = dict.fromkeys(tests, 1)
    while True:
        found = judged({name: blocks[: taken[name]] for name, blocks in tests.items()}, most)
        wanted = [name for name, one in found.items() if one.open]
        if not wanted:
            return found, taken
        for name in wanted:
            taken[name] += 1


def test_a_session_goes_out_and_so_does_a_drift():
    calm = judged(suite(30, 4))
    for moved in (
        suite(30, 4, offset=0.3),
        suite(30, 4, drift=lambda share: 0.1 * share),
    ):
        for name, one in judged(moved).items():
            assert one.verdict.estimate == pytest.approx(calm[name].verdict.estimate, abs=1e-12)
            assert one.verdict.difference.error == pytest.approx(
                calm[name].verdict.difference.error, rel=1e-6
            )


def test_sessions_between_blocks_are_no_difference():
    tests = suite(10, 4)
    shifted = {
        name: [
            [TimedProcess(one.arm, one.seconds * (1 + 0.1 * number), one.place) for one in block]
            for number, block in enumerate(blocks)
        ]
        for name, blocks in tests.items()
    }
    before, after = judged(tests), judged(shifted)
    for name in tests:
        assert after[name].verdict.estimate == pytest.approx(
            before[name].verdict.estimate, abs=1e-12
        )
        assert after[name].verdict.p == pytest.approx(before[name].verdict.p, rel=1e-6)


def test_the_estimate_is_that_of_ordinary_least_squares():
    import statsmodels.api as sm

    blocks = suite(1, 4, slower={0: 0.05}, drift=lambda share: 0.04 * share)["test_0"]
    del blocks[1][1]
    rows = [(number, one) for number, block in enumerate(blocks) for one in block]
    design = np.array(
        [
            [
                *(number == each for each in range(4)),
                one.place,
                one.arm == "control",
                one.arm == "B",
            ]
            for number, one in rows
        ],
        dtype=float,
    )
    fit = sm.OLS([math.log(one.seconds) for _, one in rows], design).fit()
    found = judged({"test": blocks})["test"]
    assert found.verdict.estimate == pytest.approx(fit.params[-1])
    assert found.verdict.difference.error == pytest.approx(fit.bse[-1])
    assert found.verdict.difference.freedom == fit.df_resid
    assert found.control == pytest.approx(fit.params[-2])


def test_a_control_is_told_and_nothing_where_none_ran():
    tests = suite(1, 2)
    assert judged(tests)["test_0"].control is None
    first = tests["test_0"][0]
    first[:] = [replace(one, place=2 * one.place) for one in first]
    first.insert(2, TimedProcess("control", 1.1 * first[0].seconds, 3))
    expected = math.log(first[2].seconds) - np.mean(
        [math.log(one.seconds) for one in first if one.arm == "A"]
    )
    assert judged(tests)["test_0"].control == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("place", [1.5, 2.0, True, None])
def test_a_place_that_is_no_number_in_the_order_of_the_run_is_refused(place):
    """Seconds that jitter by 10 % left blocks of eight sound processes a side just below the eight that red needs."""
    with pytest.raises(BadInput, match=f"place is {place}; expected the number of the process"):
        TimedProcess("A", 1.0, place)


def test_a_block_without_one_side_is_no_evidence():
    tests = suite(9, 4, slower={0: 0.2})
    whole = judged(tests, most=12)
    lame = {
        name: [*blocks, [TimedProcess("B", 9.0, 99), TimedProcess("B", 9.0, 100)]]
        for name, blocks in tests.items()
    }
    for name, one in judged(lame, most=12).items():
        assert one.verdict.p == whole[name].verdict.p
    nothing = judged({"test": [[TimedProcess("A", 1.0, 0), TimedProcess("A", 1.0, 1)], []]})["test"]
    assert (nothing.verdict.kind, nothing.open, nothing.control) == (Kind.INCONCLUSIVE, True, None)
    assert reason_text(nothing.verdict) == "no block has enough processes of both sides"
    assert not judged({"test": [[TimedProcess("A", 1.0, 0)] * 8]})["test"].open
    assert not judged({"test": []}, ended=True)["test"].open


@pytest.mark.parametrize("slow", ["A", "B"])
@pytest.mark.parametrize(("moody", "fewest"), [(200, 4), (20, 8)])
def test_two_modes_make_no_side_slower_where_they_part_by_chance(moody, fewest, slow):
    tests = suite(moody, 2, spread=0.002, modes=0.5) | {
        f"calm_{name}": blocks
        for name, blocks in suite(200 - moody, 2, spread=0.002, seed=2).items()
    }
    for block in tests["test_0"]:
        block[:] = [
            TimedProcess(one.arm, 1.06 if one.arm == slow else 1.0, one.place) for one in block
        ]
    found = judged(tests, most=4)["test_0"].verdict
    assert found.kind in (Kind.INCONCLUSIVE, Kind.PASSED)
    assert found.processes_for_red == fewest
    if fewest == 8 and slow == "B":
        assert reason_text(found).startswith(
            "looks +6.0 % slower, but a red verdict needs 8 processes a side; the change may be "
        )


def test_a_spoiled_process_among_eight_a_side_is_why_nothing_is_red():
    tests = suite(1, 4, slower={0: 0.2})
    block = tests["test_0"][1]
    block.remove(next(one for one in block if one.arm == "A"))
    found = judged(tests, most=8)["test_0"].verdict
    assert (found.kind, found.processes) == (Kind.INCONCLUSIVE, 8)
    assert ", but a red verdict needs 8 sound processes a side; the change may be " in reason_text(
        found
    )


def test_four_a_side_turn_red_where_25_tests_spread_alike():
    assert judged(suite(25, 2, slower={0: 0.06}), most=4)["test_0"].verdict.kind is Kind.REGRESSED
    assert (
        judged(suite(24, 2, slower={0: 0.06}), most=4)["test_0"].verdict.kind is not Kind.REGRESSED
    )


def test_a_run_finds_what_is_slower_early_and_leaves_the_rest():
    red = Counter()
    for seed in range(8):
        found, taken = course(
            suite(40, 6, slower={0: math.log(1.05)}, drift=lambda share: 0.1 * share**2, seed=seed),
            12,
        )
        red.update(name for name, one in found.items() if one.verdict.kind is Kind.REGRESSED)
        assert not any(one.open for one in found.values())
        assert np.mean(list(taken.values())) < 3
    assert red == {"test_0": 8}


def test_what_is_still_open_at_the_end_says_what_would_decide():
    noisy = judged(suite(30, 4, spread=0.06))["test_0"]
    assert noisy.verdict.kind is Kind.INCONCLUSIVE
    assert not noisy.open
    assert reason_text(noisy.verdict).startswith("the change may be -")
    assert "after 8 processes a side; a verdict needs about " in reason_text(noisy.verdict)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_orders_are_balanced_and_a_control_stands_in_a_quarter_of_the_blocks_at_most(seed):
    for blocks in range(13):
        orders = order_of_blocks(blocks, seed)
        assert len(orders) == blocks
        sides = [tuple(arm for arm in order if arm != "control") for order in orders]
        first = Counter(side[0] for side in sides)
        assert set(sides) <= {("A", "B", "B", "A"), ("B", "A", "A", "B")}
        assert abs(first["A"] - first["B"]) <= 1
        assert sum("control" in order for order in orders) == blocks // 4
    assert order_of_blocks(8, seed) == order_of_blocks(8, seed)
    assert len({tuple(order_of_blocks(8, other)) for other in range(20)}) > 10
