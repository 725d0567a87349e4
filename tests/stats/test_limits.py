"""A limit fails what surely lies beyond it, summed up as its source sums up, and nothing that it does not speak of."""

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.baselines.comparing import compare
from pytest_roofline.baselines.files import write_baseline
from pytest_roofline.core.entries import OUT_OF_MEMORY, Baseline, Entry
from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.facts import Gpu
from pytest_roofline.core.keys import JOB_METRIC
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.core.work import Work
from pytest_roofline.hardware import collective_ceiling, product_like
from pytest_roofline.stats.key_results import KeyResults
from pytest_roofline.stats.limits import (
    BATCHED,
    CAN_PASS_ONLY,
    Floor,
    Limit,
    RooflineShare,
    describe,
    floor_limits,
    gating_limits,
    limit_seconds,
    process_s,
    roofline_limit,
)
from pytest_roofline.stats.looks import Looks
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.verdicts import Kind, judge

MIB = 2**20
GB = 10**9
# Median 1.0, mean 1.5, fastest call 0.5: each statistic lies elsewhere.
SKEWED = (1.0, 0.5, 1.0, 1.0, 4.0)


def taken(make, *seconds, iterations=1, process="p", **changes):
    return make.measurement(samples=Samples(seconds, iterations, 1e-9), process=process, **changes)


def verdict_on(make, entries, *measurements, policy=None, reference=None):
    """The verdict on a measurement's processes by published limits, as a run gives it."""
    trial = KeyResults(list(measurements))

    def summed(statistic):
        return trial.summary(reference, "GPU-1", "2026-01-02T03:04:05Z", statistic)

    limits, idle = gating_limits(entries, measurements[0].work, summed)
    medians = trial.group(reference, "GPU-1", "2026-01-02T03:04:05Z")
    return judge([medians], reference, policy or Policy(), limits=limits, why_none="no baseline recorded"), idle


def timed_limit(make, seconds, statistic=None, **changes):
    return make.published(metric="time_s", value=seconds, unit="s", statistic=statistic, **changes)


@pytest.mark.parametrize(("statistic", "seconds"), [(None, 1.0), ("median", 1.0), ("mean", 1.5), ("best", 0.5)])
@pytest.mark.parametrize(("factor", "kind"), [(1.2, Kind.PASSED), (1 / 1.2, Kind.REGRESSED)])
def test_each_statistic_gates_on_its_own_figure_of_a_process(make, statistic, seconds, factor, kind):
    found, idle = verdict_on(make, [timed_limit(make, seconds * factor, statistic)], taken(make, *SKEWED))
    assert (found.kind, idle) == (kind, [])


def test_limits_of_several_statistics_are_each_held_against_their_own(make):
    entries = [timed_limit(make, 1.2, "median"), timed_limit(make, 1.2, "mean"), timed_limit(make, 0.6, "best")]
    found, _ = verdict_on(make, entries, taken(make, *SKEWED))
    assert (found.kind, found.limit.standard.statistic) == (Kind.REGRESSED, "mean")
    assert found.change == pytest.approx(1.5 / 1.2 - 1)


def test_a_limit_on_the_fastest_call_does_not_gate_where_a_sample_is_several_calls(make):
    found, (idle,) = verdict_on(make, [timed_limit(make, 0.1, "best")], taken(make, *SKEWED, iterations=2))
    assert (found.kind, found.reason) == (Kind.NO_BASELINE, "no baseline recorded")
    assert idle.why == BATCHED


def test_a_batched_mean_that_meets_a_limit_on_the_fastest_call_is_no_gate_since_it_could_only_pass(make):
    # The fastest call is no slower than the fastest mean of two, which took half a second.
    found, (idle,) = verdict_on(make, [timed_limit(make, 0.5, "best")], taken(make, *SKEWED, iterations=2))
    assert (found.kind, found.limit, idle.why) == (Kind.NO_BASELINE, None, CAN_PASS_ONLY)


def test_of_processes_that_agree_more_are_surer(make):
    # 4.5 % beyond a limit, as measured by one process to six.
    ends = []
    for count in range(1, 7):
        processes = [taken(make, 1.045, process=f"p{index}") for index in range(count)]
        found, _ = verdict_on(make, [timed_limit(make, 1.0)], *processes, policy=Policy(looks=Looks(6)))
        ends.append(found.interval[0])
    assert ends == sorted(ends)


