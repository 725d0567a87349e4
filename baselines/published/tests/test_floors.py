"""Floors: what makes one, what makes none, what is taken off, and that every healthy machine passes it."""

import importlib.util
import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_roofline.core.facts import HardwareKey
from pytest_roofline.core.work import Work
from roofline_kernels.work import stream_work

ROOT = Path(__file__).parents[3]
MEMORY, PCIE, NVLINK, MATRIX = 3350.0, 63.0, 450.0, 989.0


@pytest.fixture(scope="module")
def floors(module):
    return module("floors")


@pytest.fixture(scope="module")
def made(floors):
    """The cells of the data in the repository, by product and resource."""
    return {(cell.product, cell.resource.name): cell for cell in floors.cells()}


@pytest.fixture
def record(module):
    """A record of one figure; of different sources unless told otherwise."""
    numbers = itertools.count()

    def make(value, group="", **changes):
        number = next(numbers)
        raw = {
            "product": "h100-sxm5-80gb",
            "resource": "device_memory_kernel",
            "metric": "stream_triad_traffic_GBps",
            "value": value,
            "size_or_shape": "268.4 MB per array",
            "counting_convention": "read + write, 1e9",
            "statistic": "best",
            "setting": "a node",
            "source_url_or_repo_path": f"owner{number}/repository:file",
            "independence_group": group or None,
            "kind": "measured",
            "confidence": "high",
            "healthy": True,
            "citable": True,
            "gpus": 1,
        }
        return module("healthy").of_record(f"test-{number}", raw | changes)

    return make


COPY = {
    "resource": "device_memory_copy",
    "metric": "d2d_copy_traffic_GBps",
    "size_or_shape": "1 GiB",
}
LINK = {
    "resource": "host_h2d_pinned",
    "metric": "h2d_pinned_payload_GBps",
    "size_or_shape": "512 MiB",
}
SWITCH = {"size_or_shape": "512 MiB", "link": "nvlink-switch"}
PEER = {"resource": "peer_one_way", "metric": "p2p_uni_payload_GBps", **SWITCH}
GEMM = {"resource": "gemm_bf16", "metric": "matmul_bf16_TFLOPS", "size_or_shape": "8192^3"}
REDUCE = {
    "resource": "all_reduce_busbw",
    "metric": "all_reduce_busbw_GBps",
    "size_or_shape": "1 GiB, float32",
    "gpus": 8,
}
DOT = {"metric": "stream_dot_traffic_GBps"}


def shares(floors, *records):
    """The share of every cell that has a floor, by resource."""
    return {
        cell.resource.name: cell.share for cell in floors.cells(records) if cell.share is not None
    }


def floor_of(floors, *records):
    found = shares(floors, *records)
    assert len(found) <= 1, found
    return next(iter(found.values()), None)


def test_a_floor_is_the_lowest_of_two_sources_less_the_margin_of_its_method(floors, record):
    rocm = {"product": "mi300x-192gb"}
    cases = [
        ({}, 3000, MEMORY, 0.05),
        (COPY, 2500, MEMORY, 0.08),
        (DOT, 3000, MEMORY, 0.10),
        (LINK, 50, PCIE, 0.20),
        (PEER, 380, NVLINK, 0.10),
        (GEMM, 700, MATRIX, 0.15),
        (REDUCE, 400, NVLINK, 0.10),
        # On ROCm margins are wider for products and links.
        (PEER | rocm, 47, 64, 0.15),
        (GEMM | rocm, 700, 1307.4, 0.25),
        (REDUCE | rocm, 310, 448, 0.10),
    ]
    for what, value, peak, margin in cases:
        two = floor_of(floors, record(value, **what), record(value * 1.02, **what))
        assert two == pytest.approx(value * (1 - margin) / peak, abs=1e-4), what
        one = floor_of(floors, record(value, **what))
        assert one == pytest.approx(value * (1 - margin - 0.05) / peak, abs=1e-4), what


def test_a_source_has_one_figure_which_is_its_lowest(floors, record):
    records = [record(3000, "first"), record(2900, "first"), record(2950, "second")]
    assert floor_of(floors, *records) == pytest.approx(2900 * 0.95 / MEMORY, abs=1e-4)


