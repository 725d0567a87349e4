"""What a run says of each test: one row a measurement, kernel, or test without either."""

import math
from dataclasses import replace

import pytest

from pytest_roofline.baselines.run_rows import rows_of_run
from pytest_roofline.core.memory import FailedAllocation, LostResults, OutOfMemory
from pytest_roofline.core.records import Ceiling, Outcome
from pytest_roofline.core.resources import ResourceKey, Resources
from pytest_roofline.core.rows import plain, worst_first
from pytest_roofline.core.samples import Samples
from pytest_roofline.core.verdicts import ExactVerdict, Group, Reference, TimeLimit
from pytest_roofline.core.work import Work
from pytest_roofline.report.words import cells, now_text, sentence
from pytest_roofline.stats.limits import Limit

MIB = 2**20


@pytest.fixture
def rows(make, tmp_path):
    def of(*records, **changes):
        return rows_of_run(make.run(tmp_path / "run.jsonl", *records, **changes))

    return of


def exhausted(test_id="test_a.py::test_big", **changes):
    facts = {
        "benchmark": "big",
        "parameters": {},
        "label": "big",
        "device": "cuda:0",
        "allocation": FailedAllocation("no"),
    }
    return OutOfMemory(test_id, **(facts | changes))


def kernel(test_id="test_k.py::test_kernel", **changes):
    key = ResourceKey("kernel", {}, "sm_90")
    return Resources(key, test_id, key.label, "p", {"registers": 64}, **changes)


def test_processes_of_one_key_are_one_row_with_the_centre_of_those_judged(rows, make):
    three = [make.measurement(seconds, process=f"p{seconds}") for seconds in (1e-3, 2e-3, 4e-3)]
    centres = {"estimate": 0.7, "difference": make.difference(0.7, new_s=2.1e-3)}
    (row,) = rows(*three, make.verdict(three[0], processes=3, **centres))
    assert (row.metric, row.verdict, row.time_s, len(row.measurements)) == (
        "time",
        "PASSED",
        2.1e-3,
        3,
    )
    assert row.measurement.median_s == 2e-3
    assert (row.rate, row.baseline_rate) == pytest.approx(
        (2 * 64 * MIB / 2.1e-3, 2 * 64 * MIB / 1e-3)
    )
    one = make.measurement(1e-3)
    (row,) = rows(one, make.verdict(one, processes=1, **centres))
    assert row.time_s == 1e-3
    # Processes that do not count stand behind no number.
    mixed = [
        make.measurement(process=f"p{number}", invalid="busy" * (number == 2))
        for number in range(3)
    ]
    for records, counted in [
        (mixed, 2),
        ((*mixed, make.verdict(mixed[0], processes=1)), 1),
        ((mixed[2],), None),
    ]:
        (row,) = rows(*records)
        assert row.processes == counted


def test_a_row_has_the_calls_and_the_deviation_of_its_samples_and_what_its_work_is_by_time_and_by_byte(
    rows, make
):
    (row,) = rows(make.measurement(1e-3, 2e-3, 3e-3))
    assert (row.iterations, row.std_s) == (3 * 10, pytest.approx(1e-3))
    assert (row.flops_per_s, row.operational_intensity) == (pytest.approx(2 * 64 * MIB / 2e-3), 1.0)
    (row,) = rows(make.measurement(1e-3, work=Work(payload_bytes=MIB)))
    assert (row.iterations, row.std_s, row.flops_per_s, row.operational_intensity) == (
        10,
        None,
        None,
        None,
    )


