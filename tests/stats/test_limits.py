"""A limit fails what surely lies beyond it, summed up as its source sums up, and nothing that it does not speak of."""

import itertools
import math
from dataclasses import replace

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.baselines.comparing import compare
from pytest_roofline.baselines.files import write_baseline
from pytest_roofline.baselines.limit_texts import describe
from pytest_roofline.baselines.reasons import reason_text
from pytest_roofline.core.entries import OUT_OF_MEMORY, Baseline, Entry
from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.facts import Gpu
from pytest_roofline.core.keys import JOB_METRIC
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.core.verdicts import Kind, TimeLimit
from pytest_roofline.core.work import Work
from pytest_roofline.hardware import collective_ceiling, product_like
from pytest_roofline.stats.analyses import Analyses
from pytest_roofline.stats.key_results import KeyResults
from pytest_roofline.stats.limits import (
    BATCHED,
    Limit,
    floor_limits,
    gating_limits,
    limit_seconds,
    process_s,
    roofline_limit,
)
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.stats import growth
from pytest_roofline.stats.verdicts import judge

MIB = 2**20
# Median 1.0, mean 1.5, fastest call 0.5: each statistic lies elsewhere.
SKEWED = (1.0, 0.5, 1.0, 1.0, 4.0)


def taken(make, *seconds, iterations=1, process="p", **changes):
    return make.measurement(samples=Samples(seconds, iterations, 1e-9), process=process, **changes)


def verdict_on(make, entries, *measurements, policy=None, reference=None):
    """The verdict on a measurement's processes by published limits, as a run gives it."""
    results = KeyResults(list(measurements))

    def summed(statistic):
        return results.summary(reference, "GPU-1", "2026-01-02T03:04:05Z", statistic)

    limits, idle = gating_limits(entries, measurements[0].work, summed)
    medians = results.group(reference, "GPU-1", "2026-01-02T03:04:05Z")
    found = judge(
        [medians], reference, policy or Policy(), limits=limits, why_none="no baseline recorded"
    )
    return found, [why for _, why in idle]


def timed_limit(make, seconds, statistic=None, **changes):
    return make.published(metric="time_s", value=seconds, unit="s", statistic=statistic, **changes)


def test_each_statistic_gates_on_its_own_figure_of_a_process(make):
    figures = {None: 1.0, "median": 1.0, "mean": 1.5, "best": 0.5}
    for (statistic, seconds), (factor, kind) in itertools.product(
        figures.items(), [(1.2, Kind.PASSED), (1 / 1.2, Kind.REGRESSED)]
    ):
        found, idle = verdict_on(
            make, [timed_limit(make, seconds * factor, statistic)], taken(make, *SKEWED)
        )
        assert (found.kind, idle) == (kind, []), (statistic, factor)
    entries = [
        timed_limit(make, 1.2, "median"),
        timed_limit(make, 1.2, "mean"),
        timed_limit(make, 0.6, "best"),
    ]
    found, _ = verdict_on(make, entries, taken(make, *SKEWED))
    assert (found.kind, "; mean;" in reason_text(found)) == (Kind.REGRESSED, True)
    assert growth(found.estimate) == pytest.approx(1.5 / 1.2 - 1)
    # Of several attempts of a process the slowest stands.
    for statistic in ("mean", "best"):
        found, _ = verdict_on(
            make, [timed_limit(make, 0.5, statistic)], taken(make, 1.0), taken(make, 0.1)
        )
        assert (found.kind, found.processes) == (Kind.REGRESSED, 1), statistic


def test_a_limit_on_the_fastest_call_does_not_gate_where_a_sample_is_several_calls(make):
    batched = taken(make, *SKEWED, iterations=2)
    for seconds, others in [(0.1, []), (0.5, []), (0.1, [taken(make, 1.0)])]:
        found, idle = verdict_on(
            make, [timed_limit(make, seconds, "best")], *others, replace(batched, process="q")
        )
        assert (found.kind, reason_text(found), idle) == (
            Kind.NO_BASELINE,
            "no baseline recorded",
            [BATCHED],
        ), seconds


