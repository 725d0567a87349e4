"""What cannot be true in a baseline or says no source, and what stands behind an entry and how little it finds."""

import datetime
import itertools
import math
from dataclasses import replace
from pathlib import Path

import pytest
import scipy.stats

from pytest_roofline.baselines.checks import check, health_of, provisional
from pytest_roofline.baselines.plausible import absurd_entry
from pytest_roofline.core.entries import Baseline, Session
from pytest_roofline.core.work import Work
from pytest_roofline.stats.spread import Prior, priors

MIB = 2**20
NOW = datetime.datetime(2026, 6, 1, 12, tzinfo=datetime.UTC)
# The datasheet of the product that `make` stands for.
PEAK = 4.8e12
PROVENANCE = {"tool": "pytest-roofline 0.1.0", "device": "NVIDIA H200"}


def seconds(share, size_bytes=64 * MIB):
    """The time in which a copy reaches a share of the peak: it reads and writes every byte."""
    return 2 * size_bytes / (share * PEAK)


def copy(make, *shares, size_bytes=64 * MIB, labels=(), **changes):
    """A measured entry of a copy, each of whose sessions reached a share of the peak."""
    sessions = tuple(
        Session(
            f"run-{number}",
            "2026-05-01T03:00:00Z",
            (seconds(share, size_bytes),),
            "GPU-1",
            achieved=labels,
        )
        for number, share in enumerate(shares or (0.8,))
    )
    work = Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)
    facts = {"work": work, "sessions": sessions, "provenance": PROVENANCE}
    return make.measured(
        key=changes.pop("key", make.key(size_bytes=size_bytes)), **(facts | changes)
    )


def flaws(*entries, family="h200", name="h200.json"):
    return check(Path("baselines") / name, Baseline(family, entries), NOW)


def wrong(*entries, **where):
    """What fails a check, as observed and expected."""
    return [
        f"{flaw.observed}; expected {flaw.expected}"
        for flaw in flaws(*entries, **where)
        if not flaw.hint
    ]


def limit(make, value, **changes):
    """A limit that says everything that one must."""
    facts = {"hardware": make.hardware(), "provenance": {"ticket": "42"}}
    return make.published("threshold", value=value, **(facts | changes))


def test_a_sane_baseline_has_no_flaw_and_a_flaw_names_its_entry_and_what_to_do(make):
    assert flaws(copy(make), limit(make, 2500.0), copy(make, size_bytes=4096)) == []
    (flaw,) = flaws(copy(make, provenance={}))
    assert (flaw.entry, flaw.observed, flaw.hint) == ("memcpy_d2d[64MiB]", "no provenance", False)
    assert (
        flaw.remedy
        == "remove the entry, and record the test again with `pytest … --roofline-record`"
    )
    many = copy(make, 2.0, provenance={}, sessions=(Session("r", "one day", (seconds(2.0),)),))
    assert len(wrong(many)) == 3
    # No key of the provenance switches a check off.
    assert (
        len(
            wrong(
                copy(
                    make,
                    2.0,
                    provenance=PROVENANCE | {"made_by": "baselines/published", "imported": "y"},
                )
            )
        )
        == 1
    )


