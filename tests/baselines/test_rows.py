"""What a run says of each test: one row a measurement, kernel, or test without either."""

import pytest

from pytest_roofline.baselines.run_rows import rows_of_run
from pytest_roofline.core.judgements import Judgement, SessionRecord
from pytest_roofline.core.memory import OutOfMemory
from pytest_roofline.core.records import Outcome
from pytest_roofline.core.resources import ExactJudgement, ResourceKey, Resources
from pytest_roofline.core.rows import plain, worst_first
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.work import Work
from pytest_roofline.stats.limits import Limit

MIB = 2**20


@pytest.fixture
def rows(make, tmp_path):
    def of(*records, **changes):
        return rows_of_run(make.run(tmp_path / "run.jsonl", *records, **changes))

    return of


def verdict_on(measurement, word="PASSED", **changes):
    facts = {"tolerance": 0.05, "name": measurement.key.name}
    return Judgement(measurement.test_id, measurement.label, word, **(facts | changes))


def exhausted(test_id="test_a.py::test_big", **changes):
    facts = {"benchmark": "big", "parameters": {}, "label": "big", "process": "p", "device": "cuda:0", "message": "no"}
    return OutOfMemory(test_id, **(facts | changes))


def kernel(test_id="test_k.py::test_kernel", **changes):
    key = ResourceKey("kernel", {}, "sm_90")
    return Resources(key, test_id, key.label, "p", {"registers": 64}, **changes)


def test_processes_of_one_key_are_one_row_with_the_centre_of_those_judged(rows, make):
    three = [make.measurement(seconds, process=f"p{seconds}") for seconds in (1e-3, 2e-3, 4e-3)]
    judgement = verdict_on(three[0], processes=3, new_s=2.1e-3, reference_s=1e-3)
    (row,) = rows(*three, judgement)
    assert ("time", "PASSED", 2.1e-3, 3) == (row.what, row.verdict, row.time_s, len(row.measurements))
    assert 2e-3 == row.measurement.median_s
    assert 2 * 64 * MIB / 2.1e-3 == pytest.approx(row.rate)
    assert 2 * 64 * MIB / 1e-3 == pytest.approx(row.baseline_rate)


def test_of_one_process_the_median_stands(rows, make):
    one = make.measurement(1e-3)
    (row,) = rows(one, verdict_on(one, processes=1, new_s=9.0))
    assert 1e-3 == row.time_s


def test_differences_are_shares_of_the_reference_s_time(rows, make):
    one = make.measurement()
    sessions = (SessionRecord((1.0, 2.0)), SessionRecord((3.0,)))
    (row,) = rows(
        one, verdict_on(one, estimate=0.6931471805599453, interval=(0.0, 1.0986122886681098), reference=sessions)
    )
    assert 1.0 == pytest.approx(row.change)
    assert (0.0, 2.0) == pytest.approx(row.interval)
    assert (1.0, 2.0, 3.0) == row.baseline_medians_s


def test_what_was_not_compared_has_neither_difference_nor_reference(rows, make):
    (row,) = rows(make.measurement())
    assert (None, None, None, None, ()) == (
        row.change, row.interval, row.baseline_time_s, row.baseline_rate, row.baseline_medians_s
    )  # fmt: skip


def test_measurements_of_one_test_are_rows_of_their_own_and_each_has_its_verdict(rows, make):
    first, second = (make.measurement(key=make.key(name=name), test_id="test_a.py::t") for name in ("read", "write"))
    found = rows(first, second, verdict_on(second, "REGRESSED"), verdict_on(first, "PASSED"))
    assert [("memcpy_d2d[64MiB].read", "PASSED"), ("memcpy_d2d[64MiB].write", "REGRESSED")] == [
        (row.label, row.verdict) for row in found
    ]


def test_a_number_that_nobody_compared_is_neither_green_nor_red(rows, make):
    (row,) = rows(make.measurement())
    assert ("MEASURED", "", False) == (row.verdict, row.reason, row.red)