def test_the_nodes_of_one_cloud_or_vendor_are_one_source(floors, record):
    pairs = [
        ({"setting": "Azure ND H100 v5 VM"}, {"setting": "another Azure node"}),
        ({"source_url_or_repo_path": "ROCm/one:x"}, {"source_url_or_repo_path": "amd/two:y"}),
        (
            {"source_url_or_repo_path": "someone/one:x"},
            {"source_url_or_repo_path": "someone/two:y"},
        ),
        ({"independence_group": "lab"}, {"independence_group": "lab"}),
    ]
    for first, second in pairs:
        found = floor_of(floors, record(3000, **first), record(3000, **second))
        assert found == pytest.approx(0.9 * 3000 / MEMORY, abs=1e-4), first


def test_what_is_in_doubt_or_of_something_else_makes_no_floor(floors, record):
    faults = [
        {"healthy": False}, {"healthy": "unknown"}, {"citable": False}, {"confidence": "recalled"},
        {"confidence": "low"}, {"kind": "threshold"}, {"kind": "derived"}, {"product": "h100-form-unstated"},
        {"product": "h100-sxm5-96gb"}, {"metric": "stream_init_traffic_GBps"},
        {**COPY, "size_or_shape": "68 MB"}, {**LINK, "size_or_shape": "4 MB"},
        {**LINK, "metric": "h2d_sm_copy_payload_GBps"}, {**PEER, "link": "nvlink-bridge"},
        {**PEER, "metric": "p2p_uni_sm_copy_payload_GBps"}, {**REDUCE, "size_or_shape": "128 MiB"},
        {**REDUCE, "gpus": 4}, {**REDUCE, "setting": "Ring algorithm"}, {**GEMM, "size_or_shape": "2048^3"},
    ]  # fmt: skip
    for fault in faults:
        assert floor_of(floors, record(40, **fault), record(40, **fault)) is None, fault


def test_a_product_lends_its_neighbours_no_floor(floors, record):
    cells = [cell for cell in floors.cells([record(3000)]) if cell.share is not None]
    assert [(cell.product, floors.hardware_of(cell).memory) for cell in cells] == [
        ("h100-sxm5-80gb", "80gb")
    ]


def test_a_form_whose_memory_is_left_open_counts_for_the_links_of_both_sizes_only(floors, record):
    either = {"product": "a100-sxm4-size-unstated"}
    cells = [
        cell
        for cell in floors.cells([record(270, **either | PEER), record(1600, **either)])
        if cell.share
    ]
    assert [(cell.product, cell.resource.name) for cell in cells] == [
        ("a100-sxm4-40gb", "peer, one way"),
        ("a100-sxm4-80gb", "peer, one way"),
    ]


def test_the_best_of_several_is_taken_for_less(floors, record):
    best = {**GEMM, "size_or_shape": "1024x9216x14336", "statistic": "best shape, mean of 100"}
    assert floor_of(floors, record(800, **best)) == pytest.approx(0.75 * 800 / MATRIX, abs=1e-4)
    either = {**LINK, "metric": "pinned_copy_best_direction_payload_GBps"}
    expected = pytest.approx(0.7 * 50 / PCIE, abs=1e-4)
    assert shares(floors, record(50, **either)) == {
        "host to device": expected,
        "device to host": expected,
    }


def test_payload_counts_twice_in_memory_and_what_is_given_per_direction_for_both(floors, record):
    payload = {"metric": "local_copy_kernel_payload_GBps", "size_or_shape": "2 GiB"}
    assert floor_of(floors, record(1500, **payload)) == pytest.approx(0.9 * 3000 / MEMORY, abs=1e-4)
    both = {
        "resource": "peer_both_ways",
        "metric": "p2p_bidir_per_dir_payload_GBps",
        "product": "mi300x-192gb",
    }
    found = floor_of(floors, record(46, **both))
    assert found == pytest.approx(0.8 * 92 / 128, abs=1e-4)


def test_no_healthy_figure_lies_below_a_floor_also_of_a_source_without_a_name(floors, record):
    records = [record(3000), record(3010), record(2500, citable=False)]
    assert floor_of(floors, *records) == pytest.approx(2500 / MEMORY, abs=1e-4)


def test_sources_that_contradict_each_other_have_the_margin_of_one(floors, record):
    cell = next(
        cell for cell in floors.cells([record(3000), record(2500)]) if cell.share is not None
    )
    assert cell.contested
    assert cell.share == pytest.approx(0.9 * 2500 / MEMORY, abs=1e-4)


def test_every_machine_passes_the_floors_that_others_made(floors, made):
    assert floors.left_out_one_by_one() == []
    assert all(
        one.rate >= cell.share * cell.peak
        for cell in made.values()
        if cell.share
        for one in cell.witnesses
    )