def test_no_copy_is_much_faster_than_the_datasheet_nor_a_big_one_slower_than_a_hundredth_of_it(
    make,
):
    for share, sane in [(1.09, True), (1.12, False)]:
        told = f"{share * 4800:.0f} GB/s, {share:.0%} of the highest peak that applies; expected at most 110%"
        assert wrong(copy(make, 0.9, share)) == ([] if sane else [told]), share
    slow = (
        "43.2 GB/s, 0.90% of the lowest peak that applies; expected at least 1% of the peak for work "
        "that saturates the device"
    )
    assert (wrong(copy(make, 0.011)), wrong(copy(make, 0.009))) == ([], [slow])
    for size_mib, fast_and_slow in [(8, [0, 0]), (16, [1, 0]), (63, [1, 0]), (64, [1, 1])]:
        found = [len(wrong(copy(make, share, size_bytes=size_mib * MIB))) for share in (2.0, 0.005)]
        assert found == fast_and_slow, size_mib
    # A slice may be slow, never faster than the whole; a cache is not the memory; several have no datasheet.
    part = make.key(hardware=make.hardware(partition="1g.18gb"))
    assert [len(wrong(copy(make, share, key=part))) for share in (0.005, 2.0)] == [0, 1]
    assert wrong(copy(make, 3.0, labels=("cache_resident",))) == []
    assert wrong(copy(make, 1.5, key=make.key(hardware=make.hardware(devices=2)))) == []
    # What computes much may move little.
    assert (
        wrong(copy(make, 0.05, work=Work(read_bytes=64 * MIB, write_bytes=64 * MIB, flops=10**13)))
        == []
    )


def test_a_copy_over_the_hosts_link_is_bounded_unless_it_is_pageable_or_its_link_is_doubtful(make):
    work, times = (
        Work(payload_bytes=256 * MIB, wire_bytes=256 * MIB),
        (make.session(256 * MIB / 3e8, run_id="r"),),
    )
    for metric, count in [("payload_GBps", 1), ("pageable_payload_GBps", 0)]:
        key = make.key("memcpy_h2d", size_bytes=256 * MIB, metric=metric)
        assert (
            len(wrong(make.measured(key=key, work=work, sessions=times, provenance=PROVENANCE)))
            == count
        ), metric
    # A V100 on a POWER9 host is reached over NVLink.
    host = make.key(
        "memcpy_h2d",
        metric="payload_GBps",
        hardware=make.hardware(product="v100-sxm2", memory="32gb"),
    )
    work = Work(payload_bytes=2**30, wire_bytes=2**30)
    assert absurd_entry(make.measured(2**30 / 68e9, key=host, work=work)) is None
    assert absurd_entry(make.measured(2**30 / 680e9, key=host, work=work)) is not None


def arithmetic(make, share, flops=10**12, metric="bf16_TFLOPS", **session):
    """A measured entry of a product of matrices that reached a share of an H200's 989 TFLOP/s."""
    work = Work(read_bytes=64 * MIB, write_bytes=64 * MIB, payload_bytes=64 * MIB, flops=flops)
    key = make.key("matmul", size_bytes=64 * MIB, metric=metric)
    return copy(
        make, key=key, work=work, sessions=(make.session(flops / (share * 989e12), **session),)
    )


def test_arithmetic_is_no_faster_than_the_highest_clock_and_large_products_no_slower_than_a_hundredth(
    make,
):
    fast = "1187 TFLOP/s, 111% of the highest peak that applies; expected at most 110%"
    slow = (
        "989 GFLOP/s, 0.10% of the lowest peak that applies; expected at least 1% of the peak for "
        "work that saturates the device"
    )
    for share, changes, told in [
        *((1.18, {}, []), (1.20, {}, [fast]), (0.001, {}, [slow]), (0.02, {}, [])),
        *((0.001, {"flops": 10**11}, []), (2.0, {"metric": "TFLOPS"}, [])),
    ]:
        assert wrong(arithmetic(make, share, **changes)) == told, (share, changes)
    assert len(wrong(arithmetic(make, 2.0, achieved=("cache_resident",)))) == 1


def test_an_unknown_product_has_the_widest_bounds_of_its_vendor_and_no_call_takes_a_day(make):
    for (product, highest), share in itertools.product(
        [("prototype-x", 8000), ("mi999-oam", 6000)], [0.01, 50.0]
    ):
        key = make.key(hardware=make.hardware(product=product, memory="1gb"))
        found = wrong(copy(make, share, key=key), family=product, name=f"{product}.json")
        fast = f"240000 GB/s, {24e6 / highest:.0f}% of the highest peak that applies; expected at most 110%"
        assert found == [fast] * (share == 50.0), (product, share)
    for duration, sane in [(1e17, False), (1e-17, False), (1e-3, True)]:
        key = make.key(
            hardware=make.hardware(product="amd-epyc", partition="8-cores"), metric="time_s"
        )
        one = make.measured(duration, key=key, work=Work(calls=1), provenance=PROVENANCE)
        assert (wrong(one, family="cpu", name="cpu.json") == []) == sane, duration


