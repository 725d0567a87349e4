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
from pytest_roofline.core.records import Outcome

# Standard deviations of log seconds, as `priors.json` has them of devices.
PROCESS, SESSION, DEVICE = 0.01, 0.005, 0.04


class Fleet:
    """Runs of devices whose true times are known, upgraded ones and controls; a node has `per_node` devices."""

    def __init__(self, make, seed=0, *, tests=25, per_node=1, noise=1.0):
        self.make, self.random = make, np.random.default_rng(seed)
        self.per_node, self.noise, self.count = per_node, noise, 0
        self.keys = [make.key(f"copy{index}", parameters={}) for index in range(tests)]
        self.upgraded, self.controls = ([], []), ([], [])

    def add(self, devices, *, to="upgraded", effect=None, drift=0.0):
        """Devices with their runs: `effect` by test, as a share of time; `drift` on all."""
        for _ in range(devices):
            at = self.random.normal(0, DEVICE, len(self.keys))
            name, node = f"GPU-{self.count}", f"node{self.count // self.per_node}"
            self.count += 1
            slower = np.full(len(self.keys), math.log1p(drift))
            for test, share in (effect or {}).items():
                slower[test] += math.log1p(share)
            before, after = getattr(self, to)
            before.append(self.run(name, node, "550.54", at))
            after.append(
                self.run(name, node, "570.86" if to == "upgraded" else "550.54", at + slower)
            )
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
        return Run(Path(f"{name}.jsonl"), header, (*measured, *map(self.make.outcome, measured)))

    def judged(self, **options):
        return judge_rollout(*self.upgraded, self.controls, **options)


def with_controls(fleet, devices=4, **facts):
    return fleet.add(devices, to="controls", **facts)


def words(found):
    return {row.benchmark: row.verdict for row in found.rows}


def reds(found):
    return list(words(found).values()).count("REGRESSED")


def first(found):
    return next(row for row in found.rows if row.benchmark == "copy0")


def test_a_slower_test_is_the_first_row_and_a_drift_of_the_whole_fleet_is_no_effect(make):
    found = with_controls(Fleet(make).add(4, effect={0: 0.08})).judged()
    row = found.rows[0]
    assert (row.benchmark, row.verdict, reds(found), found.has_losses) == (
        "copy0",
        "REGRESSED",
        1,
        False,
    )
    assert row.change_low < 0.08 < row.change_high
    assert (row.confidence, row.tolerance, row.time_verdict.p_adjusted <= 0.05) == (
        0.99,
        0.05,
        True,
    )
    drifted = with_controls(Fleet(make, 2).add(4, drift=0.1), drift=0.1).judged()
    assert (reds(drifted), drifted.has_losses) == (0, False)
    assert abs(first(drifted).change) < 0.04


def test_where_few_noisy_tests_rule_out_what_is_assumed_the_interval_is_welchs(make):
    found = with_controls(Fleet(make, 4, tests=2, noise=10).add(5, effect={0: 0.3})).judged()
    changes = found.changes_of(first(found))
    welch = scipy_stats.ttest_ind(
        list(changes.treated.values()), list(changes.controls.values()), equal_var=False
    )
    assert first(found).time_verdict.interval == pytest.approx(
        tuple(welch.confidence_interval(0.99))
    )


def test_nodes_are_what_is_counted_where_both_sides_have_two(make):
    for per_node, upgraded, counted in [(2, 6, (3, 2)), (4, 4, (4, 4))]:
        found = with_controls(Fleet(make, 9, tests=2, per_node=per_node).add(upgraded)).judged()
        changes = found.changes_of(first(found))
        assert (tuple(map(len, changes.units)), changes.by_node) == (counted, per_node == 2)


def test_one_upgraded_device_leans_on_what_is_assumed_or_on_the_other_tests(make):
    for tests, spread in [
        (2, "with an assumed prior (fewer than 8"),
        (25, "prior of 25 tests"),
    ]:
        found = with_controls(Fleet(make, 6, tests=tests).add(1, effect={0: 0.3})).judged()
        assert (first(found).verdict, spread in found.spread) == ("REGRESSED", True), found.spread


def test_what_is_open_says_how_many_nodes_would_decide(make):
    found = with_controls(Fleet(make, 3, noise=3).add(4)).judged()
    reasons = [row.reason for row in found.rows if row.verdict == "INCONCLUSIVE"]
    assert any("nodes on either side" in reason for reason in reasons)


def test_devices_that_are_controls_as_well_count_as_these(make):
    fleet = with_controls(Fleet(make, 5).add(4, effect={0: 0.08}))
    apart = fleet.judged()
    for mine, theirs in zip(fleet.upgraded, fleet.controls, strict=True):
        mine += theirs
    assert [row.change for row in fleet.judged().rows] == [row.change for row in apart.rows]


def test_what_devices_lost_or_did_not_come_back_with_bars_a_rollout_but_not_where_controls_lost_it_too(
    make,
):
    def failed(runs, count):
        runs[:count] = [run.with_lines(Outcome, run.outcomes[1:]) for run in runs[:count]]

    fleet = with_controls(Fleet(make, 1, tests=2).add(4))
    failed(fleet.upgraded[1], 1)
    assert {"copy0": [("node0", "GPU-0")]} == fleet.judged().lost
    assert fleet.judged().has_losses
    failed(fleet.controls[1], 3)
    failed(fleet.controls[1], 4)
    found = fleet.judged()
    assert ({}, False, ("copy0",)) == (found.lost, found.has_losses, found.without_control)
    del fleet.upgraded[1][0]
    found = fleet.judged()
    assert (("GPU-0",), True) == (found.treated.gone, found.has_losses)


def test_a_side_without_a_device_that_ran_twice_is_refused(make):
    for empty in ("upgraded", "controls"):
        fleet = with_controls(Fleet(make, 1, tests=2).add(4))
        getattr(fleet, empty)[1].clear()
        with pytest.raises(BadInput, match="no test was measured both before and after on any of"):
            fleet.judged()