def test_an_invalid_number_without_a_verdict_is_invalid(rows, make):
    (row,) = rows(make.measurement(invalid="busy neighbours"))
    assert ("INVALID", "busy neighbours") == (row.verdict, row.reason)


@pytest.mark.parametrize(
    ("outcome", "word", "red"),
    [
        ({"outcome": "failed", "reason": "AssertionError: wrong"}, "FAILED", True),
        ({"outcome": "failed", "reason": "xfail: known"}, "XFAIL", False),
        ({"outcome": "failed", "reason": "[XPASS(strict)] known"}, "FAILED", True),
        ({"outcome": "skipped", "reason": "needs 2 GPUs"}, "SKIPPED", False),
    ],
)
def test_a_test_without_a_verdict_says_how_it_ended(rows, make, outcome, word, red):
    measured, bare = make.measurement(), Outcome("test_b.py::test_bare[x]", **outcome)
    timed, untimed = rows(measured, make.outcome(measured, **outcome), bare)
    assert [("time", word, outcome["reason"], red), ("test", word, outcome["reason"], red)] == [
        (row.what, row.verdict, row.reason, row.red) for row in (timed, untimed)
    ]
    assert "test_bare[x]" == untimed.label


@pytest.mark.parametrize(
    ("test_id", "label"),
    [
        ("a/test_b.py::test_c", "test_c"),
        ("a[1]/test_b.py::TestC::test_d[x::y]", "test_d[x::y]"),
        ("device health", "device health"),
    ],
)
def test_a_test_without_a_number_is_called_by_its_name_and_parameters(rows, test_id, label):
    (row,) = rows(Outcome(test_id, "failed", reason="x"))
    assert label == row.label


def test_a_test_that_the_run_never_ended_is_interrupted(rows, make):
    (row,) = rows(make.measurement(), ended=False)
    assert ("INTERRUPTED", None, False) == (row.verdict, row.ended, row.red)


@pytest.mark.parametrize("label", ["oversubscribed", "profiled"])
def test_what_is_never_judged_says_why_unless_its_test_failed(rows, make, label):
    one = make.measurement(samples=Samples((1e-3,), 1, 1e-9, labels=(label,)))
    (row,) = rows(one)
    assert label.upper() == row.verdict
    (row,) = rows(one, make.outcome(one, "failed", reason="wrong"))
    assert ("FAILED", True) == (row.verdict, row.red)


def test_a_rerun_that_passed_keeps_the_word_and_is_not_red(rows, make):
    one = make.measurement()
    (row,) = rows(one, make.outcome(one, "failed", reason="flaky"), make.outcome(one))
    assert ("FAILED", "flaky", False) == (row.verdict, row.reason, row.red)


@pytest.mark.parametrize("word", ["PASSED", "IMPROVED", "NO BASELINE", "INCONCLUSIVE", "INVALID", "REGRESSED"])
def test_a_test_that_is_red_for_itself_has_failed_whatever_its_verdict(rows, make, word):
    one = make.measurement()
    (row,) = rows(one, make.outcome(one), make.outcome(one, "failed", reason="in teardown"), verdict_on(one, word))
    assert ("FAILED", True) == (row.verdict, row.red)


@pytest.mark.parametrize("word", ["REGRESSED", "NO BASELINE", "INCONCLUSIVE", "INVALID"])
def test_a_test_that_is_red_by_verdict_has_that(rows, make, word):
    one = make.measurement()
    (row,) = rows(one, make.outcome(one, "failed", by_verdict=True), verdict_on(one, word, reason="why"))
    assert (word, "why", True) == (row.verdict, row.reason, row.red)


def test_a_rerun_that_is_red_by_verdict_has_that_and_not_the_failure_before_it(rows, make):
    one = make.measurement()
    ends = make.outcome(one, "failed", reason="flaky"), make.outcome(one, "failed", by_verdict=True)
    (row,) = rows(one, *ends, verdict_on(one, "REGRESSED"))
    assert ("REGRESSED", True) == (row.verdict, row.red)