def test_what_crosses_links_between_devices_is_bounded_by_them(make):
    link = make.hardware(devices=2, link="nvlink-switch")
    fast = "500 GB/s, 111% of the highest peak that applies; expected at most 110%"
    slow = (
        "4.00 GB/s, 0.89% of the lowest peak that applies; expected at least 1% of the peak for work "
        "that saturates the device"
    )
    for gbps, size_bytes, told in [
        *((490, 64 * MIB, []), (500, 64 * MIB, [fast]), (500, 16 * MIB - 1, [])),
        *((4, 64 * MIB, [slow]), (4, 32 * MIB, [])),
    ]:
        key = make.key("peer_copy", size_bytes=size_bytes, metric="payload_GBps", hardware=link)
        work = Work(payload_bytes=size_bytes, wire_bytes=size_bytes)
        assert (
            wrong(
                copy(make, key=key, work=work, sessions=(make.session(size_bytes / (gbps * 1e9)),))
            )
            == told
        )
    # Eight GPUs whose links carry 450 GB/s one way; a switch that adds up lets the bus bandwidth reach 14/9 of it.
    for benchmark, gbps, factor, sane in [
        *(("all_reduce", 480, 2, True), ("all_reduce", 800, 2, False)),
        *(("all_gather", 520, 1, False), ("all_to_all_v", 520, 1, True)),
    ]:
        bus_bytes = 2**30 * factor * 7 // 8
        hardware = make.hardware(devices=8, link="nvlink-switch")
        key = make.key(benchmark, size_bytes=2**30, metric="busbw_GBps", hardware=hardware)
        work, session = (
            Work(algbw_bytes=2**30, busbw_bytes=bus_bytes),
            make.session(bus_bytes / (gbps * 1e9)),
        )
        assert (wrong(copy(make, key=key, work=work, sessions=(session,))) == []) == sane, (
            benchmark,
            gbps,
        )


def test_a_limit_names_the_exact_variant_and_who_vouches_for_it(make):
    variant = "the exact variant, such as product h100-sxm5, memory 80gb, partition none"
    for field in ("product", "memory", "partition"):
        entry = limit(
            make, 2500.0, hardware=replace(make.hardware(), **{field: None}), note="meant so"
        )
        assert wrong(entry) == [f"a limit for any {field}; expected {variant}"], field
    (flaw,) = flaws(limit(make, 2500.0, provenance={"ticket": " "}))
    assert (flaw.observed, flaw.hint) == ("no provenance", True)


def test_a_published_figure_says_what_it_means_and_of_what(make):
    for field in ("unit", "convention", "source"):
        entry = make.published(
            "reference", metric="latency", hardware=make.hardware(), **{field: " "}
        )
        assert wrong(entry) == [f"no {field}; expected unit, convention and source"]
    (flaw,) = flaws(make.published("reference", value=2500.0))
    assert (flaw.observed, flaw.hint) == ("no product", True)


