"""Which part of a fleet is slow: the highest level that explains it, once; and none is invented."""

import math

import numpy as np
import pandas as pd
import pytest

from pytest_roofline.many.fleet import fleet
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


def test_a_slow_gpu_is_named_with_what_is_slow_and_what_is_not(made):
    finding = only(fleet(made.a_fleet(effect=of_gpu(3, 2, ("memcpy_d2d", "stream", "matmul")))))
    assert ("gpu", "GPU-3-2", "node3") == (finding.level, finding.part, finding.node)
    assert {"memory", "arithmetic"} == slow_kinds(finding)
    assert ("host link",) == finding.fine
    for one in finding.slow:
        assert one.change_low < 0.35 + 0.1
        assert one.change_high > 0.35 - 0.1
        assert one.runs == 6


def test_a_gpu_that_is_slow_only_at_its_host_link_is_a_slow_link(made):
    finding = only(fleet(made.a_fleet(effect=of_gpu(3, 2, ("memcpy_h2d",)))))
    assert ("link", "GPU-3-2", {"host link"}) == (finding.level, finding.part, slow_kinds(finding))


def test_a_slow_node_is_one_finding_and_not_its_gpus(made):
    finding = only(fleet(made.a_fleet(effect=lambda key, n, g, night: SLOW * (n == 5 and key is made.MATMUL))))
    assert ("node", "node5", {"arithmetic"}) == (finding.level, finding.part, slow_kinds(finding))
    assert finding.slow[0].runs == 24


def test_a_gpu_that_is_slower_than_its_slow_node_is_named_besides(made):
    def effect(key, n, g, night):
        return SLOW * (n == 5) * (1 + 2 * (g == 1)) * (key is made.MATMUL)

    found = fleet(made.a_fleet(nodes=10, effect=effect)).findings
    assert {("node", "node5"), ("gpu", "GPU-5-1")} == {(one.level, one.part) for one in found}


def test_two_slow_gpus_of_four_are_no_slow_node(made):
    found = fleet(
        made.a_fleet(effect=lambda key, n, g, night: SLOW * (n == 5 and g < 2 and key is made.MATMUL))
    ).findings
    assert {"GPU-5-0", "GPU-5-1"} == {one.part for one in found}


def test_a_slow_link_is_neither_of_its_gpus(made):
    def effect(key, n, g, night):
        return SLOW * (n == 2 and {key.parameters.get("source"), key.parameters.get("target")} == {1, 3})

    finding = only(fleet(made.a_fleet(links=True, effect=effect)))
    assert ("link", "node2 GPU 1 – GPU 3") == (finding.level, finding.part)
    assert {"peer[1-3-1GiB]", "peer[3-1-1GiB]"} == set(finding.slow[0].tests)


def test_a_gpu_all_of_whose_links_are_slow_is_named_and_not_its_links(made):
    def effect(key, n, g, night):
        return SLOW * (n == 2 and 1 in (key.parameters.get("source"), key.parameters.get("target")))

    finding = only(fleet(made.a_fleet(links=True, effect=effect)))
    assert ("gpu", "GPU-2-1", {"peer link"}) == (finding.level, finding.part, slow_kinds(finding))


def test_a_node_all_of_whose_links_are_slow_is_named(made):
    finding = only(
        fleet(made.a_fleet(links=True, effect=lambda key, n, g, night: SLOW * (n == 2 and key.benchmark == "peer")))
    )
    assert ("node", "node2", {"peer link"}) == (finding.level, finding.part, slow_kinds(finding))


def test_places_that_differ_in_every_node_are_no_fault(made):
    def effect(key, n, g, night):
        return 0.6 * ({key.parameters.get("source"), key.parameters.get("target")} == {0, 3})

    assert fleet(made.a_fleet(links=True, effect=effect)).findings == ()


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
                    mine.append(made.measured(made.peer(a, b, size), seconds * math.exp(rng.normal(0, 0.01) + slow)))
            runs.add(*mine, day=night, node=f"node{node}", uuid=f"GPU-{node}")
    finding = only(fleet(runs.many))
    assert ("link", "node4 GPU 0 – GPU 1", {"peer link"}) == (finding.level, finding.part, slow_kinds(finding))


def test_collectives_of_one_node_are_the_nodes_and_those_over_nodes_nobodys(made):
    runs = made.Runs()
    rng = np.random.default_rng(0)
    for night in range(4):
        for node in range(8):
            seconds = 1e-3 * math.exp(rng.normal(0, 0.01) + SLOW * (node == 3))
            inside = made.measured(made.all_reduce(4), seconds, hosts=[f"node{node}"] * 4)
            across = made.measured(made.all_reduce(8), 9e-3, hosts=["node0"] * 4 + [f"node{node}"] * 4)
            runs.add(inside, *([across] if node else []), day=night, node=f"node{node}", uuid=f"GPU-{node}")
    found = fleet(runs.many)
    assert ("node", "node3", {"collectives"}) == (only(found).level, only(found).part, slow_kinds(only(found)))
    assert found.over_several_nodes == 28