def test_of_processes_that_agree_more_are_surer(make):
    # 4.5 % beyond a limit, as measured by one process to six.
    ends = []
    for count in range(1, 7):
        processes = [taken(make, 1.045, process=f"p{index}") for index in range(count)]
        found, _ = verdict_on(
            make, [timed_limit(make, 1.0)], *processes, policy=Policy(analyses=Analyses(6))
        )
        ends.append(found.interval[0])
    assert ends == sorted(ends)


@given(st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=20))
def test_statistics_leave_out_spoiled_blocks_and_the_fastest_call_is_never_slower(seconds):
    samples = Samples(tuple(seconds), 1, 1e-9)
    best, mean, median = (process_s(samples, statistic) for statistic in ("best", "mean", "median"))
    assert best <= min(median, mean * (1 + 1e-12))
    for statistic, expected in [("mean", 2.0), ("best", 1.0), ("median", 2.0)]:
        spoiled = Samples(
            (9.0, 9.0, 0.1, 1.0, 2.0, 3.0), 1, 1e-9, blocks=(Block(3, "host gap"), Block(3))
        )
        assert process_s(spoiled, statistic) == expected, statistic
    assert Samples((1.0, 2.0), 1, 1e-9, blocks=(Block(2, "host gap"),)).kept == (1.0, 2.0)


def test_what_is_no_limit_or_counts_another_thing_does_not_gate(make):
    entries = [
        timed_limit(make, 0.1, implausible="not synchronised"),
        timed_limit(make, 0.1, confidence="recalled"),
        make.published(metric="time_s", value=(0.1, 0.2), unit="s"),
        make.published("reference", metric="time_s", value=0.1, unit="s"),
    ]
    found, idle = verdict_on(make, entries, taken(make, 1.0))
    assert (found.kind, idle) == (Kind.NO_BASELINE, [])
    found, (why,) = verdict_on(
        make, [make.published(metric="busbw_GBps", value=1.0, unit="GB/s")], taken(make, 1.0)
    )
    assert (found.kind, "the test's work counts no such" in why) == (Kind.NO_BASELINE, True)


def test_what_passes_by_limits_names_the_one_that_is_most_easily_missed(make):
    found, _ = verdict_on(make, [timed_limit(make, 3.0), timed_limit(make, 2.0)], taken(make, 1.0))
    assert (found.kind, found.limit.seconds) == (Kind.PASSED, 2.0)
    assert (
        reason_text(found)
        == "not below threshold 2 s (read + write; the vendor's guide); no baseline recorded"
    )
    # The mean of 1.5 s is nearer to its limit than the fastest call of 0.5 s is to one of fewer seconds.
    found, _ = verdict_on(
        make, [timed_limit(make, 1.6, "best"), timed_limit(make, 1.9, "mean")], taken(make, *SKEWED)
    )
    assert (found.kind, found.limit.seconds) == (Kind.PASSED, 1.9)


def test_a_limit_says_how_its_source_sums_up(make):
    for statistic, words in [
        ("best", "e; fastest call;"),
        ("mean", "e; mean;"),
        ("median", "e; median;"),
        (None, "e;"),
    ]:
        found, _ = verdict_on(
            make, [timed_limit(make, 0.01, statistic, source="S")], taken(make, 1.0)
        )
        told = f"BELOW THRESHOLD: threshold 0.01 s (read + writ{words} S)"
        assert reason_text(found) == f"{told}, 1 process (spread 1 %: prior)"
    assert describe(make.published("reference", value=(1.0, 2.5))).startswith(
        "reference 1 to 2.5 GB/s ("
    )


HARDWARE = {"product": "h100-sxm5", "memory": "80gb"}
PEAK = Ceiling("traffic_GBps", 3.35e12, "datasheet", "the maker's datasheet", "high")
LINK = Ceiling("payload_GBps", 64e9, "datasheet", "the maker", "high")


