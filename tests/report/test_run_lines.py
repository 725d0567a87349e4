"""What is said of a run as a whole: ahead of its tests what moved them all; then counts, conditions and the gate."""

import math
import re
from dataclasses import replace

from pytest_roofline.baselines.rows import exact_row, memory_row
from pytest_roofline.baselines.run_rows import Ending
from pytest_roofline.core.keys import BY_POSITION
from pytest_roofline.core.memory import FailedAllocation, OutOfMemory
from pytest_roofline.core.records import CurveSummary, Fit, Outcome
from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.core.verdicts import ExactVerdict, TimeLimit
from pytest_roofline.report.conditions import condition_lines, curve_line, reason_lines
from pytest_roofline.report.messages import GATE, closing_lines, counts_line, reds_of
from pytest_roofline.report.overview import curve_verdict_line, overview_lines, power_lines
from pytest_roofline.report.words import sentence, tolerance_text
from pytest_roofline.stats.analyses import Analyses
from pytest_roofline.stats.curves import judge_curves
from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.outlook import Policy

MIB = 2**20
HOSTILE = "x\x1b[31m\r\ny\u202e"
STEERS = set("\x1b\r\n\u202e")
MILLISECOND = math.log(1e-3)


def vague(make):
    return make.reference(*make.groups(1, 5, process=0.05, centre=-6.9))


def test_what_was_not_measured_is_counted_with_its_reason_and_verdicts_worst_first(make):
    cases = [
        (12, {}, "12 measured"),
        (12, {"needs 2 GPUs, found 1": 3}, "12 measured, 3 not measured (needs 2 GPUs, found 1)"),
        (0, {"a": 1, "b\n": 2}, "0 measured, 3 not measured (a (1×); b\\n (2×))"),
        (
            0,
            dict.fromkeys("abcdef", 1),
            "0 measured, 6 not measured (a (1×); b (1×); c (1×); d (1×); and 2 other reasons)",
        ),
    ]
    for measured, not_measured, line in cases:
        assert counts_line({"measured": measured}, not_measured) == line


def closing(*results, reds=None, record="", planned=(), most=1, status=0):
    return closing_lines(results, reds or {}, planned, record, most, status)


def test_a_run_ends_in_a_sentence_in_one_of_three_colours(make):
    good, better, new = (
        make.result(),
        make.result(0.5e-3),
        make.result(known=False, test_id="t.py::new"),
    )
    unknown = make.result(1.04e-3, reference=vague(make), test_id="t.py::open")
    slow = make.result(2e-3, test_id="t.py::slow")
    red = {"t.py::slow": ("REGRESSED", "slow: +100 %")}
    # One process where red needs three.
    looks_slow = make.result(1.3e-3, policy=Policy(analyses=Analyses(12)), test_id="t.py::looks")
    shifted = replace(make.result(1.1e-3, test_id="t.py::a"), verdict="SHIFTED")
    by_limit = make.result(known=False, limits=[Limit(TimeLimit(1.2e-3, make.published()))])
    for rows, reds, said in (
        ([good, better], {}, "GREEN: 2 of 2 fast enough"),
        ([good, new], {}, "GREEN: 1 of 2 fast enough, 1 undecided (1 NO BASELINE)"),
        ([good, by_limit], {}, "GREEN: 2 of 2 fast enough (1 by published limits)"),
        (
            [good, new, unknown],
            {},
            "GREY: 1 of 3 fast enough, 2 undecided (1 INCONCLUSIVE, 1 NO BASELINE)",
        ),
        # Undecided, and its estimate lies beyond the tolerance: nobody can tell, whatever most tests say.
        (
            [good, better, looks_slow],
            {},
            "GREY: 2 of 3 fast enough, 1 undecided (memcpy_d2d[64MiB] +30 %)",
        ),
        (
            [good, better, looks_slow, new],
            {},
            "GREY: 2 of 4 fast enough, 2 undecided (memcpy_d2d[64MiB] +30 %, 1 NO BASELINE)",
        ),
        (
            [good, slow, looks_slow],
            red,
            "RED: 1 REGRESSED, 1 of 3 fast enough, 1 undecided (memcpy_d2d[64MiB] +30 %)",
        ),
        (
            [new, make.result(invalid="bad")],
            {},
            "GREY: nothing was compared (1 INVALID, 1 NO BASELINE)",
        ),
        ([make.row(make.measurement())], {}, "GREY: nothing was compared (1 FAILED)"),
        ([], {}, "GREY: nothing was compared, since 0 of 2 tests measured anything"),
        (
            [good, slow, new],
            red,
            "RED: 1 REGRESSED, 1 of 3 fast enough, 1 undecided (1 NO BASELINE)",
        ),
        ([good], {"a": ("FAILED", "boom")}, "RED: 1 FAILED, 1 of 2 fast enough"),
        # What is slower with all tests is neither fast enough nor undecided.
        (
            [shifted, replace(shifted, test="t.py::b"), new],
            {"all tests together": ("REGRESSED", "all tests together take +10 % time")},
            "RED: 1 REGRESSED, 0 of 3 fast enough, 2 SHIFTED, 1 undecided (1 NO BASELINE)",
        ),
        # What is no test of the plan, as the gate's own, is no result.
        (
            [good],
            {GATE: (GATE, "it lacks")},
            "RED: the gate compared too little, 1 of 1 fast enough",
        ),
    ):
        assert closing(*rows, reds=reds, planned=("a", "b"))[-1] == said
    # A run that was interrupted is no green one; ordinary tests that failed are none of ours, and said.
    for status, said in (
        (1, "GREEN: 1 of 1 fast enough; but pytest ended with status 1 (other tests failed)"),
        (2, "GREY: 1 of 1 fast enough; but pytest ended with status 2 (the run was interrupted)"),
    ):
        assert closing(good, status=status)[-1] == said
    lost = memory_row(
        OutOfMemory("t.py::big", "big", {}, "big[1]", "cpu", FailedAllocation("asked for 2 TiB")),
        verdict="OUT OF MEMORY",
    )
    assert closing(good, lost)[-1] == "GREEN: 1 of 1 fast enough; 1 OUT OF MEMORY as expected"


