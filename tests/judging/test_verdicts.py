import math
import random
import re

import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from pytest_roofline.core.entries import OUT_OF_MEMORY
from pytest_roofline.core.work import Work
from pytest_roofline.judging.verdicts import (
    Kind,
    Policy,
    Reference,
    changed_environment,
    interval_text,
    judge,
    limit_seconds,
)

STEADY = Reference((1.0, 1.001, 0.999, 1.0005, 0.9995), "baseline")


def verdict(new_s, reference=STEADY, **policy):
    return judge((new_s,), reference, Policy(**policy))


logs = st.floats(-0.3, 0.3)


@given(st.lists(logs, min_size=2, max_size=8), logs, st.integers(1, 200), st.sampled_from([0.01, 0.05, 0.2]))
def test_regressed_needs_more_than_the_tolerance_and_p_of_a_hundredth_by_m(reference, new, comparisons, tolerance):
    count = len(reference)
    assume(max(reference) - min(reference) > 1e-4)
    spread = scipy.stats.tstd(reference)
    d = new - sum(reference) / count
    p = scipy.stats.t.sf(d / (spread * math.sqrt(1 + 1 / count)), count - 1)
    assume(abs(p - 0.01 / comparisons) > 1e-9)
    assume(abs(d - math.log1p(tolerance)) > 1e-9)
    found = verdict(
        math.exp(new), Reference(tuple(map(math.exp, reference)), "b"), tolerance=tolerance, comparisons=comparisons
    )
    assert (d > math.log1p(tolerance) and p <= 0.01 / comparisons) == (found.kind is Kind.REGRESSED)
    assert found.p == pytest.approx(p, abs=1e-9)


@given(st.floats(0.5, 2.0), st.integers(1, 200), st.sampled_from([0.01, 0.15]))
def test_with_one_reference_process_the_prior_decides(new, comparisons, prior):
    d = math.log(new)
    p = scipy.stats.norm.sf(d / (prior * math.sqrt(2)))
    assume(abs(p - 0.01 / comparisons) > 1e-9)
    assume(abs(d - math.log(1.05)) > 1e-9)
    found = verdict(new, Reference((1.0,), "b"), comparisons=comparisons, prior=prior)
    assert (d > math.log(1.05) and p <= 0.01 / comparisons) == (found.kind is Kind.REGRESSED)
    assert found.spread_assumed


@pytest.mark.parametrize(
    ("new_s", "kind"),
    [
        (1.30, Kind.REGRESSED),
        (1.07, Kind.REGRESSED),
        (1.04, Kind.PASSED),
        (1.0, Kind.PASSED),
        (0.97, Kind.PASSED),
        (0.80, Kind.IMPROVED),
    ],
)
def test_a_steady_machine_gets_a_clear_answer(new_s, kind):
    assert kind is verdict(new_s).kind


@pytest.mark.parametrize(("tolerance", "kind"), [(0.05, Kind.REGRESSED), (0.10, Kind.PASSED)])
def test_the_tolerance_is_of_time(tolerance, kind):
    assert kind is verdict(1.07, tolerance=tolerance).kind


def test_a_slowdown_inside_the_tolerance_is_never_red_however_certain():
    assert verdict(1.049, Reference((1.0, 1.0 + 1e-9), "b"), comparisons=1).kind is Kind.PASSED


def test_a_slowdown_that_noise_explains_is_inconclusive():
    noisy = Reference((1.0, 1.3, 0.8, 1.1, 0.9), "b")
    assert verdict(1.2, noisy).kind is Kind.INCONCLUSIVE


def test_more_comparisons_demand_more_evidence():
    reference = Reference((1.0, 1.01, 0.99), "b")
    kinds = [verdict(1.12, reference, comparisons=count).kind for count in (1, 1000)]
    assert kinds == [Kind.REGRESSED, Kind.INCONCLUSIVE]


def test_an_inconclusive_reason_says_what_would_decide():
    reason = verdict(1.2, Reference((1.0,), "b"), prior=0.15).reason
    expected = (
        r"may be -\d+\.\d to \+\d+\.\d % with processes 15 % apart \(assumed, from one process\); "
        r"about \d+ processes a side would decide, or a wider --roofline-tolerance"
    )
    assert re.fullmatch(expected, reason)


@pytest.mark.parametrize("reference", [(1.0, 1.0004), (1.0, 1.004), (1.0, 1.1, 0.9)])
def test_an_inconclusive_reason_asks_for_more_processes_than_there_are(reference):
    found = verdict(1.06, Reference(reference, "b"), comparisons=20)
    assert found.kind is Kind.INCONCLUSIVE
    asked = int(re.search(r"about (\d+) processes a side", found.reason)[1])
    assert asked > len(reference)


@pytest.mark.parametrize(
    ("new_s", "kind"), [(1.06, Kind.REGRESSED), (1.02, Kind.PASSED), (1.0, Kind.PASSED), (0.9, Kind.IMPROVED)]
)
def test_reference_processes_without_any_spread_still_give_an_answer(new_s, kind):
    found = verdict(new_s, Reference((1.0, 1.0, 1.0), "b"), comparisons=50)
    assert kind is found.kind
    assert found.interval == pytest.approx((math.log(new_s), math.log(new_s)))


def test_the_change_is_a_share_of_the_references_time():
    assert verdict(1.25, Reference((1.0, 1.0), "b")).change == pytest.approx(0.25)


def test_the_slower_processes_are_counted():
    assert verdict(1.05, Reference((1.0, 1.1, 1.2), "b"), tolerance=1.0).slower_processes == 1