def test_differences_are_shares_of_the_references_time_and_what_was_not_compared_has_none(
    rows, make
):
    one = make.measurement()
    reference = Reference((Group((1.0, 2.0)), Group((3.0,))), "h200.json")
    facts = {"estimate": math.log(2), "interval": (0.0, math.log(3)), "reference": reference}
    (row,) = rows(one, make.verdict(one, **facts))
    assert (row.change, *row.interval) == pytest.approx((1.0, 0.0, 2.0))
    assert row.baseline_medians_s == (1.0, 2.0, 3.0)
    (row,) = rows(make.measurement())
    told = (
        row.change,
        row.interval,
        row.baseline_time_s,
        row.baseline_rate,
        row.roofline_share,
        row.baseline_medians_s,
    )
    assert told == (None, None, None, None, None, ())
    (row,) = rows(make.measurement(key=make.key(metric="time_s"), work=Work(calls=1)))
    assert (row.time_s, row.rate) == (1e-3, None)
    # The share of the roofline is that of the seconds shown.
    roofed = make.measurement(
        1e-3, ceiling=Ceiling("traffic_GBps", 4 * 64 * MIB / 1e-3, "datasheet", "a sheet")
    )
    (row,) = rows(
        roofed,
        make.verdict(roofed, processes=2, estimate=0.0, difference=make.difference(new_s=2e-3)),
    )
    assert row.roofline_share == pytest.approx(0.25)


def test_a_test_without_a_verdict_says_how_it_ended(rows, make):
    for ended, word, red in [
        ({"outcome": "failed", "reason": "AssertionError: wrong"}, "FAILED", True),
        ({"outcome": "failed", "reason": "xfail: known"}, "XFAIL", False),
        ({"outcome": "failed", "reason": "[XPASS(strict)] known"}, "FAILED", True),
        ({"outcome": "skipped", "reason": "needs 2 GPUs"}, "SKIPPED", False),
    ]:
        measured, bare = make.measurement(), Outcome("test_b.py::test_bare[x]", **ended)
        timed, untimed = rows(measured, make.outcome(measured, **ended), bare)
        assert [(row.metric, row.verdict, row.reason, row.red) for row in (timed, untimed)] == [
            ("time", word, ended["reason"], red),
            (None, word, ended["reason"], red),
        ]
    (row,) = rows(Outcome("a[1]/test_b.py::TestC::test_d[x::y]", "failed", reason="xfail: "))
    assert (row.label, row.reason) == ("test_d[x::y]", "")
    (row,) = rows(make.measurement(), ended=False)
    assert (row.verdict, row.ended, row.red) == ("INTERRUPTED", None, False)
    ended = Outcome(
        "device health", "failed", ("DEGRADED",), "DEGRADED: half the links", by_verdict=True
    )
    (row,) = rows(ended)
    assert (row.metric, row.verdict, row.reason, row.red) == (
        None,
        "DEGRADED",
        "DEGRADED: half the links",
        True,
    )


def test_the_word_is_that_of_the_test_where_it_is_red_for_itself_and_else_the_verdict(rows, make):
    one = make.measurement()
    good, failed = make.outcome(one), make.outcome(one, "failed", reason="flaky")
    by_verdict = make.outcome(one, "failed", by_verdict=True)
    labelled = make.measurement(samples=Samples((1e-3,), 1, 1e-9, labels=("oversubscribed",)))
    profiled = make.measurement(samples=Samples((1e-3,), 1, 1e-9, labels=("profiled",)))
    for records, expected in [
        ((one,), ("NO BASELINE", "", False)),
        ((make.measurement(invalid="busy neighbours"),), ("INVALID", "busy neighbours", False)),
        ((labelled,), ("OVERSUBSCRIBED", "", False)),
        ((profiled, make.outcome(profiled, "failed", reason="flaky")), ("FAILED", "flaky", True)),
        # A rerun that passed keeps the word and is not red.
        ((one, failed, good), ("FAILED", "flaky", False)),
        # A rerun that is red by verdict has that and not the failure before it.
        (
            (one, failed, by_verdict, make.verdict(one, "REGRESSED", reason="why")),
            ("REGRESSED", "flaky; why", True),
        ),
    ]:
        (row,) = rows(*records)
        assert (row.verdict, row.reason, row.red) == expected, records
    (row,) = rows(
        one, good, make.outcome(one, "failed", reason="in teardown"), make.verdict(one, "PASSED")
    )
    assert (row.verdict, row.red) == ("FAILED", True)
    for word in ("REGRESSED", "NO BASELINE"):
        (row,) = rows(one, by_verdict, make.verdict(one, word, reason="why"))
        assert (row.verdict, row.reason, row.red) == (word, "why", True)
    # Without a verdict the outcome tells the verdict.
    for ended, verdicts, word in [
        *(
            ("failed", ("REGRESSED",), "REGRESSED"),
            ("failed", ("PASSED", "REGRESSED"), "REGRESSED"),
        ),
        *(
            ("failed", ("NO BASELINE",), "NO BASELINE"),
            ("passed", ("PASSED",), "PASSED"),
            ("passed", (), "NO BASELINE"),
        ),
        # It was judged, and nobody wrote down as what.
        *(
            ("passed", ("PASSED", "IMPROVED"), "INTERRUPTED"),
            ("passed", ("<img>",), "INTERRUPTED"),
        ),
    ]:
        outcome = make.outcome(
            one, ended, verdicts=verdicts, by_verdict=ended == "failed", reason="+20 %"
        )
        (row,) = rows(one, outcome)
        assert (row.verdict, row.red) == (word, ended == "failed"), verdicts


