"""A sweep over sizes as one thing: its plateau, its latency and bandwidth, and one verdict with its worst region."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_roofline.baselines.rows import timed_row
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.verdicts import Kind, TimeLimit
from pytest_roofline.stats.curves import judge_curves, summarise
from pytest_roofline.stats.key_results import KeyResults
from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.verdicts import judge

SIZES = [4**power for power in range(6, 16)]


def sweep(make, seconds_of, sizes=SIZES, **changes):
    """A sweep of copies, each size taking `seconds_of(size)`."""
    return [
        make.measurement(seconds_of(size), key=make.key(size_bytes=size, **changes))
        for size in sizes
    ]


def at_rates(make, *rates):
    """The summary of a sweep with these rates of traffic, by size."""
    known = dict(zip(SIZES, rates, strict=True))
    (curve,) = summarise(sweep(make, lambda size: 2 * size / known[size]))
    return curve


@settings(max_examples=50)
@given(st.floats(1e-7, 1e-4), st.floats(1e9, 1e13))
def test_latency_and_bandwidth_are_recovered_from_exact_points_in_any_order(
    make, latency_s, bytes_per_s
):
    points = sweep(make, lambda size: latency_s + size / bytes_per_s)
    (curve,) = summarise(points)
    assert curve.fit.latency_s == pytest.approx(latency_s, rel=1e-4)
    # A copy moves its size twice, and the rate is of traffic.
    assert curve.fit.bandwidth == pytest.approx(2 * bytes_per_s, rel=1e-4)
    assert [curve] == summarise(points[::-1])


def test_a_fit_at_its_edges_and_how_far_it_is_off(make):
    (free,) = summarise(sweep(make, lambda size: size / 1e9))
    assert (free.fit.latency_s, free.fit.bandwidth) == (
        pytest.approx(0.0, abs=1e-9),
        pytest.approx(2e9),
    )
    (flat,) = summarise(sweep(make, lambda size: 1e-3))
    assert (flat.fit.latency_s, flat.fit.bandwidth is None or flat.fit.bandwidth > 1e20) == (
        pytest.approx(1e-3),
        True,
    )
    (straight,) = summarise(sweep(make, lambda size: 1e-6 + size / 1e9))
    (dip,) = summarise(sweep(make, lambda size: (100 if size == SIZES[3] else 1) * size / 1e9))
    assert straight.fit.misfit == pytest.approx(0.0, abs=1e-9)
    assert (straight.fit.latency_error_s, straight.fit.bandwidth_error) == (
        pytest.approx(0, abs=1e-9),
        pytest.approx(0, abs=9),
    )
    assert 0.25 < dip.fit.misfit < 1.0


def test_standard_errors_of_a_fit_are_those_of_weighted_least_squares(make):
    seconds = {
        size: (2e-6 + size / 1e10) * factor
        for size, factor in zip(SIZES, [1.02, 0.98] * 5, strict=True)
    }
    (curve,) = summarise(sweep(make, seconds.get))
    design = np.array([[1 / seconds[size], size / seconds[size]] for size in SIZES])
    values, residuals, *_ = np.linalg.lstsq(design, np.ones(10), rcond=None)
    errors = np.sqrt(residuals[0] / 8 * np.diag(np.linalg.pinv(design.T @ design, rcond=1e-20)))
    assert (curve.fit.latency_s, curve.fit.latency_error_s) == pytest.approx(
        (values[0], errors[0]), rel=1e-6
    )
    # A copy moves its size twice.
    expected = 2 / values[1], 2 / values[1] * errors[1] / values[1]
    assert (curve.fit.bandwidth, curve.fit.bandwidth_error) == pytest.approx(expected, rel=1e-6)


def test_the_share_of_the_roof_is_reached_by_size_and_of_whole_programs_the_fixed_part_is_split_off(
    make,
):
    roof = Ceiling("traffic_GBps", 20e9, "datasheet", "a sheet")
    rates = {size: 11.5e9 + 1e9 * place for place, size in enumerate(SIZES)}
    points = [
        replace(one, ceiling=roof) for one in sweep(make, lambda size: 2 * size / rates[size])
    ]
    (curve,) = summarise(points)
    assert curve.of_roof == {"80%": SIZES[5], "90%": SIZES[7]}
    assert summarise([replace(points[0], ceiling=None), *points[1:]])[0].of_roof == {}
    (job,) = summarise(sweep(make, lambda size: 11 + size / 1e9, metric="job_wall_s"))
    assert (job.fit.latency_s, job.fit.bandwidth) == (pytest.approx(11), pytest.approx(1e9))


def test_the_plateau_is_the_rate_of_the_largest_third_and_a_share_is_reached_where_no_larger_size_falls_below(
    make,
):
    assert at_rates(make, *[1e9] * 7, 4e9, 5e9, 6e9).plateau == pytest.approx(5e9)
    for rates, reached in [
        ((1e9, 4e9, 5e9, 7.9e9, 8.1e9, 8.9e9, 9.1e9, 10e9, 10e9, 10e9), (2, 4, 6)),
        ((4.46e9, 3e7, 4e8, 2e9, 3e9, 9e9, 10e9, 10e9, 7e9, 10e9), (5, 9, 9)),
        ((*[1e9] * 6, 9e9, 9e9, 10e9, 6e9), (6, None, None)),
    ]:
        expected = [None if place is None else SIZES[place] for place in reached]
        assert at_rates(make, *rates).reached == dict(
            zip(("50%", "80%", "90%"), expected, strict=True)
        ), rates


def test_a_sweep_is_four_sizes_or_more_of_one_benchmark_metric_and_other_parameters(make):
    few = sweep(make, lambda size: 1e-3, sizes=SIZES[:3])
    assert summarise(few) == summarise(few * 4) == summarise([]) == []
    assert (
        summarise(
            [make.measurement(key=make.key(parameters={"heads": heads})) for heads in range(9)]
        )
        == []
    )
    points = [
        *sweep(make, lambda size: size / 1e9, benchmark="a"),
        *sweep(make, lambda size: size / 2e9, benchmark="b"),
        *sweep(make, lambda size: size / 3e9, benchmark="a", metric="triton_traffic_GBps"),
    ]
    found = [(curve.label, curve.metric, round(curve.plateau / 2e9)) for curve in summarise(points)]
    assert found == [
        ("a", "traffic_GBps", 1),
        ("b", "traffic_GBps", 2),
        ("a", "triton_traffic_GBps", 3),
    ]
    split = [
        make.measurement(
            size / rate, key=make.key(parameters={"memory": memory, "size_bytes": size})
        )
        for memory, rate in (("pinned", 2e9), ("pageable", 1e9))
        for size in SIZES
    ]
    assert [curve.label for curve in summarise(split)] == [
        "memcpy_d2d[pinned]",
        "memcpy_d2d[pageable]",
    ]
    wrong = [make.measurement(1e-12, key=point.key, invalid="wrong data") for point in points]
    assert summarise(points + wrong) == summarise(points)


def verdicts_on(pairs):
    """The verdicts on the sweeps of measurements, each with the verdict on it."""
    return judge_curves(timed_row(KeyResults([one]), verdict) for one, verdict in pairs)


def judged(make, *percents, spread=0.01, new=3, **changes):
    """A sweep whose sizes are slower by these, each with its verdict."""
    pairs = []
    for size, percent in zip(SIZES, percents, strict=False):
        groups = make.groups(1, new, process=spread, centre=math.log1p(percent / 100))
        verdict = judge(
            groups,
            make.reference(*make.groups(3, process=spread)),
            Policy(comparisons=len(percents)),
        )
        pairs.append((make.measurement(key=make.key(size_bytes=size, **changes)), verdict))
    return pairs


def one_verdict(make, *percents, **changes):
    (curve,) = verdicts_on(judged(make, *percents, **changes))
    return curve


def test_a_sweep_is_red_where_a_size_is_and_green_where_the_mean_of_its_sizes_is(make):
    for percents, word in [
        *(((0,) * 10, "PASSED"), ((-20,) * 10, "IMPROVED"), ((0,) * 9 + (30,), "REGRESSED")),
        *(
            ((30,) * 10, "REGRESSED"),
            ((4.5,) * 10, "INCONCLUSIVE"),
            ((-20,) * 9 + (30,), "REGRESSED"),
        ),
    ]:
        assert one_verdict(make, *percents).kind == word, percents
    # Sizes that alone are open pass where their mean does.
    curve = one_verdict(make, *(4.5, -4.5) * 5, new=4)
    assert (curve.kind, curve.passed, curve.points, curve.processes) == (
        Kind.PASSED,
        5,
        10,
        (4, 15),
    )
    # A size below a published limit is red too.
    pairs = judged(make, *(0,) * 10)
    pairs[3] = (
        pairs[3][0],
        judge([make.group(1.0)], None, Policy(), limits=[Limit(TimeLimit(1.0, make.published()))]),
    )
    assert [one.kind for one in verdicts_on(pairs)] == [Kind.REGRESSED]


def test_a_sweep_whose_sizes_are_slower_with_all_tests_is_shifted_unless_a_size_is_red(make):
    pairs = judged(make, *(10,) * 9, 30)
    shifted = [(one, replace(verdict, kind=Kind.SHIFTED)) for one, verdict in pairs[:-1]]
    (curve,) = verdicts_on(shifted)
    assert (curve.kind, curve.passed) == (Kind.SHIFTED, 0)
    assert [curve.kind for curve in verdicts_on([*shifted, pairs[-1]])] == [Kind.REGRESSED]


@settings(max_examples=50)
@given(st.lists(st.floats(-30, 30), min_size=4, max_size=10))
def test_the_estimate_of_a_sweep_is_the_mean_of_its_sizes_inside_the_interval_of_one(
    make, percents
):
    """Sizes of a process are slow together, so 23 of them know no more than one."""
    curve = one_verdict(make, *percents)
    assert curve.estimate == pytest.approx(
        sum(math.log1p(percent / 100) for percent in percents) / len(percents)
    )
    assert curve.interval[0] < curve.estimate < curve.interval[1]
    single = judged(make, 2)[0][1]
    width = single.interval[1] - single.interval[0]
    assert curve.interval[1] - curve.interval[0] == pytest.approx(width)
    assert verdicts_on(judged(make, *percents)[::-1]) == [curve]


def test_the_worst_region_is_the_quarter_of_the_sweep_that_got_slowest(make):
    for percents, worst, percent in [
        *(((0, 0, 0, 0, 0, 3, 3, 0, 0, 0), (5, 6), 3), ((9, 0, 0, 0, 0, 0, 0, 0, 5, 5), (8, 9), 5)),
        *(((4, 0, 0, 0), (0, 0), 4), ((-9, -8, -7, -6, -5, -4, -3, -2, -2, -9), (7, 8), -2)),
    ]:
        curve = one_verdict(make, *percents)
        assert curve.worst == (SIZES[worst[0]], SIZES[worst[1]]), percents
        assert math.expm1(curve.worst_estimate) == pytest.approx(percent / 100), percents


def test_the_strictest_tolerance_of_its_sizes_is_that_of_the_sweep(make):
    pairs = judged(make, *(4,) * 10)
    loose = [
        (measurement, replace(verdict, tolerance=0.5, kind=Kind.PASSED))
        for measurement, verdict in pairs[1:]
    ]
    (curve,) = verdicts_on([pairs[0], *loose])
    assert (curve.tolerance, curve.kind) == (0.05, Kind.INCONCLUSIVE)


def test_fewer_than_four_compared_sizes_have_no_verdict_and_every_metric_and_benchmark_its_own(
    make,
):
    for compared in (0, 3, 4):
        none = judge([make.group(0.0)], None, Policy(), why_none="no baseline recorded")
        pairs = judged(make, *(0,) * 10)
        pairs = pairs[:compared] + [(measurement, none) for measurement, _ in pairs[compared:]]
        assert [curve.points for curve in verdicts_on(pairs)] == [4] * (compared == 4), compared
    pairs = [
        *judged(make, *(0,) * 5, benchmark="a"),
        *judged(make, *(30,) * 5, benchmark="b"),
        *judged(make, *(-30,) * 5, benchmark="a", metric="triton_traffic_GBps"),
    ]
    found = [(curve.label, curve.kind) for curve in verdicts_on(pairs)]
    assert found == [("a", Kind.PASSED), ("b", Kind.REGRESSED), ("a", Kind.IMPROVED)]
