import pytest

from pytest_roofline.core.records import CurveSummary
from pytest_roofline.core.work import Work
from pytest_roofline.judging.verdicts import Policy, Reference, judge
from pytest_roofline.reporting.messages import (
    Result,
    counts_line,
    curve_line,
    failure_message,
    figure,
    gate_lines,
    properties,
    published_lines,
    rate_text,
    status_word,
    verdicts_line,
)

MIB = 2**20
HOSTILE = "x\x1b[31m\r\ny\u202e"
STEADY = Reference((1e-3, 1.001e-3, 0.999e-3), "h200.json", ({"driver": "550.54"},))


def result(
    make, seconds, reference=STEADY, environment=None, why_none="no baseline recorded", thresholds=(), **changes
):
    measurement = make.measurement(seconds, **changes)
    verdict = judge(
        (seconds,), reference, Policy(), invalid=measurement.invalid, thresholds=thresholds, why_none=why_none
    )
    return Result(measurement, verdict, environment or {"driver": "570.86"})


def test_a_failure_begins_with_the_test_and_the_difference(make):
    first, _ = failure_message(result(make, 1.25e-3), "runs/r.jsonl").split("\n")
    assert first.startswith("memcpy_d2d[64MiB]: +25.0 % time (107 GB/s, baseline 134 GB/s) REGRESSED, tolerance 5 %, ")
    assert "99 % interval +" in first


def test_the_second_line_of_a_failure_names_what_changed_and_where_the_samples_are(make):
    _, second = failure_message(result(make, 1.25e-3), "runs/r.jsonl").split("\n")
    assert second.startswith("  driver 550.54 → 570.86; 3 of 3 processes behind the baseline were faster.")
    assert "Details: runs/r.jsonl" in second


def test_a_failure_against_one_process_says_that_the_spread_is_assumed(make):
    message = failure_message(result(make, 1.25e-3, Reference((1e-3,), "b")), "r")
    assert "one process behind the baseline, spread assumed" in message


def test_a_failure_of_a_run_that_could_not_be_saved_says_so(make):
    assert "The run could not be saved" in failure_message(result(make, 1.25e-3), "")


def test_a_missing_baseline_that_was_required_names_the_command_that_makes_one(make):
    first, second = failure_message(result(make, 1e-3, None), "r").split("\n")
    assert first.startswith("memcpy_d2d[64MiB]: NO BASELINE (no baseline recorded), and --roofline-require-baseline")
    assert "`roofline baseline propose`" in second


def test_a_breach_says_below_threshold_and_how_far(make):
    message = failure_message(result(make, 1.25e-3, None, thresholds=[(make.published(), 1e-3)]), "r")
    first, _ = message.split("\n")
    assert first.startswith("memcpy_d2d[64MiB]: +25.0 % time beyond its limit (107 GB/s) REGRESSED, BELOW THRESHOLD: ")


@pytest.mark.parametrize("kind", ["regressed", "missing", "breach"])
def test_hostile_text_cannot_break_out_of_its_two_lines(make, kind):
    facts = {
        "regressed": {"reference": Reference((1e-3, 1.001e-3), "b", ({"driver": "old\n"},))},
        "missing": {"reference": None, "why_none": HOSTILE},
        "breach": {"reference": None, "thresholds": [(make.published(source=HOSTILE, convention=HOSTILE), 1e-3)]},
    }[kind]
    message = failure_message(result(make, 2e-3, label=HOSTILE, environment={"driver": HOSTILE}, **facts), "r")
    assert message.count("\n") == 1
    assert not set(message) & set("\x1b\r\u202e")


@pytest.mark.parametrize(
    ("seconds", "reference", "word"),
    [
        (1.001e-3, STEADY, "134 GB/s +0.1 %"),
        (0.5e-3, STEADY, "268 GB/s -50.0 % IMPROVED"),
        (1e-3, None, "134 GB/s NO BASELINE"),
    ],
)
def test_the_status_word_is_the_number_and_the_difference(make, seconds, reference, word):
    assert status_word(result(make, seconds, reference)) == word


def test_a_test_without_verdict_failed(make):
    assert Result(make.measurement(), None, {}).word == "FAILED"


def test_a_small_message_across_a_link_is_shown_as_its_time(make):
    link = Work(payload_bytes=16 * MIB - 1, wire_bytes=16 * MIB - 1)
    assert figure(make.measurement(1e-3, key=make.key(metric="payload_GBps"), work=link)) == "1.00 ms"


def test_a_large_message_across_a_link_is_shown_as_its_rate(make):
    link = Work(payload_bytes=16 * MIB, wire_bytes=16 * MIB)
    assert figure(make.measurement(1e-3, key=make.key(metric="payload_GBps"), work=link)) == "16.8 GB/s"


def test_a_small_local_copy_is_shown_as_its_rate(make):
    assert figure(make.measurement(1e-6, key=make.key(size_bytes=4096))) == "8.19 GB/s"


def test_arithmetic_is_shown_in_flop_per_second(make):
    measurement = make.measurement(1.0, key=make.key(metric="TFLOPS"), work=Work(flops=359 * 10**12))
    assert rate_text(measurement) == "359 TFLOP/s"


def test_what_has_no_rate_is_shown_as_its_time(make):
    assert rate_text(make.measurement(1e-3, key=make.key(metric="time_s"))) == "1.00 ms"


def test_the_figures_of_a_test_are_named_for_reports(make):
    found = dict(properties([result(make, 1.25e-3)]))
    assert found["roofline.verdict"] == "REGRESSED"
    assert float(found["roofline.change"]) == pytest.approx(0.25, rel=1e-3)
    assert float(found["roofline.median_s"]) == 1.25e-3
    assert float(found["roofline.baseline_s"]) == pytest.approx(1e-3)