def test_the_centre_of_a_reference_is_the_geometric_mean():
    assert Reference((1.0, 4.0), "b").median_s == pytest.approx(2.0)


def false_alarms(runs, benchmarks, processes, spread, slowdown=1.0, seed=20240613):
    """The share of runs with at least one red among `benchmarks` that are slower by `slowdown`."""
    rng = random.Random(seed)
    policy = Policy(comparisons=benchmarks, prior=spread)
    red = 0
    for _ in range(runs):
        draws = [[math.exp(rng.gauss(0.0, spread)) for _ in range(processes + 1)] for _ in range(benchmarks)]
        red += any(
            judge((slowdown * new,), Reference(tuple(reference), "b"), policy).kind is Kind.REGRESSED
            for new, *reference in draws
        )
    return red / runs


RUNS = 400
# One run in a hundred, and three standard errors of a share estimated from that many runs.
ONE_IN_A_HUNDRED = 0.01 + 3 * math.sqrt(0.01 * 0.99 / RUNS)


@pytest.mark.parametrize("processes", [2, 5])
def test_unchanged_code_on_a_steady_device_is_never_red(processes):
    assert false_alarms(RUNS, benchmarks=10, processes=processes, spread=0.01) < 0.01


@pytest.mark.parametrize("spread", [0.01, 0.15])
@pytest.mark.parametrize("processes", [1, 5])
def test_unchanged_code_is_red_in_one_run_of_a_hundred_at_most(processes, spread):
    assert false_alarms(RUNS, benchmarks=10, processes=processes, spread=spread) <= ONE_IN_A_HUNDRED


def test_a_big_slowdown_is_found():
    assert false_alarms(100, benchmarks=20, processes=5, spread=0.01, slowdown=1.3) == 1.0


def test_without_a_reference_there_is_no_baseline_and_the_reason_is_kept():
    found = judge((1.0,), None, Policy(), why_none="no baseline recorded")
    assert (found.kind, found.reason) == (Kind.NO_BASELINE, "no baseline recorded")


@pytest.mark.parametrize("reference", [None, STEADY])
def test_invalid_hides_every_other_finding(make, reference):
    limit = [(make.published(), 1e-9)]
    found = judge((9.0,), reference, Policy(), invalid="wrong data", thresholds=limit, why_none="none")
    assert (found.kind, found.reason) == (Kind.INVALID, "wrong data")


def test_the_kinds_stand_in_the_order_in_which_one_hides_another():
    assert [kind.value for kind in Kind] == [
        "INVALID",
        "NO BASELINE",
        "REGRESSED",
        "IMPROVED",
        "PASSED",
        "INCONCLUSIVE",
    ]


@pytest.mark.parametrize("reference", [None, STEADY])
def test_an_interval_wholly_beyond_a_limit_is_below_the_threshold(make, reference):
    entry = make.published(value=235.0, source="NVIDIA docs")
    found = judge((1.05,), reference, Policy(prior=0.01), thresholds=[(entry, 1.0)])
    assert (Kind.REGRESSED, entry) == (found.kind, found.threshold)
    assert found.reason.startswith("BELOW THRESHOLD: threshold 235.0 GB/s (read + write")
    assert "NVIDIA docs" in found.reason
    assert found.change == pytest.approx(0.05)
    assert found.interval[0] > 0


def test_a_limit_is_decided_by_its_own_interval_not_by_the_comparisons_of_the_run(make):
    found = judge((1.05,), None, Policy(comparisons=10_000, prior=0.01), thresholds=[(make.published(), 1.0)])
    assert found.kind is Kind.REGRESSED


@pytest.mark.parametrize("new_s", [0.5, 0.999, 1.02])
def test_an_interval_that_reaches_the_limit_breaches_nothing(make, new_s):
    assert judge((new_s,), None, Policy(prior=0.01), thresholds=[(make.published(), 1.0)]).kind is Kind.PASSED


@given(st.floats(0.8, 1.2))
def test_a_breach_needs_the_lower_end_of_the_interval_beyond_the_limit(make, new_s):
    lower = math.log(new_s) - scipy.stats.norm.ppf(0.995) * 0.01
    assume(abs(lower) > 1e-9)
    found = judge((new_s,), None, Policy(prior=0.01), thresholds=[(make.published(), 1.0)])
    assert (lower > 0) == (found.kind is Kind.REGRESSED)


def test_any_one_of_several_limits_can_be_breached(make):
    easy, hard = make.published(source="easy"), make.published(source="hard")
    found = judge((1.0,), None, Policy(), thresholds=[(easy, 2.0), (hard, 0.5)])
    assert found.threshold is hard


def test_a_result_within_its_limit_is_still_held_against_the_baseline(make):
    found = judge((1.3,), STEADY, Policy(), thresholds=[(make.published(), 2.0)])
    assert (found.kind, found.threshold) == (Kind.REGRESSED, None)


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
    assert limit_seconds(make.published(metric="TFLOPS", unit="TFLOP/s"), make.copy()) is None


def test_what_changed_beside_the_code_is_named():
    before = [{"driver": "550", "torch": "2"}, {"driver": "540", "torch": "2"}]
    assert changed_environment({"driver": "570", "torch": "2", "new": "1"}, before) == ["driver 540, 550 → 570"]


def test_a_fact_that_any_recorded_session_shares_has_not_changed():
    assert changed_environment({"driver": "550"}, [{"driver": "550"}, {"driver": "540"}]) == []


def test_an_interval_reads_in_percent_of_time():
    found = judge((1.25,), Reference((1.0, 1.0), "b"), Policy())
    assert interval_text(found) == "+25.0 … +25.0 %"
