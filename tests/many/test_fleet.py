"""Which part of a fleet is slow: the highest level that explains it, once; and none is invented."""

import math

import numpy as np
import pandas as pd
import pytest

from pytest_roofline.many.fleet import SlowClass, fleet
from pytest_roofline.many.levels import levels_of
from pytest_roofline.many.text import fleet_text
from pytest_roofline.stats.outliers import qn

SLOW = math.log(1.35)


def only(found):
    (finding,) = found.findings
    return finding


def slow_kinds(finding):
    return {one.kind for one in finding.slow}


def of_gpu(node, gpu, kinds):
    return lambda key, n, g, night: SLOW * ((n, g) == (node, gpu) and key.benchmark in kinds)


def ends(key):
    return {key.parameters.get("source"), key.parameters.get("target")}


def test_the_highest_level_that_explains_what_is_slow_is_named_once(made):
    matmul = made.MATMUL
    cases = [
        ({}, of_gpu(3, 2, ("memcpy_d2d", "stream", "matmul")), ("gpu", "GPU-3-2"), {"memory", "arithmetic"}),
        # What is slow at its host's link alone is a slow link, and without an identity known by host and index.
        ({}, of_gpu(3, 2, ("memcpy_h2d",)), ("link", "GPU-3-2"), {"host link"}),
        ({"uuid": False}, of_gpu(3, 2, ("matmul",)), ("gpu", "node3:2"), {"arithmetic"}),
        ({}, lambda key, n, g, night: SLOW * (n == 5 and key is matmul), ("node", "node5"), {"arithmetic"}),
        ({"links": True}, lambda key, n, g, night: SLOW * (n == 2 and ends(key) == {1, 3}),
         ("link", "node2 GPU 1 – GPU 3"), {"peer link"}),
        ({"links": True}, lambda key, n, g, night: SLOW * (n == 2 and 1 in ends(key)),
         ("gpu", "GPU-2-1"), {"peer link"}),
        ({"links": True}, lambda key, n, g, night: SLOW * (n == 2 and key.benchmark == "peer"),
         ("node", "node2"), {"peer link"}),
    ]  # fmt: skip
    for facts, effect, expected, kinds in cases:
        finding = only(fleet(made.a_fleet(effect=effect, **facts)))
        assert (expected, kinds) == ((finding.level, finding.part), slow_kinds(finding))
        for one in finding.slow:
            assert one.change_low - 0.1 < 0.35 < one.change_high + 0.1
            assert one.runs == (24 if expected[1] == "node5" else 6)
    first = only(fleet(made.a_fleet(effect=cases[0][1])))
    assert ("node3", ("host link",)) == (first.node, first.fine)


def test_what_a_higher_level_does_not_explain_is_named_besides_worst_first(made):
    def parts(effect, **facts):
        return [
            (one.level, one.part) for one in fleet(made.a_fleet(effect=effect, **facts)).findings
        ]

    matmul = made.MATMUL
    besides = parts(
        lambda key, n, g, night: SLOW * (n == 5) * (1 + 2 * (g == 1)) * (key is matmul), nodes=10
    )
    assert {("node", "node5"), ("gpu", "GPU-5-1")} == set(besides)
    two = parts(lambda key, n, g, night: SLOW * (n == 5 and g < 2 and key is matmul))
    assert {("gpu", "GPU-5-0"), ("gpu", "GPU-5-1")} == set(two)
    sizes = {(1, 1): 0.4, (3, 3): 0.6, (5, 2): 0.5}
    three = parts(
        lambda key, n, g, night: sizes.get((n, g), 0.0) * (key is made.COPY or key is made.UPLOAD)
    )
    assert ["GPU-3-3", "GPU-5-2", "GPU-1-1"] == [part for _, part in three]


def test_what_is_alike_everywhere_of_two_camps_or_less_than_the_least_is_no_fault(made):
    everywhere = fleet(
        made.a_fleet(links=True, effect=lambda key, n, g, night: 0.6 * (ends(key) == {0, 3}))
    )
    camps = fleet(made.a_fleet(effect=lambda key, n, g, night: 0.3 * (n % 3 == 0)))
    little = fleet(made.a_fleet(effect=of_gpu(3, 2, ("matmul",))), smallest_slowdown=0.6)
    assert ((), (), ()) == (everywhere.findings, camps.findings, little.findings)
    few = fleet(made.a_fleet(nodes=1, gpus=3, effect=of_gpu(0, 1, ("matmul",))))
    assert ((), [(3, False)]) == (few.findings, [(one.devices, one.judged) for one in few.hardware])


def test_small_copies_do_not_hide_a_link_that_is_slow_for_large_ones(made):
    rng = np.random.default_rng(0)
    runs = made.Runs()
    for night in range(4):
        for node in range(6):
            mine = []
            for a, b in ((0, 1), (1, 0), (0, 2), (2, 0), (1, 2), (2, 1)):
                bad = node == 4 and {a, b} == {0, 1}
                for size, seconds in ((4096, 8e-6), (32768, 8e-6), (2**20, 12e-6), (2**29, 2e-3)):
                    slow = SLOW * (bad and size == 2**29)
                    mine.append(
                        made.measured(
                            made.peer(a, b, size), seconds * math.exp(rng.normal(0, 0.01) + slow)
                        )
                    )
            runs.add(*mine, day=night, node=f"node{node}", uuid=f"GPU-{node}")
    finding = only(fleet(runs.many))
    assert ("link", "node4 GPU 0 – GPU 1", {"peer link"}) == (
        finding.level,
        finding.part,
        slow_kinds(finding),
    )


