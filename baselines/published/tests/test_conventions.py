"""What published figures are in our terms, against values worked out by hand."""

import json
from dataclasses import replace

import pytest

from pytest_roofline.core.errors import BadFile

CSCS = "eth-cscs/cscs-reframe-tests:checks/microbenchmarks/gpu/memory_bandwidth/memory_bandwidth.py"


@pytest.fixture(scope="module")
def entries_of(found):
    """The entries of the published figure with this hardware, metric and value."""

    def entries(hardware, metric, value):
        return [
            one.entry
            for one in found.entries
            if one.figure is not None
            and (one.figure.hardware, one.figure.metric, one.figure.value)
            == (hardware, metric, value)
        ]

    return entries


def test_a_figure_is_converted_as_its_source_counts(entries_of):
    cases = [
        # 13.189 · 2^30 / 10^9 = 14.1616, less 10 %.
        (("V100", "h2d_pinned_payload_GiBps", 13.189), "memcpy_h2d", "pinned_auto_payload_GBps", 12.74542, "mean"),
        (("H200", "h2d_d2h_pinned_payload_GBps_min", 48), "memcpy_h2d", "pinned_auto_payload_GBps", 48, "median"),
        # Counted one way there.
        (("H20-3e", "device_local_copy_payload_GBps", 1100), "memcpy_d2d", "traffic_GBps", 2200, "median"),
        (("A100", "all_reduce_time_us", 35.92), "all_reduce", "time_s", 35.92e-6, "mean"),
        (("MI300X", "h2d_d2h_payload_GBps_min", 45), "memcpy_h2d", "payload_GBps", 45, None),
        (("H200", "dcgm_dram_bw_GBps_min", 2212.5), "stream_large", "traffic_GBps", 2212.5, None),
        (("H100", "p2p_bidir_sum_payload_GBps", 742.2), "peer_copy_both_ways", "bidir_sum_auto_payload_GBps", 742.2,
         None),
        # BabelStream calls scale mul; 268.4 MB are its own 2^25 doubles, as in our small arrays.
        (("MI300X", "stream_mul_traffic_GBps_min", 4067.069), "stream_large", "traffic_GBps", 4067.069, "best"),
        (("A100", "stream_triad_traffic_GBps", 1370.221), "stream", "traffic_GBps", 1370.221, "best"),
    ]  # fmt: skip
    for figure, benchmark, metric, value, statistic in cases:
        entry = entries_of(*figure)[0]
        assert (entry.benchmark, entry.metric) == (benchmark, metric), figure
        assert entry.value == pytest.approx(value, rel=1e-6), figure
        assert statistic is None or entry.statistic == statistic, figure


def test_what_stands_beside_a_figure_is_said(entries_of):
    (entry,) = entries_of("V100", "h2d_pinned_payload_GiBps", 13.189)
    assert entry.parameters == {"size_bytes": 2**30, "memory": "pinned"}
    assert (
        "13.189 GiB/s (printed as GB/s, divided by 2^30) = 14.16 GB/s, less its own tolerance"
        in entry.convention
    )
    assert [one.benchmark for one in entries_of("H200", "h2d_d2h_pinned_payload_GBps_min", 48)] == [
        "memcpy_h2d", "memcpy_d2h",
    ]  # fmt: skip
    (entry,) = entries_of("A100", "d2h_sm_copy_payload_GBps", 6.27)
    assert (
        entry.note == "size not stated; copied by the multiprocessors (SM), ours by the copy engine"
    )
    (entry,) = entries_of("A100", "all_gather_busbw_GBps", 230.07)
    assert entry.parameters == {
        "dtype": "fp32",
        "size_bytes": 2**33,
        "world_size": 8,
        "place": "in_place",
    }
    (entry,) = entries_of("A100", "all_reduce_busbw_GBps", 235.26)
    assert "out of place, ours is not" in entry.note


