"""Luck cannot be retried into green: the slowest sound attempt of a process stands, and every sound process counts."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_roofline.core.samples import Samples
from pytest_roofline.stats.key_results import KeyResults
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.spread import priors
from pytest_roofline.stats.stats import difference
from pytest_roofline.stats.verdicts import Kind, judge

AS_ASKED = frozenset([()])
logs = st.floats(-0.3, 0.3)
# Which process, how slow, and whether it was spoiled.
attempts = st.lists(
    st.tuples(st.sampled_from("abcd"), logs, st.sampled_from(["", "", "", "neighbours"])), min_size=1, max_size=10
)
baselines = st.lists(st.lists(logs, min_size=1, max_size=5), min_size=1, max_size=3)
slower = st.floats(0.0, 0.5)


def measured(make, process, log, invalid="", labels=()):
    samples = Samples((math.exp(log),), 1, 1e-9, labels=labels)
    return make.measurement(samples=samples, process=process, invalid=invalid)


def trial(make, *attempts):
    return KeyResults([measured(make, *attempt) for attempt in attempts])


def standing(trial, reference=None):
    """Of each process that can be judged the time that stands."""
    return {measurement.process: measurement.median_s for measurement in trial.sound(reference)}


def estimate(make, attempts, sessions):
    """What a verdict would say, in log seconds; None where no process is sound."""
    taken = trial(make, *attempts)
    group = taken.group(None, "GPU-1", "2026-02-01")
    groups = [make.group(*side, started=f"2026-01-{day:02d}") for day, side in enumerate(sessions, 1)]
    return difference([group], groups, priors()["device"]).estimate if group.medians_s else None


@given(attempts)
def test_the_slowest_sound_attempt_of_every_process_stands_and_no_sound_process_is_left_out(make, attempts):
    expected = {}
    for process, log, invalid in attempts:
        if not invalid:
            expected[process] = max(expected.get(process, 0.0), math.exp(log))
    taken = trial(make, *attempts)
    assert standing(taken) == expected
    assert set(taken.unsound(None)) == {process for process, _, _ in attempts} - set(expected)
    assert sorted(taken.group(None, "", "").medians_s) == sorted(expected.values())


@given(st.lists(logs, min_size=1, max_size=6), st.permutations(range(6)))
def test_a_rerun_that_is_faster_changes_nothing(make, times, order):
    """However often, and whichever attempt came first."""
    turned = [times[index] for index in order if index < len(times)]
    slowest = math.exp(max(times))
    assert standing(trial(make, *(("a", log) for log in turned))) == {"a": slowest}


@given(attempts, baselines, st.integers(0, 9), slower)
@example([("a", 0.3, "")], [[0.2], [-0.2, 0.2, -0.2]], 0, 0.0)
def test_a_slower_attempt_never_lowers_the_estimate(make, attempts, sessions, at, more):
    """A process that is run again, or one more process, no faster than any before."""
    before = estimate(make, attempts, sessions)
    sound = [attempt for attempt in attempts if not attempt[2]]
    if before is not None:
        process, log, _ = sound[at % len(sound)]
        again = estimate(make, [*attempts, (process, log + more, "")], sessions)
        assert again >= before - 1e-9
        slowest = max(log for _, log, _ in sound)
        beside = estimate(make, [*attempts, ("another", slowest + more, "")], sessions)
        assert beside >= before - 1e-9


@given(attempts, baselines, st.randoms(use_true_random=False))
def test_the_order_of_attempts_changes_nothing(make, attempts, sessions, random):
    turned = random.sample(attempts, len(attempts))
    both = [estimate(make, taken, sessions) for taken in (attempts, turned)]
    assert both[0] == (None if both[1] is None else pytest.approx(both[1], abs=1e-9))


@given(attempts)
def test_every_measurement_is_kept_as_it_was_taken(make, attempts):
    """Sound or not: nothing is replaced."""
    taken = trial(make, *attempts)
    taken.sound(None)
    taken.standing(None)
    assert [(m.process, math.log(m.median_s), m.invalid) for m in taken.measurements] == [
        (process, pytest.approx(log), invalid) for process, log, invalid in attempts
    ]


def test_a_spoiled_attempt_does_not_excuse_a_sound_one_of_the_same_process(make):
    taken = trial(make, ("a", 0.3), ("a", 0.0, "neighbours"))
    assert (standing(taken), taken.unsound(None)) == ({"a": math.exp(0.3)}, {})


def test_a_process_without_a_sound_attempt_is_named_with_its_reason(make):
    taken = trial(make, ("a", 0.0), ("b", 0.0, "neighbours"))
    assert taken.unsound(None) == {"b": "neighbours"}
    assert taken.invalid(None) == ""


@pytest.mark.parametrize(
    ("sound", "unsound", "reason"),
    [
        (0, 1, "neighbours"),
        (1, 0, ""),
        (1, 1, ""),
        (1, 2, "2 of 3 processes: neighbours"),
        (2, 3, "3 of 5 processes: neighbours"),
        (3, 3, ""),
    ],
)
def test_where_most_processes_are_spoiled_the_rest_stands_for_nothing(make, sound, unsound, reason):
    good = [(f"good{number}", 0.0) for number in range(sound)]
    bad = [(f"bad{number}", 0.0, "neighbours") for number in range(unsound)]
    assert trial(make, *good, *bad).invalid(None) == reason


def test_what_is_mostly_spoiled_is_invalid_however_fast_the_rest(make):
    taken = trial(make, ("a", -0.5), ("b", 0.0, "neighbours"), ("c", 0.0, "neighbours"))
    group, reference = taken.group(None, "GPU-1", ""), make.reference()
    assert judge([group], reference, Policy(), invalid=taken.invalid(reference)).kind is Kind.INVALID


@pytest.mark.parametrize(("unsound", "hopeless"), [(2, False), (3, True)])
def test_what_could_not_be_trusted_three_times_is_not_tried_again(make, unsound, hopeless):
    taken = trial(make, *((f"bad{number}", 0.0, "neighbours") for number in range(unsound)))
    assert taken.hopeless(None) == hopeless


def test_a_process_that_timed_another_thing_than_the_baseline_is_not_sound(make):
    """Or a regression that turns a test host-bound would slip through."""
    taken = KeyResults([measured(make, "a", 0.0, labels=("host_bound",)), measured(make, "b", 0.1)])
    reference = make.reference(achieved=AS_ASKED)
    assert list(standing(taken, reference)) == ["b"]
    assert "two different things were timed" in taken.unsound(reference)["a"]
    assert list(standing(taken)) == ["a", "b"]


@pytest.mark.parametrize(("times", "middle"), [((0.1,), 0.1), ((0.1, 0.3, 0.2), 0.2), ((0.1, 0.2, 0.3, 0.4), 0.3)])
def test_the_process_in_the_middle_stands_for_all_and_of_two_the_slower(make, times, middle):
    taken = trial(make, *((f"process{log}", log) for log in times))
    assert math.log(taken.standing(None).median_s) == pytest.approx(middle)


def test_where_nothing_is_sound_the_last_attempt_is_shown(make):
    assert trial(make, ("a", 0.0, "neighbours"), ("a", 0.1, "heat")).standing(None).invalid == "heat"


def test_the_processes_of_a_trial_are_one_session(make):
    group = trial(make, ("a", 0.1), ("b", 0.2)).group(None, "GPU-7", "2026-02-01")
    assert (group.device, group.started, len(group.medians_s)) == ("GPU-7", "2026-02-01", 2)