def test_kernels_have_their_exact_verdict_or_were_compared_with_nothing(rows):
    found = kernel()
    exact = ExactVerdict(
        found.test_id, found.label, "kernel", "REGRESSED", target="sm_90", reason="more registers"
    )
    (row,) = rows(found, Outcome(found.test_id, "failed", by_verdict=True), exact)
    assert (row.metric, row.verdict, row.reason, row.red) == (
        "kernel",
        "REGRESSED",
        "more registers",
        True,
    )
    assert (row.time_s, row.rate, row.roofline_share) == (None, None, None)
    (row,) = rows(found, Outcome(found.test_id, "passed"))
    assert row.verdict == "NO BASELINE"


def test_a_peak_without_a_verdict_has_the_word_of_its_time_where_that_is_not_the_times_alone(
    rows, make
):
    one = make.measurement(peak_bytes=2**20)
    for records, words in [
        ((one,), ["NO BASELINE", "NO BASELINE"]),
        ((one, make.verdict(one, "PASSED")), ["PASSED", "NO BASELINE"]),
        ((one, make.verdict(one, "INVALID")), ["INVALID", "INVALID"]),
        ((one, make.outcome(one, "failed", reason="boom")), ["FAILED", "FAILED"]),
    ]:
        (row,) = rows(*records)
        assert [columns.verdict for columns in row.columns()] == words, records


def test_running_out_of_memory_is_one_row_and_what_was_taken_before_is_none(rows, make):
    big = "test_a.py::test_big"
    partial, one = make.measurement(invalid="interrupted", test_id=big), make.measurement()
    slower = Outcome(big, "failed", ("OUT OF MEMORY", "REGRESSED"), "slower", by_verdict=True)
    for records, expected in [
        (
            (partial, exhausted(name=""), Outcome(big, "passed")),
            [("memory", "OUT OF MEMORY", False)],
        ),
        (
            (exhausted(recorded=False), Outcome(big, "failed", ("OUT OF MEMORY",), "no")),
            [("memory", "FAILED", True)],
        ),
        # Where the baseline has a time it is a regression.
        ((exhausted(lost=LostResults({"": 1e-3})), slower), [("memory", "REGRESSED", True)]),
        # What ran out again in a later round is said once; what only a later round had no room for keeps its number.
        (
            (exhausted(name=""), exhausted(name="", round=2), exhausted(name="other")),
            [("memory", "OUT OF MEMORY", False)] * 2,
        ),
        ((one, exhausted(one.test_id, name="", round=2)), [("time", "NO BASELINE", False)]),
    ]:
        assert [(row.metric, row.verdict, row.red) for row in rows(*records)] == expected


def test_the_worst_come_first_and_the_slower_before_the_slow(rows, make):
    def measured(name, word, outcome="passed", **changes):
        one = make.measurement(key=make.key(name, parameters={}))
        return (
            one,
            make.outcome(one, outcome, by_verdict=outcome == "failed"),
            make.verdict(one, word, **changes),
        )

    found = rows(
        *measured("passed", "PASSED"),
        *measured("slow", "REGRESSED", "failed", estimate=0.1),
        *measured("open", "INCONCLUSIVE"),
        *measured("slower", "REGRESSED", "failed", estimate=0.3),
        *measured("invalid", "INVALID"),
        *measured("new", "NO BASELINE"),
        *measured("red", "INCONCLUSIVE", "failed"),
        Outcome("test_a.py::broken", "failed", reason="x"),
        exhausted(),
    )
    order = "broken slower slow red big invalid open new passed"
    assert " ".join(row.label for row in worst_first(found)) == order