def copied(
    make,
    share=0.8,
    size_bytes=64 * MIB,
    *,
    ceiling=PEAK,
    metric="traffic_GBps",
    labels=(),
    **hardware,
):
    """A copy of so many bytes at a share of a peak."""
    seconds = 2 * size_bytes / (share * 3.35e12)
    key = make.key(
        size_bytes=size_bytes, metric=metric, hardware=make.hardware(**(HARDWARE | hardware))
    )
    samples = Samples((seconds,), 1, 1e-9, labels=labels)
    work = Work(
        read_bytes=size_bytes,
        write_bytes=size_bytes,
        payload_bytes=size_bytes,
        wire_bytes=size_bytes,
    )
    return make.measurement(key=key, samples=samples, ceiling=ceiling, work=work)


def by_share(make, share, least=0.8, count=1, analyses=None):
    new = make.group(*[math.log(copied(make, share).median_s)] * count)
    limits = [roofline_limit(copied(make, share), least)]
    return judge([new], None, Policy(analyses=analyses or Analyses()), limits=limits)


def test_a_share_of_the_roofline_is_passed_missed_or_left_open(make):
    for share, kind in [(0.9, Kind.PASSED), (0.79, Kind.INCONCLUSIVE), (0.6, Kind.REGRESSED)]:
        found = by_share(make, share)
        assert (found.kind, found.limit.kind, found.tolerance) == (
            kind,
            "roofline",
            Policy().tolerance,
        ), share
    assert reason_text(by_share(make, 0.6)) == (
        "BELOW 80 % OF THE ROOFLINE (observed 60 % of 3350 GB/s; the maker's datasheet), 1 process (spread 1 %: prior)"
    )
    more = "a verdict needs about 5 processes; measure with --roofline-rounds=auto"
    assert more in reason_text(by_share(make, 0.77))
    assert by_share(make, 0.77, count=5).kind is Kind.REGRESSED
    # From three processes on where rounds may follow.
    kinds = [by_share(make, 0.7, count=count, analyses=Analyses(12)).kind for count in (1, 3)]
    assert kinds == [Kind.INCONCLUSIVE, Kind.REGRESSED]


def held(make, *groups, analyses=None):
    """The verdict on sessions by a limit of one second, the groups in log seconds."""
    return judge(
        groups,
        None,
        Policy(analyses=analyses or Analyses()),
        limits=[Limit(TimeLimit(1.0, timed_limit(make, 1.0)))],
    )


def test_of_several_devices_each_is_held_alone_and_the_one_that_misses_is_named(make):
    def devices(*logs):
        return [
            make.group(log, device=f"GPU-{number}", started="") for number, log in enumerate(logs)
        ]

    for slow in (0, 3):
        logs = [-0.08] * 4
        logs[slow] = 0.16
        found = held(make, *devices(*logs))
        assert (found.kind, found.processes) == (Kind.REGRESSED, 1)
        assert reason_text(found).endswith(
            f", GPU-{slow} (1 of 4 devices miss the limit), 1 process (spread 1 %: prior)"
        )
    found = held(make, *devices(-0.08, -0.01, -0.03))
    assert (found.kind, " on any of 3 devices" in reason_text(found)) == (Kind.PASSED, True)


def test_sessions_that_scatter_widely_do_not_surely_miss_a_limit(make):
    def sessions(*logs):
        return [
            make.group(log, started=f"2026-01-{day:02d}T03:04:05Z")
            for day, log in enumerate(logs, 1)
        ]

    # Their own t interval goes from 17 % below the limit to 31 % beyond it.
    found = held(make, *sessions(*map(math.log, (0.90, 1.15, 0.95, 1.12, 1.10))))
    assert (found.kind, found.interval[0] < -0.1) == (Kind.INCONCLUSIVE, True)
    assert held(make, *sessions(0.039, 0.04, 0.041, 0.04, 0.04)).kind is Kind.REGRESSED