def test_a_measured_entry_tells_metric_spread_dates_and_each_run_once(make):
    assert wrong(copy(make, key=make.key(metric="bandwidth"))) == [
        "metric 'bandwidth'; expected a name that ends in "
        "traffic_GBps, payload_GBps, algbw_GBps, busbw_GBps, wirebw_GBps, TFLOPS, or time_s"
    ]
    assert wrong(copy(make, key=make.key(metric="time_s"))) == []
    apart = (
        "processes that took from 1.00 µs to 3.10 µs; expected the slowest process to take at most 3 times as long "
        "as the fastest"
    )
    for factor, told in [(2.9, []), (3.1, [apart])]:
        assert (
            wrong(copy(make, size_bytes=4096, sessions=(make.session(1e-6, factor * 1e-6),)))
            == told
        )
    for started, told in [
        ("2026-06-01T12:30:00Z", None),
        ("2026-06-01T13:01:00Z", "in the future; expected a time before 2026-06-01 12:00"),
        ("2027-01-01", "in the future"),
        # What an imported file does not tell is no flaw of it.
        ("", None),
        ("last week", "with the start time 'last week'; expected a date"),
    ]:
        found = wrong(copy(make, sessions=(Session("run-1", started, (seconds(0.8),)),)))
        assert (len(found), told is None or told in found[0]) == (told is not None, True), started
    twice = (
        make.session(seconds(0.8)),
        make.session(seconds(0.8)),
        make.session(seconds(0.8), run_id="b"),
    )
    assert wrong(copy(make, sessions=twice)) == [
        "run run-1 in 2 sessions; expected every run in one session"
    ]


def test_a_family_file_holds_its_own_hardware_only_under_its_own_name(make):
    cpu = {"product": "amd-epyc-f26m2", "partition": "8-cores"}
    for hardware, family, belongs in [
        *(
            ({}, "h200", None),
            ({}, "h100", "h200"),
            ({"product": "h100-sxm5", "memory": "80gb"}, "h200", "h100"),
        ),
        *((cpu, "cpu", None), (cpu, "h200", "cpu")),
        *(
            ({"product": "prototype-x"}, "prototype-x", None),
            ({"product": "prototype-x"}, "h200", "prototype-x"),
        ),
    ]:
        key = make.key(hardware=make.hardware(**hardware), size_bytes=4096)
        found = flaws(copy(make, key=key, size_bytes=4096), family=family, name=f"{family}.json")
        assert [flaw.remedy for flaw in found] == (
            [] if belongs is None else [f"move the entry to {belongs}.json"]
        )
    (flaw,) = flaws(copy(make), name="proposal.json")
    assert (flaw.observed, flaw.expected, flaw.hint) == (
        "the file is proposal.json",
        "h200.json",
        True,
    )


PRIOR = Prior(process=0.01, session=0.005, device=0.04)
STEADY = [(1.0, 1.004), (1.003, 0.999), (0.998, 1.001)]


def session(number, *medians, device="GPU-1", driver="570.86"):
    return Session(
        f"run-{number}",
        f"2026-01-{1 + number:02d}T00:00:00Z",
        medians or (1.0,),
        device,
        {"driver": driver},
    )


def nights(*medians):
    return [session(number, *values) for number, values in enumerate(medians)]


def health(make, *sessions, **changes):
    (found,) = health_of([make.measured(sessions=sessions, **changes)])
    return found


def test_what_an_entry_can_find_is_what_one_more_process_would(make):
    """One process against one, each in a session of its own: 2 (σ_p² + σ_s²), with σ_s of a single sitting."""
    of_process, of_session = 2 * 0.01**2, 2 * 0.0075**2
    # Satterthwaite: two parts, each known by four degrees of freedom.
    variance = of_process + of_session
    freedom = variance**2 / (of_process**2 / 4 + of_session**2 / 4)
    quantiles = scipy.stats.t.ppf(0.99, freedom) + scipy.stats.t.ppf(0.8, freedom)
    expected = math.expm1(quantiles * math.sqrt(variance))
    assert health(make, session(0)).mde == pytest.approx(expected)
    found = [health(make, *nights(*STEADY[:count])).mde for count in (1, 2, 3)]
    assert found == sorted(found, reverse=True)
    assert found[2] < 2 / 3 * found[0]
    assert health(make, *nights((1.0,), (1.3,), (0.8,), (1.1,))).mde > 0.5
    # A second device that is far off must not hide how well the first is known.
    both = health(make, *nights(*STEADY), session(9, 1.2, device="GPU-2")).mde
    assert both == pytest.approx(found[2], rel=0.2)


