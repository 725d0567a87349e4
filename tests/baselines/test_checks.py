"""What cannot be true in a baseline, or does not say where it comes from: entry, observed, expected, remedy."""

import datetime
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_roofline.baselines.checks import check
from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.baselines.plausible import absurd_entry, absurd_limit
from pytest_roofline.core.entries import Baseline, Session
from pytest_roofline.core.work import Work

MIB = 2**20
NOW = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
# The datasheet of the product that `make` stands for.
PEAK = 4.8e12
GATING = [
    (path, entry)
    for path in sorted((Path(__file__).parents[2] / "baselines").glob("*.json"))
    if path.stem != "resources"
    for entry in read_baseline(path).entries
    if entry.gates and entry.kind == "threshold"
]
PROVENANCE = {"tool": "pytest-roofline 0.1.0", "device": "NVIDIA H200"}


def seconds(share, size_bytes=64 * MIB):
    """The time in which a copy reaches a share of the peak: it reads and writes every byte."""
    return 2 * size_bytes / (share * PEAK)


def copy(make, *shares, size_bytes=64 * MIB, labels=(), **changes):
    """A measured entry of a copy, each of whose sessions reached a share of the peak."""
    sessions = tuple(
        Session(f"run-{number}", "2026-05-01T03:00:00Z", (seconds(share, size_bytes),), "GPU-1", achieved=labels)
        for number, share in enumerate(shares or (0.8,))
    )
    work = Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)
    facts = {"work": work, "sessions": sessions, "provenance": PROVENANCE}
    return make.measured(key=changes.pop("key", make.key(size_bytes=size_bytes)), **(facts | changes))


def flaws(*entries, family="h200", name="h200.json"):
    return check(Path("baselines") / name, Baseline(family, entries), NOW)


def wrong(*entries, **where):
    """What fails a check, as observed and expected."""
    return [f"{flaw.observed}; expected {flaw.expected}" for flaw in flaws(*entries, **where) if not flaw.hint]


def limit(make, value, **changes):
    """A limit that says everything that one must."""
    facts = {"hardware": make.hardware(), "provenance": {"ticket": "42"}}
    return make.published("threshold", value=value, **(facts | changes))


def test_a_sane_baseline_has_no_flaw(make):
    entries = (copy(make), limit(make, 2500.0), copy(make, size_bytes=4096))
    assert flaws(*entries) == []


def test_a_flaw_names_its_entry_and_says_what_to_do(make):
    (flaw,) = flaws(copy(make, provenance={}))
    assert (flaw.entry, flaw.observed, flaw.hint) == ("memcpy_d2d[64MiB]", "no provenance", False)
    assert flaw.remedy == "record it anew with `roofline baseline propose`"


@pytest.mark.parametrize(("share", "sane"), [(1.0, True), (1.09, True), (1.12, False), (2.0, False)])
@pytest.mark.parametrize("place", [0, 1])
def test_nothing_is_much_faster_than_the_datasheet(make, share, sane, place):
    shares = [0.9, 0.9]
    shares[place] = share
    told = f"{share * 4800:.0f} GB/s, {share:.0%} of the highest peak that applies; expected at most 110%"
    assert wrong(copy(make, *shares)) == ([] if sane else [told])


@pytest.mark.parametrize(("share", "sane"), [(0.011, True), (0.009, False)])
def test_nothing_big_is_slower_than_a_hundredth_of_the_datasheet(make, share, sane):
    told = "43.2 GB/s, 0.90% of the lowest peak that applies; expected at least 1% of work that saturates"
    assert wrong(copy(make, share)) == ([] if sane else [told])


@pytest.mark.parametrize(("size_mib", "too_fast", "too_slow"), [(8, 0, 0), (16, 1, 0), (63, 1, 0), (64, 1, 1)])
def test_small_sizes_are_bounded_less(make, size_mib, too_fast, too_slow):
    found = [len(wrong(copy(make, share, size_bytes=size_mib * MIB))) for share in (2.0, 0.005)]
    assert found == [too_fast, too_slow]


def test_what_stayed_in_a_cache_is_not_held_against_the_memory(make):
    assert wrong(copy(make, 3.0, labels=("cache_resident",))) == []