def test_a_first_process_waits_for_others_unless_it_takes_half_as_long_again_or_is_the_last(make):
    for beyond, analyses, kind in [
        *((0.2, Analyses(12), Kind.INCONCLUSIVE), (0.1, Analyses(12), Kind.INCONCLUSIVE)),
        *((0.1, Analyses(12, ended=True), Kind.REGRESSED), (0.5, Analyses(12), Kind.REGRESSED)),
        (0.25, Analyses(12), Kind.INCONCLUSIVE),
    ]:
        assert held(make, make.group(beyond), analyses=analyses).kind is kind, (beyond, analyses)
    waits = held(make, make.group(0.2), analyses=Analyses(12))
    assert waits.interval[0] > 0
    assert (
        "but a run that may add rounds needs at least 3 processes for a red verdict"
        in reason_text(waits)
    )
    assert "reaches" not in reason_text(waits)


def test_what_lies_too_near_a_limit_for_any_number_of_processes_is_given_up(make):
    for beyond, futile in [(0.004, True), (0.03, False), (-0.001, False)]:
        found = held(make, make.group(*[beyond] * 5), analyses=Analyses(12))
        assert (
            found.futile,
            "too few to decide so close to the limit; record more and compare"
            in reason_text(found),
        ) == (
            futile,
            futile,
        ), beyond
    found = held(make, make.group(*[0.01] * 100), analyses=Analyses(100))
    assert reason_text(found).endswith(": roofline compare FILE.json RUN,RUN,…")


def test_what_is_sure_for_one_look_and_not_for_a_run_of_several_says_so(make):
    """Five processes of a session that lies 0.5 % from others: between the bounds of one analysis and of two."""
    spread = math.sqrt(4 * 0.01**2 / (4 + 4))
    error = math.sqrt(spread**2 / 5 + 0.005**2)
    alone, of_two = (scipy.stats.t.isf(chance, 8) * error for chance in (0.005, 0.0025))
    beyond = [(alone + of_two) / 2] * 5
    assert held(make, make.group(*beyond)).kind is Kind.REGRESSED
    waiting = held(make, make.group(*beyond), analyses=Analyses(12))
    assert waiting.kind is Kind.INCONCLUSIVE
    assert (
        "but the difference is not clear enough for a run that is analysed several times; 5 processes"
        in reason_text(waiting)
    )


def test_a_roofline_that_cannot_be_trusted_for_it_is_no_limit(make):
    for why, changes in {
        "no roofline": {"ceiling": None},
        "measured": {"ceiling": replace(PEAK, source="measured")},
        "recalled": {"ceiling": replace(PEAK, confidence="recalled")},
        "low": {"ceiling": replace(PEAK, confidence="low")},
        "not told": {"ceiling": replace(PEAK, confidence=None)},
        "small": {"size_bytes": 8 * MIB},
        "in a cache": {"labels": ("cache_resident",)},
        "unresolved": {"labels": ("unresolved",)},
        "a partition": {"partition": "1g.10gb"},
        "pageable": {"metric": "pageable_auto_payload_GBps", "ceiling": LINK},
    }.items():
        assert roofline_limit(copied(make, 0.1, **changes), 0.8) is None, why
    pinned = roofline_limit(copied(make, 0.1, ceiling=LINK, metric="pinned_auto_payload_GBps"), 0.8)
    assert pinned.time_limit.seconds == pytest.approx(64 * MIB / 51.2e9)
    # One that some hosts exceed is reached all the more easily.
    assert roofline_limit(copied(make, 0.1, ceiling=replace(PEAK, bounds=False)), 0.8) is not None
    assert roofline_limit(copied(make), 1.02) == Limit(
        TimeLimit(pytest.approx(2 * 64 * MIB / 3.417e12), peak=PEAK, share=1.02)
    )
    # Arithmetic from one GFLOP up, also in a cache.
    product = Ceiling("bf16_TFLOPS", 989e12, "datasheet", "the maker", "medium")
    samples = Samples((1e-3,), 1, 1e-9, labels=("cache_resident",))
    for flops, known in [(10**9, True), (10**9 - 1, False)]:
        facts = {"samples": samples, "ceiling": product, "work": Work(flops=flops)}
        one = make.measurement(key=make.key(metric="bf16_TFLOPS"), **facts)
        assert (roofline_limit(one, 0.5) is not None) == known


