from dataclasses import replace

import pytest

from pytest_roofline.core.facts import DeviceFacts, Gpu, HostFacts
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.storage import check_name
from pytest_roofline.core.work import Work
from pytest_roofline.hardware import (
    BOUNDED_FROM_FLOPS,
    Peak,
    above_peak,
    at_generation,
    beyond_belief,
    datasheet_ceiling,
    device_bounds,
    family_of,
    format_ceiling,
    is_arithmetic,
    key_of,
    product_ceiling,
    product_of,
    products,
)

MIB = 2**20
LINK = Work(payload_bytes=64 * MIB, wire_bytes=64 * MIB)
COPY = Work(read_bytes=64 * MIB, write_bytes=64 * MIB, payload_bytes=64 * MIB)
ATTENTION = Work(flops=10**12)


def ceiling(name, work, metric, **facts):
    return datasheet_ceiling(DeviceFacts("cuda", name, **facts), work, metric)


def test_a_rate_is_held_against_the_figure_of_its_kind():
    for name, work, metric, gbps_or_tflops in (
        ("NVIDIA H200", COPY, "triton_traffic_GBps", 4800),
        ("NVIDIA H200", LINK, "payload_GBps", 63),
        ("NVIDIA H200", LINK, "bidir_sum_pinned_auto_payload_GBps", 126),
        ("NVIDIA H200", LINK, "bidir_per_dir_payload_GBps", 63),
        *(("NVIDIA H200", ATTENTION, f"{dtype}_TFLOPS", peak) for dtype, peak in
          (("bf16", 989), ("fp16", 989), ("tf32", 494.5), ("fp32", 67), ("fp8", 1979))),
        # Libraries multiply in full single precision on the matrix units, of which an MI250X has twice as many.
        ("AMD Instinct MI250X", ATTENTION, "fp32_TFLOPS", 47.85),
        # What no datasheet bounds has no roofline; nor has a type that a product has no units for.
        *(("NVIDIA H200", ATTENTION, metric, None)
          for metric in ("TFLOPS", "fp64_TFLOPS", "causal_bf16_TFLOPS", "memory_GBps")),
        ("NVIDIA H200", COPY, "payload_GBps", None),
        ("NVIDIA H200", COPY, "time_s", None),
        ("Tesla V100-SXM2-16GB", ATTENTION, "bf16_TFLOPS", None),
    ):  # fmt: skip
        found = ceiling(name, work, metric)
        expected = gbps_or_tflops and gbps_or_tflops * (1e12 if work is ATTENTION else 1e9)
        assert (found and found.value) == expected, (name, metric)
    peak = products()["NVIDIA H200"].peaks["memory_GBps"]
    assert ceiling("NVIDIA H200", COPY, "traffic_GBps") == Ceiling(
        "traffic_GBps", 4800e9, "datasheet", peak.source, confidence=peak.confidence
    )
    assert ceiling("NVIDIA H200", ATTENTION, "bf16_TFLOPS").metric == "bf16_TFLOPS"


def test_what_the_units_can_do_at_the_highest_clock_is_believed():
    """NVIDIA rates matrix units of an H200 at 1.83 GHz, and lets them run at 1.98 GHz."""
    found = ceiling("NVIDIA H200", ATTENTION, "bf16_TFLOPS")
    assert found.limit == pytest.approx(132 * 1.98e9 * 4096)
    for tflops, believed in [(1070, True), (1090, True), (1100, False)]:
        assert believed == (above_peak(found, ATTENTION, tflops * 1e12 / found.value, ()) == ""), (
            tflops
        )
    # GeForce boards boost beyond the clock that they are rated at, and H100 NVL boards did 977 of 835.5 TFLOP/s.
    for name in ("NVIDIA GeForce RTX 4090", "NVIDIA H100 NVL"):
        found = ceiling(name, ATTENTION, "bf16_TFLOPS")
        assert "not used as a limit" in found.origin
        assert above_peak(found, ATTENTION, 9.0, ()) == ""


def test_a_part_of_a_device_is_seen_by_its_memory_or_its_units_and_has_no_roofline(make):
    mi300x, a100 = "AMD Instinct MI300X", "NVIDIA A100-SXM4-40GB"
    for name, facts, partition in (
        (mi300x, {"memory_bytes": 206_141_652_992}, "none"),
        # In CPX mode it is eight devices of the same name, each with an eighth of the memory.
        (mi300x, {"memory_bytes": 25_752_502_272}, "24gib"),
        (a100, {"memory_bytes": 42_298_834_944, "units": 108}, "none"),
        # The 7g.40gb has all memory.
        (a100, {"memory_bytes": 42_298_834_944, "units": 98}, "98-units"),
    ):
        device = DeviceFacts("cuda", name, **facts)
        assert key_of(replace(make.environment(), device=device)).partition == partition
        assert (datasheet_ceiling(device, COPY, "traffic_GBps") is None) == (partition != "none")