def test_few_sessions_or_a_blind_tolerance_make_an_entry_provisional(make):
    for medians, tolerance, few, blind in [
        *(([(1.0,)], 0.05, "1 of 3 sessions", True), ([(1.0,)], 0.5, "1 of 3 sessions", False)),
        *(([(1.0, 1.004, 0.998)] * 2, 0.05, "2 of 3 sessions", False), (STEADY, 0.05, "", False)),
        *((STEADY, 0.001, "", True), ([(1.0,), (1.2,), (0.9,)], 0.05, "", True)),
    ]:
        one = make.measured(sessions=nights(*medians))
        mde = health(make, *nights(*medians)).mde
        finds = (
            f"detects slowdowns from {mde * 100:.1f} %, tolerance {tolerance * 100:g} %"
            if blind
            else ""
        )
        assert provisional(one, tolerance, PRIOR) == "; ".join(filter(None, (few, finds))), (
            medians,
            tolerance,
        )
        assert (mde > tolerance) == blind
    assert (provisional(make.published(), 0.05, PRIOR), health_of([make.published()])) == ("", [])


def test_health_tells_what_stands_behind_an_entry(make):
    sessions = [
        session(2, 1e-3, device="GPU-2"),
        session(0, 1e-3, 1.004e-3, 0.996e-3, driver="550.54"),
        session(1, 1e-3, 1.003e-3, 0.997e-3),
    ]
    found = health(make, *sessions)
    assert (found.time_s, found.rate) == pytest.approx((1e-3, 2 * 64 * MIB / 1e-3), rel=1e-4)
    assert (found.devices, found.drivers, found.newest) == (
        2,
        ("550.54", "570.86"),
        "2026-01-03T00:00:00Z",
    )
    assert found.provisional == ""
    assert health(make, Session("r", "once", (1.0,))).newest == ""
    alone = health(make, session(0))
    assert (alone.process.origin, alone.session.origin) == (
        "prior",
        "prior, recorded within six hours",
    )
    for own, given, expected in [(None, 0.05, 0.05), (None, 0.2, 0.2), (0.1, 0.2, 0.1)]:
        (found,) = health_of([make.measured(sessions=[session(0)], tolerance=own)], given)
        assert (found.tolerance, "tolerance" in found.provisional) == (
            expected,
            found.mde > expected,
        )


def test_many_entries_tell_each_other_how_far_processes_lie_apart_and_a_cpu_spreads_as_cpus_do(
    make,
):
    steady = [
        make.measured(
            key=make.key(f"t{number}"), sessions=nights((1.0, 1.001), (1.002, 1.0), (0.999, 1.001))
        )
        for number in range(10)
    ]
    one = make.measured(sessions=[session(0)])
    alone, among = (health_of([*others, one])[-1] for others in ([], steady))
    assert among.mde < alone.mde
    assert among.process.value < alone.process.value / 5
    assert "prior of 10 tests" in among.process.origin
    key = make.key(hardware=make.hardware(partition="8-cores"))
    (host,) = health_of([make.measured(1.0, key=key)])
    assert host.process.value == priors()["host"].process


def test_a_session_that_is_strange_in_many_entries_is_named_and_fails_nothing(make):
    def nights(number):
        return tuple(
            Session(
                f"run-{night}",
                f"2020-05-{night:02}T03:00:00Z",
                (seconds(0.8) * (1.2 if night == 3 and number < 6 else 1),),
                "GPU-1",
            )
            for night in range(1, 6)
        )

    entries = [
        copy(make, key=make.key(f"t{number}"), sessions=nights(number)) for number in range(12)
    ]
    (flaw,) = flaws(*entries)
    assert (flaw.entry, flaw.observed, flaw.hint) == (
        *("", "session of 3 May 2020: 6 of 12 tests are 20 % slower"),
        True,
    )
    assert flaws(*entries[4:]) == []