def test_a_regression_that_an_xfail_expects_is_not_undecided(make):
    slower = make.result(2e-3, test_id="t.py::expected")
    assert slower.verdict == "REGRESSED"
    assert closing(make.result(), slower) == [
        "GREEN: 1 of 2 fast enough; 1 REGRESSED as expected (xfail)"
    ]


def test_what_failed_for_itself_has_the_tests_name_and_what_only_watched_is_red_as_well(make):
    ended = {}
    for test_id, reason, facts in (
        ("t.py::fine", "", {"outcome": "passed"}),
        ("t.py::test_broken[4]", "ValueError: boom", {}),
        (
            "t.py::slow",
            "Failed: slow: +30 % time",
            {"by_verdict": True, "verdicts": ("PASSED", "REGRESSED")},
        ),
        (
            "t.py::watched",
            "watched: +31 % time",
            {"by_verdict": True, "verdicts": ("REGRESSED",), "shadow": True},
        ),
        (
            "t.py::new",
            "unsound: NO BASELINE",
            {"by_verdict": True, "verdicts": ("SHIFTED", "NO BASELINE")},
        ),
        ("t.py::expected", "xfail: known", {}),
        (GATE, "nothing was compared", {"by_verdict": True}),
    ):
        one = Outcome(test_id, facts.pop("outcome", "failed"), reason=reason, **facts)
        ended[test_id] = Ending(one, one)
    # Where REGRESSED is not to fail a run, and where a failure is expected.
    rows = [make.result(2e-3, test_id=name) for name in ("t.py::let_pass", "t.py::expected")]
    found = reds_of(ended, [*rows, make.result(3e-3, test_id="t.py::slow")])
    # Of the slower ones the slowest, since only so many are told of.
    assert list(found)[-5:-2] == ["t.py::slow", "t.py::let_pass", "t.py::watched"]
    assert found.pop("t.py::let_pass")[1].startswith("memcpy_d2d[64MiB]: +100.0 % time")
    assert found == {
        "t.py::test_broken[4]": ("FAILED", "test_broken[4]: ValueError: boom"),
        "t.py::slow": ("REGRESSED", "slow: +30 % time"),
        "t.py::watched": ("REGRESSED", "watched: +31 % time"),
        "t.py::new": ("NO BASELINE", "unsound: NO BASELINE"),
        GATE: (GATE, "nothing was compared"),
    }


