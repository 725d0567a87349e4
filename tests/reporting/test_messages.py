import re

import pytest

from pytest_roofline.core.records import Ceiling, CurveSummary
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.core.work import Work
from pytest_roofline.judging.verdicts import Policy, Reference, judge
from pytest_roofline.reporting.messages import (
    Result,
    condition_lines,
    counts_line,
    curve_line,
    failure_message,
    figure,
    gate_lines,
    properties,
    published_lines,
    rate_text,
    reason_lines,
    status_word,
    verdicts_line,
)
from pytest_roofline.reporting.tables import results_table

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


THERMAL = "thermal slowdown"
# One measurement in each of the conditions of which a reader must know.
CONDITIONS = {
    "host-bound": {"labels": ("host_bound",), "wall_s": 8e-3},
    "drifting": {"labels": ("drifting",)},
    "host's clock": {"labels": ("wall_clock",), "mode": "host"},
    THERMAL: {"blocks": (Block(1), Block(1, THERMAL))},
    "power cap": {"blocks": (Block(1, power_capped=True),) * 2},
    "another process": {"neighbours": "seen"},
}


def under(make, label="copy", **facts):
    """A result of two samples of 2 ms, taken under such conditions."""
    samples = Samples((2e-3, 2e-3), 1, 1e-9, **facts)
    return Result(make.measurement(label=label, samples=samples), None, {})


def line_about(make, **facts):
    (line,) = condition_lines([under(make, **facts)])
    return line


def test_what_was_taken_under_good_conditions_needs_no_line(make):
    good = {"blocks": (Block(1, clock_hz=2e9, power_capped=False),) * 2, "neighbours": "none", "throttle_known": True}
    assert condition_lines([under(make, **good), under(make)]) == []


def test_without_results_there_are_no_conditions():
    assert condition_lines([]) == []


@pytest.mark.parametrize("labels", [("cache_resident",), ("unresolved",)])
def test_labels_that_the_table_or_the_verdict_tell_need_no_line(make, labels):
    assert condition_lines([under(make, labels=labels)]) == []


@pytest.mark.parametrize("about", CONDITIONS)
def test_every_condition_has_a_line_that_names_it_and_the_test(make, about):
    line = line_about(make, **CONDITIONS[about])
    assert about in line
    assert re.search(r": copy( |$)", line)


def test_what_is_host_bound_stands_with_both_times(make):
    line = line_about(make, labels=("host_bound",), wall_s=8e-3)
    assert line.endswith("copy (2.00 ms on the device's clock, 8.00 ms on the host's)")


def test_blocks_left_out_are_counted_by_cause(make):
    causes = [THERMAL, "host gap", THERMAL, "", "", "", ""]
    facts = {"seconds": (1.0,) * 7, "iterations": 1, "tick_s": 1e-9}
    samples = Samples(**facts, blocks=tuple(Block(1, cause) for cause in causes))
    (line,) = condition_lines([Result(make.measurement(samples=samples, label="copy"), None, {})])
    assert line.endswith("copy (2 of 7 by thermal slowdown, 1 of 7 by host gap)")


def test_the_power_cap_stands_with_its_share_and_the_clock_that_was_left(make):
    blocks = (Block(1, clock_hz=1.53e9, power_capped=True), Block(1, clock_hz=1.53e9, power_capped=False))
    assert line_about(make, blocks=blocks).endswith("copy (in 50% of its blocks, at 1530 MHz)")


def test_the_power_cap_of_a_clock_that_was_not_probed_stands_with_its_share_alone(make):
    assert line_about(make, blocks=(Block(2, power_capped=True),)).endswith("copy (in 100% of its blocks)")


def test_a_drift_says_what_to_raise(make):
    assert "raise --roofline-budget" in line_about(make, labels=("drifting",))


@pytest.mark.parametrize("neighbours", ["none", "unknown"])
def test_a_neighbour_that_was_not_seen_is_not_claimed(make, neighbours):
    assert condition_lines([under(make, neighbours=neighbours)]) == []


@pytest.mark.parametrize("about", CONDITIONS)
@pytest.mark.parametrize(("count", "more"), [(1, ""), (3, ""), (4, " and 1 more"), (60, " and 57 more")])
def test_at_most_three_tests_are_named_and_the_rest_counted(make, about, count, more):
    (line,) = condition_lines([under(make, f"copy{number}", **CONDITIONS[about]) for number in range(count)])
    assert re.findall(r"copy\d+", line) == [f"copy{number}" for number in range(min(3, count))]
    assert line.endswith(more)
    assert (" more" in line) == bool(more)