def test_a_size_is_read_as_its_tool_means_it(module):
    sizes = [
        ("fp32, n=8, 8589934592 B total, in-place", 2**33),
        ("68,000,000 B (bandwidthTest shmoo max)", 68_000_000),
        ("n=8, 32 KiB, nccl-tests -n 50", 2**15),
        ("n=8, 134M (binary sizes printed with decimal suffix)", 2**27),
        ("n=8, 1G (binary sizes printed with decimal suffix)", 2**30),
        ("fp32, all local GPUs, single size 16G", 2**34),
        ("rccl-tests -b 8 -e 8G (mi300x/mi250: at 8 GiB)", 2**33),
        ("p2pBandwidthLatencyTest", None),
        ("1.5 GiB", 3 * 2**29),
        ("160 MB", 160_000_000),
        ("4.88 GB data set", 4_880_000_000),
        ("64 MiB", 2**26),
        ("v1.16G", None),
    ]
    module = module("sizes")
    assert [(text, module.bytes_of(text)) for text, _ in sizes] == sizes
    assert [module.ours(size) for size in (68_000_000, 4_200_000, 100_000)] == [
        2**26,
        2**22,
        100_000,
    ]


def test_a_variant_is_what_is_stated_and_no_more(module):
    cases = [
        ("V100", "PCIe-16GB (NCv3)", "v100-pcie", "16gb", ""),
        (
            "V100",
            "PCIe (inferred), CSCS ault:amdv100",
            None,
            None,
            "variant only inferred from the value",
        ),
        ("V100", "PCIe/SXM2 not stated in file", None, None, "variant not stated"),
        ("A100", "8x SXM4-40GB (NDv4)", "a100-sxm4", "40gb", ""),
        (
            "A100",
            "40GB (2020 system; SXM4/PCIe not stated)",
            None,
            "40gb",
            "SXM4 or PCIe not stated",
        ),
        (
            "A100",
            "40GB (inferred from value), CSCS ault:amda100",
            None,
            None,
            "variant only inferred from the value",
        ),
        ("A100", "8x SXM4", "a100-sxm4", None, "memory size not stated"),
        ("H100", "2x NVL (NC80adis)", "h100-nvl", "94gb", ""),
        ("H100", "8x SXM5, NVLS on", "h100-sxm5", "80gb", ""),
        ("H100", "8x SXM5-80GB, NVLink", "h100-sxm5", "80gb", ""),
        (
            "H100",
            "64 GPUs + SHARP",
            "h100-sxm5",
            "80gb",
            "SXM5 only inferred from how many there are",
        ),
        ("H200", "8x SXM, NVLS on", "h200-sxm", "141gb", ""),
        ("H200", "(233b)", "nvidia-h200-nvl", None, ""),
        ("H100", "PCIe/P1010 (2331)", "h100-pcie", "80gb", ""),
        ("MI250/MI250X (per GCD)", "AMD acceptance", "mi250x-oam", "64gb", ""),
    ]
    for hardware, text, product, memory, doubt in cases:
        found = module("variants").variant_of(hardware, text)
        assert (found.product, found.memory, found.doubt) == (product, memory, doubt), (
            hardware,
            text,
        )


def test_a_record_that_no_rule_knows_is_named_with_its_field(module, tmp_path):
    record = {
        "hardware": "H200", "hardware_variant": "SXM", "metric": "all_reduce_busbw_GBps", "value": 480, "unit": "GB/s",
        "size_or_shape": "n=8, 16 GiB", "counting_convention": "busbw", "source_url_or_repo_path": "somebody",
        "confidence": "high", "kind": "measured",
    }  # fmt: skip
    cases = [
        (
            {"hardware": "V1000"},
            "hardware is 'V1000' of hardware_variant 'SXM', which no rule knows",
        ),
        (
            {"metric": "all_foo_busbw_GBps"},
            "metric is 'all_foo_busbw_GBps'; expected one that begins with all_gather",
        ),
        ({"metric": "l3_GBps"}, "metric is 'l3_GBps', which no rule knows"),
        ({"size_or_shape": "fp32, n=8, 100M"}, "100M is no power of two, nor how one is printed"),
        ({"size_or_shape": None}, "size_or_shape is None; expected str"),
        ({"value": None}, "value is None; expected int | float"),
        ({"value": "5.0/6.0"}, "value is '5.0/6.0'; expected int | float"),
        ({"value": -5}, "value[0] is -5.0; expected a finite number above zero"),
        (
            {"confidence": "sure"},
            "confidence is 'sure'; expected one of high, medium, low, recalled",
        ),
        (
            {"kind": "limit"},
            "kind is 'limit'; expected one of measured, threshold, derived, datasheet_peak",
        ),
    ]
    figures, account = module("figures"), module("entries").account
    path = tmp_path / "figures.json"
    for changes, said in cases:
        path.write_text(json.dumps([record, record | changes]), encoding="utf-8")
        with pytest.raises(BadFile) as caught:
            account(figures.published(path), [], {})
        assert str(caught.value).startswith(f"published-0001: {said}")


