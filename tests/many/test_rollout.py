"""A roll-out: what a change does, told apart from what the fleet does by itself; simulated, so all is known."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats as scipy_stats

from pytest_roofline.baselines.runs import encode_line
from pytest_roofline.core.errors import BadInput
from pytest_roofline.many.files import parse_run
from pytest_roofline.many.rollout import judge_rollout

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
        lines = (header, *measured, *map(self.make.outcome, measured))
        return parse_run("".join(map(encode_line, lines)).encode(), f"{name}.jsonl")

    def judged(self, **options):
        return judge_rollout(*self.upgraded, self.controls, **options)


def with_controls(fleet, devices=4, **facts):
    return fleet.add(devices, to="controls", **facts)


def words(found):
    return {test.row.benchmark: test.row.verdict for test in found.tests}


def reds(found):
    return list(words(found).values()).count("REGRESSED")


def first(found):
    return next(test for test in found.tests if test.row.benchmark == "copy0")


def test_a_slower_test_is_the_first_row_and_a_drift_of_the_whole_fleet_is_no_effect(make):
    found = with_controls(Fleet(make).add(4, effect={0: 0.08})).judged()
    row = found.tests[0].row
    assert (row.benchmark, row.verdict, reds(found), found.has_losses, found.status) == (
        "copy0",
        "REGRESSED",
        1,
        False,
        1,
    )
    assert row.change_low < 0.08 < row.change_high
    assert (row.confidence, row.tolerance, row.time_verdict.p_adjusted <= 0.05) == (
        0.99,
        0.03,
        True,
    )
    # The effect of the first line is that on the slower tests.
    assert row.change == pytest.approx(found.effect.change)
    drifted = with_controls(Fleet(make, 2).add(4, drift=0.1), drift=0.1).judged()
    assert (reds(drifted), drifted.has_losses) == (0, False)
    assert abs(first(drifted).row.change) < 0.04


def test_where_few_noisy_tests_rule_out_what_is_assumed_the_interval_is_welchs(make):
    found = with_controls(Fleet(make, 4, tests=2, noise=10).add(5, effect={0: 0.3})).judged()
    test = first(found)
    welch = scipy_stats.ttest_ind(
        list(test.changes.treated.values()), list(test.changes.controls.values()), equal_var=False
    )
    assert test.row.time_verdict.interval == pytest.approx(tuple(welch.confidence_interval(0.99)))


def test_a_node_counts_once_with_the_mean_of_its_devices(make):
    fleet = with_controls(Fleet(make, 9, tests=2, per_node=2).add(6), 6)
    changes = first(fleet.judged()).changes
    assert ([3, 3], [[*changes.treated], [*changes.controls]]) == (
        [len(changes.treated), len(changes.controls)],
        [["node0", "node1", "node2"], ["node3", "node4", "node5"]],
    )
    alone = [
        first(judge_rollout(*fleet.upgraded, fleet.controls)).changes.treated["node0"],
        np.mean([_change(fleet, device) for device in (0, 1)]),
    ]
    assert alone[0] == pytest.approx(alone[1])


def _change(fleet, device):
    """The change of the first test on an upgraded device."""
    before, after = (side[device].rows[0][-1] for side in fleet.upgraded)
    return math.log(after / before)


def test_fewer_than_three_nodes_in_a_group_cannot_tell_however_slow(make):
    for upgraded, controls in ((2, 6), (6, 2)):
        fleet = with_controls(Fleet(make, 6).add(upgraded, effect={0: 1.0}), controls)
        found = fleet.judged()
        assert (found.tests, found.effect, found.kind, found.status) == (
            (),
            None,
            "INCONCLUSIVE",
            2,
        )


def test_few_tests_lean_on_what_is_assumed_and_many_on_each_other(make):
    for tests, spread in [(2, "with an assumed prior: fewer than 8"), (25, "prior of 25 tests")]:
        found = with_controls(Fleet(make, 6, tests=tests).add(4, effect={0: 0.3})).judged()
        assert (first(found).row.verdict, spread in found.spread) == ("REGRESSED", True)


def test_what_is_open_says_how_many_nodes_would_decide(make):
    found = with_controls(Fleet(make, 3, noise=3).add(4)).judged()
    reasons = [row.reason for row in found.rows if row.verdict == "INCONCLUSIVE"]
    assert any("nodes in each group" in reason for reason in reasons)


def test_nodes_that_are_controls_as_well_count_as_these_and_a_list_tells_the_same_groups(make):
    fleet = with_controls(Fleet(make, 5).add(4, effect={0: 0.08}))
    apart = fleet.judged()
    for mine, theirs in zip(fleet.upgraded, fleet.controls, strict=True):
        mine += theirs
    expected = [test.row.change for test in apart.tests]
    assert expected == [test.row.change for test in fleet.judged().tests]
    changed = {f"node{number}" for number in range(4)}
    listed = judge_rollout(*fleet.upgraded, is_changed=changed.__contains__)
    assert expected == [test.row.change for test in listed.tests]


def without_first_test(runs, count):
    """The runs, of which the first so many lack the first test."""
    return [replace(run, rows=run.rows[1:]) for run in runs[:count]] + runs[count:]


def test_what_nodes_lost_or_did_not_come_back_ends_with_1_but_not_where_controls_lost_it_too(make):
    fleet = with_controls(Fleet(make, 1, tests=2).add(4))
    fleet.upgraded[1][:] = without_first_test(fleet.upgraded[1], 1)
    found = fleet.judged()
    assert ({"copy0": [("node0", "GPU-0")]}, 1) == (found.lost, found.status)
    fleet.controls[1][:] = without_first_test(fleet.controls[1], 3)
    assert fleet.judged().has_losses
    fleet.controls[1][:] = without_first_test(fleet.controls[1][:3], 0) + without_first_test(
        fleet.controls[1][3:], 1
    )
    found = fleet.judged()
    assert ({}, False, ("copy0",)) == (found.lost, found.has_losses, found.without_control)
    del fleet.upgraded[1][0]
    found = fleet.judged()
    assert ((("node0", "GPU-0"),), 1) == (found.treated.gone, found.status)


def test_other_sizes_or_settings_are_not_paired(make):
    fleet = with_controls(Fleet(make, 1, tests=3).add(4))
    fleet.keys[0] = make.key("copy0", parameters={"ranks": 16})
    for number, at in enumerate(fleet.random.normal(0, DEVICE, (4, 3))):
        fleet.upgraded[1][number] = fleet.run(f"GPU-{number}", f"node{number}", "570.86", at)
    found = fleet.judged()
    assert (["copy1", "copy2"], ["copy0"]) == (sorted(words(found)), list(found.lost))


def test_a_side_without_a_node_that_ran_twice_is_refused_and_a_run_on_both_sides(make):
    for empty in ("upgraded", "controls"):
        fleet = with_controls(Fleet(make, 1, tests=2).add(4))
        getattr(fleet, empty)[1].clear()
        with pytest.raises(BadInput, match="no test was measured both before and after on any of"):
            fleet.judged()
    fleet = with_controls(Fleet(make, 1, tests=2).add(4))
    fleet.upgraded[1][0] = fleet.upgraded[0][0]
    with pytest.raises(BadInput, match="is on both sides; name a run from before"):
        fleet.judged()


def test_a_node_that_is_slower_than_its_own_group_is_named_in_either_group(make):
    fleet = Fleet(make, 7, tests=3).add(19).add(1, effect=dict.fromkeys(range(3), 0.25))
    found = with_controls(fleet, 19).add(1, to="controls", effect={1: 0.25}).judged()
    named = {(node.node, node.group) for node in found.slow_nodes}
    assert {("node19", "changed"), ("node39", "control")} == named
    assert all(0.15 < node.change < 0.35 and node.since for node in found.slow_nodes)
    sound = with_controls(Fleet(make, 7, tests=3).add(20), 20).judged()
    assert () == sound.slow_nodes