def test_one_batched_process_among_others_keeps_the_fastest_call_from_gating(make):
    single, batched = taken(make, *SKEWED), taken(make, *SKEWED, iterations=3, process="q")
    found, idle = verdict_on(make, [timed_limit(make, 0.1, "best")], single, batched)
    assert (found.kind, len(idle)) == (Kind.NO_BASELINE, 1)


@pytest.mark.parametrize("statistic", ["mean", "best"])
def test_of_several_attempts_of_a_process_the_slowest_stands_under_each_statistic(make, statistic):
    lucky = [taken(make, 1.0), taken(make, 0.1)]
    found, _ = verdict_on(make, [timed_limit(make, 0.5, statistic)], *lucky)
    assert (found.kind, found.processes) == (Kind.REGRESSED, 1)


def test_samples_of_blocks_that_do_not_count_are_in_no_statistic():
    for statistic, seconds in [("mean", 2.0), ("best", 1.0), ("median", 2.0)]:
        spoiled = Samples((9.0, 9.0, 0.1, 1.0, 2.0, 3.0), 1, 1e-9, blocks=(Block(3, "host gap"), Block(3)))
        assert process_s(spoiled, statistic) == seconds, (statistic, seconds)


def test_without_a_block_that_counts_every_sample_is_kept():
    assert Samples((1.0, 2.0), 1, 1e-9, blocks=(Block(2, "host gap"),)).kept == (1.0, 2.0)


@given(st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=20))
def test_the_fastest_call_is_never_slower_than_mean_or_median(seconds):
    samples = Samples(tuple(seconds), 1, 1e-9)
    best, mean, median = (process_s(samples, statistic) for statistic in ("best", "mean", "median"))
    assert best <= median
    assert best <= mean * (1 + 1e-12)


def test_an_implausible_a_recalled_and_a_range_are_no_limits(make):
    entries = [
        timed_limit(make, 0.1, implausible="not synchronised"),
        timed_limit(make, 0.1, confidence="recalled"),
        make.published(metric="time_s", value=(0.1, 0.2), unit="s"),
        make.published("reference", metric="time_s", value=0.1, unit="s"),
    ]
    found, idle = verdict_on(make, entries, taken(make, 1.0))
    assert (found.kind, idle) == (Kind.NO_BASELINE, [])


def test_a_limit_on_what_the_test_does_not_count_says_so_and_does_not_gate(make):
    entry = make.published(metric="busbw_GBps", value=1.0, unit="GB/s")
    found, (idle,) = verdict_on(make, [entry], taken(make, 1.0))
    assert (found.kind, "the test's work has none" in idle.why) == (Kind.NO_BASELINE, True)


def test_what_passes_by_limits_names_the_one_that_is_most_easily_missed(make):
    found, _ = verdict_on(make, [timed_limit(make, 3.0), timed_limit(make, 2.0)], taken(make, 1.0))
    assert (found.kind, found.limit.seconds) == (Kind.PASSED, 2.0)
    assert found.reason == "not below threshold 2 s (read + write; the vendor's guide); no baseline recorded"


def test_the_nearest_to_being_missed_is_told_by_margin_whatever_the_statistic(make):
    # The mean of 1.5 s is nearer to its limit than the fastest call of 0.5 s is to one of fewer seconds.
    found, _ = verdict_on(make, [timed_limit(make, 1.6, "best"), timed_limit(make, 1.9, "mean")], taken(make, *SKEWED))
    assert (found.kind, found.limit.standard.statistic) == (Kind.PASSED, "mean")


@pytest.mark.parametrize(
    ("statistic", "words"), [("best", "; fastest call;"), ("mean", "; mean;"), ("median", "; median;"), (None, "e;")]
)
def test_a_limit_says_how_its_source_sums_up(make, statistic, words):
    found, _ = verdict_on(make, [timed_limit(make, 0.01, statistic, source="S")], taken(make, 1.0))
    told = f"BELOW THRESHOLD: threshold 0.01 s (read + writ{'e' * (statistic is not None)}{words} S)"
    assert found.reason == f"{told}, 1 process (1 % apart: prior)"


def test_a_range_is_told_with_both_ends(make):
    assert describe(make.published("reference", value=(1.0, 2.5))).startswith("reference 1 to 2.5 GB/s (")


HARDWARE = {"product": "h100-sxm5", "memory": "80gb"}
PEAK = Ceiling("traffic_GBps", 3.35e12, "datasheet", "the maker's datasheet", "high")