def test_nodes_of_cpus_are_nodes(made):
    runs = made.Runs()
    rng = np.random.default_rng(0)
    for night in range(8):
        for node in range(12):
            seconds = 1e-3 * math.exp(rng.normal(0, 0.05) + 1.2 * (node == 3))
            runs.add(made.measured(made.COPY, seconds), day=night, node=f"node{node}", uuid=None, kind="cpu")
    assert ("node", "node3") == (only(fleet(runs.many)).level, only(fleet(runs.many)).part)


def test_a_node_that_is_slow_in_half_of_its_runs_is_told_so_and_a_cpu_gets_advice_for_cpus(made):
    many = made.a_cpu_fleet(effect=lambda node, night: 0.8 * (node == 30 and night >= 5))
    found = fleet(many)
    (one,) = only(found).slow
    assert one.change_low < 0 < one.change
    text = fleet_text(many, found, found.findings, 100, colour=False)
    assert "node30: memory, sometimes" in text
    assert "in 10 runs, not in all of them; roofline history tells since when" in text
    assert "look at: other load, memory channels" in text


def test_a_device_without_uuid_is_known_by_host_and_index(made):
    finding = only(fleet(made.a_fleet(uuid=False, effect=of_gpu(3, 2, ("matmul",)))))
    assert ("gpu", "node3:2") == (finding.level, finding.part)


def test_a_gpu_that_is_slow_in_some_runs_only_is_told_so(made):
    many = made.a_fleet(
        nights=20, keys=(made.COPY,), effect=lambda key, n, g, night: 0.15 * ((n, g) == (1, 1) and night % 4 == 0)
    )
    finding = only(fleet(many))
    assert (("GPU-1-1", ()), (5, 20)) == (
        (finding.part, finding.slow),
        (finding.sometimes.slow_runs, finding.sometimes.runs),
    )
    assert finding.change == pytest.approx(0.16, abs=0.03)


def test_what_differs_from_the_others_is_named(made):
    runs = made.Runs()
    rng = np.random.default_rng(0)
    for node in range(10):
        seconds = 1e-3 * math.exp(rng.normal(0, 0.01) + 2 * SLOW * (node == 3))
        driver = "550.54" if node == 3 else "570.86"
        runs.add(made.measured(made.COPY, seconds), node=f"node{node}", uuid=f"GPU-{node}", driver=driver)
    assert only(fleet(runs.many)).differs == ("driver 550.54 (others 570.86)",)


def test_worst_first(made):
    def effect(key, n, g, night):
        return {(1, 1): 0.4, (3, 3): 0.6, (5, 2): 0.5}.get((n, g), 0.0) * (key is made.COPY or key is made.UPLOAD)

    parts = [one.part for one in fleet(made.a_fleet(effect=effect)).findings]
    assert parts == ["GPU-3-3", "GPU-5-2", "GPU-1-1"]


def test_of_three_devices_nothing_can_be_said(made):
    found = fleet(made.a_fleet(nodes=1, gpus=3, effect=of_gpu(0, 1, ("matmul",))))
    assert () == found.findings
    assert [(3, False)] == [(one.devices, one.judged) for one in found.hardware]


def test_two_camps_are_no_outliers_of_each_other(made):
    assert fleet(made.a_fleet(effect=lambda key, n, g, night: 0.3 * (n % 3 == 0))).findings == ()


def test_less_than_the_least_is_not_told(made):
    many = made.a_fleet(effect=of_gpu(3, 2, ("matmul",)))
    assert fleet(many, least=0.6).findings == ()


def test_what_would_have_been_found_is_told_and_is_what_is_found(made):
    clean = fleet(made.a_fleet(nodes=20))
    (part,) = clean.hardware
    assert clean.findings == ()
    reach = math.log1p(part.detectable["gpu"])
    assert 0.1 < reach < 0.4
    effect = lambda key, n, g, night: (reach + 0.1) * ((n, g) == (3, 2) and key is made.MATMUL)  # noqa: E731
    assert [one.part for one in fleet(made.a_fleet(nodes=20, effect=effect)).findings] == ["GPU-3-2"]


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
                "node": np.tile(np.repeat([f"{number // gpus:03}" for number in range(count)], 2), 3),
                "first": -1,
                "second": -1,
                "test": 0,
                "excess": device + rng.normal(0, 0.01, 6 * count),
            }
        )
        invented += bool(levels_of(cells, 0.02, 0.04).found)
    # One in a hundred is allowed: four of sixty would happen by chance in 1 of 300 cases.
    assert invented < 4


def test_the_scale_of_few_is_that_of_normal_values_and_half_of_them_may_be_anything():
    rng = np.random.default_rng(0)
    for count in (4, 9, 10, 40):
        assert np.mean([qn(rng.normal(0, 2, count)) for _ in range(2000)]) == pytest.approx(2, rel=0.06)
    spoiled = np.concatenate([rng.normal(0, 2, 21), np.full(19, 1e6)])
    assert qn(spoiled) < 20