def test_collectives_of_one_node_are_the_nodes_and_those_over_nodes_nobodys(made):
    runs = made.Runs()
    rng = np.random.default_rng(0)
    for night in range(4):
        for node in range(8):
            seconds = 1e-3 * math.exp(rng.normal(0, 0.01) + SLOW * (node == 3))
            inside = made.measured(made.all_reduce(4), seconds, hosts=[f"node{node}"] * 4)
            across = made.measured(
                made.all_reduce(8), 9e-3, hosts=["node0"] * 4 + [f"node{node}"] * 4
            )
            runs.add(
                inside,
                *([across] if node else []),
                day=night,
                node=f"node{node}",
                uuid=f"GPU-{node}",
            )
    found = fleet(runs.many)
    assert ("node", "node3", {"collectives"}) == (
        only(found).level,
        only(found).part,
        slow_kinds(only(found)),
    )
    assert found.over_several_nodes == 28


def test_nodes_of_cpus_are_nodes(made):
    runs = made.Runs()
    rng = np.random.default_rng(0)
    for night in range(8):
        for node in range(12):
            seconds = 1e-3 * math.exp(rng.normal(0, 0.05) + 1.2 * (node == 3))
            runs.add(
                made.measured(made.COPY, seconds),
                day=night,
                node=f"node{node}",
                uuid=None,
                kind="cpu",
            )
    assert ("node", "node3") == (only(fleet(runs.many)).level, only(fleet(runs.many)).part)


def test_a_node_that_is_slow_in_half_of_its_runs_is_told_so_and_a_cpu_gets_advice_for_cpus(made):
    many = made.a_cpu_fleet(effect=lambda node, night: 0.8 * (node == 30 and night >= 5))
    found = fleet(many)
    (one,) = only(found).slow
    assert one.change_low < 0 < one.change
    text = fleet_text(many, found, found.findings, 100, colour=False)
    assert "node30: memory, sometimes" in text
    assert "in 10 runs, only in some of these runs; roofline history shows since when" in text
    assert "look at: other load, memory channels" in text


def test_what_differs_from_the_others_is_named(made):
    runs = made.Runs()
    rng = np.random.default_rng(0)
    for node in range(10):
        seconds = 1e-3 * math.exp(rng.normal(0, 0.01) + 2 * SLOW * (node == 3))
        driver = "550.54" if node == 3 else "570.86"
        runs.add(
            made.measured(made.COPY, seconds), node=f"node{node}", uuid=f"GPU-{node}", driver=driver
        )
    assert only(fleet(runs.many)).differs == ("driver 550.54 (others 570.86)",)


def test_what_would_have_been_found_is_told_and_is_what_is_found(made):
    clean = fleet(made.a_fleet(nodes=20))
    (part,) = clean.hardware
    assert clean.findings == ()
    reach = math.log1p(part.detectable["gpu"])
    assert 0.1 < reach < 0.4
    effect = lambda key, n, g, night: (reach + 0.1) * ((n, g) == (3, 2) and key is made.MATMUL)  # noqa: E731
    assert [one.part for one in fleet(made.a_fleet(nodes=20, effect=effect)).findings] == [
        "GPU-3-2"
    ]


def test_of_fleets_without_faults_nothing_is_invented():
    rng = np.random.default_rng(3)
    invented = 0
    for _ in range(60):
        nodes, gpus = int(rng.integers(2, 30)), int(rng.integers(2, 9))
        device = rng.normal(0, 0.04, (3, nodes * gpus)).repeat(2)
        count = nodes * gpus
        cells = pd.DataFrame(
            {
                "sort": "gpu",
                "class": np.repeat(["memory", "arithmetic", "host link"], 2 * count),
                "part": np.tile(np.repeat([f"{number:03}" for number in range(count)], 2), 3),
                "node": np.tile(
                    np.repeat([f"{number // gpus:03}" for number in range(count)], 2), 3
                ),
                "first": -1,
                "second": -1,
                "test": 0,
                "excess": device + rng.normal(0, 0.01, 6 * count),
            }
        )
        invented += bool(levels_of(cells, 0.02, 0.04).effects)
    # One in a hundred is allowed: four of sixty would happen by chance in 1 of 300 cases.
    assert invented < 4


def test_the_scale_of_few_is_that_of_normal_values_and_half_of_them_may_be_anything():
    rng = np.random.default_rng(0)
    for count in (4, 9, 10, 40):
        assert np.mean([qn(rng.normal(0, 2, count)) for _ in range(2000)]) == pytest.approx(
            2, rel=0.06
        )
    spoiled = np.concatenate([rng.normal(0, 2, 21), np.full(19, 1e6)])
    assert qn(spoiled) < 20


def test_a_part_with_a_single_run_is_not_called_slow_sometimes():
    once, twice = (SlowClass("memory", 0.3, -0.1, 1.0, 0.001, ("copy",), runs) for runs in (1, 2))
    assert (once.steady, twice.steady) == (True, False)