def copied(make, share=0.8, size_bytes=64 * MIB, *, ceiling=PEAK, metric="traffic_GBps", labels=(), **hardware):
    """A copy of so many bytes at a share of a peak."""
    seconds = 2 * size_bytes / (share * 3.35e12)
    key = make.key(size_bytes=size_bytes, metric=metric, hardware=make.hardware(**(HARDWARE | hardware)))
    samples = Samples((seconds,), 1, 1e-9, labels=labels)
    work = Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes, wire_bytes=size_bytes)
    return make.measurement(key=key, samples=samples, ceiling=ceiling, work=work)


def by_share(make, share, least=0.8, count=1, policy=None):
    limit = roofline_limit(copied(make, share), least)
    return judge([make.group(*[math.log(copied(make, share).median_s)] * count)], None, policy or Policy(),
                 limits=[limit])  # fmt: skip


@pytest.mark.parametrize(("share", "kind"), [(0.9, Kind.PASSED), (0.79, Kind.INCONCLUSIVE), (0.6, Kind.REGRESSED)])
def test_a_share_of_the_roofline_is_passed_missed_or_left_open(make, share, kind):
    found = by_share(make, share)
    assert (found.kind, found.limit.kind, found.tolerance) == (kind, "roofline", Policy().tolerance)


def test_what_is_below_its_share_is_told_with_what_was_observed_and_of_what(make):
    assert by_share(make, 0.6).reason == (
        "BELOW 80 % OF THE ROOFLINE (observed 60 % of 3350 GB/s; the maker's datasheet), 1 process (1 % apart: prior)"
    )


def test_an_open_share_is_decided_by_more_processes(make):
    assert (
        "about 5 processes would decide where the centre stays (--roofline-rounds=auto)" in by_share(make, 0.77).reason
    )
    assert by_share(make, 0.77, count=5).kind is Kind.REGRESSED


def test_a_share_is_missed_from_three_processes_on_where_rounds_may_follow(make):
    kinds = [by_share(make, 0.7, count=count, policy=Policy(looks=Looks(12))).kind for count in (1, 3)]
    assert kinds == [Kind.INCONCLUSIVE, Kind.REGRESSED]


ONE_SECOND = 1.0


def held(make, *groups, looks=None):
    """The verdict on sessions by a limit of one second, the groups in log seconds."""
    limits = [Limit(timed_limit(make, ONE_SECOND), ONE_SECOND)]
    return judge(groups, None, Policy(looks=looks or Looks()), limits=limits)


def by_devices(make, *logs):
    return [make.group(log, device=f"GPU-{number}", started="") for number, log in enumerate(logs)]


@pytest.mark.parametrize("slow", [0, 3])
def test_a_device_that_misses_a_limit_is_not_made_up_for_by_others_and_is_named(make, slow):
    logs = [-0.08] * 4
    logs[slow] = 0.16
    found = held(make, *by_devices(make, *logs))
    assert (found.kind, found.processes) == (Kind.REGRESSED, 1)
    assert found.reason.endswith(f", GPU-{slow} (1 of 4 devices miss it), 1 process (1 % apart: prior)")


def test_a_fleet_passes_where_each_device_does_and_says_of_how_many(make):
    found = held(make, *by_devices(make, -0.08, -0.01, -0.03))
    assert (found.kind, " on any of 3 devices" in found.reason) == (Kind.PASSED, True)


def sessions(make, *logs):
    return [make.group(log, started=f"2026-01-{day:02d}T03:04:05Z") for day, log in enumerate(logs, 1)]


def test_sessions_that_scatter_widely_do_not_surely_miss_a_limit(make):
    # Their own t interval goes from 17 % below the limit to 31 % beyond it.
    logs = [math.log(seconds) for seconds in (0.90, 1.15, 0.95, 1.12, 1.10)]
    found = held(make, *sessions(make, *logs))
    assert found.kind is Kind.INCONCLUSIVE
    assert found.interval[0] < -0.1
    assert held(make, *sessions(make, 0.039, 0.04, 0.041, 0.04, 0.04)).kind is Kind.REGRESSED


def test_at_its_limit_hardly_any_machine_is_red_however_its_sessions_scatter(make):
    generator = random.Random(8)
    for count, scatter in ((3, 0.05), (5, 0.1)):
        logs = ([generator.gauss(0, scatter) for _ in range(count)] for _ in range(400))
        red = sum(held(make, *sessions(make, *one)).kind is Kind.REGRESSED for one in logs)
        assert red <= 24