def floor(**changes):
    facts = {
        "benchmark": "memcpy_d2d",
        "metric": "traffic_GBps",
        "value": 0.8,
        "unit": "share",
        "source": "S",
    }
    return Entry(kind="floor", **(facts | {"figures": 1} | changes))


def test_a_floor_is_a_time_at_its_share_of_the_peak_where_it_applies(make):
    seconds = pytest.approx(2 * 64 * MIB / (0.8 * 3.35e12))
    assert floor_limits([floor()], copied(make, 0.5), None) == (
        [Limit(TimeLimit(seconds, floor(), PEAK, 0.8))],
        [],
    )
    capped = Gpu(0, "NVIDIA H100", power_limit_w=500.0, power_default_w=700.0)
    unknown = "no datasheet's peak is known here"
    for facts, gpu, why in [
        ({"labels": ("cache_resident",)}, None, "the measured data stayed in a cache"),
        ({"ceiling": None}, None, unknown),
        ({"ceiling": replace(PEAK, source="measured")}, None, unknown),
        ({"ceiling": LINK}, None, unknown),
        ({}, capped, ""),
    ]:
        limits, idle = floor_limits([floor()], copied(make, **facts), gpu)
        assert (len(limits), [why in told for _, told in idle]) == (
            (0, [True]) if why else (1, [])
        ), (facts, why)
    # Of arithmetic only at the power that the card is shipped with.
    product = Ceiling("bf16_TFLOPS", 989e12, "datasheet", "the maker", "high")
    one = make.measurement(
        key=make.key(metric="bf16_TFLOPS"), ceiling=product, work=Work(flops=10**12)
    )
    for gpu, count in [(capped, 0), (replace(capped, power_limit_w=700.0), 1), (None, 1)]:
        limits, idle = floor_limits([floor(metric="bf16_TFLOPS")], one, gpu)
        why = "the power limit is 500 W; the default of the card is 700 W"
        assert (len(limits), [told for _, told in idle]) == (count, [why] * (1 - count)), gpu


