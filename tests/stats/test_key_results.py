"""Luck cannot be retried into green: the slowest sound attempt of a process stands, and every sound process counts."""

import math
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.reasons import Reason, ReasonCode, of_processes, text_reasons
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.verdicts import Kind
from pytest_roofline.stats.key_results import KeyResults, judge_peak, typical_peak
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.spread import priors
from pytest_roofline.stats.stats import difference
from pytest_roofline.stats.verdicts import judge

MIB = 2**20
(NEIGHBOURS,) = text_reasons("neighbours")
logs = st.floats(-0.3, 0.3)
# Which process, how slow, and whether it was spoiled.
attempts = st.lists(
    st.tuples(st.sampled_from("abcd"), logs, st.sampled_from(["", "", "", "neighbours"])),
    min_size=1,
    max_size=10,
)
baselines = st.lists(st.lists(logs, min_size=1, max_size=5), min_size=1, max_size=3)


def measured(make, process, log, invalid="", labels=()):
    samples = Samples((math.exp(log),), 1, 1e-9, labels=labels)
    return make.measurement(samples=samples, process=process, invalid=invalid)


def results(make, *attempts):
    return KeyResults([measured(make, *attempt) for attempt in attempts])


def sound_processes(results, reference=None):
    """Of each process that can be judged the time that stands."""
    return {measurement.process: measurement.median_s for measurement in results.sound(reference)}


def estimate(make, attempts, sessions):
    """What a verdict would say, in log seconds; None where no process is sound."""
    group = results(make, *attempts).group(None, "GPU-1", "2026-02-01")
    groups = [
        make.group(*side, started=f"2026-01-{day:02d}") for day, side in enumerate(sessions, 1)
    ]
    return difference([group], groups, priors()["device"]).estimate if group.medians_s else None


@given(attempts)
def test_the_slowest_sound_attempt_of_every_process_stands_and_nothing_is_replaced(make, attempts):
    expected = {}
    for process, log, invalid in attempts:
        if not invalid:
            expected[process] = max(expected.get(process, 0.0), math.exp(log))
    taken = results(make, *attempts)
    assert sound_processes(taken) == expected
    assert set(taken.unsound(None)) == {process for process, _, _ in attempts} - set(expected)
    assert sorted(taken.group(None, "", "").medians_s) == sorted(expected.values())
    taken.representative(None)
    assert [(m.process, math.log(m.median_s), m.invalid) for m in taken.measurements] == [
        (process, pytest.approx(log), invalid) for process, log, invalid in attempts
    ]


@given(
    attempts, baselines, st.integers(0, 9), st.floats(0.0, 0.5), st.randoms(use_true_random=False)
)
@example([("a", 0.3, "")], [[0.2], [-0.2, 0.2, -0.2]], 0, 0.0, None)
def test_a_slower_attempt_never_lowers_the_estimate_and_order_changes_nothing(
    make, attempts, sessions, at, more, random
):
    """A process that is run again, or one more process, no faster than any before."""
    before = estimate(make, attempts, sessions)
    sound = [attempt for attempt in attempts if not attempt[2]]
    if before is None:
        return
    process, log, _ = sound[at % len(sound)]
    assert estimate(make, [*attempts, (process, log + more, "")], sessions) >= before - 1e-9
    assert estimate(make, [*attempts, (process, log - more, "")], sessions) >= before - 1e-9
    slowest = max(log for _, log, _ in sound)
    assert estimate(make, [*attempts, ("another", slowest + more, "")], sessions) >= before - 1e-9
    if random is not None:
        turned = random.sample(attempts, len(attempts))
        assert estimate(make, turned, sessions) == pytest.approx(before, abs=1e-9)


def test_what_is_spoiled_excuses_no_sound_attempt_and_where_most_is_the_rest_stands_for_nothing(
    make,
):
    taken = results(make, ("a", 0.3), ("a", 0.0, "neighbours"), ("b", 0.0, "neighbours"))
    assert (sound_processes(taken), taken.unsound(None)) == (
        {"a": math.exp(0.3)},
        {"b": NEIGHBOURS},
    )
    for sound, unsound, reason in [
        *((0, 1, (NEIGHBOURS,)), (1, 0, ()), (1, 1, ()), (3, 3, ())),
        *((1, 2, (of_processes(NEIGHBOURS, 2, 3),)), (2, 3, (of_processes(NEIGHBOURS, 3, 5),))),
    ]:
        good = [(f"good{number}", 0.0) for number in range(sound)]
        bad = [(f"bad{number}", 0.0, "neighbours") for number in range(unsound)]
        taken = results(make, *good, *bad)
        assert (taken.invalid(None), taken.hopeless(None)) == (reason, unsound >= 3), (
            sound,
            unsound,
        )
    fast = results(make, ("a", -0.5), ("b", 0.0, "neighbours"), ("c", 0.0, "neighbours"))
    found = judge(
        [fast.group(None, "GPU-1", "")],
        make.reference(),
        Policy(),
        invalid=fast.invalid(make.reference()),
    )
    assert found.kind is Kind.INVALID