def test_above_the_sentence_stands_what_failed_or_what_would_decide(make):
    new = make.result(known=False)
    record = "pytest t.py --roofline-record"
    commands = ["Record a baseline:", f"  {record}"]
    said = "NO BASELINE memcpy_d2d[64MiB]: no baseline recorded"
    assert closing(new, new, record=record)[:-1] == [*commands, f"{said} (and 1 more)"]
    # A run of which nothing is fit has no command; with -v the details have said the rest.
    assert (closing(new)[:-1], closing(new, record=record, most=0)[:-1]) == ([said], commands)
    # A gate that compared nothing says it in its failure, and no baseline takes what only its position names.
    gate = {GATE: (GATE, "nothing was compared")}
    assert not set(commands) & set(closing(new, reds=gate, record=record))
    nameless = make.result(known=False, key=make.key(parameters={"fn" + BY_POSITION: "fn0"}))
    assert closing(nameless, record=record)[0].startswith("NO BASELINE")
    limit = make.result(known=False, limits=[Limit(TimeLimit(1.2e-3, make.published()))])
    assert (
        closing(limit, record=record)[0]
        == f"A limit finds only results that miss the limit. {commands[0]}"
    )
    assert closing(make.result(), new, record=record)[:-1] == [said]
    busy = "others kept a core busy; run the test on a quiet machine"
    assert (
        closing(new, make.result(invalid=busy))[0]
        == f"INVALID memcpy_d2d[64MiB]: {busy} (and 1 more)"
    )
    reds = {f"t{number}": ("FAILED", f"why {number}") for number in range(7)}
    assert closing(reds=reds)[-3:-1] == ["why 4", "… and 2 more that failed"]
    hostile = closing(make.result(known=False, why_none=HOSTILE)) + closing(
        reds={"t": ("FAILED", HOSTILE)}
    )
    assert not set("".join(hostile)) & STEERS


def test_a_sweep_is_one_line_with_what_fits_it():
    def line(**changes):
        facts = {
            "label": "memcpy\n",
            "metric": "traffic_GBps",
            "points": 9,
            "plateau": 2e9,
            "reached": {"50%": MIB, "80%": None},
        }
        fit = {"latency_s": 2e-6, "bandwidth": 2.1e9, "misfit": 0.01}
        fit |= {name: changes.pop(name) for name in Fit.__slots__ if name in changes}
        return curve_line(CurveSummary(**(facts | changes), fit=Fit(**fit)))

    assert line() == (
        "memcpy\\n: plateau 2.00 GB/s (traffic_GBps), 50% from 1 MiB; fits 2.00 µs + size at 2.10 GB/s"
    )
    assert line(misfit=0.61, latency_s=5e-8, bandwidth=5.25e9).endswith(
        "no latency and bandwidth fit the curve: the best, 50.0 ns + size at 5.25 GB/s, are 61% off"
    )
    errors = line(
        latency_error_s=3e-8, bandwidth_error=1.25e7, of_roof={"80%": 4 * MIB, "90%": None}
    )
    assert errors.endswith(
        "50% from 1 MiB, 80% of roof from 4 MiB; fits 2.00 µs ± 30.0 ns + size at 2.10 ± 0.0125 GB/s"
    )
    assert (
        line(metric="job_wall_s", latency_s=11.2, bandwidth=7e8)
        == "memcpy\\n: fits 11.2 s + size at 0.7 GB/s"
    )
    assert "e+" not in line(plateau=2e12, bandwidth=2.1e12)
    assert line(bandwidth=None).endswith("fits 2.00 µs")


CAPPED = Block(1, clock_hz=1.53e9, power_capped=True)
# One measurement in each of the conditions of which a reader must know, with what its line ends in.
CONDITIONS = {
    "host-bound": (
        {"labels": ("host_bound",), "wall_s": 8e-3},
        " (2.00 ms on the device's clock, 8.00 ms on the host's)",
    ),
    "raise --roofline-budget": ({"labels": ("drifting",)}, ""),
    "the clock changed": ({"labels": ("clock_moved",)}, ""),
    "host's clock": ({"labels": ("wall_clock",), "mode": "host"}, ""),
    "blocks excluded": (
        {"blocks": (Block(1), Block(1, "thermal slowdown"))},
        " (1 of 2 by thermal slowdown)",
    ),
    "power cap": (
        {"blocks": (CAPPED, replace(CAPPED, power_capped=False))},
        " (in 50% of its blocks, at 1530 MHz)",
    ),
    "another process": ({"neighbours": "seen"}, ""),
    "not known whether other processes": (
        {"mode": "events", "neighbours": "unknown", "throttle_known": True},
        "",
    ),
    "not known whether the device was throttled, since the driver does not report the state of the device": (
        {"mode": "events", "neighbours": "none"},
        "",
    ),
}


def under(make, label="copy", **facts):
    """A result of two samples of 2 ms, taken under such conditions."""
    return make.row(make.measurement(label=label, samples=Samples((2e-3, 2e-3), 1, 1e-9, **facts)))