def test_a_figure_of_a_document_likewise(module, tmp_path):
    cases = [
        ({"hardware": "A1000"}, "hardware is 'A1000', which no rule knows"),
        ({"document": "a-book"}, "document is 'a-book'; expected one of mi300x-memcpy, "),
        (
            {"benchmark": "knitting"},
            "step_ms of knitting in cs336-report-1 stands in none; expected one table of seeds.TABLES",
        ),
        ({"value": "fast"}, "value 'fast' of step_ms cannot be taken as others of its table are"),
        ({"parameters": {"size": "small", "warmup_steps": 5}}, "parameters lack 'passes'"),
    ]
    figures, account = module("figures"), module("entries").account
    raw = json.loads((figures.HERE / "seed_figures.json").read_text(encoding="utf-8"))
    wanted = {"warmup_steps": 5, "size": "small", "passes": "forward"}
    record = next(
        one
        for one in raw
        if one["document"] == "cs336-report-1" and wanted.items() <= one["parameters"].items()
    )
    path = tmp_path / "figures.json"
    for changes, said in cases:
        path.write_text(json.dumps([record | changes]), encoding="utf-8")
        with pytest.raises(BadFile) as caught:
            account([], figures.told(path))
        assert str(caught.value).startswith(f"document-0000: {said}")


def test_what_a_source_does_not_say_is_called_so(found, module):
    records = {f"document-{number:04}" for number in range(392, 396)}
    failed = [one.entry for one in found.entries if one.record in records]
    assert {(entry.value, entry.convention) for entry in failed} == {("out of memory", "failed")}
    assert all("only that it failed; out of memory is inferred" in entry.note for entry in failed)
    for title in module("figures").documents().values():
        assert (
            title.endswith(" (no address known)")
            or "https://github.com/tensorwavecloud/ScalarLM" in title
        )
    of_tool = [
        one for one in found.entries if one.figure is not None and "p2pBandwidthLatencyTest" in one.figure.size
    ]  # fmt: skip
    assert {one.meaning.apart["size"] for one in of_tool} == {
        "the tool's default is 160 MB, ours are 512 MiB"
    }
    for one in found.entries:
        assert one.entry.source
        assert one.entry.convention
        assert one.entry.provenance == {"made_by": "baselines/published", "record": one.record}


# Of what somebody measured: times ten it cannot be, where the data have a peak of its link or memory.
def test_ten_times_a_published_rate_is_noticed(module, found):
    why = module("flags").why_implausible
    silent = []
    for one in found.entries:
        entry = one.entry
        size, devices = entry.parameters.get("size_bytes", 2**33), entry.hardware.devices
        peaks = one.family in {"a100", "h100", "h200", "mi300x", "mi325x"}
        if one.figure is None or entry.implausible or entry.metric == "time_s" or not peaks:
            continue
        # A small collective is far from any link's rate; beyond a node none is known.
        if (
            size >= 2**24
            and devices is not None
            and devices <= 8
            and not why(one.family, replace(entry, value=10 * entry.value))
        ):
            silent.append((one.record, entry.value))
    assert silent == []