NEAR_MISSES = (
    "NVIDIA H20", "NVIDIA H2", "NVIDIA H200 ", "nvidia h200", "H200", "NVIDIA H200 NVL", "NVIDIA H100", "",
    "NVIDIA H800", "NVIDIA A800-SXM4-80GB", "NVIDIA GH200 480GB", "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
    "AMD Instinct MI300X HF", "AMD Instinct MI308X", "AMD Radeon Graphics", "Tesla V100S-PCIE-32GB",
)  # fmt: skip


def test_a_name_is_never_found_by_a_part_of_it(make):
    for name in NEAR_MISSES:
        device = DeviceFacts("cuda", name, memory_bytes=141 * 2**30)
        assert name not in products()
        assert key_of(make.environment(product=name)) != key_of(make.environment())
        assert datasheet_ceiling(device, COPY, "traffic_GBps") is None


def test_a_device_has_a_family_and_a_key_that_what_it_runs_at_does_not_change(make):
    def key(device):
        return key_of(replace(make.environment(), device=device))

    spec = products()["NVIDIA H200"]
    known = make.hardware(product=spec.product, memory=spec.memory)
    assert key_of(make.environment(), devices=2, link="nvlink") == replace(
        known, devices=2, link="nvlink"
    )
    assert key_of(make.environment()) == known
    for device, expected in [
        (DeviceFacts("cuda", "NVIDIA H20"), make.hardware(product="nvidia-h20", memory="unknown")),
        (
            DeviceFacts("cuda", "NVIDIA H20", memory_bytes=96 * 2**30 - 2**20),
            make.hardware(product="nvidia-h20", memory="96gib"),
        ),
        (
            DeviceFacts(
                "cuda",
                "NVIDIA H200",
                power_limit_w=350.0,
                pcie_generation=3,
                clock_mhz=900.0,
                driver="1",
            ),
            known,
        ),
        (
            DeviceFacts("cuda", "NVIDIA H200", partition="1g.18gb"),
            replace(known, partition="1g.18gb"),
        ),
    ]:
        assert key(device) == expected
    for quota, partition in [
        (None, "4-cores"),
        (1.5, "4-cores-quota-1.5"),
        (2.0, "4-cores-quota-2"),
    ]:
        host = HostFacts(
            "node", "AMD EPYC", 64, 4, 2**40, 24 * 2**30 - 2**20, kernel="6", cgroup_cpus=quota
        )
        cpu = DeviceFacts("cpu", "AMD EPYC", architecture="f26m2")
        expected = make.hardware(product="amd-epyc-f26m2", memory="24gib", partition=partition)
        assert key_of(replace(make.environment(), device=cpu, host=host)) == expected
    assert family_of(DeviceFacts("cuda", "NVIDIA H20")) == "nvidia-h20"
    assert family_of(DeviceFacts("cpu", "NVIDIA H200")) == "cpu"
    for name in ["../../etc/passwd", "a/b", "..", "\x00", "-"]:
        family = family_of(DeviceFacts("cuda", name))
        assert check_name(family, "family") == family, name


PEAK = Ceiling("traffic_GBps", 1e12, "datasheet", "vendor")
MATRIX_PEAK = Ceiling("bf16_TFLOPS", 989e12, "datasheet", "vendor")


def test_a_roofline_is_shown_in_its_unit_and_arithmetic_above_it_cannot_be_true():
    assert [(format_ceiling(c), is_arithmetic(c)) for c in (PEAK, MATRIX_PEAK)] == [
        ("1000 GB/s", False),
        ("989 TFLOP/s", True),
    ]
    # One report of 12,748 TFLOP/s was a tensor whose heads were taken for its sequence.
    assert above_peak(MATRIX_PEAK, ATTENTION, 12748 / 989, ()) == (
        "1289% of the datasheet's peak (989 TFLOP/s): the work was not done, or was counted wrongly"
    )


def test_twenty_times_a_roofline_cannot_be_true_whatever_caches_there_are():
    for roof, amount, seconds, told in [
        (PEAK, 2 * 10**13, 1.0, ""),
        (PEAK, 2.1 * 10**13, 1.0, "21000 GB/s is 21 times the datasheet's peak (1000 GB/s); "),
        (
            replace(PEAK, source="measured"),
            2**30,
            2e-8,
            "53687091 GB/s is 53,687 times the rate measured here (1000 ",
        ),
        (
            MATRIX_PEAK,
            2 * 10**13,
            1e-3,
            "20000 TFLOP/s is 20 times the datasheet's peak (989 TFLOP/s); ",
        ),
        (replace(PEAK, bounds=False), 2.1 * 10**13, 1.0, ""),
    ]:
        found = beyond_belief(roof, amount, seconds)
        assert found.startswith(told), (roof, amount, seconds, told)
        assert bool(found) == bool(told), (roof, amount, seconds, told)
        assert not told or found.endswith(
            "check that `work` is right and that the function does this work"
        )


def test_a_device_is_bounded_by_its_memory_and_its_fastest_arithmetic_whatever_a_metric_names():
    bounds = device_bounds(DeviceFacts("cuda", "NVIDIA H100 80GB HBM3"))
    assert [(one.metric, one.value) for one in bounds] == [
        ("traffic_GBps", 3350e9),
        ("TFLOPS", 1979e12),
    ]
    assert device_bounds(DeviceFacts("cuda", "no such product")) == []