def test_every_condition_has_a_line_that_names_it_and_the_tests(make):
    for about, (facts, end) in CONDITIONS.items():
        (line,) = condition_lines([under(make, "one"), under(make, **facts), under(make, "three")])
        assert (about in line, line.endswith(f": copy{end}")) == (True, True), line
        for count, more in ((3, ""), (4, " and 1 more"), (60, " and 57 more")):
            (line,) = condition_lines(
                [under(make, f"copy{number}", **facts) for number in range(count)]
            )
            assert re.findall(r"copy\d+", line) == ["copy0", "copy1", "copy2"]
            assert (line.endswith(more), " more" in line) == (True, bool(more))
        for label in (HOSTILE, "[bold red]x[/]", ":smile:", "100 %s {0}"):
            (line,) = condition_lines([under(make, label, **facts)])
            assert not set(line) & STEERS
            assert label.encode("unicode_escape").decode() in line
    several = {"labels": ("drifting", "host_bound"), "wall_s": 8e-3, "neighbours": "seen"}
    assert [True] * 3 == ["copy" in line for line in condition_lines([under(make, **several)])]
    unprobed = condition_lines([under(make, blocks=(Block(2, power_capped=True),))])
    assert unprobed[0].endswith("copy (in 100% of its blocks)")
    silent = condition_lines(
        [under(make, mode="events", neighbours="none")], unknown_since="nothing is installed"
    )
    assert silent == [
        "not known whether the device was throttled, since nothing is installed: copy"
    ]


def test_good_conditions_and_what_table_or_verdict_tell_need_no_line(make):
    good = {
        "blocks": (Block(1, clock_hz=2e9, power_capped=False),) * 2,
        "neighbours": "none",
        "throttle_known": True,
    }
    fine = [
        good,
        {},
        {"labels": ("cache_resident",)},
        {"labels": ("unresolved",)},
        {"neighbours": "unknown"},
    ]
    assert condition_lines([under(make, **facts) for facts in fine]) == condition_lines([]) == []


def test_an_open_verdict_tells_why_and_what_would_decide_and_of_many_three_are_told(make):
    open_one = make.result(1.04e-3, reference=vague(make))
    (line,) = reason_lines([make.result(), open_one, make.result(2e-3)])
    assert line.startswith("INCONCLUSIVE memcpy_d2d[64MiB]: the change may be ")
    assert re.search(r"% after 1 process .*; .*(needs|record)", line)
    for count, last in ((3, "INVALID m2: wrong data"), (7, "… and 4 more of these")):
        lines = reason_lines(
            [make.result(label=f"m{number}", invalid="wrong data") for number in range(count)]
        )
        assert (len(lines), lines[-1]) == (min(count, 4), last)
    (line,) = reason_lines([make.result(label=HOSTILE, invalid=HOSTILE)])
    assert not set(line) & STEERS


def suite(make, *percents, **changes):
    return [
        make.result(
            1e-3 * (1 + percent / 100),
            label=f"t{number}",
            **({"environment": {"driver": "550.54"}} | changes),
        )
        for number, percent in enumerate(percents)
    ]


def on_clock(make, seconds, after_hz, label="copy"):
    samples = Samples((seconds,), 1, 1e-9, blocks=(Block(1, clock_hz=after_hz),))
    reference = make.reference(*make.groups(3, process=0.001, centre=MILLISECOND), clock_hz=2e9)
    return make.result(seconds, reference=reference, samples=samples, label=label)


def test_what_moved_all_tests_is_said_once_and_first(make):
    for percents, said in (
        ((10,) * 8, "8 of 8 are slower, by +10.0 % in the median"),
        ((-10,) * 9 + (0,), "9 of 10 are faster, by -10.0 % in the median"),
    ):
        line = overview_lines(suite(make, *percents, environment={"driver": "570"}))[0]
        assert line.startswith(f"ALL TESTS SHIFTED: {said}. Look for one common cause (")
    assert overview_lines(suite(make, *(0, 1, -1, 0.5) * 5)) == []
    changed = overview_lines(suite(make, *(0,) * 30, environment={"driver": "570.86"}))
    assert changed == ["changed since the baseline: driver 550.54 → 570.86"]
    some = [*suite(make, 0, 0), *suite(make, 0, environment={"driver": "570.86"})]
    assert overview_lines(some) == [
        "changed since the baseline: driver 550.54 → 570.86 (1 of 3 tests)"
    ]


def test_slowdowns_that_vanish_in_cycles_are_the_clocks(make):
    results = [
        on_clock(make, 1.25e-3, 1.6e9, "one"),
        on_clock(make, 1.6e-3, 1.6e9, "two"),
        on_clock(make, 1e-3, 2e9),
    ]
    assert overview_lines(results) == [
        "a lower clock explains 1 of 2 slowdowns: one (clock -20.0 %)"
    ]
    (line,) = overview_lines([on_clock(make, 1.25e-3, 1.6e9, f"t{number}") for number in range(4)])
    assert line.endswith("t0 (clock -20.0 %), t1 (clock -20.0 %), t2 (clock -20.0 %) and 1 more")