def test_a_time_whose_interval_lies_wholly_beyond_says_what_red_waits_for(make):
    found = held(make, make.group(0.2), looks=Looks(12))
    assert found.kind is Kind.INCONCLUSIVE
    assert found.interval[0] > 0
    assert "but red needs 3 processes where rounds allow them" in found.reason
    assert "reaches" not in found.reason


def test_a_first_process_is_not_red_by_an_assumed_spread_where_a_second_may_follow(make):
    kinds = [held(make, make.group(0.1), looks=looks).kind for looks in (Looks(12), Looks(12, ended=True))]
    assert kinds == [Kind.INCONCLUSIVE, Kind.REGRESSED]


@pytest.mark.parametrize(("beyond", "kind"), [(0.5, Kind.REGRESSED), (0.25, Kind.INCONCLUSIVE)])
def test_half_the_speed_is_red_from_the_first_of_twelve_processes(make, beyond, kind):
    assert held(make, make.group(beyond), looks=Looks(12)).kind is kind


@pytest.mark.parametrize(("beyond", "futile"), [(0.004, True), (0.03, False), (-0.001, False)])
def test_what_lies_too_near_a_limit_for_any_number_of_processes_is_given_up(make, beyond, futile):
    found = held(make, make.group(*[beyond] * 6), looks=Looks(12))
    assert found.futile == futile
    assert ("record others, and hold them against it together" in found.reason) == futile


def test_more_processes_are_not_said_to_decide_what_they_never_would(make):
    assert held(make, make.group(*[0.015] * 100), looks=Looks(100)).reason.endswith(
        "(roofline compare FILE.json RUN,RUN,…)"
    )


NOT_OF_A_DATASHEET = {
    "no roofline": {"ceiling": None},
    "measured": {"ceiling": replace(PEAK, source="measured")},
    "recalled": {"ceiling": replace(PEAK, confidence="recalled")},
    "low": {"ceiling": replace(PEAK, confidence="low")},
    "not told": {"ceiling": replace(PEAK, confidence=None)},
    "small": {"size_bytes": 8 * MIB},
    "in a cache": {"labels": ("cache_resident",)},
    "unresolved": {"labels": ("unresolved",)},
    "a partition": {"partition": "1g.10gb"},
    "pageable": {"metric": "pageable_auto_payload_GBps", "ceiling": replace(PEAK, metric="payload_GBps")},
}


@pytest.mark.parametrize("why", NOT_OF_A_DATASHEET)
def test_a_roofline_that_cannot_be_trusted_for_it_is_no_limit(make, why):
    assert roofline_limit(copied(make, 0.1, **NOT_OF_A_DATASHEET[why]), 0.8) is None


def test_a_pinned_copy_has_the_limit_that_a_pageable_one_has_not(make):
    link = replace(PEAK, metric="payload_GBps", value=64e9)
    limit = roofline_limit(copied(make, 0.1, ceiling=link, metric="pinned_auto_payload_GBps"), 0.8)
    assert limit.seconds == pytest.approx(64 * MIB / 51.2e9)


@pytest.mark.parametrize(("flops", "known"), [(10**9, True), (10**9 - 1, False)])
def test_arithmetic_has_a_limit_from_one_gflop_up_also_in_a_cache(make, flops, known):
    peak = Ceiling("bf16_TFLOPS", 989e12, "datasheet", "the maker", "medium")
    samples = Samples((1e-3,), 1, 1e-9, labels=("cache_resident",))
    one = make.measurement(key=make.key(metric="bf16_TFLOPS"), samples=samples, ceiling=peak, work=Work(flops=flops))
    assert (roofline_limit(one, 0.5) is not None) == known


def test_a_peak_that_some_hosts_exceed_is_reached_all_the_more_easily_and_bounds_from_below(make):
    assert roofline_limit(copied(make, 0.1, ceiling=replace(PEAK, bounds=False)), 0.8) is not None


def test_a_share_above_what_is_believable_is_still_only_a_limit(make):
    limit = roofline_limit(copied(make), 1.02)
    assert limit == Limit(RooflineShare(1.02, PEAK), pytest.approx(2 * 64 * MIB / 3.417e12))


def floor(**changes):
    facts = {
        "benchmark": "memcpy_d2d",
        "metric": "traffic_GBps",
        "value": 0.8,
        "unit": "share",
        "source": "S",
        "figures": 1,
    }
    return Entry(kind="floor", **(facts | changes))


