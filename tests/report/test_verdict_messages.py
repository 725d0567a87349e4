"""Sentences about one verdict: the difference first, then how sure it is, what changed, and where to look."""

import math
import re

import pytest

from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.report.verdicts import failure_message, status_word
from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.verdicts import Kind

HOSTILE = "x\x1b[31m\r\ny\u202e"
INTERVAL = r"[+-]\d+\.\d … [+-]\d+\.\d %"
MILLISECOND = math.log(1e-3)


def vague(make, spread=0.05, processes=5):
    """A reference around a millisecond whose processes lie far apart."""
    return make.reference(*make.groups(1, processes, process=spread, centre=MILLISECOND))


def breach(make, *seconds, **changes):
    return make.result(*(seconds or (1.25e-3,)), known=False, limits=[Limit(make.published(), 1e-3)], **changes)


def verdicts(make):
    """One of every kind that has an estimate."""
    return {
        Kind.REGRESSED: make.result(1.25e-3),
        Kind.PASSED: make.result(1.001e-3),
        Kind.IMPROVED: make.result(0.5e-3),
        Kind.INCONCLUSIVE: make.result(1.04e-3, reference=vague(make)),
    }


KINDS = [Kind.REGRESSED, Kind.PASSED, Kind.IMPROVED, Kind.INCONCLUSIVE]


def lines(message):
    first, second = message.split("\n")
    return first, second


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("processes", [1, 4])
def test_the_status_word_is_the_number_the_difference_its_interval_and_the_processes(make, kind, processes):
    one = verdicts(make)[kind]
    assert one.verdict == kind
    seconds = [one.measurement.median_s] * processes
    reference = make.reference(*(make.group(*map(math.log, one.process_medians)) for one in one.judgement.reference))
    again = make.result(*seconds, reference=reference)
    processes, behind = again.processes, again.baseline_processes
    word = f" {kind.value}" if kind is not Kind.PASSED else ""
    pattern = rf"[\d.]+ GB/s [+-]\d+\.\d % \({INTERVAL}, {processes} against {behind}\){word}"
    assert re.fullmatch(pattern, status_word(again))


def test_the_status_word_of_a_breach_tells_its_interval_and_processes_too(make):
    """The issue: every printed verdict shows estimate, interval and how many processes."""
    word = status_word(breach(make))
    assert word.startswith("107 GB/s +25.0 %")
    assert word.endswith("REGRESSED")
    assert re.search(INTERVAL, word)
    assert "1 process" in word


def test_without_a_baseline_the_status_word_is_the_number_and_says_so(make):
    assert status_word(make.result(known=False)) == "134 GB/s NO BASELINE"


def test_a_test_that_failed_for_itself_has_a_number_only(make):
    assert status_word(make.row(make.measurement(1e-3))) == "134 GB/s"


def test_a_failure_begins_with_the_test_and_the_difference(make):
    first, _ = lines(failure_message(make.result(1.25e-3), "runs/r.jsonl"))
    pattern = (
        r"memcpy_d2d\[64MiB\]: \+25\.0 % time \(107 GB/s, baseline 134 GB/s\) REGRESSED, tolerance 5 %, "
        rf"99 % interval {INTERVAL}, 3 against 15 processes"
    )
    assert re.fullmatch(pattern, first)


def test_the_rates_of_a_failure_are_those_of_the_centres_that_were_compared(make):
    """Of several processes, and of the sessions of this device alone."""
    other = make.groups(3, process=0.001, centre=MILLISECOND + 0.5, device="GPU-2")
    own = make.groups(3, process=0.001, centre=MILLISECOND)
    first, _ = lines(
        failure_message(make.result(1.24e-3, 1.25e-3, 1.26e-3, reference=make.reference(*own, *other)), "")
    )
    assert first.startswith("memcpy_d2d[64MiB]: +25.0 % time (107 GB/s, baseline 134 GB/s) REGRESSED")


def test_the_second_line_of_a_failure_names_what_changed_and_where_the_samples_are(make):
    _, second = lines(failure_message(make.result(1.25e-3), "runs/r.jsonl"))
    assert second == (
        "  driver 550.54 → 570.86; 15 of 15 processes behind the baseline were faster. Details: runs/r.jsonl; "
        "accept with `roofline baseline propose --accept-slower`."
    )


def test_a_failure_that_the_clock_explains_says_so_first(make):
    samples = Samples((1.25e-3,), 1, 1e-9, blocks=(Block(1, clock_hz=1.6e9),))
    reference = make.reference(*make.groups(3, process=0.001, centre=MILLISECOND), clock_hz=2e9)
    _, second = lines(failure_message(make.result(1.25e-3, reference=reference, samples=samples), "r"))
    assert second.startswith("  the clock explains it: 2000 → 1600 MHz (-20.0 %), in cycles +0.0 %; ")