@pytest.mark.parametrize(
    ("ended", "verdicts", "word"),
    [
        ("failed", ("REGRESSED",), "REGRESSED"),
        ("failed", ("PASSED", "REGRESSED"), "REGRESSED"),
        ("failed", ("NO BASELINE",), "NO BASELINE"),
        ("passed", ("PASSED",), "PASSED"),
        ("passed", ("PASSED", "IMPROVED"), "MEASURED"),
        ("passed", ("<img>",), "MEASURED"),
        ("passed", (), "MEASURED"),
    ],
)
def test_without_a_judgement_the_outcome_tells_the_verdict(rows, make, ended, verdicts, word):
    one = make.measurement()
    (row,) = rows(one, make.outcome(one, ended, verdicts=verdicts, by_verdict=ended == "failed", reason="+20 %"))
    assert (word, ended == "failed") == (row.verdict, row.red)


def test_what_is_no_verdict_is_not_repeated_as_one(rows, make):
    one, found = make.measurement(), kernel()
    timed, compiled = rows(
        one, found, verdict_on(one, "<b>" * 999), ExactJudgement(found.test_id, found.label, "sm_90", "@all")
    )
    assert ["UNKNOWN", "UNKNOWN"] == [timed.verdict, compiled.verdict]
    assert "'@all'" in compiled.reason
    assert 200 > len(timed.reason)


def test_the_health_of_the_device_has_its_own_word(rows):
    ended = Outcome("device health", "failed", ("DEGRADED",), "DEGRADED: half the links", by_verdict=True)
    (row,) = rows(ended)
    assert ("test", "DEGRADED", "DEGRADED: half the links", True) == (row.what, row.verdict, row.reason, row.red)


@pytest.mark.parametrize(("reason", "shown"), [("xfail: ", ""), ("[XPASS(strict)] ", "[XPASS(strict)]")])
def test_a_reason_that_nobody_gave_leaves_no_room_behind(rows, reason, shown):
    (row,) = rows(Outcome("test_a.py::t", "failed", reason=reason))
    assert shown == row.reason


def test_processes_that_do_not_count_stand_behind_no_number(rows, make):
    three = [make.measurement(process=f"p{number}", invalid="busy" * (number == 2)) for number in range(3)]
    (row,) = rows(*three)
    assert (2, 3) == (row.processes, len(row.measurements))
    (row,) = rows(*three, verdict_on(three[0], processes=1))
    assert 1 == row.processes
    (row,) = rows(make.measurement(invalid="busy"))
    assert row.processes is None


def test_kernels_have_their_exact_verdict(rows):
    found = kernel()
    judgement = ExactJudgement(found.test_id, found.label, "sm_90", "REGRESSED", reason="more registers")
    (row,) = rows(found, Outcome(found.test_id, "failed", by_verdict=True), judgement)
    assert ("kernel", "REGRESSED", "more registers", True) == (row.what, row.verdict, row.reason, row.red)
    assert (None, None, None) == (row.time_s, row.rate, row.roofline_share)


def test_a_kernel_that_nobody_compared_was_only_measured(rows):
    found = kernel()
    (row,) = rows(found, Outcome(found.test_id, "passed"))
    assert "MEASURED" == row.verdict


def test_running_out_of_memory_is_a_row_and_what_was_taken_before_is_none(rows, make):
    partial = make.measurement(invalid="interrupted", test_id="test_a.py::test_big")
    found = rows(partial, exhausted(name=""), Outcome("test_a.py::test_big", "passed"))
    assert [("memory", "OUT OF MEMORY", "no", False)] == [(row.what, row.verdict, row.reason, row.red) for row in found]


def test_a_test_that_ran_out_of_memory_unexpectedly_has_failed(rows):
    (row,) = rows(exhausted(recorded=False), Outcome("test_a.py::test_big", "failed", ("OUT OF MEMORY",), "no"))
    assert ("memory", "FAILED", True) == (row.what, row.verdict, row.red)


