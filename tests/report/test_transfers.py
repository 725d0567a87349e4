"""Matrices of pairs, fans beside the sum of their links, half round trips, and memories compared."""

from dataclasses import replace
from itertools import permutations

import pytest
from rich.cells import cell_len

from pytest_roofline.core.samples import Samples
from pytest_roofline.core.units import MIB
from pytest_roofline.core.work import Work
from pytest_roofline.report.conditions import curve_line
from pytest_roofline.report.transfers import (
    engine_lines,
    fan_lines,
    latency_lines,
    matrix_lines,
    memory_lines,
    path_lines,
    transfer_lines,
)
from pytest_roofline.stats.curves import summarise

SIZE = 100 * MIB
METRIC = "auto_payload_GBps"


@pytest.fixture
def transfer(make):
    """A result of so many GB/s (or seconds) with these parameters."""

    def transfer(gbps=None, *, seconds=None, benchmark="peer_copy_one_way", links=1, **changes):
        size = changes.pop("size_bytes", SIZE)
        hardware = make.hardware(devices=changes.pop("devices", links + 1), link=changes.pop("link", "xgmi"),
                                 **changes.pop("hardware", {}))  # fmt: skip
        known = {"metric": changes.pop("metric", METRIC), "name": changes.pop("name", "")}
        told = {name: changes.pop(name) for name in ("invalid", "samples") if name in changes}
        key = make.key(
            benchmark, parameters=changes | {"size_bytes": size}, hardware=hardware, **known
        )
        payload = links * size
        seconds = seconds or payload / (gbps * 1e9)
        return make.result(
            seconds, known=False, key=key, work=Work(payload_bytes=payload, wire_bytes=size), **told
        )

    return transfer


def rows(lines):
    """The cells of a matrix by its row, without its title, its heading and the rule."""
    cells = [line.split() for line in lines if line.strip()]
    return {line[0]: line[1:] for line in cells if line[0].isdigit()}


@pytest.fixture
def four(transfer):
    """Twelve ordered pairs, whose rates tell which pair it is: 12 GB/s from 1 to 2."""
    return [transfer(10 * s + t + 1, source=s, target=t) for s, t in permutations(range(4), 2)]


def test_a_matrix_has_sources_as_rows_targets_as_columns_and_says_what_is_counted(four):
    lines = matrix_lines(four, 80)
    assert lines[0] == (
        "peer_copy_one_way[100MiB]: GB/s (auto_payload_GBps), link xgmi; rows are sources, columns targets"
    )
    assert lines[1].split() == ["0", "1", "2", "3"]
    assert rows(lines[2:]) == {
        "0": ["2.00", "3.00", "4.00"],
        "1": ["11.0", "13.0", "14.0"],
        "2": ["21.0", "22.0", "24.0"],
        "3": ["31.0", "32.0", "33.0"],
    }
    # Nobody copies to itself, so the diagonal is empty.
    first = next(line for line in lines[2:] if line.strip().startswith("0"))
    assert first[: lines[1].index("0") + 1].split() == ["0"]
    assert [line for line in lines if line != line.rstrip()] == []
    assert matrix_lines(four[::-1], 80) == lines


def test_every_size_and_benchmark_has_a_matrix_and_links_of_another_class_are_named(four, transfer):
    more = [transfer(1, source=s, target=t, size_bytes=4096) for s, t in permutations(range(4), 2)]
    both = [transfer(1, source=s, target=t, benchmark="both") for s, t in permutations(range(3), 2)]
    titles = [
        line.partition(":")[0]
        for line in matrix_lines(four + more + both, 80)
        if "rows are sources" in line
    ]
    assert titles == ["peer_copy_one_way[100MiB]", "peer_copy_one_way[4KiB]", "both[100MiB]"]
    links = {(0, 1): "nvlink", (1, 0): "nvlink", (1, 2): "staged"}
    found = [
        transfer(1, source=s, target=t, link=links.get((s, t), "pcie"))
        for s, t in permutations(range(3), 2)
    ]
    assert "link pcie, nvlink for 0→1, 1→0, staged for 1→2; rows" in matrix_lines(found, 80)[0]


def test_what_is_no_pair_or_of_two_pairs_is_in_no_matrix(transfer):
    assert (
        matrix_lines([transfer(1, source=0, target=1), transfer(1, source=1, target=0)], 80) == []
    )
    for ends in (
        {},
        {"source": 0},
        {"target": 0},
        {"source": "a", "target": "b"},
        {"source": True, "target": False},
    ):
        assert matrix_lines([transfer(1, extra=n, **ends) for n in range(4)], 80) == []
    assert (matrix_lines([], 80), transfer_lines([])) == ([], [])


