"""Rooflines of collectives: what the links of a device carry, and what a switch that adds up makes of it."""

from types import SimpleNamespace

import pytest

from pytest_roofline.core.facts import DeviceFacts
from pytest_roofline.core.work import Work
from pytest_roofline.hardware import above_peak, collective_ceiling, link_ceiling, products

GIB = 2**30
H200, MI300X = products()["NVIDIA H200"], products()["AMD Instinct MI300X"]


def work(ranks, everywhere=True, size_bytes=GIB):
    """An all_reduce among ranks, or a collective whose factor is half of that."""
    return Work(algbw_bytes=size_bytes, busbw_bytes=size_bytes * (1 + everywhere) * (ranks - 1) // ranks)


def ceiling(make, ranks=8, link="nvlink-switch", product=H200, everywhere=True, metric="busbw_GBps", **told):
    hardware = make.hardware(devices=ranks, link=link)
    return collective_ceiling(product, hardware, work(ranks, everywhere), metric, **told)


# algbw (n+1)/n is on the wire and busbw is algbw 2(n-1)/n, so busbw is at most 2(n-1)/(n+1) of the links' rate.
@pytest.mark.parametrize(("ranks", "most"), [(8, 700e9), (4, 540e9)])
def test_an_all_reduce_may_exceed_the_links_as_far_as_a_switch_that_adds_up_allows(make, ranks, most):
    found = ceiling(make, ranks)
    assert (found.metric, found.value, found.limit) == ("busbw_GBps", 450e9, pytest.approx(most))


def test_a_bus_bandwidth_above_the_links_is_believed(make):
    # H100s print about 480 GB/s against 450, which is true where the switch adds up.
    found = ceiling(make)
    assert above_peak(found, work(8), 480e9 / found.value, ()) == ""


def test_beyond_what_the_switch_allows_nothing_is_believed(make):
    found = ceiling(make)
    assert above_peak(found, work(8), 715e9 / found.value, ()).startswith("159% of the datasheet's peak (450 GB/s)")


@pytest.mark.parametrize(("size_bytes", "bounded"), [(16 * 2**20 - 8, False), (16 * 2**20, True)])
def test_a_collective_is_bounded_from_16_mib_up(make, size_bytes, bounded):
    small = work(8, size_bytes=size_bytes)
    assert bounded == bool(above_peak(ceiling(make), small, 2.0, ()))


def test_no_other_collective_gains_by_the_switch(make):
    assert (ceiling(make, everywhere=False).value, ceiling(make, everywhere=False).limit) == (450e9, None)


def test_between_two_the_switch_saves_nothing(make):
    assert (ceiling(make, 2).value, ceiling(make, 2).limit) == (450e9, None)


@pytest.mark.parametrize(
    ("product", "link", "ranks", "gbps"),
    [(MI300X, "xgmi", 8, 448), (MI300X, "xgmi", 2, 64), (H200, "pcie", 4, 63), (H200, "nvlink", 4, 450)],
)
def test_a_collective_is_held_against_the_links_that_there_are(make, product, link, ranks, gbps):
    assert ceiling(make, ranks, link, product).value == gbps * 1e9


def test_without_a_figure_that_is_meant_a_collective_has_no_roofline(make):
    for changes in (
        {"link": "nvlink-switch-2-nodes"},
        {"link": "mixed"},
        {"link": "memory"},
        {"product": None},
        {"metric": "algbw_GBps"},
        {"metric": "time_s"},
        {"ranks": 1},
        # A rank may keep all that it counts.
        {"operation": "all_to_all_v"},
    ):
        assert ceiling(make, **changes) is None, changes


# Bridges join some of these boards, two or three links each way; no source tells how many.
@pytest.mark.parametrize(("name", "link"), [("NVIDIA H100 PCIe", "nvlink"), ("AMD Instinct MI210", "xgmi")])
def test_links_that_not_every_board_has_bound_nothing(make, name, link):
    found = collective_ceiling(products()[name], make.hardware(devices=2, link=link), work(2), "busbw_GBps")
    assert found is None or not found.bounds
    assert link_ceiling(DeviceFacts("cuda", name), make.hardware(devices=2, link=link), "payload_GBps") is None


def test_ranks_record_the_roofline_of_their_links_and_are_held_against_it(make, monkeypatch):
    from pytest_roofline.engine.request import RankOptions, Request
    from pytest_roofline.plugin.over_ranks import _ceiling

    taken = SimpleNamespace(environment=make.environment())
    ranks = RankOptions(8, collective="all_reduce")
    request = Request(work(8), 1.0, timing="isolated", metric="busbw_GBps", ranks=ranks)
    hardware = make.hardware(devices=8, link="nvlink-switch")
    assert _ceiling(request, taken, hardware).value == 450e9
    taken.environment = None
    assert _ceiling(request, taken, hardware) is None
