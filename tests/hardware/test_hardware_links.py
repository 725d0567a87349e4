"""Rooflines of collectives: what the links of a device carry, and what a switch that adds up makes of it."""

import pytest

from pytest_roofline.core.work import Work
from pytest_roofline.hardware import above_peak, collective_ceiling, link_ceiling, products

GIB = 2**30
H200, MI300X = products()["NVIDIA H200"], products()["AMD Instinct MI300X"]


def work(ranks, everywhere=True, size_bytes=GIB):
    """An all_reduce among ranks, or a collective whose factor is half of that."""
    return Work(
        algbw_bytes=size_bytes, busbw_bytes=size_bytes * (1 + everywhere) * (ranks - 1) // ranks
    )


def ceiling(
    make, ranks=8, link="nvlink-switch", product=H200, everywhere=True, metric="busbw_GBps", **told
):
    hardware = make.hardware(devices=ranks, link=link)
    return collective_ceiling(product, hardware, work(ranks, everywhere), metric, **told)


def test_a_collective_is_bounded_by_its_links_and_an_all_reduce_by_what_a_switch_that_adds_up_allows(
    make,
):
    # algbw (n+1)/n is on the wire and busbw is algbw 2(n-1)/n, so busbw is at most 2(n-1)/(n+1) of the links' rate.
    for ranks, everywhere, most in [
        (8, True, 700e9),
        (4, True, 540e9),
        (8, False, None),
        (2, True, None),
    ]:
        found = ceiling(make, ranks, everywhere=everywhere)
        assert (found.metric, found.value, found.limit) == (
            "busbw_GBps",
            450e9,
            most and pytest.approx(most),
        )
    found = ceiling(make)
    # H100s print about 480 GB/s against 450, which is true where the switch adds up.
    assert above_peak(found, work(8), 480e9 / found.value, ()) == ""
    assert above_peak(found, work(8), 715e9 / found.value, ()).startswith(
        "159% of the datasheet's peak (450 GB/s)"
    )
    for size_bytes, bounded in [(16 * 2**20 - 8, False), (16 * 2**20, True)]:
        assert bool(above_peak(found, work(8, size_bytes=size_bytes), 2.0, ())) == bounded
    for product, link, ranks, gbps in [
        *(
            (MI300X, "xgmi", 8, 448),
            (MI300X, "xgmi", 2, 64),
            (H200, "pcie", 4, 63),
            (H200, "nvlink", 4, 450),
        ),
    ]:
        assert ceiling(make, ranks, link, product).value == gbps * 1e9, (link, ranks)


PAYLOAD = "auto_payload_GBps"


def test_a_copy_between_two_devices_is_held_against_their_link_where_a_figure_is_meant(make):
    for product, link, peak in [
        ("NVIDIA H200", "nvlink-switch", "nvlink_GBps"),
        ("NVIDIA H200", "pcie", "pcie_GBps"),
        ("AMD Instinct MI300X", "xgmi", "xgmi_GBps"),
    ]:
        known = products()[product].peaks[peak]
        found = link_ceiling(products()[product], make.hardware(devices=2, link=link), PAYLOAD)
        assert (found.value, found.source, found.origin) == (
            known.value * 1e9,
            "datasheet",
            known.source,
        )
    both = make.hardware(devices=2, link="nvlink-switch")
    found = link_ceiling(H200, both, "bidir_sum_auto_payload_GBps")
    assert (found.value, found.origin.split(":")[0]) == (900e9, "sum of both directions")
    for product, link, devices, metric in [
        *(("NVIDIA H200", link, 2, PAYLOAD) for link in ("staged", "unknown", "mixed")),
        # From GPU to GPU as many links as the board wires carry it, which the key does not tell.
        ("NVIDIA H200", "nvlink", 2, PAYLOAD),
        ("NVIDIA H200", "nvlink-switch", 8, PAYLOAD),
        *(
            ("NVIDIA H200", "nvlink-switch", 2, metric)
            for metric in ("traffic_GBps", "bf16_TFLOPS")
        ),
        ("NVIDIA H20", "pcie", 2, PAYLOAD),
    ]:
        hardware = make.hardware(devices=devices, link=link)
        assert link_ceiling(products().get(product), hardware, metric) is None, (
            product,
            link,
            devices,
            metric,
        )


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


def test_links_that_not_every_board_has_bound_nothing(make):
    # Bridges join some of these boards, two or three links each way; no source tells how many.
    for name, link in [("NVIDIA H100 PCIe", "nvlink"), ("AMD Instinct MI210", "xgmi")]:
        hardware = make.hardware(devices=2, link=link)
        found = collective_ceiling(products()[name], hardware, work(2), "busbw_GBps")
        assert found is None or not found.bounds
        assert link_ceiling(products()[name], hardware, "payload_GBps") is None