def test_a_floor_that_leaves_one_out_would_fail_is_told(floors, record, monkeypatch):
    monkeypatch.setattr(floors, "is_contested", lambda _: False)
    (text,) = floors.left_out_one_by_one([record(3000), record(2500)])
    assert text.startswith(
        "h100-sxm5-80gb, memory, by kernels: 2500 (owner1/repository:file) is below 2700"
    )


def test_a_card_or_link_at_half_speed_misses_its_floor(made):
    memory = [
        cell for (_, resource), cell in made.items() if resource.startswith("memory") and cell.share
    ]
    slow = {cell.product for cell in memory if cell.typical / 2 < 0.85 * cell.share * cell.peak}
    assert slow >= {
        "h100-sxm5-80gb", "h100-pcie-80gb", "a100-sxm4-40gb", "a100-sxm4-80gb", "a100-pcie-40gb", "a100-pcie-80gb",
        "mi300x-192gb", "v100-sxm2-16gb", "v100-sxm2-32gb",
    }  # fmt: skip
    links = [cell for cell in made.values() if cell.resource.method == "host link" and cell.share]
    # Width and generation fail by halves.
    assert all(
        max(one.rate for one in cell.witnesses) / 2 < 0.95 * cell.share * cell.peak
        for cell in links
    )
    for product in ("h100-sxm5-80gb", "a100-sxm4-80gb", "mi300x-192gb"):
        cell = made[product, "memory, by kernels"]
        assert len(cell.sources) >= 2
        assert cell.typical / 1.25 < 0.95 * cell.share * cell.peak


def test_nine_of_ten_quick_tests_gate_on_the_first_day(module, found):
    for product in ("h100-sxm5-80gb", "a100-sxm4-80gb", "a100-sxm4-40gb"):
        for gpus in (1, 8):
            gate, count = module("floor_pages").gating(product, found, gpus)
            assert gate >= 0.9 * count, (product, gpus, gate, count)


def test_a_floor_speaks_of_the_measurement_that_its_test_makes(floors, make):
    hardware = HardwareKey("h100-sxm5", "80gb", "none", 1, "none")
    key = make.key(
        benchmark="stream",
        parameters={"operation": "triad"},
        metric="traffic_GBps",
        hardware=hardware,
    )
    (entry,) = [entry for _, entry in floors.entries() if entry.matches(key)]
    assert (entry.kind, entry.figures, entry.unit) == ("floor", 2, "share")
    assert Work(**stream_work("triad", 2**25, 8)).amount(entry.metric) >= entry.from_amount
    partition = replace(hardware, partition="1g.10gb")
    assert not entry.matches(replace(key, hardware=partition))


def test_the_tests_that_are_counted_are_those_of_the_quick_tier(module, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    pages, cells = module("floor_pages"), module("cells")
    counted = {}
    for case in pages.quick_cases("h100-sxm5-80gb", 8):
        counted[case.benchmark] = counted.get(case.benchmark, 0) + case.count
    copies, peers = _suite("test_memcpy"), _suite("test_peer_copy")
    memory = [
        size for size in _quick(copies.test_memcpy_d2d) if 2 * size[0] >= cells.COPY.from_amount
    ]
    link = [one for one in _quick(copies.test_memcpy_h2d) if one[0] >= cells.H2D.from_amount]
    assert (counted["memcpy_d2d"], counted["memcpy_h2d"]) == (len(memory), len(link))
    for name in ("peer_copy_one_way", "peer_copy_both_ways"):
        large = [
            one
            for one in _quick(getattr(peers, f"test_{name}"))
            if one[2] >= cells.ONE_WAY.from_amount
        ]
        # The sweep beyond the matrix is that of the first pair alone, where all links are of one class.
        assert counted[name] == sum(one[2] == peers.LARGE or one[:2] == (0, 1) for one in large)


def _suite(name):
    spec = importlib.util.spec_from_file_location(
        f"suite_{name}", ROOT / "perf_tests" / f"{name}.py"
    )
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def _quick(test):
    """The parameters of a test's cases of the quick tier, of its mark with the most of them."""
    marks = [mark for mark in test.pytestmark if mark.name == "parametrize"]
    cases = max((mark.args[1] for mark in marks), key=len)
    return [
        case.values
        for case in cases
        if any(mark.kwargs.get("tier") == "quick" for mark in case.marks)
    ]