def test_only_the_tests_that_it_concerns_are_named(make):
    (line,) = condition_lines([under(make, "one"), under(make, "two", neighbours="seen"), under(make, "three")])
    assert line.endswith(": two")


def test_a_test_under_several_conditions_stands_in_the_line_of_each(make):
    facts = {"labels": ("drifting", "host_bound"), "wall_s": 8e-3, "neighbours": "seen"}
    lines = condition_lines([under(make, **facts)])
    assert len(lines) == 3
    assert all("copy" in line for line in lines)


@pytest.mark.parametrize("about", CONDITIONS)
def test_a_hostile_name_cannot_steer_the_terminal_from_a_line_on_conditions(make, about):
    (line,) = condition_lines([under(make, HOSTILE, **CONDITIONS[about])])
    assert not set(line) & set("\x1b\r\n\u202e")
    assert "x\\x1b[31m\\r\\ny\\u202e" in line


@pytest.mark.parametrize("about", CONDITIONS)
@pytest.mark.parametrize("label", ["[bold red]x[/]", ":smile:", "100 %s {0}"])
def test_markup_in_a_name_is_text_in_a_line_on_conditions(make, about, label):
    assert label in line_about(make, label=label, **CONDITIONS[about])


UNRESOLVED = ("unresolved",)
RATE = re.compile("B/s|FLOP/s|GBps|_per_s|share|%")
TEXTS = {
    "rate": lambda one: rate_text(one.measurement),
    "figure": lambda one: figure(one.measurement),
    "status": status_word,
    "table": lambda one: results_table([one], 80, False),
    "properties": lambda one: str(properties([one])),
    "derived": lambda one: str(one.measurement.derived()),
    "published": lambda one: published_lines([one])[0].partition(", reference ")[0],
}


def shortest(make, labels, metric="traffic_GBps"):
    """A result of 20 ns on a clock of 10, which tells a time or, where it says so, does not."""
    samples = Samples((2e-8,), 1, 1e-8, labels=labels)
    facts = {"ceiling": Ceiling("traffic_GBps", 1e12, "datasheet", "vendor"), "invalid": samples.trouble}
    work = Work(read_bytes=10**3, write_bytes=10**3, payload_bytes=10**3, flops=10**3)
    measurement = make.measurement(samples=samples, key=make.key(metric=metric), work=work, **facts)
    verdict = judge((2e-8,), None, Policy(), invalid=measurement.invalid)
    return Result(measurement, verdict, {}, (make.published("reference"),))


@pytest.mark.parametrize(("labels", "known"), [(UNRESOLVED, False), ((), True)])
@pytest.mark.parametrize("name", ["rate", "traffic_GBps", "payload_GBps", "flops_per_s", "share_of_ceiling"])
def test_a_time_below_the_clocks_resolution_has_no_rate(make, name, labels, known):
    assert known == (getattr(shortest(make, labels).measurement, name) is not None)


@pytest.mark.parametrize(("labels", "known"), [(UNRESOLVED, False), ((), True)])
@pytest.mark.parametrize("place", TEXTS)
def test_no_text_makes_a_rate_of_a_time_below_the_clocks_resolution(make, place, labels, known):
    assert known == bool(RATE.search(TEXTS[place](shortest(make, labels))))


@pytest.mark.parametrize("metric", ["traffic_GBps", "payload_GBps", "TFLOPS"])
def test_a_time_below_the_clocks_resolution_is_shown_as_it_is(make, metric):
    assert rate_text(shortest(make, UNRESOLVED, metric).measurement) == "20.0 ns"


def test_the_reason_of_an_unresolved_time_says_what_to_do(make):
    (line,) = reason_lines([shortest(make, UNRESOLVED)])
    assert line.startswith("INVALID memcpy_d2d[64MiB]: a sample spans 2 ticks of the clock")
    assert "time more work in a call" in line


def test_a_regression_names_the_clock_that_it_was_timed_by_where_that_changed(make):
    before = Reference((1e-3, 1.001e-3, 0.999e-3), "h200.json", ({"timed by": "events"},))
    _, second = failure_message(result(make, 1.25e-3, before, {"timed by": "graph"}), "r").split("\n")
    assert second.startswith("  timed by events → graph; ")


@pytest.mark.parametrize("known", [{"timed by": "graph"}, {}])
def test_a_regression_names_no_clock_where_it_is_the_same_or_was_not_noted(make, known):
    before = Reference((1e-3, 1.001e-3, 0.999e-3), "h200.json", (known,))
    assert "timed by" not in failure_message(result(make, 1.25e-3, before, {"timed by": "graph"}), "r")
