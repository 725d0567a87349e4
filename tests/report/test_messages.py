"""The closing lines of a run: reasons, conditions, curves, counts, and what the gate compared."""

import re

import pytest

from pytest_roofline.core.records import CurveSummary
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.report.messages import (
    condition_lines,
    counts_line,
    curve_line,
    gate_lines,
    reason_lines,
    verdicts_line,
)

MIB = 2**20
HOSTILE = "x\x1b[31m\r\ny\u202e"


@pytest.mark.parametrize(
    ("measured", "not_measured", "line"),
    [
        (12, {}, "12 measured"),
        (12, {"needs 2 GPUs, found 1": 3}, "12 measured, 3 not measured (needs 2 GPUs, found 1)"),
        (0, {"a": 1, "b\n": 2}, "0 measured, 3 not measured (a (1×); b\\n (2×))"),
        (
            0,
            dict.fromkeys("abcdef", 1),
            "0 measured, 6 not measured (a (1×); b (1×); c (1×); d (1×); and 2 other reasons)",
        ),
    ],
)
def test_what_was_not_measured_is_counted_with_its_reason(measured, not_measured, line):
    assert counts_line(measured, not_measured) == line


def test_verdicts_are_counted_worst_first(make):
    results = [make.result(seconds) for seconds in (1e-3, 2e-3, 1e-3, 0.5e-3)] + [make.result(known=False)]
    assert verdicts_line(results) == "1 REGRESSED, 1 NO BASELINE, 1 IMPROVED, 2 PASSED"


def test_a_run_that_compares_nothing_says_that_it_gates_nothing(make):
    lines = gate_lines([make.result(known=False), make.result(known=False)], 9, "r1", "h200")
    assert lines == [
        "THIS RUN GATES NOTHING: 0 of 2 compared (no baseline recorded). Record a baseline with",
        "  roofline baseline propose r1 -o h200-proposal.json",
        "  roofline baseline approve h200-proposal.json",
    ]


def test_a_run_of_which_nothing_can_be_trusted_says_why_and_what_would_help(make):
    busy = "others kept a core busy; run it on a quiet machine"
    (line,) = gate_lines([make.result(invalid=busy), make.result(invalid="wrong data")], 9, "r1", "h200")
    assert line == f"THIS RUN GATES NOTHING: 0 of 2 compared (2 INVALID, the first, memcpy_d2d[64MiB], since {busy})."


@pytest.mark.parametrize("invalid", ["wrong data", None])
def test_invalid_and_failed_measurements_gate_nothing(make, invalid):
    one = make.result(invalid=invalid) if invalid else make.row(make.measurement())
    assert gate_lines([one], 9, "r1", "h200")[0].startswith("THIS RUN GATES NOTHING: 0 of 1 compared")


def test_a_run_that_compares_something_says_how_much(make):
    (line,) = gate_lines([make.result(), make.result(2e-3)], 9, "r1", "h200")
    assert line == "2 of 2 compared: 1 REGRESSED, 1 PASSED"


def test_what_has_no_baseline_is_named_beside_what_was_compared(make):
    missing = [make.result(known=False, label=f"m{number}") for number in range(4)]
    (line,) = gate_lines([make.result(), *missing], 9, "r1", "h200")
    assert line.endswith("NO BASELINE for m0, m1, m2, …: no baseline recorded")


def test_hostile_text_cannot_add_a_line_to_the_closing_sentence(make):
    lines = gate_lines([make.result(known=False, why_none=HOSTILE)], 9, "r1", "h200")
    assert not set("".join(lines)) & set("\x1b\r\n\u202e")


def test_a_run_that_measured_nothing_says_that_it_gates_nothing():
    assert gate_lines([], 9, "r1", "h200") == ["THIS RUN GATES NOTHING: 0 of 9 compared, since nothing was measured"]


def test_no_command_is_printed_for_a_run_that_could_not_be_saved(make):
    (line,) = gate_lines([make.result(known=False)], 1, "", "h200")
    assert line == "THIS RUN GATES NOTHING: 0 of 1 compared (no baseline recorded)."