def reaching(row, percent):
    return replace(row, time_verdict=replace(row.time_verdict, reach=percent / 100))


def test_a_run_ends_with_what_it_could_have_seen(make):
    for reaches, said in (
        ((2.9,) * 131 + (9.9,) * 7, "3 % on 131 of 138 tests, 10 % on all 138 tests"),
        ((2.9, 2.9), "3 % on all 2 tests"),
        ((15,), "15 % on the one test"),
    ):
        told = power_lines([reaching(make.result(), percent) for percent in reaches])
        assert told == [f"the run detects a slowdown of {said} (80 % power)"]
    # Two sessions that lie far apart: nearly nothing is known, and that must be readable.
    days = [make.group(*[2.0 * day + 0.001 * step for step in range(3)], started=f"2026-01-0{day + 1}T03:00:00Z")
            for day in range(2)]  # fmt: skip
    unknown = make.result(reference=make.reference(*days), policy=Policy(analyses=Analyses(12)))
    assert unknown.time_verdict.reach > 1000
    assert "e+" not in "".join(power_lines([make.result(), unknown]))
    few = make.result(reference=make.reference(*make.groups(1, 2, centre=MILLISECOND)))
    caught, nothing = power_lines([reaching(make.result(), 2.9), few])
    assert caught == "the run detects a slowdown of 3 % on 1 of 2 tests (80 % power)"
    assert nothing == (
        "the run detects no slowdown on 1 of 2 tests: REGRESSED needs 10 processes against these baselines, more than "
        "this run measures. Pass --roofline-rounds=auto"
    )
    assert power_lines([few]) == [nothing.replace("1 of 2 tests", "the one test")]


def test_what_was_not_compared_says_nothing_of_the_run_and_no_name_steers_the_terminal(make):
    nothing = [make.row(make.measurement()), make.result(known=False)]
    breach = make.result(9e-3, known=False, limits=[Limit(TimeLimit(1e-3, make.published()))])
    assert ([], []) == (overview_lines([*nothing, *[breach] * 9]), power_lines([*nothing, breach]))
    fine = make.result(
        1.25e-3, policy=Policy(tolerance=0.002), label=HOSTILE, environment={"driver": HOSTILE}
    )
    said = [*overview_lines([fine, on_clock(make, 1.25e-3, 1.6e9, HOSTILE)]), *power_lines([fine])]
    assert (3, set()) == (len(said), set("".join(said)) & STEERS)


def test_a_sweep_is_judged_in_a_line_that_names_its_worst_region(make):
    def line(*percents, benchmark="memcpy_d2d"):
        results = [
            make.result(1e-3 * (1 + percent / 100), key=make.key(benchmark, size_bytes=4**power))
            for power, percent in enumerate(percents, 6)
        ]
        (curve,) = judge_curves(results)
        return curve_verdict_line(curve)

    assert line(0, 0, 0, 0, 0, 3, 3, 0) == (
        "memcpy_d2d: PASSED +0.7 % (-1.3 … +2.8 %, 1 against 15), 8 of 8 sizes passed; worst 4 MiB to 16 MiB, +3.0 %"
    )
    red = line(30, 0, 0, 0)
    assert (True, True) == (
        red.startswith("memcpy_d2d: REGRESSED "),
        red.endswith("3 of 4 sizes passed; worst 4 KiB, +30.0 %"),
    )
    assert not set(line(0, 0, 0, 0, benchmark=HOSTILE)) & STEERS


def test_the_tolerance_of_what_was_compared_is_told_once_or_by_how_many_tests_have_it(make):
    usual = make.result()
    wide = make.result(policy=Policy(tolerance=0.2))
    for rows, text in (
        ([], ""),
        ([make.result(known=False)], ""),
        ([usual, usual], "tolerance 5 %"),
        ([wide, usual, usual], "tolerance 5 % in 2 of 3 tests, 20 % in 1"),
    ):
        assert tolerance_text(rows) == text


def test_what_a_figure_is_allowed_to_differ_by_is_no_tolerance_of_a_time(make):
    figures = {"value": 12, "unit": "J", "baseline_value": 10, "allowed": 1}
    row = exact_row(ExactVerdict("t", "t", "energy", "REGRESSED", **figures))
    assert (row.tolerance, sentence(row)) == (0.1, "+20.0 %")
    assert tolerance_text([make.result(), row]) == "tolerance 5 %"