def test_a_slice_of_a_device_may_be_slow_but_never_faster_than_the_whole(make):
    key = make.key(hardware=make.hardware(partition="1g.18gb"))
    assert [len(wrong(copy(make, share, key=key))) for share in (0.005, 2.0)] == [0, 1]


def test_a_pageable_copy_is_the_hosts_work(make):
    work = Work(payload_bytes=256 * MIB, wire_bytes=256 * MIB)
    times = (make.session(256 * MIB / 3e8, run_id="r"),)
    found = {}
    for metric in ("payload_GBps", "pageable_payload_GBps"):
        key = make.key("memcpy_h2d", size_bytes=256 * MIB, metric=metric)
        found[metric] = len(wrong(make.measured(key=key, work=work, sessions=times, provenance=PROVENANCE)))
    assert found == {"payload_GBps": 1, "pageable_payload_GBps": 0}


def arithmetic(make, share, **changes):
    """A measured entry of a product of matrices that reached a share of an H200's 989 TFLOP/s."""
    work = Work(read_bytes=64 * MIB, write_bytes=64 * MIB, payload_bytes=64 * MIB, flops=10**12)
    key = make.key("matmul", size_bytes=64 * MIB, metric=changes.pop("metric", "bf16_TFLOPS"))
    return copy(make, key=key, work=work, sessions=(make.session(1e12 / (share * 989e12), **changes),))


def test_no_arithmetic_is_much_faster_than_the_highest_clock(make):
    assert wrong(arithmetic(make, 1.18)) == []
    assert wrong(arithmetic(make, 1.20)) == [
        "1187 TFLOP/s, 111% of the highest peak that applies; expected at most 110%"
    ]


@pytest.mark.parametrize(
    ("flops", "share", "sane"), [(10**12, 0.001, False), (10**12, 0.02, True), (10**11, 0.001, True)]
)
def test_arithmetic_may_be_slow_but_for_a_product_that_saturates_the_units(make, flops, share, sane):
    work = Work(read_bytes=64 * MIB, write_bytes=64 * MIB, flops=flops)
    key = make.key("matmul", metric="bf16_TFLOPS")
    found = wrong(copy(make, key=key, work=work, sessions=(make.session(flops / (share * 989e12)),)))
    said = ["989 GFLOP/s, 0.10% of the lowest peak that applies; expected at least 1% of work that saturates"]
    assert found == ([] if sane else said)


def test_a_cache_excuses_no_arithmetic_above_the_peak(make):
    assert len(wrong(arithmetic(make, 2.0, achieved=("cache_resident",)))) == 1


def test_arithmetic_of_no_named_type_has_no_peak(make):
    assert wrong(arithmetic(make, 2.0, metric="TFLOPS")) == []


def test_what_computes_much_may_move_little(make):
    work = Work(read_bytes=64 * MIB, write_bytes=64 * MIB, flops=10**13)
    assert wrong(copy(make, 0.05, work=work)) == []


@pytest.mark.parametrize(("product", "highest"), [("prototype-x", "8000"), ("mi999-oam", "6000")])
@pytest.mark.parametrize("share", [0.0001, 0.01, 1.0, 50.0])
def test_an_unknown_product_has_the_widest_bounds_of_its_vendor(make, product, highest, share):
    key = make.key(hardware=make.hardware(product=product, memory="1gb"))
    found = wrong(copy(make, share, key=key), family=product, name=f"{product}.json")
    assert len(found) == (share in (0.0001, 50.0))
    if share == 50.0:
        assert found == [
            f"240000 GB/s, {24e6 / float(highest):.0f}% of the highest peak that applies; expected at most 110%"
        ]


@pytest.mark.parametrize(("seconds", "sane"), [(1e17, False), (1e-17, False), (1e-3, True)])
def test_no_call_of_any_hardware_takes_longer_than_a_day_or_less_than_a_cycle(make, seconds, sane):
    key = make.key(hardware=make.hardware(product="amd-epyc", partition="8-cores"), metric="time_s")
    entry = make.measured(seconds, key=key, work=Work(calls=1), provenance=PROVENANCE)
    assert (wrong(entry, family="cpu", name="cpu.json") == []) == sane


