"""What is said of a run as a whole, once and ahead of its tests; and at its end what it could have seen."""

import math
from dataclasses import replace

import pytest

from pytest_roofline.core.samples import Block, Samples
from pytest_roofline.report.overview import curve_verdict_line, overview_lines, power_lines
from pytest_roofline.stats.curves import judge_curves
from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.verdicts import Kind

HOSTILE = "x\x1b[31m\r\ny\u202e"
MILLISECOND = math.log(1e-3)
SAME = {"driver": "550.54"}


def suite(make, *percents, **changes):
    return [
        make.result(1e-3 * (1 + percent / 100), label=f"t{number}", **({"environment": SAME} | changes))
        for number, percent in enumerate(percents)
    ]


def on_clock(make, seconds, after_hz, label="copy"):
    samples = Samples((seconds,), 1, 1e-9, blocks=(Block(1, clock_hz=after_hz),))
    reference = make.reference(*make.groups(3, process=0.001, centre=MILLISECOND), clock_hz=2e9)
    return make.result(seconds, reference=reference, samples=samples, label=label)


@pytest.mark.parametrize(
    ("percents", "said"),
    [
        ((10,) * 8, "8 of 8 tests are slower, the middle one by +10.0 %"),
        ((-10,) * 9 + (0,), "9 of 10 tests are faster, the middle one by -10.0 %"),
    ],
)
def test_a_suite_that_moved_together_is_said_so_once_and_first(make, percents, said):
    line = overview_lines(suite(make, *percents, environment={"driver": "570"}))[0]
    assert line.startswith(f"THE WHOLE SUITE MOVED: {said}; look for one cause (")


def test_a_run_in_which_nothing_happened_needs_no_overview(make):
    assert overview_lines(suite(make, *(0, 1, -1, 0.5) * 5)) == []


def test_slowdowns_that_vanish_in_cycles_are_the_clocks_and_not_the_codes(make):
    results = [on_clock(make, 1.25e-3, 1.6e9, "one"), on_clock(make, 1.6e-3, 1.6e9, "two"), on_clock(make, 1e-3, 2e9)]
    assert overview_lines(results) == ["clock, not code: 1 of 2 slowdowns vanish in cycles: one (clock -20.0 %)"]


def test_at_most_three_of_them_are_named(make):
    results = [on_clock(make, seconds, 1.6e9, f"t{number}") for number, seconds in enumerate([1.25e-3] * 4)]
    (line,) = overview_lines(results)
    assert line.endswith("t0 (clock -20.0 %), t1 (clock -20.0 %), t2 (clock -20.0 %) and 1 more")


def test_a_changed_driver_is_said_once_for_all_tests(make):
    changed = overview_lines(suite(make, *(0,) * 30, environment={"driver": "570.86"}))
    assert changed == ["changed since the baseline: driver 550.54 → 570.86"]


def test_what_changed_for_some_tests_is_counted(make):
    results = [*suite(make, 0, 0), *suite(make, 0, environment={"driver": "570.86"})]
    assert overview_lines(results) == ["changed since the baseline: driver 550.54 → 570.86 (1 tests)"]


def test_what_was_not_compared_says_nothing_of_the_run(make):
    nothing = [make.row(make.measurement()), make.result(known=False)]
    breach = make.result(9e-3, known=False, limits=[Limit(make.published(), 1e-3)])
    assert overview_lines([*nothing, *[breach] * 9]) == []
    assert power_lines([*nothing, breach]) == []


def reaching(result, percent):
    return replace(result, judgement=replace(result.judgement, reach=percent / 100))


@pytest.mark.parametrize(
    ("reaches", "said"),
    [
        (
            (2.9,) * 131 + (9.9,) * 7,
            "would have caught 3 % on 131 of 138 tests, 10 % on all 138 tests (80 times in 100)",
        ),
        ((2.9, 2.9), "would have caught 3 % on all 2 tests (80 times in 100)"),
        ((15,), "would have caught 15 % on the one test (80 times in 100)"),
    ],
)
def test_a_green_run_ends_with_what_it_could_have_seen(make, reaches, said):
    one = make.result()
    assert power_lines([reaching(one, percent) for percent in reaches]) == [said]


def test_what_a_run_could_have_seen_is_never_in_powers_of_ten(make):
    """Two sessions a third apart: nearly nothing is known, and that must be readable."""
    days = [make.group(*[2.0 * day + 0.001 * step for step in range(3)], started=f"2026-01-0{day + 1}T03:00:00Z")
            for day in range(2)]  # fmt: skip
    vague = make.result(reference=make.reference(*days))
    assert vague.judgement.reach > 1000
    assert "e+" not in "".join(power_lines([make.result(), vague]))


def test_tests_that_nothing_could_have_turned_red_are_counted_with_what_red_needs(make):
    """As with --roofline-rounds=1, and with a run whose time ended early."""
    few = make.result(reference=make.reference(*make.groups(1, 2, centre=MILLISECOND)))
    assert few.judgement.reach is None
    caught, nothing = power_lines([reaching(make.result(), 2.9), few])
    assert caught == "would have caught 3 % on 1 of 2 tests (80 times in 100)"
    assert nothing == (
        "would have caught nothing on 1 of 2 tests: red needs 10 processes against their baselines, more than this "
        "run takes (--roofline-rounds=auto)"
    )
    assert power_lines([few]) == [nothing.replace("1 of 2 tests", "the one test")]


def test_one_number_says_what_a_run_can_see(make):
    """Not a smallest effect that one rule detects, and beside it what another would have caught."""
    fine = make.result(policy=Policy(tolerance=0.002))
    (line,) = power_lines([fine])
    assert line.startswith("would have caught ")


def test_a_hostile_name_cannot_steer_the_terminal(make):
    fine = make.result(1.25e-3, policy=Policy(tolerance=0.002), label=HOSTILE, environment={"driver": HOSTILE})
    said = [*overview_lines([fine, replace(on_clock(make, 1.25e-3, 1.6e9, HOSTILE))]), *power_lines([fine])]
    assert len(said) == 3
    assert not set("".join(said)) & set("\x1b\r\n\u202e")


def sweep(make, *percents, benchmark="memcpy_d2d"):
    sizes = [4**power for power in range(6, 6 + len(percents))]
    results = [
        make.result(1e-3 * (1 + percent / 100), key=make.key(benchmark, size_bytes=size))
        for percent, size in zip(percents, sizes, strict=True)
    ]
    (curve,) = judge_curves(results)
    return curve


def test_a_sweep_is_read_in_a_second(make):
    line = curve_verdict_line(sweep(make, 0, 0, 0, 0, 0, 3, 3, 0))
    assert line == (
        "memcpy_d2d: PASSED +0.7 % (-1.2 … +2.7 %, 1 against 15), 8 of 8 sizes passed; worst 4 MiB to 16 MiB, +3.0 %"
    )


def test_a_red_sweep_names_its_worst_region(make):
    line = curve_verdict_line(sweep(make, 30, 0, 0, 0))
    assert line.startswith("memcpy_d2d: REGRESSED ")
    assert line.endswith(", 3 of 4 sizes passed; worst 4 KiB, +30.0 %")


def test_the_name_of_a_sweep_cannot_steer_the_terminal(make):
    curve = sweep(make, 0, 0, 0, 0, benchmark=HOSTILE)
    assert curve.kind is Kind.PASSED
    assert not set(curve_verdict_line(curve)) & set("\x1b\r\n\u202e")