def test_running_out_of_memory_where_the_baseline_has_a_time_is_a_regression(rows):
    ended = Outcome("test_a.py::test_big", "failed", ("OUT OF MEMORY", "REGRESSED"), "slower", by_verdict=True)
    (row,) = rows(exhausted(baseline_s=1e-3), ended)
    assert ("memory", "REGRESSED", True) == (row.what, row.verdict, row.red)


def test_what_ran_out_again_in_a_later_round_is_said_once(rows):
    found = rows(exhausted(name=""), exhausted(name="", round=2), exhausted(name="other"))
    assert ["memory", "memory"] == [row.what for row in found]


def test_what_only_a_later_round_had_no_room_for_keeps_its_number(rows, make):
    one = make.measurement()
    assert ["time"] == [row.what for row in rows(one, exhausted(one.test_id, name="", round=2))]


def test_the_share_of_the_roofline_is_that_of_the_seconds_shown(rows, make):
    from pytest_roofline.core.records import Ceiling

    ceiling = Ceiling("traffic_GBps", 4 * 64 * MIB / 1e-3, "datasheet", "a sheet")
    one = make.measurement(1e-3, ceiling=ceiling)
    (row,) = rows(one, verdict_on(one, processes=2, new_s=2e-3))
    assert 0.25 == pytest.approx(row.roofline_share)
    (row,) = rows(make.measurement())
    assert row.roofline_share is None


def test_seconds_that_are_no_rate_have_none(rows, make):
    one = make.measurement(key=make.key(metric="time_s"), work=Work(calls=1))
    (row,) = rows(one)
    assert (1e-3, None) == (row.time_s, row.rate)


def test_the_worst_come_first_and_the_slower_before_the_slow(rows, make):
    def measured(size_mib, word, outcome="passed", **changes):
        one = make.measurement(key=make.key(size_bytes=size_mib * MIB))
        return one, make.outcome(one, outcome, by_verdict=outcome == "failed"), verdict_on(one, word, **changes)

    found = rows(
        *measured(1, "PASSED"),
        *measured(2, "REGRESSED", "failed", estimate=0.1),
        *measured(4, "INCONCLUSIVE"),
        *measured(8, "REGRESSED", "failed", estimate=0.3),
        *measured(16, "INVALID"),
        *measured(32, "NO BASELINE"),
        *measured(64, "INCONCLUSIVE", "failed"),
        Outcome("test_a.py::broken", "failed", reason="x"),
        exhausted(),
    )
    assert ["broken", *[f"memcpy_d2d[{size}MiB]" for size in (8, 2, 64)], "big"] == [
        row.label for row in worst_first(found)[:5]
    ]
    assert [f"memcpy_d2d[{size}MiB]" for size in (16, 4, 32, 1)] == [row.label for row in worst_first(found)[5:]]


CONTEXT = ("run", "run_id", "started", "device", "driver", "torch", "host", "outcome", "reason")


def test_a_row_that_a_run_has_made_is_read_back_from_its_file_with_the_same_columns(make, tmp_path):
    """But for what only the whole run, and the end of its test, tell."""
    live = [
        make.result(1.24e-3, key=make.key("slower")),
        make.result(1e-3, key=make.key("same"), peak_bytes=2**20, held_bytes=2**10),
        make.result(0.5e-3, key=make.key("faster", metric="TFLOPS"), work=Work(flops=10**9, tokens=8)),
        make.result(1e-3, key=make.key("new"), known=False),
        make.result(1e-3, key=make.key("wrong"), invalid="busy neighbours"),
        make.result(2e-3, key=make.key("limit"), known=False, limits=[Limit(make.published(), 1e-3)]),
    ]
    run = make.run(tmp_path / "run.jsonl", *(record for row in live for record in (row.measurement, row.judgement)))
    for made, read in zip(live, rows_of_run(run), strict=True):
        columns = [[plain(one) for one in row.columns()] for row in (made, read)]
        for one, other in zip(*columns, strict=True):
            assert {name: one[name] for name in one if name not in CONTEXT} == {
                name: other[name] for name in other if name not in CONTEXT
            }