def test_what_stays_in_a_cache_may_be_faster_and_a_doubtful_link_too(make):
    assert absurd_entry(copy(make, 3.0, labels=("cache_resident",))) is None
    host = make.key("memcpy_h2d", metric="payload_GBps", hardware=make.hardware(product="v100-sxm2", memory="32gb"))
    work = Work(payload_bytes=2**30, wire_bytes=2**30)
    # A V100 on a POWER9 host is reached over NVLink.
    assert absurd_entry(make.measured(2**30 / 68e9, key=host, work=work)) is None
    assert absurd_entry(make.measured(2**30 / 680e9, key=host, work=work)) is not None


def pair(make, gbps, metric="payload_GBps", size_bytes=64 * MIB):
    """A measured entry of a copy from one GPU to another over NVLink."""
    key = make.key(
        "peer_copy", size_bytes=size_bytes, metric=metric, hardware=make.hardware(devices=2, link="nvlink-switch")
    )
    work = Work(payload_bytes=size_bytes, wire_bytes=size_bytes)
    return copy(make, key=key, work=work, sessions=(make.session(size_bytes / (gbps * 1e9)),))


@pytest.mark.parametrize(
    ("gbps", "size_bytes", "said"),
    [
        (490, 64 * MIB, []),
        (500, 64 * MIB, ["500 GB/s, 111% of the highest peak that applies; expected at most 110%"]),
        (500, 16 * MIB - 1, []),
        (
            4,
            64 * MIB,
            ["4.00 GB/s, 0.89% of the lowest peak that applies; expected at least 1% of work that saturates"],
        ),
        (4, 32 * MIB, []),
    ],
)
def test_a_copy_between_two_devices_is_bounded_by_their_link(make, gbps, size_bytes, said):
    assert wrong(pair(make, gbps, size_bytes=size_bytes)) == said


def all_reduce(make, busbw_gbps, ranks=8, benchmark="all_reduce", factor=2):
    size_bytes = 2**30
    bus_bytes = size_bytes * factor * (ranks - 1) // ranks
    hardware = make.hardware(devices=ranks, link="nvlink-switch")
    key = make.key(benchmark, size_bytes=size_bytes, metric="busbw_GBps", hardware=hardware)
    session = make.session(bus_bytes / (busbw_gbps * 1e9))
    return copy(make, key=key, work=Work(algbw_bytes=size_bytes, busbw_bytes=bus_bytes), sessions=(session,))


# Eight GPUs whose links carry 450 GB/s one way; a switch that adds up lets the bus bandwidth reach 14/9 of it.
@pytest.mark.parametrize(("gbps", "sane"), [(480, True), (800, False)])
def test_the_bus_bandwidth_of_an_all_reduce_is_bounded_by_what_a_switch_carries(make, gbps, sane):
    assert sane == (wrong(all_reduce(make, gbps)) == [])


@pytest.mark.parametrize(("operation", "sane"), [("all_gather", False), ("all_to_all_v", True)])
def test_other_collectives_are_bounded_by_their_links_but_for_uneven_ones(make, operation, sane):
    assert sane == (wrong(all_reduce(make, 520, benchmark=operation, factor=1)) == [])


def test_several_devices_together_have_no_datasheet(make):
    assert wrong(copy(make, 1.5, key=make.key(hardware=make.hardware(devices=2)))) == []


def test_no_key_of_the_provenance_switches_a_check_off(make):
    provenance = PROVENANCE | {"made_by": "baselines/published", "imported": "yes"}
    assert len(wrong(copy(make, 2.0, provenance=provenance))) == 1


SLOW = {"benchmark": "memcpy_h2d", "metric": "payload_GBps", "value": 4.8}


@pytest.mark.parametrize("field", ["product", "memory", "partition"])
@pytest.mark.parametrize("note", ["", "meant so"])
def test_a_limit_names_the_exact_variant(make, field, note):
    entry = limit(make, 2500.0, hardware=replace(make.hardware(), **{field: None}), note=note)
    assert wrong(entry) == [
        f"a limit for any {field}; expected the exact variant, such as product h100-sxm5, memory 80gb, partition none"
    ]


