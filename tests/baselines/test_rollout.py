"""A staged rollout: what a change does, told apart from what the fleet does by itself; simulated, so all is known."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from pytest_roofline.baselines.rollout import judge_rollout
from pytest_roofline.baselines.runs import Run
from pytest_roofline.core.errors import BadInput
from pytest_roofline.stats.verdicts import Kind

# Standard deviations of log seconds, as `priors.json` has them of devices.
PROCESS, SESSION, DEVICE = 0.01, 0.005, 0.04


class Fleet:
    """Runs of devices whose true times are known, upgraded ones and controls; a node has `per_node` devices."""

    def __init__(self, make, seed=0, *, tests=25, per_node=1, noise=1.0):
        self.make, self.random, self.per_node, self.noise, self.count = (
            make,
            np.random.default_rng(seed),
            per_node,
            noise,
            0,
        )
        self.keys = [make.key(f"copy{index}", parameters={}) for index in range(tests)]
        self.upgraded, self.controls = ([], []), ([], [])

    def add(self, devices, *, to="upgraded", effect=None, drift=0.0, on_device=None):
        """Devices with their runs: `effect` by test and `on_device` by place, as shares of time; `drift` on all."""
        for place in range(devices):
            at = self.random.normal(0, DEVICE, len(self.keys))
            name, node = f"GPU-{self.count}", f"node{self.count // self.per_node}"
            self.count += 1
            slower = np.full(len(self.keys), math.log1p(drift))
            for test, share in [*(effect or {}).items(), *(on_device or {}).get(place, {}).items()]:
                slower[test] += math.log1p(share)
            before, after = getattr(self, to)
            before.append(self.run(name, node, "550.54", at))
            after.append(self.run(name, node, "570.86" if to == "upgraded" else "550.54", at + slower))
        return self

    def run(self, device, node, driver, logs):
        noise = self.random.normal(0, self.noise * math.hypot(SESSION, PROCESS), len(self.keys))
        name = f"run-{self.random.integers(1 << 40)}"
        header = self.make.header(name, driver=driver, uuid=device)
        host = replace(header.environment.host, name=node)
        header = replace(header, environment=replace(header.environment, host=host))
        times = np.exp(math.log(1e-3) + logs + noise)
        measured = tuple(
            self.make.measurement(float(seconds), key=key, process=name)
            for key, seconds in zip(self.keys, times, strict=True)
        )
        return Run(Path(f"{name}.jsonl"), header, measured, tuple(map(self.make.outcome, measured)), None)

    def judged(self, **options):
        return judge_rollout(*self.upgraded, self.controls, **options)


def with_controls(fleet, devices=4, **facts):
    return fleet.add(devices, to="controls", **facts)


def kinds(found):
    return {row.key.benchmark: row.kind for row in found.rows}


def row_of(found, benchmark="copy0"):
    return next(row for row in found.rows if row.key.benchmark == benchmark)


def test_a_slower_test_is_found_among_unchanged_ones_with_four_devices_on_either_side(make):
    found = [with_controls(Fleet(make, seed).add(4, effect={0: 0.08})).judged() for seed in range(15)]
    red = [one for one in found if kinds(one)["copy0"] is Kind.REGRESSED]
    # 19 times in 20 in the long run, as `docs/compare.md` says.
    assert len(red) >= 13
    assert sum(list(kinds(one).values()).count(Kind.REGRESSED) for one in found) - len(red) <= 1
    assert all(one.rows[0].key.benchmark == "copy0" and one.worse for one in red)


@pytest.mark.parametrize(("noise", "per_node"), [(1.0, 1), (5.0, 1), (1.0, 4)])
def test_unchanged_fleets_are_not_called_slower_and_twice_the_tolerance_never_passes(make, noise, per_node):
    # 150 tests; 0.2 % each is what a run of 25 tests is held to.
    fleets = [with_controls(Fleet(make, seed, noise=noise, per_node=per_node).add(4)) for seed in range(6)]
    assert sum(list(kinds(one.judged()).values()).count(Kind.REGRESSED) for one in fleets) <= 2
    slow = with_controls(Fleet(make, 7, noise=noise, per_node=per_node).add(4, effect=dict.fromkeys(range(25), 0.1)))
    assert Kind.PASSED not in kinds(slow.judged()).values()


def test_what_is_exactly_as_slow_as_the_tolerance_hardly_passes(make):
    everywhere = dict.fromkeys(range(25), 0.05)
    found = [with_controls(Fleet(make, seed).add(4, effect=everywhere)).judged() for seed in range(8)]
    # 4 % of 200 tests, and what chance adds to that.
    assert sum(list(kinds(one).values()).count(Kind.PASSED) for one in found) <= 16


def test_a_drift_of_the_whole_fleet_is_not_blamed_on_the_change(make):
    found = with_controls(Fleet(make, 2).add(4, drift=0.1), drift=0.1).judged()
    assert Kind.REGRESSED not in kinds(found).values()
    assert abs(row_of(found).estimate) < 0.04
    assert not found.worse


def test_where_few_noisy_tests_rule_out_what_is_assumed_the_interval_is_welchs(make):
    row = row_of(with_controls(Fleet(make, 4, tests=2, noise=10).add(5, effect={0: 0.3})).judged())
    welch = scipy_stats.ttest_ind(list(row.treated.values()), list(row.controls.values()), equal_var=False)
    assert row.difference.freedom == pytest.approx(welch.df)
    assert row.interval == pytest.approx(tuple(welch.confidence_interval(0.99)))


def test_nodes_are_what_is_counted_where_both_sides_have_two(make):
    many = row_of(with_controls(Fleet(make, 9, tests=2, per_node=2).add(6, effect={0: 0.3}), 4).judged())
    assert ((3, 2), True) == (many.units, many.by_node)
    few = row_of(with_controls(Fleet(make, 9, tests=2, per_node=4).add(4), 4).judged())
    assert ((4, 4), False) == (few.units, few.by_node)


@pytest.mark.parametrize(("tests", "spread"), [(2, "with what is assumed, as fewer than 8"), (25, "prior of 25 tests")])
def test_one_upgraded_device_leans_on_what_is_assumed_or_on_the_other_tests(make, tests, spread):
    found = with_controls(Fleet(make, 6, tests=tests).add(1, effect={0: 0.3})).judged()
    assert kinds(found)["copy0"] is Kind.REGRESSED
    assert spread in found.spread


def test_what_is_open_says_how_many_nodes_would_decide(make):
    found = with_controls(Fleet(make, 3, noise=3).add(4)).judged()
    open_still = [row for row in found.rows if row.kind is Kind.INCONCLUSIVE]
    assert any("nodes on either side would decide" in row.reason for row in open_still)


def test_devices_that_are_controls_as_well_count_as_these(make):
    fleet = with_controls(Fleet(make, 5).add(4, effect={0: 0.08}))
    apart = fleet.judged()
    for mine, theirs in zip(fleet.upgraded, fleet.controls, strict=True):
        mine += theirs
    assert [row.estimate for row in fleet.judged().rows] == [row.estimate for row in apart.rows]


def test_what_devices_lost_or_did_not_come_back_with_bars_a_rollout_but_not_where_controls_lost_it_too(make):
    def failed(runs, count):
        runs[:count] = [replace(run, outcomes=run.outcomes[1:]) for run in runs[:count]]

    fleet = with_controls(Fleet(make, 1, tests=2).add(4))
    failed(fleet.upgraded[1], 1)
    assert {"copy0": [("node0", "GPU-0")]} == fleet.judged().lost
    assert fleet.judged().worse
    failed(fleet.controls[1], 3)
    failed(fleet.controls[1], 4)
    found = fleet.judged()
    assert ({}, False, ("copy0",)) == (found.lost, found.worse, found.uncontrolled)
    del fleet.upgraded[1][0]
    found = fleet.judged()
    assert (("GPU-0",), True) == (found.treated.gone, found.worse)


@pytest.mark.parametrize("empty", ["upgraded", "controls"])
def test_a_side_without_a_device_that_ran_twice_is_refused(make, empty):
    fleet = with_controls(Fleet(make, 1, tests=2).add(4))
    getattr(fleet, empty)[1].clear()
    with pytest.raises(BadInput, match="no test was measured both before and after on one of"):
        fleet.judged()