def test_a_sweep_is_one_line():
    curve = CurveSummary("memcpy\n", "traffic_GBps", 9, 2e9, {"50%": MIB, "80%": None}, 2e-6, 2.1e9)
    line = curve_line(curve)
    assert line.startswith("memcpy\\n: plateau 2")
    assert " GB/s (traffic_GBps), 50% from 1 MiB; fits 2.00 µs + size at 2.1" in line
    assert "80%" not in line


def test_a_fit_that_does_not_fit_says_so():
    curve = CurveSummary("memcpy", "traffic_GBps", 9, 2e9, {"50%": None}, 5e-8, 5.25e9, misfit=0.61)
    assert curve_line(curve) == (
        "memcpy: plateau 2.00 GB/s (traffic_GBps); no latency and bandwidth fit it: the best, 50.0 ns + size at "
        "5.25 GB/s, are 61% off"
    )


def test_a_rate_of_a_sweep_is_never_in_powers_of_ten():
    curve = CurveSummary("memcpy", "traffic_GBps", 9, 2e12, {"50%": MIB}, 2e-6, 2.1e12)
    assert "e+" not in curve_line(curve)


def test_a_sweep_without_bandwidth_is_its_latency_alone():
    curve = CurveSummary("memcpy", "traffic_GBps", 9, 2e9, {"50%": MIB}, 2e-6, None)
    assert curve_line(curve).endswith("fits 2.00 µs")


THERMAL = "thermal slowdown"
# One measurement in each of the conditions of which a reader must know.
CONDITIONS = {
    "host-bound": {"labels": ("host_bound",), "wall_s": 8e-3},
    "drifting": {"labels": ("drifting",)},
    "the clock moved": {"labels": ("clock_moved",)},
    "host's clock": {"labels": ("wall_clock",), "mode": "host"},
    THERMAL: {"blocks": (Block(1), Block(1, THERMAL))},
    "power cap": {"blocks": (Block(1, power_capped=True),) * 2},
    "another process": {"neighbours": "seen"},
}


def under(make, label="copy", **facts):
    """A result of two samples of 2 ms, taken under such conditions."""
    samples = Samples((2e-3, 2e-3), 1, 1e-9, **facts)
    return make.row(make.measurement(label=label, samples=samples))


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
    (line,) = condition_lines([make.row(make.measurement(samples=samples, label="copy"))])
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


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"neighbours": "unknown", "throttle_known": True}, "not known whether others used the device"),
        ({"neighbours": "none"}, "not known whether the device was throttled"),
    ],
)
@pytest.mark.parametrize(
    ("told", "why"),
    [({}, "the driver does not tell"), ({"untold_since": "nothing is installed"}, "nothing is installed")],
)
def test_what_is_not_known_says_why(make, facts, said, told, why):
    assert condition_lines([under(make, mode="events", **facts)], **told) == [f"{said}, since {why}: copy"]


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


def test_an_open_verdict_tells_why_and_what_would_decide(make):
    open_one = make.result(1.04e-3, reference=make.reference(*make.groups(1, 5, process=0.05, centre=-6.9)))
    (line,) = reason_lines([make.result(), open_one, make.result(2e-3)])
    assert line.startswith("INCONCLUSIVE memcpy_d2d[64MiB]: may be ")
    assert re.search(r"% after 1 process .*; .*(would decide|record)", line)


@pytest.mark.parametrize(("count", "last"), [(3, "INVALID m2: wrong data"), (7, "… and 4 more of these")])
def test_at_most_three_reasons_are_told_and_the_rest_counted(make, count, last):
    lines = reason_lines([make.result(label=f"m{number}", invalid="wrong data") for number in range(count)])
    assert (len(lines), lines[-1]) == (min(count, 4), last)


def test_a_hostile_reason_cannot_steer_the_terminal(make):
    (line,) = reason_lines([make.result(label=HOSTILE, invalid=HOSTILE)])
    assert not set(line) & set("\x1b\r\n\u202e")


def test_open_and_invalid_verdicts_are_counted_too(make):
    open_one = make.result(1.04e-3, reference=make.reference(*make.groups(1, 5, process=0.05, centre=-6.9)))
    assert verdicts_line([make.result(), open_one, make.result(invalid="bad")]) == "1 INVALID, 1 INCONCLUSIVE, 1 PASSED"