def test_a_limit_in_another_unit_is_told_by_its_peak(make):
    said = "a limit of 52083% of the highest peak that applies; expected less than 1000%"
    assert [wrong(limit(make, value)) for value in (2500.0, 2.5e6)] == [[], [said]]
    assert len(wrong(limit(make, **(SLOW | {"value": 55e3})))) == 1
    assert [wrong(entry) for path, entry in GATING if absurd_limit(entry)] == []


def test_a_limit_that_nobody_vouches_for_is_pointed_at(make):
    (flaw,) = flaws(limit(make, 2500.0, provenance={"ticket": " "}))
    assert (flaw.observed, flaw.hint) == ("no provenance", True)


@pytest.mark.parametrize("field", ["unit", "convention", "source"])
def test_a_published_figure_says_what_it_means(make, field):
    entry = make.published("reference", metric="latency", hardware=make.hardware(), **{field: " "})
    assert wrong(entry) == [f"no {field}; expected unit, convention and source"]


def test_a_published_figure_for_any_product_is_pointed_at(make):
    (flaw,) = flaws(make.published("reference", value=2500.0))
    assert (flaw.observed, flaw.hint) == ("no product", True)


def test_a_measured_metric_says_how_bytes_were_counted(make):
    key = make.key(metric="bandwidth")
    assert wrong(copy(make, key=key)) == [
        "metric 'bandwidth'; expected a name that ends in "
        "traffic_GBps, payload_GBps, algbw_GBps, busbw_GBps, wirebw_GBps, TFLOPS, or time_s"
    ]
    assert wrong(copy(make, key=make.key(metric="time_s"))) == []


@pytest.mark.parametrize(("factor", "sane"), [(2.9, True), (3.1, False)])
def test_processes_of_one_entry_do_not_differ_threefold(make, factor, sane):
    entry = copy(make, size_bytes=4096, sessions=(make.session(1e-6, factor * 1e-6),))
    assert wrong(entry) == ([] if sane else ["processes from 1.00 µs to 3.10 µs; expected at most 3 times as long"])


@pytest.mark.parametrize(
    ("started", "told"),
    [
        ("2026-06-01T12:30:00Z", None),
        ("2026-06-01T13:01:00Z", "in the future; expected before 2026-06-01 12:00"),
        ("2027-01-01", "in the future"),
        # What an imported file does not tell is no flaw of it.
        ("", None),
        ("last week", "begun 'last week'; expected a date"),
    ],
)
def test_a_session_began_at_some_time_and_not_in_the_future(make, started, told):
    found = wrong(copy(make, sessions=(Session("run-1", started, (seconds(0.8),)),)))
    assert len(found) == (told is not None)
    assert told is None or told in found[0]


def test_a_run_counts_once_in_an_entry(make):
    twice = copy(
        make, sessions=(make.session(seconds(0.8)), make.session(seconds(0.8)), make.session(seconds(0.8), run_id="b"))
    )
    assert wrong(twice) == ["run run-1 2 times; expected every run once"]


@pytest.mark.parametrize(
    ("hardware", "family", "belongs"),
    [
        ({}, "h200", None),
        ({}, "h100", "h200"),
        ({"product": "h100-sxm5", "memory": "80gb"}, "h200", "h100"),
        ({"product": "amd-epyc-f26m2", "partition": "8-cores"}, "cpu", None),
        ({"product": "amd-epyc-f26m2", "partition": "8-cores"}, "h200", "cpu"),
        ({"product": "prototype-x"}, "prototype-x", None),
        ({"product": "prototype-x"}, "h200", "prototype-x"),
    ],
)
def test_a_family_file_holds_its_own_hardware_only(make, hardware, family, belongs):
    key = make.key(hardware=make.hardware(**hardware), size_bytes=4096)
    found = flaws(copy(make, key=key, size_bytes=4096), family=family, name=f"{family}.json")
    assert [flaw.remedy for flaw in found] == ([] if belongs is None else [f"move it to {belongs}.json"])


def test_a_file_of_another_name_than_its_family_is_pointed_at(make):
    (flaw,) = flaws(copy(make), name="proposal.json")
    assert (flaw.observed, flaw.expected, flaw.hint) == ("the file is proposal.json", "h200.json", True)


def test_every_flaw_of_an_entry_is_told(make):
    entry = copy(make, 2.0, provenance={}, sessions=(Session("r", "one day", (seconds(2.0),)),))
    assert len(wrong(entry)) == 3