def test_a_cell_is_empty_or_says_why_it_has_no_rate(four, transfer):
    without = [result for result in four if result.measurement.key.parameters["source"] != 2]
    assert set(rows(matrix_lines(without, 80)[2:])) == {"0", "1", "3"}
    short = Samples((1e-9,), iterations=1, tick_s=1e-9, labels=("unresolved",))
    for facts, shown in (({"invalid": "wrong data"}, "invalid"), ({"samples": short}, "?")):
        found = [transfer(1, source=0, target=1, **facts), *four[1:]]
        assert rows(matrix_lines(found, 80)[2:])["0"][0] == shown


def test_a_matrix_of_many_devices_stays_within_the_terminal(transfer):
    for devices, width in ((8, 40), (16, 80), (20, 40)):
        found = [transfer(123.4, source=s, target=t) for s, t in permutations(range(devices), 2)]
        lines = matrix_lines(found, width)[1:]
        assert max(map(cell_len, lines)) <= width
        assert sum(line.split().count("123") for line in lines) == devices * (devices - 1)


MI300X = {"product": "mi300x-oam", "memory": "192gb"}


@pytest.fixture
def fan(transfer):
    """One to all of eight MI300X at 301 GB/s, and its seven links of 50 GB/s; and what other tests measured."""
    links = [transfer(50, source=0, target=t, hardware=MI300X) for t in range(1, 8)]
    others = [
        transfer(9, source=1, target=0, hardware=MI300X),
        transfer(9, source=0, target=1, size_bytes=4096, hardware=MI300X),
        transfer(9, source=0, target=1, metric="bidir_sum_auto_payload_GBps", hardware=MI300X),
    ]
    return [
        transfer(301, benchmark="peer_copy_one_to_all", source=0, links=7, hardware=MI300X),
        *links,
        *others,
    ]


def test_a_fan_stands_beside_the_sum_of_its_links_as_far_as_it_is_known(fan, transfer):
    assert fan_lines(fan) == [
        "peer_copy_one_to_all[0-100MiB]: 301 GB/s over 7 links at once, 86% of their sum, 350 GB/s "
        "(7 × 50.0 GB/s one by one); rated 7 × 64.0 GB/s"
    ]
    missing = [result for result in fan if result.measurement.key.parameters.get("target") != 3]
    doubted = [
        fan[0],
        replace(fan[1], measurement=replace(fan[1].measurement, invalid="wrong data")),
        *fan[2:],
    ]
    for found in (missing, doubted):
        (line,) = [line for line in transfer_lines(found) if "at once" in line]
        assert (
            "301 GB/s over 7 links at once; 6 of these links were measured one by one, so the sum is unknown"
            in line
        )
    links = [transfer(40, source=s, target=2) for s in (0, 1, 3)]
    out = [transfer(10, source=2, target=t) for t in (0, 1, 3)]
    (line,) = fan_lines([*links, *out, transfer(60, benchmark="all_to_one", target=2, links=3)])
    assert (
        "60.0 GB/s over 3 links at once, 50% of their sum, 120 GB/s (3 × 40.0 GB/s one by one)"
        in line
    )
    # Through a switch all links share what the one device has, and two devices are no fan.
    switched = [transfer(300, benchmark="fan", source=0, links=3, link="nvlink-switch")]
    switched += [transfer(390, source=0, target=t, link="nvlink-switch") for t in (1, 2, 3)]
    (line,) = fan_lines(switched)
    assert ("26% of their sum" in line, "rated" in line) == (True, False)
    assert fan_lines([transfer(1, source=0)]) == []


def test_latency_is_half_the_round_trip_of_the_smallest_message_of_each_way(transfer):
    found = [
        transfer(
            seconds=3e-6 * size / 4096,
            benchmark="mpi",
            pattern="round_trip",
            size_bytes=size,
            link="memory",
        )
        for size in (65536, 4096, 2**20)
    ]
    one_way = transfer(seconds=1e-9, benchmark="mpi", pattern="one_way", size_bytes=4096)
    assert latency_lines([*found, one_way]) == [
        "mpi[round_trip-4KiB]: latency 1.50 µs, half a round trip of 4 KiB"
    ]
    ways = [
        transfer(
            seconds=seconds, benchmark="mpi", pattern="round_trip", memory=memory, size_bytes=4096
        )
        for memory, seconds in (("host", 2e-6), ("device", 8e-6))
    ]
    assert [line.split(" latency ")[1].partition(",")[0] for line in latency_lines(ways)] == [
        "1.00 µs",
        "4.00 µs",
    ]