def test_a_failure_against_one_sitting_says_what_is_assumed_before_what_was_faster(make):
    reference = make.reference(*make.groups(1, centre=MILLISECOND))
    _, second = lines(failure_message(make.result(1.35e-3, reference=reference), "r"))
    assert second.startswith("  the baseline was recorded in one sitting, so how sessions differ is assumed (1 %): ")
    assert "; 5 of 5 processes behind the baseline were faster. " in second


def test_a_failure_for_being_inconclusive_says_what_would_decide(make):
    """Where `--roofline-fail-on` names it."""
    first, second = lines(failure_message(verdicts(make)[Kind.INCONCLUSIVE], "runs/r.jsonl"))
    assert re.search(rf"INCONCLUSIVE, tolerance 5 %, 99 % interval {INTERVAL}, 1 against 5 processes", first)
    assert second.startswith("  may be ")
    assert re.search(r"(would decide|record)", second)


def test_a_sick_device_is_named_as_the_cause(make):
    message = failure_message(make.result(1.25e-3), "r", degraded=("PCIe x8 of x16", "hot\n"))
    assert "the device is DEGRADED: PCIe x8 of x16; hot\\n" in message
    assert message.count("\n") == 2


def test_a_failure_of_a_run_that_could_not_be_saved_says_so(make):
    assert "The run could not be saved" in failure_message(make.result(1.25e-3), "")


def test_a_missing_baseline_that_was_required_names_the_command_that_makes_one(make):
    first, second = lines(failure_message(make.result(known=False), "r"))
    assert first == "memcpy_d2d[64MiB]: NO BASELINE (no baseline recorded), and a baseline is required"
    assert "`roofline baseline propose`" in second


def test_an_invalid_measurement_says_why_and_that_its_number_must_not_be_trusted(make):
    first, second = lines(failure_message(make.result(invalid="5 of 8 blocks were spoiled"), "r"))
    assert first == "memcpy_d2d[64MiB]: INVALID (5 of 8 blocks were spoiled)"
    assert "measured 134 GB/s, which must not be trusted" in second


@pytest.mark.parametrize(("seconds", "behind"), [((1.25e-3,), "1 process"), ((1.25e-3,) * 3, "3 processes")])
def test_a_breach_says_below_threshold_how_far_how_surely_and_on_how_many_processes(make, seconds, behind):
    first, _ = lines(failure_message(breach(make, *seconds), "r"))
    pattern = (
        r"memcpy_d2d\[64MiB\]: \+25\.0 % time beyond its limit \(107 GB/s\) REGRESSED, BELOW THRESHOLD: threshold "
        rf"100 GB/s \(read \+ write; the vendor's guide\), {behind} \([0-9.]+ % apart: .*prior\), "
        rf"99 % interval {INTERVAL}"
    )
    assert re.fullmatch(pattern, first)


def test_the_tolerance_that_was_asked_for_stands_in_the_message(make):
    assert "tolerance 2.5 %" in failure_message(make.result(1.25e-3, policy=Policy(tolerance=0.025)), "r")


@pytest.mark.parametrize("kind", ["regressed", "inconclusive", "missing", "invalid", "breach"])
def test_hostile_text_cannot_break_out_of_its_two_lines(make, kind):
    facts = {"label": HOSTILE, "environment": {"driver": HOSTILE}}
    old = make.reference(*make.groups(3, centre=MILLISECOND), environments=({"driver": "old\n"},))
    published = make.published(source=HOSTILE, convention=HOSTILE)
    one = {
        "regressed": lambda: make.result(2e-3, reference=old, **facts),
        "inconclusive": lambda: make.result(1.04e-3, reference=vague(make), **facts),
        "missing": lambda: make.result(known=False, why_none=HOSTILE, **facts),
        "invalid": lambda: make.result(invalid=HOSTILE, **facts),
        "breach": lambda: make.result(2e-3, known=False, limits=[Limit(published, 1e-3)], **facts),
    }[kind]()
    message = failure_message(one, "r")
    assert message.count("\n") == 1
    assert not set(message) & set("\x1b\r\u202e")


def test_a_regression_names_the_clock_that_it_was_timed_by_where_that_changed(make):
    before = make.reference(*make.groups(3, centre=MILLISECOND), environments=({"timed by": "events"},))
    _, second = lines(failure_message(make.result(1.25e-3, reference=before, environment={"timed by": "graph"}), "r"))
    assert second.startswith("  timed by events → graph; ")


@pytest.mark.parametrize("known", [{"timed by": "graph"}, {}])
def test_a_regression_names_no_clock_where_it_is_the_same_or_was_not_noted(make, known):
    before = make.reference(*make.groups(3, centre=MILLISECOND), environments=(known,))
    message = failure_message(make.result(1.25e-3, reference=before, environment={"timed by": "graph"}), "r")
    assert "timed by" not in message