def test_figures_of_a_named_measurement_carry_its_name(make):
    found = dict(properties([result(make, 1e-3, key=make.key(name="backward"))]))
    assert all(name.startswith("roofline.backward.") for name in found)


def test_figures_without_a_verdict_have_none(make):
    names = [name for name, _ in properties([Result(make.measurement(), None, {})])]
    assert "roofline.verdict" not in names


def test_the_name_of_a_figure_cannot_steer_a_report(make):
    found = dict(properties([result(make, 1e-3, key=make.key(name=HOSTILE))]))
    assert not set("".join(found)) & set("\x1b\r\n\u202e")


@pytest.mark.parametrize(
    ("measured", "not_measured", "line"),
    [
        (12, {}, "12 measured"),
        (12, {"needs 2 GPUs, found 1": 3}, "12 measured, 3 not measured (needs 2 GPUs, found 1)"),
        (0, {"a": 1, "b\n": 2}, "0 measured, 3 not measured (a (1×); b\\n (2×))"),
    ],
)
def test_what_was_not_measured_is_counted_with_its_reason(measured, not_measured, line):
    assert counts_line(measured, not_measured) == line


def test_verdicts_are_counted_worst_first(make):
    results = [result(make, seconds) for seconds in (1e-3, 2e-3, 1e-3, 0.5e-3)] + [result(make, 1e-3, None)]
    assert verdicts_line(results) == "1 REGRESSED, 1 IMPROVED, 2 PASSED, 1 NO BASELINE"


def test_a_run_that_compares_nothing_says_that_it_gates_nothing(make):
    lines = gate_lines([result(make, 1e-3, None), result(make, 1e-3, None)], 9, "r1", "h200")
    assert lines == [
        "THIS RUN GATES NOTHING: 0 of 2 compared (no baseline recorded). Record a baseline with",
        "  roofline baseline propose r1 -o h200-proposal.json",
        "  roofline baseline approve h200-proposal.json",
    ]


@pytest.mark.parametrize("invalid", ["wrong data", None])
def test_invalid_and_failed_measurements_gate_nothing(make, invalid):
    one = result(make, 1e-3, invalid=invalid) if invalid else Result(make.measurement(), None, {})
    assert gate_lines([one], 9, "r1", "h200")[0].startswith("THIS RUN GATES NOTHING: 0 of 1 compared")


def test_a_run_that_compares_something_says_how_much(make):
    (line,) = gate_lines([result(make, 1e-3), result(make, 2e-3)], 9, "r1", "h200")
    assert line == "2 of 2 compared: 1 REGRESSED, 1 PASSED"


def test_what_has_no_baseline_is_named_beside_what_was_compared(make):
    missing = [result(make, 1e-3, None, label=f"m{number}") for number in range(4)]
    (line,) = gate_lines([result(make, 1e-3), *missing], 9, "r1", "h200")
    assert line.endswith("NO BASELINE for m0, m1, m2, …: no baseline recorded")


def test_hostile_text_cannot_add_a_line_to_the_closing_sentence(make):
    lines = gate_lines([result(make, 1e-3, None, why_none=HOSTILE)], 9, "r1", "h200")
    assert not set("".join(lines)) & set("\x1b\r\n\u202e")


def test_a_run_that_measured_nothing_says_that_it_gates_nothing():
    assert gate_lines([], 9, "r1", "h200") == ["THIS RUN GATES NOTHING: 0 of 9 compared, since nothing was measured"]


def test_no_command_is_printed_for_a_run_that_could_not_be_saved(make):
    (line,) = gate_lines([result(make, 1e-3, None)], 1, "", "h200")
    assert line == "THIS RUN GATES NOTHING: 0 of 1 compared (no baseline recorded)."


def test_a_sweep_is_one_line():
    curve = CurveSummary("memcpy\n", "traffic_GBps", 9, 2e9, {"50%": MIB, "80%": None}, 2e-6, 2.1e9)
    line = curve_line(curve)
    assert line.startswith("memcpy\\n: plateau 2")
    assert " GB/s (traffic_GBps), 50% from 1 MiB; fits 2.00 µs + size at 2.1" in line
    assert "80%" not in line


def test_a_rate_of_a_sweep_is_never_in_powers_of_ten():
    curve = CurveSummary("memcpy", "traffic_GBps", 9, 2e12, {"50%": MIB}, 2e-6, 2.1e12)
    assert "e+" not in curve_line(curve)


def test_a_sweep_without_bandwidth_is_its_latency_alone():
    curve = CurveSummary("memcpy", "traffic_GBps", 9, 2e9, {"50%": MIB}, 2e-6, None)
    assert curve_line(curve).endswith("fits 2.00 µs")


@pytest.mark.parametrize(
    ("value", "text"), [(235.0, "235"), ((200.0, 240.0), "200 to 240"), ("out of memory", "out of")]
)
def test_a_published_figure_stands_beside_the_result(make, value, text):
    entry = make.published("reference", value=value, source=HOSTILE)
    (line,) = published_lines([Result(make.measurement(1e-3), None, {}, (entry,))])
    assert text in line
    assert "134 GB/s" in line
    assert not set(line) & set("\x1b\r\n\u202e")


def test_only_so_many_published_figures_are_shown_and_the_rest_counted(make):
    published = tuple(make.published("reference", source=f"{number}") for number in range(15))
    lines = published_lines([Result(make.measurement(), None, {}, published)])
    assert (len(lines), lines[-1]) == (13, "… and 3 more published figures")