CONTEXT = ("run", "run_id", "started", "device", "driver", "torch", "host", "outcome", "reason")


def test_a_row_that_a_run_has_made_is_read_back_from_its_file_with_the_same_columns(make, tmp_path):
    """But for what only the whole run, and the end of its test, tell."""
    live = [
        make.result(1.24e-3, key=make.key("slower")),
        make.result(1e-3, key=make.key("same"), peak_bytes=2**20, held_bytes=2**10),
        make.result(
            0.5e-3, key=make.key("faster", metric="TFLOPS"), work=Work(flops=10**9, tokens=8)
        ),
        make.result(1e-3, key=make.key("new"), known=False),
        make.result(1e-3, key=make.key("wrong"), invalid="busy neighbours"),
        make.result(
            2e-3,
            key=make.key("limit"),
            known=False,
            limits=[Limit(TimeLimit(1e-3, make.published()))],
        ),
    ]
    run = make.run(
        tmp_path / "run.jsonl",
        *(record for row in live for record in (row.measurement, row.time_verdict)),
    )
    for made, read in zip(live, rows_of_run(run), strict=True):
        columns = [[plain(one) for one in row.columns()] for row in (made, read)]
        for one, other in zip(*columns, strict=True):
            assert {name: one[name] for name in one if name not in CONTEXT} == {
                name: other[name] for name in other if name not in CONTEXT
            }


def figure(make, metric, before, after):
    """The row of a program's figure, whose 15 processes before lie 0.1 % apart."""
    key = make.key("bench", parameters={}, metric=metric, name="x")
    kept = [1 / value if metric == "higher" else value for value in (before, after)]
    reference = make.reference(*make.groups(3, process=0.001, centre=math.log(kept[0])))
    return make.result(*[kept[1]] * 5, key=key, work=Work(calls=1), reference=reference)


def test_a_figure_of_a_program_is_told_in_its_own_terms(make):
    rate, latency = figure(make, "higher", 2200.0, 2000.0), figure(make, "lower", 30.0, 33.0)
    for row, numbers in ((rate, (2200.0, 2000.0, -1 / 11)), (latency, (30.0, 33.0, 0.1))):
        assert (row.metric, row.unit, row.time_s, row.baseline_time_s) == (
            "figure",
            None,
            None,
            None,
        )
        assert (row.baseline_value, row.value, row.change) == pytest.approx(numbers, rel=1e-3)
        assert row.change_low < row.change < row.change_high
        assert row.verdict == "REGRESSED"
    assert rate.slowdown == pytest.approx(0.1, rel=1e-3)
    # The worst first, whichever way is worse.
    fallen = figure(make, "higher", 2200.0, 1000.0)
    assert worst_first([latency, rate, fallen])[0] == fallen
    assert sentence(rate).startswith("-9.1 % (2000, baseline 2200), 99 % interval -")
    assert sentence(latency).startswith("+10.0 % (33.0, baseline 30.0), 99 % interval +")
    assert cells(rate)["time"] == ("", None)


def test_a_rate_is_a_time_unless_its_verdict_is_told_as_a_rate(make):
    measurement = make.measurement(1e-3, key=make.key(metric="payload_GBps"))
    change = {"estimate": math.log(1.1), "interval": (0.05, 0.15)}
    verdict = make.verdict(measurement, "REGRESSED", difference=make.difference(), **change)
    as_rate = replace(verdict, subject=replace(verdict.subject, metric="payload_GBps"))
    assert make.judged(measurement, verdict).change == pytest.approx(0.1)
    row = make.judged(measurement, as_rate)
    assert (row.metric, row.unit, row.value) == ("figure", "B/s", 64 * MIB / 1e-3)
    assert row.change == pytest.approx(1 / 1.1 - 1)
    assert (row.change_low, row.change_high) == pytest.approx(
        (math.expm1(-0.15), math.expm1(-0.05))
    )
    assert now_text(row) == "67.1 GB/s"