def test_memories_are_compared_at_the_largest_size_that_they_share(transfer):
    found = [
        transfer(gbps, benchmark="mpi", memory=memory, size_bytes=size)
        for memory, gbps, size in [
            ("host", 10, SIZE), ("device", 40, SIZE), ("staged", 5, SIZE),
            ("host", 1, 4096), ("device", 0.1, 4096), ("host", 99, 2 * SIZE),
        ]
    ]  # fmt: skip
    assert memory_lines(found) == [
        "mpi[host-100MiB]: from other memory device 4.00 × as fast, staged 0.5 × as fast, at 100 MiB"
    ]
    assert (
        memory_lines([transfer(10, memory="host"), transfer(10, memory="host", size_bytes=4096)])
        == []
    )
    # Other patterns are compared among themselves.
    ways = (("host", "one_way"), ("device", "round_trip"))
    assert (
        memory_lines([transfer(10, memory=memory, pattern=pattern) for memory, pattern in ways])
        == []
    )


def test_the_sweep_of_a_link_tells_the_sizes_that_reach_half_and_more_of_its_plateau(transfer):
    # 50 GB/s and a latency of 20 µs: 50, 80 and 90 % are reached at 1, 4 and 9 MB.
    sizes = [2**exponent for exponent in range(12, 31)]
    found = [
        transfer(seconds=20e-6 + size / 50e9, source=0, target=1, size_bytes=size) for size in sizes
    ]
    (curve,) = summarise(result.measurement for result in found)
    assert curve.reached == {"50%": 2**20, "80%": 2**22, "90%": 2**24}
    assert curve.label == "peer_copy_one_way[0-1]"
    assert (
        "(auto_payload_GBps), 50% from 1 MiB, 80% from 4 MiB, 90% from 16 MiB; fits"
        in curve_line(curve)
    )
    assert curve.plateau == pytest.approx(50e9, rel=0.01)
    assert curve.fit.latency_s == pytest.approx(20e-6, rel=0.01)
    assert curve.fit.bandwidth == pytest.approx(50e9, rel=0.01)
    # The two sizes of a matrix are no sweep.
    assert (
        summarise(
            transfer(1, source=1, target=0, size_bytes=size).measurement for size in (4096, SIZE)
        )
        == []
    )


def test_mpi_stands_against_pytorch_at_equal_sizes_with_an_interval_and_the_sizes_from_which_each_is_fast(
    transfer,
):
    sizes = [MIB * 4**power for power in range(5)]

    def sweep(way, *rates, **more):
        known = {
            "benchmark": f"peer_copy_{way}",
            "metric": f"{way}_payload_GBps",
            "pattern": "one_way",
            **more,
        }
        return [
            transfer(gbps, size_bytes=size, **known)
            for size, gbps in zip(sizes, rates, strict=True)
        ]

    gloo, mpi = sweep("gloo", 5, 10, 40, 45, 50), sweep("mpi", 10, 41, 46, 49, 50, memory="host")
    title, _, _, *lines = path_lines([*gloo, *mpi], 80)
    assert title == "MPI against PyTorch from the memory of the host, with a 99 % interval:"
    first = lines[0].split()
    assert first[:7] == ["1", "MiB", "5.00", "GB/s", "10.0", "GB/s", "2.00"]
    low, high = float(first[7][1:]), float(first[9][:-1])
    assert 1 < low < 2 < high < 4
    # Of the slower plateau, 47.5 GB/s.
    assert lines[5:] == [
        "80% of the slower plateau (38.0 GB/s): PyTorch from 16 MiB, MPI from 4 MiB, 4.00 times smaller",
        "90% of the slower plateau (42.8 GB/s): PyTorch from 64 MiB, MPI from 16 MiB, 4.00 times smaller",
    ]
    other = path_lines(
        [*sweep("gloo", 10, 41, 46, 49, 50), *sweep("mpi", 5, 10, 40, 45, 50, memory="host")], 80
    )
    assert other[-2].endswith("PyTorch from 4 MiB, MPI from 16 MiB, 4.00 times larger")
    assert (
        path_lines(gloo, 80) == path_lines(mpi, 80) == path_lines([*gloo[:1], *mpi[1:]], 80) == []
    )


def test_what_a_kernel_copies_stands_beside_what_the_driver_chooses_at_the_largest_size_of_both(
    transfer,
):
    found = [
        transfer(rate, benchmark=f"memcpy_h2d{by}", devices=1, size_bytes=size, **memory)
        for size, rates in ((MIB, (20, 10)), (512 * MIB, (50, 24)))
        for (by, memory), rate in zip(
            (("", {"memory": "pinned"}), ("_triton", {})), rates, strict=True
        )
    ]
    assert engine_lines(found) == [
        "memcpy_h2d[pinned-512MiB]: 50.0 GB/s by the engine that the driver chooses, 24.0 GB/s by "
        "multiprocessors (0.48 ×)"
    ]
    assert engine_lines(found) == transfer_lines(found)
    pageable = transfer(9, benchmark="memcpy_h2d", devices=1, size_bytes=2 * MIB, memory="pageable")
    assert [] == engine_lines(
        [pageable, transfer(9, benchmark="memcpy_h2d_triton", devices=1, size_bytes=2 * MIB)]
    )