def test_a_floor_is_a_time_at_its_share_of_the_peak(make):
    one = copied(make, 0.5)
    assert floor_limits([floor()], one, None) == (
        [Limit(Floor(floor(), PEAK), pytest.approx(2 * 64 * MIB / (0.8 * 3.35e12)))],
        [],
    )


LINK = Ceiling("payload_GBps", 64e9, "datasheet", "the maker", "high")
PRODUCT = Ceiling("bf16_TFLOPS", 989e12, "datasheet", "the maker", "high")
AT_500_W = Gpu(0, "NVIDIA H100", power_limit_w=500.0, power_default_w=700.0)


def multiplied(make):
    return make.measurement(key=make.key(metric="bf16_TFLOPS"), ceiling=PRODUCT, work=Work(flops=10**12))


@pytest.mark.parametrize(
    ("facts", "gpu", "why"),
    [
        ({"labels": ("cache_resident",)}, None, "a cache held"),
        ({"ceiling": None}, None, "peak that it is a share of is not known"),
        ({"ceiling": replace(PEAK, source="measured")}, None, "peak that it is a share of is not known"),
        ({"ceiling": LINK}, None, "peak that it is a share of is not known"),
        ({}, AT_500_W, ""),
    ],
)
def test_a_floor_that_does_not_apply_says_why(make, facts, gpu, why):
    limits, idle = floor_limits([floor()], copied(make, **facts), gpu)
    assert (len(limits), [why in one.why for one in idle]) == ((0, [True]) if why else (1, []))


@pytest.mark.parametrize(("gpu", "count"), [(AT_500_W, 0), (replace(AT_500_W, power_limit_w=700.0), 1), (None, 1)])
def test_a_floor_of_arithmetic_is_for_the_power_that_the_card_is_shipped_with(make, gpu, count):
    limits, idle = floor_limits([floor(metric="bf16_TFLOPS")], multiplied(make), gpu)
    assert len(limits) == count
    assert [one.why for one in idle] == ["the power limit is 500 W, and the card is shipped with 700 W"] * (1 - count)


def test_a_floor_of_a_collective_is_a_share_of_what_the_links_carry(make, monkeypatch):
    hardware = make.hardware(product="h100-sxm5", memory="80gb", devices=8, link="nvlink-switch")
    work = Work(algbw_bytes=2**30, busbw_bytes=2**30 * 14 // 8)
    known = product_like("h100-sxm5", "80gb")
    one = make.measurement(
        key=make.key("all_reduce", metric="busbw_GBps", hardware=hardware),
        work=work,
        ceiling=collective_ceiling(known, hardware, work, "busbw_GBps"),
    )
    entry = floor(benchmark="all_reduce", metric="busbw_GBps", value=0.9)
    (limit,), _ = floor_limits([entry], one, None)
    assert limit.seconds == pytest.approx(work.busbw_bytes / (0.9 * 450e9))
    monkeypatch.setenv("NCCL_ALGO", "RING")
    assert floor_limits([entry], one, None)[1][0].why.startswith("NCCL_ALGO chooses for the library")


def saved(make, tmp_path, name, *measurements):
    return make.save(tmp_path / f"{name}.jsonl", *measurements)


def compared(make, tmp_path, entries, *measurements):
    write_baseline(tmp_path / "h200.json", Baseline("h200", tuple(entries)))
    return compare([tmp_path / "h200.json"], [saved(make, tmp_path, "new", *measurements)])


@pytest.mark.parametrize("statistic", [None, "median", "mean", "best"])
@pytest.mark.parametrize("limit_s", [0.3, 0.7, 1.2, 1.7])
def test_a_comparison_of_files_judges_limits_as_the_run_does(make, tmp_path, statistic, limit_s):
    entry = timed_limit(make, limit_s, statistic)
    live, _ = verdict_on(make, [entry], taken(make, *SKEWED))
    (row,) = compared(make, tmp_path, [entry], taken(make, *SKEWED)).rows
    assert (row.verdict, row.judgement.estimate) == (live.kind, live.estimate)


def test_a_comparison_with_a_file_of_limits_names_what_cannot_gate(make, tmp_path):
    entries = [timed_limit(make, 2.0), timed_limit(make, 0.1, "best")]
    found = compared(make, tmp_path, entries, taken(make, 1.0, iterations=4))
    assert [row.verdict for row in found.rows] == [Kind.PASSED]
    assert [(row.label, why) for row in found.rows for _, why in row.idle] == [("memcpy_d2d[64MiB]", BATCHED)]


def test_a_comparison_with_a_file_of_limits_names_those_whose_test_was_not_run(make, tmp_path):
    elsewhere = make.hardware(product="h100-sxm5")
    entries = [
        timed_limit(make, 2.0),
        timed_limit(make, 2.0, benchmark="stream"),
        timed_limit(make, 3.0, benchmark="stream", source="another"),
        timed_limit(make, 2.0, benchmark="low", confidence="low"),
        timed_limit(make, 2.0, benchmark="other", hardware=elsewhere),
    ]
    assert compared(make, tmp_path, entries, taken(make, 1.0)).only_old == ("stream",)


def test_a_comparison_of_several_machines_finds_the_one_that_misses_its_limit(make, tmp_path):
    write_baseline(tmp_path / "h200.json", Baseline("h200", (timed_limit(make, 1.0),)))
    runs = [
        make.save(tmp_path / f"n{number}.jsonl", taken(make, seconds), run_id="nightly", uuid=f"GPU-{number}")
        for number, seconds in enumerate((1.18, 0.92, 0.92, 0.92))
    ]
    (row,) = compare([tmp_path / "h200.json"], runs).rows
    assert (row.verdict, "GPU-0" in row.reason) == (Kind.REGRESSED, True)


def test_a_baseline_files_medians_are_held_against_limits_on_the_median_alone(make, tmp_path):
    write_baseline(tmp_path / "old.json", Baseline("h200", (timed_limit(make, 0.5), timed_limit(make, 0.1, "mean"))))
    write_baseline(tmp_path / "new.json", Baseline("h200", (make.measured(1.0),)))
    found = compare([tmp_path / "old.json"], [tmp_path / "new.json"])
    assert [(row.judgement.limit, row.judgement.limit_s) for row in found.rows] == [("published", 0.5)]
    assert [why for row in found.rows for _, why in row.idle] == [
        "it does not hold for the median, and a baseline file holds medians only"
    ]


def test_a_limit_on_a_rate_becomes_the_time_of_that_work(make):
    measurement = make.measurement(work=Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9))
    assert limit_seconds(make.published(value=100.0), measurement.work) == pytest.approx(0.02)