def test_a_floor_of_a_collective_is_a_share_of_what_the_links_carry(make, monkeypatch):
    hardware = make.hardware(product="h100-sxm5", memory="80gb", devices=8, link="nvlink-switch")
    work = Work(algbw_bytes=2**30, busbw_bytes=2**30 * 14 // 8)
    ceiling = collective_ceiling(product_like("h100-sxm5", "80gb"), hardware, work, "busbw_GBps")
    one = make.measurement(
        key=make.key("all_reduce", metric="busbw_GBps", hardware=hardware),
        work=work,
        ceiling=ceiling,
    )
    entry = floor(benchmark="all_reduce", metric="busbw_GBps", value=0.9)
    (limit,), _ = floor_limits([entry], one, None)
    assert limit.time_limit.seconds == pytest.approx(work.busbw_bytes / (0.9 * 450e9))
    monkeypatch.setenv("NCCL_ALGO", "RING")
    assert floor_limits([entry], one, None)[1][0][1].startswith(
        "NCCL_ALGO overrides the algorithm that the library chooses"
    )


def compared(make, tmp_path, entries, *measurements):
    write_baseline(tmp_path / "h200.json", Baseline("h200", tuple(entries)))
    return compare([tmp_path / "h200.json"], [make.save(tmp_path / "new.jsonl", *measurements)])


def test_a_comparison_of_files_judges_limits_as_the_run_does(make, tmp_path):
    for statistic, limit_s in itertools.product(
        [None, "median", "mean", "best"], [0.3, 0.7, 1.2, 1.7]
    ):
        entry = timed_limit(make, limit_s, statistic)
        live, _ = verdict_on(make, [entry], taken(make, *SKEWED))
        (row,) = compared(make, tmp_path, [entry], taken(make, *SKEWED)).rows
        assert (row.verdict, row.time_verdict.estimate) == (live.kind, live.estimate), (
            statistic,
            limit_s,
        )


def test_a_comparison_with_a_file_of_limits_names_what_cannot_gate_and_what_was_not_run(
    make, tmp_path
):
    entries = [timed_limit(make, 2.0), timed_limit(make, 0.1, "best")]
    (row,) = compared(make, tmp_path, entries, taken(make, 1.0, iterations=4)).rows
    assert (row.verdict, row.label, [why for _, why in row.idle]) == (
        Kind.PASSED,
        "memcpy_d2d[64MiB]",
        [BATCHED],
    )
    entries = [
        timed_limit(make, 2.0),
        timed_limit(make, 2.0, benchmark="stream"),
        timed_limit(make, 3.0, benchmark="stream", source="another"),
        timed_limit(make, 2.0, benchmark="low", confidence="low"),
        timed_limit(make, 2.0, benchmark="other", hardware=make.hardware(product="h100-sxm5")),
    ]
    assert compared(make, tmp_path, entries, taken(make, 1.0)).only_old == ("stream",)


def test_a_comparison_of_several_machines_finds_the_one_that_misses_its_limit(make, tmp_path):
    write_baseline(tmp_path / "h200.json", Baseline("h200", (timed_limit(make, 1.0),)))
    runs = [
        make.save(
            tmp_path / f"n{number}.jsonl",
            taken(make, seconds),
            run_id="nightly",
            uuid=f"GPU-{number}",
        )
        for number, seconds in enumerate((1.18, 0.92, 0.92, 0.92))
    ]
    (row,) = compare([tmp_path / "h200.json"], runs).rows
    assert (row.verdict, "GPU-0" in row.reason) == (Kind.REGRESSED, True)


def test_a_baseline_files_medians_are_held_against_limits_on_the_median_alone(make, tmp_path):
    write_baseline(
        tmp_path / "old.json",
        Baseline("h200", (timed_limit(make, 0.5), timed_limit(make, 0.1, "mean"))),
    )
    write_baseline(tmp_path / "new.json", Baseline("h200", (make.measured(1.0),)))
    (row,) = compare([tmp_path / "old.json"], [tmp_path / "new.json"]).rows
    assert (row.time_verdict.limit.kind, row.time_verdict.limit_s) == ("published", 0.5)
    why = "the limit is not for the median, and a baseline file holds medians only"
    assert [told for _, told in row.idle] == [why]


def test_a_limit_becomes_the_time_of_the_work_in_its_own_counting(make):
    copy = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)
    for work, facts, seconds in [
        (copy, {"value": 100.0}, 0.02),
        (copy, {"metric": "payload_GBps", "value": 100.0}, 0.01),
        (Work(flops=10**12), {"metric": "TFLOPS", "value": 2.0, "unit": "TFLOP/s"}, 0.5),
        (copy, {"metric": "time_s", "value": 3.0, "unit": "s"}, 3.0),
        (copy, {"value": (1.0, 2.0)}, None),
        (copy, {"value": OUT_OF_MEMORY}, None),
        (copy, {"metric": "busbw_GBps", "unit": "GB/s"}, None),
    ]:
        found = limit_seconds(make.published(**facts), work)
        assert found == (seconds and pytest.approx(seconds)), facts


def test_a_figure_speaks_of_what_counts_the_same_and_the_time_of_a_call_of_no_program(make):
    for published, measured, speaks in [
        *(("time_s", "traffic_GBps", True), ("peak_bytes", "traffic_GBps", True)),
        *(("traffic_GBps", "sm_traffic_GBps", True), ("payload_GBps", "traffic_GBps", False)),
        *((JOB_METRIC, "traffic_GBps", False), (JOB_METRIC, JOB_METRIC, True)),
        *(("time_s", JOB_METRIC, False), ("peak_bytes", JOB_METRIC, False)),
    ]:
        unit = {"time_s": "s", JOB_METRIC: "s", "peak_bytes": "B"}.get(published, "GB/s")
        entry = make.published("reference", metric=published, unit=unit)
        assert entry.matches(make.key(metric=measured)) == speaks, (published, measured)
    for metric, unit in [(JOB_METRIC, "ms"), ("peak_bytes", "MB"), ("time_s", "ms")]:
        with pytest.raises(BadInput, match=f"unit is '{unit}'"):
            make.published("reference", metric=metric, unit=unit)