def test_a_process_that_timed_another_thing_than_the_baseline_is_not_sound(make):
    """Or a regression that turns a test host-bound would slip through."""
    taken = KeyResults([measured(make, "a", 0.0, labels=("host_bound",)), measured(make, "b", 0.1)])
    reference = make.reference(achieved=((),))
    assert list(sound_processes(taken, reference)) == ["b"]
    other = Reason(ReasonCode.OTHER_MODE, texts={"mode": "host_bound"})
    assert {"a": other} == taken.unsound(reference)
    assert list(sound_processes(taken)) == ["a", "b"]


def test_the_process_in_the_middle_stands_for_all_and_of_two_the_slower(make):
    for times, middle in [((0.1,), 0.1), ((0.1, 0.3, 0.2), 0.2), ((0.1, 0.2, 0.3, 0.4), 0.3)]:
        taken = results(make, *((f"process{log}", log) for log in times))
        assert math.log(taken.representative(None).median_s) == pytest.approx(middle), times
    nothing = results(make, ("a", 0.0, "neighbours"), ("a", 0.1, "heat"))
    assert nothing.representative(None).invalid == "heat"
    group = results(make, ("a", 0.1), ("b", 0.2)).group(None, "GPU-7", "2026-02-01")
    assert (group.device, group.started, len(group.medians_s)) == ("GPU-7", "2026-02-01", 2)


def test_of_a_process_the_largest_peak_and_of_processes_the_middle_one_stands(make):
    for peaks, stands in [
        *(([[4], [9], [5]], 5), ([[4], [9]], 4), ([[4, 6]], 6), ([[None], [7]], 7)),
        *(([[0]], 0), ([[None]], None), ([], None)),
    ]:
        processes = [[make.measurement(peak_bytes=peak) for peak in attempts] for attempts in peaks]
        assert typical_peak(processes) == stands, peaks


def test_more_than_the_tolerance_of_a_peak_is_a_regression_and_less_an_improvement(make):
    for partition, old, new, word in [
        # A share of it.
        *(
            ("none", 100 * MIB, 105 * MIB, "PASSED"),
            ("none", 100 * MIB, 105 * MIB + 1, "REGRESSED"),
        ),
        *(("none", 100 * MIB, 95 * MIB, "PASSED"), ("none", 100 * MIB, 95 * MIB - 1, "IMPROVED")),
        # A block of the allocator, of what is small or nothing.
        *(("none", MIB, 3 * MIB, "PASSED"), ("none", MIB, 3 * MIB + 1, "REGRESSED")),
        *(("none", 0, 0, "PASSED"), ("none", 0, 2 * MIB + 1, "REGRESSED")),
        # A CPU's allocations are told one by one.
        *(("8-cores", MIB, 3 * MIB, "REGRESSED"), ("8-cores", 1000, 5096, "PASSED")),
        ("8-cores", 1000, 5097, "REGRESSED"),
    ]:
        key = make.key(hardware=make.hardware(partition=partition))
        found = judge_peak(new, make.reference(peak_bytes=old), key)
        assert (found.verdict, found.value, found.baseline_value) == (word, new, old)
        assert bool(found.reason) == (word != "PASSED")


def test_a_peak_on_one_side_alone_is_no_baseline_or_invalid_and_on_neither_nothing(make):
    key = make.key()
    assert judge_peak(None, None, key) is judge_peak(None, make.reference(), key) is None
    assert (judge_peak(1, None, key).verdict, judge_peak(1, None, key).reason) == (
        "NO BASELINE",
        "no baseline",
    )
    assert judge_peak(1, make.reference(), key).reason == "the baseline holds no peak memory yet"
    missing = judge_peak(None, make.reference(peak_bytes=MIB), key)
    reason = "the baseline has a peak memory of 1.00 MiB, but this run measured no peak"
    assert (missing.verdict, reason in missing.reason) == ("INVALID", True)
    wrong = replace(missing, allowed=-1)
    assert make.refusal(wrong) == "FILE: allowed is -1; expected a whole number, zero or more"
    assert make.measured(peak_bytes=0).peak_bytes == 0
    assert "peak_bytes is -1" in make.refusal(make.measured(peak_bytes=-1))
    with pytest.raises(BadInput, match="peak_bytes"):
        make.published(peak_bytes=1)