def test_a_limit_in_the_payloads_counting_uses_the_payload(make):
    measurement = make.measurement(work=Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9))
    assert limit_seconds(make.published(metric="payload_GBps", value=100.0), measurement.work) == pytest.approx(0.01)


def test_a_limit_on_throughput_counts_1e12(make):
    assert limit_seconds(make.published(metric="TFLOPS", value=2.0, unit="TFLOP/s"), Work(flops=10**12)) == 0.5


def test_a_limit_on_time_is_that_time(make):
    assert limit_seconds(make.published(metric="time_s", value=3.0, unit="s"), make.copy()) == 3.0


@pytest.mark.parametrize("value", [(1.0, 2.0), OUT_OF_MEMORY])
def test_a_range_or_out_of_memory_is_no_limit(make, value):
    assert limit_seconds(make.published(value=value), make.copy()) is None


def test_a_limit_on_what_was_not_worked_is_none(make):
    assert limit_seconds(make.published(metric="busbw_GBps", unit="GB/s"), make.copy()) is None


@pytest.mark.parametrize(
    ("published", "measured", "speaks"),
    [
        ("time_s", "traffic_GBps", True),
        ("peak_bytes", "traffic_GBps", True),
        ("traffic_GBps", "sm_traffic_GBps", True),
        ("payload_GBps", "traffic_GBps", False),
        (JOB_METRIC, "traffic_GBps", False),
        (JOB_METRIC, JOB_METRIC, True),
        ("time_s", JOB_METRIC, False),
        ("peak_bytes", JOB_METRIC, False),
    ],
)
def test_a_figure_speaks_of_what_counts_the_same_and_the_time_of_a_call_of_no_program(
    make, published, measured, speaks
):
    unit = {"time_s": "s", JOB_METRIC: "s", "peak_bytes": "B"}.get(published, "GB/s")
    entry = make.published("reference", metric=published, unit=unit)
    assert entry.matches(make.key(metric=measured)) == speaks


@pytest.mark.parametrize(("metric", "unit"), [(JOB_METRIC, "ms"), ("peak_bytes", "MB"), ("time_s", "ms")])
def test_a_figure_in_another_unit_than_its_metrics_is_refused(make, metric, unit):
    with pytest.raises(BadInput, match=f"unit is '{unit}'"):
        make.published("reference", metric=metric, unit=unit)