def test_a_rate_is_bounded_by_its_peak_where_the_work_is_enough_and_no_cache_can_help():
    host = Work(payload_bytes=16 * MIB, wire_bytes=1)
    arithmetic = Work(read_bytes=4096, write_bytes=4096, flops=BOUNDED_FROM_FLOPS)
    for roof, work, share, labels, bounded in (
        (MATRIX_PEAK, ATTENTION, 1.02, (), False),
        (MATRIX_PEAK, ATTENTION, 1.03, (), True),
        (MATRIX_PEAK, ATTENTION, 9.0, ("cache_resident",), True),
        (MATRIX_PEAK, arithmetic, 9.0, (), True),
        (MATRIX_PEAK, replace(arithmetic, flops=BOUNDED_FROM_FLOPS - 1), 9.0, (), False),
        (PEAK, arithmetic, 9.0, (), False),
        (PEAK, COPY, 1.02, (), False),
        (PEAK, COPY, 1.03, (), True),
        (PEAK, COPY, 9.0, ("cache_resident",), False),
        (PEAK, host, 9.0, (), True),
        (PEAK, replace(host, payload_bytes=16 * MIB - 1), 9.0, (), False),
        (PEAK, replace(host, wire_bytes=0), 9.0, (), True),
        # A copy is as large as what it copies, not as its traffic.
        (PEAK, Work(read_bytes=16 * MIB - 2, write_bytes=16 * MIB - 2), 9.0, (), False),
        (Ceiling("traffic_GBps", 1e9, "measured", "triad"), COPY, 9.0, (), False),
        (None, COPY, 9.0, (), False),
        (PEAK, COPY, None, (), False),
    ):
        assert bounded == bool(above_peak(roof, work, share, labels)), (roof, work, share, labels)
    assert above_peak(PEAK, COPY, 1.03, ()).startswith("103% of the datasheet's peak (1000 GB/s)")


def test_a_figure_that_nobody_could_look_up_is_shown_and_bounds_nothing():
    for confidence, bounds in [
        ("high", True),
        ("medium", True),
        ("low", False),
        ("recalled", False),
    ]:
        product = replace(
            products()["NVIDIA H200"], peaks={"memory_GBps": Peak(4800, "a table", confidence)}
        )
        found = product_ceiling(product, COPY, "traffic_GBps")
        assert (found.value, found.bounds, found.confidence) == (4.8e12, bounds, confidence), (
            confidence,
            bounds,
        )
        assert bounds == bool(above_peak(found, COPY, 9.0, ())), (confidence, bounds)
        assert bounds == (found.origin == "a table"), (confidence, bounds)


def test_no_figure_is_zero_or_less(make):
    for value in [0, -1]:
        assert (
            f"FILE: value is {value}; expected a finite number above zero; leave out unknown values"
            == make.refusal(Peak(value, "a table", "high"))
        )


def test_a_name_that_several_products_share_is_told_by_what_else_is_known():
    for name, facts, key in [
        ("AMD Instinct MI250X / MI250", {"units": 110}, ("mi250x-oam", "64gb")),
        ("AMD Instinct MI250X / MI250", {"units": 104}, ("mi250-oam", "64gb")),
        ("AMD Instinct MI250X / MI250", {"units": 96}, None),
        (
            "AMD Radeon Graphics",
            {"units": 304, "memory_bytes": 206_141_652_992},
            ("mi300x-oam", "192gb"),
        ),
        (
            "AMD Radeon Graphics",
            {"units": 304, "memory_bytes": 274_861_129_728},
            ("mi325x-oam", "256gb"),
        ),
        ("AMD Radeon Graphics", {"units": 80, "memory_bytes": 206_141_652_992}, None),
        ("AMD Radeon Graphics", {"units": 304}, None),
    ]:
        found = product_of(
            DeviceFacts("cuda", name, architecture="gfx942:sramecc+:xnack-", **facts)
        )
        assert (found and found.key) == key, (name, facts, key)


def test_a_host_of_an_older_generation_has_half_the_link_and_may_still_be_faster_than_it_says():
    for generation, rated, GBps in [
        (5, 5, 63),
        (4, 5, 31.5),
        (3, 5, 15.75),
        (None, 5, 63),
        (4, None, 63),
        (5, 4, 63),
    ]:
        link = Ceiling("payload_GBps", 63e9, "datasheet", "the maker", "high")
        gpu = Gpu(0, "NVIDIA H100", pcie_generation=generation, pcie_generation_rated=rated)
        found = at_generation(link, gpu)
        assert found.value == GBps * 1e9, (generation, rated, GBps)
        work = Work(payload_bytes=2**30, wire_bytes=2**30)
        assert above_peak(found, work, 60e9 / found.value, ()) == "", (generation, rated, GBps)
        assert above_peak(found, work, 70e9 / found.value, ()) != "", (generation, rated, GBps)
