import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.baselines.rows import timed_row
from pytest_roofline.stats.curves import judge_curves, summarise
from pytest_roofline.stats.judgements import judgement_of
from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.verdicts import Kind, judge

SIZES = [4**power for power in range(6, 16)]


def sweep(make, seconds_of, sizes=SIZES, **changes):
    """A sweep of copies, each size taking `seconds_of(size)`."""
    return [make.measurement(seconds_of(size), key=make.key(size_bytes=size, **changes)) for size in sizes]


@given(st.floats(1e-7, 1e-4), st.floats(1e9, 1e13))
def test_latency_and_bandwidth_are_recovered_from_exact_points(make, latency_s, bytes_per_s):
    (curve,) = summarise(sweep(make, lambda size: latency_s + size / bytes_per_s))
    assert curve.latency_s == pytest.approx(latency_s, rel=1e-4)
    # A copy moves its size twice, and the rate is of traffic.
    assert curve.bandwidth == pytest.approx(2 * bytes_per_s, rel=1e-4)


def test_a_sweep_without_latency_has_none(make):
    (curve,) = summarise(sweep(make, lambda size: size / 1e9))
    assert (curve.latency_s, curve.bandwidth) == (pytest.approx(0.0, abs=1e-9), pytest.approx(2e9))


def test_a_sweep_that_takes_the_same_time_at_every_size_has_no_bandwidth(make):
    (curve,) = summarise(sweep(make, lambda size: 1e-3))
    assert curve.latency_s == pytest.approx(1e-3)
    assert curve.bandwidth is None or curve.bandwidth > 1e20


def test_the_plateau_is_the_rate_of_the_largest_third(make):
    rates = dict(zip(SIZES, [1e9] * 7 + [4e9, 5e9, 6e9], strict=True))
    (curve,) = summarise(sweep(make, lambda size: 2 * size / rates[size]))
    assert curve.plateau == pytest.approx(5e9)


def test_a_share_of_the_plateau_is_reached_at_the_first_size_with_it(make):
    rates = dict(zip(SIZES, [1e9, 4e9, 5e9, 7.9e9, 8.1e9, 8.9e9, 9.1e9, 10e9, 10e9, 10e9], strict=True))
    (curve,) = summarise(sweep(make, lambda size: 2 * size / rates[size]))
    assert curve.reached == {"50%": SIZES[2], "80%": SIZES[4], "90%": SIZES[6]}


def test_a_share_of_the_plateau_is_reached_where_no_larger_size_falls_below_it(make):
    rates = dict(zip(SIZES, [4.46e9, 3e7, 4e8, 2e9, 3e9, 9e9, 10e9, 10e9, 7e9, 10e9], strict=True))
    (curve,) = summarise(sweep(make, lambda size: 2 * size / rates[size]))
    assert curve.reached == {"50%": SIZES[5], "80%": SIZES[9], "90%": SIZES[9]}


def test_what_the_largest_size_does_not_reach_is_not_said_to_be_reached(make):
    rates = dict(zip(SIZES, [1e9] * 6 + [9e9, 9e9, 10e9, 6e9], strict=True))
    (curve,) = summarise(sweep(make, lambda size: 2 * size / rates[size]))
    assert curve.reached == {"50%": SIZES[6], "80%": None, "90%": None}


def test_how_far_a_fit_is_off_is_kept(make):
    (straight,) = summarise(sweep(make, lambda size: 1e-6 + size / 1e9))
    (dip,) = summarise(sweep(make, lambda size: (100 if size == SIZES[3] else 1) * size / 1e9))
    assert straight.misfit == pytest.approx(0.0, abs=1e-9)
    assert 0.25 < dip.misfit < 1.0


def test_the_order_of_measurements_changes_nothing(make):
    points = sweep(make, lambda size: 1e-6 + size / 1e9)
    assert summarise(points) == summarise(points[::-1])


def test_three_sizes_are_no_sweep(make):
    assert summarise(sweep(make, lambda size: 1e-3, sizes=SIZES[:3])) == []


def test_repeats_of_one_size_count_as_one_point(make):
    points = sweep(make, lambda size: 1e-3, sizes=SIZES[:3])
    assert summarise(points * 4) == []


def test_nothing_measured_gives_no_curve():
    assert summarise([]) == []


def test_each_benchmark_and_each_metric_is_a_sweep_of_its_own(make):
    points = [
        *sweep(make, lambda size: size / 1e9, benchmark="a"),
        *sweep(make, lambda size: size / 2e9, benchmark="b"),
        *sweep(make, lambda size: size / 3e9, benchmark="a", metric="triton_traffic_GBps"),
    ]
    found = [(curve.label, curve.metric, round(curve.plateau / 2e9)) for curve in summarise(points)]
    assert found == [("a", "traffic_GBps", 1), ("b", "traffic_GBps", 2), ("a", "triton_traffic_GBps", 3)]


def test_other_parameters_split_a_sweep_and_stand_in_its_label(make):
    points = [
        make.measurement(size / rate, key=make.key(parameters={"memory": memory, "size_bytes": size}))
        for memory, rate in (("pinned", 2e9), ("pageable", 1e9))
        for size in SIZES
    ]
    assert [curve.label for curve in summarise(points)] == ["memcpy_d2d[pinned]", "memcpy_d2d[pageable]"]


def test_invalid_points_are_left_out(make):
    points = sweep(make, lambda size: size / 1e9)
    wrong = [make.measurement(1e-12, key=point.key, invalid="wrong data") for point in points]
    assert summarise(points + wrong) == summarise(points)


def test_a_measurement_without_a_size_is_on_no_curve(make):
    assert summarise([make.measurement(key=make.key(parameters={"heads": heads})) for heads in range(9)]) == []


def verdicts_on(pairs):
    """The verdicts on the sweeps of measurements, each with the verdict on it."""
    return judge_curves(timed_row([one], judgement_of(verdict, one.label)) for one, verdict in pairs)


def judged(make, *percents, spread=0.01, new=3, sizes=SIZES, **changes):
    """A sweep whose sizes are slower by these, each with its verdict."""
    pairs = []
    for size, percent in zip(sizes, percents, strict=False):
        groups = make.groups(1, new, process=spread, centre=math.log1p(percent / 100))
        verdict = judge(groups, make.reference(*make.groups(3, process=spread)), Policy(comparisons=len(percents)))
        pairs.append((make.measurement(key=make.key(size_bytes=size, **changes)), verdict))
    return pairs


def one_verdict(make, *percents, **changes):
    (curve,) = verdicts_on(judged(make, *percents, **changes))
    return curve


@pytest.mark.parametrize(
    ("percents", "kind"),
    [
        ((0,) * 10, Kind.PASSED),
        ((-20,) * 10, Kind.IMPROVED),
        ((0,) * 9 + (30,), Kind.REGRESSED),
        ((30,) * 10, Kind.REGRESSED),
        ((4.5,) * 10, Kind.INCONCLUSIVE),
        ((-20,) * 9 + (30,), Kind.REGRESSED),
    ],
)
def test_a_sweep_has_one_verdict_together(make, percents, kind):
    """Red where a size is red; green where the mean of its sizes is."""
    assert one_verdict(make, *percents).kind is kind


def test_sizes_that_alone_are_open_pass_where_their_mean_does(make):
    """Half a little slower, half a little faster."""
    curve = one_verdict(make, *(4.5, -4.5) * 5)
    assert (curve.kind, curve.passed, curve.points) == (Kind.PASSED, 5, 10)


def test_a_size_below_its_threshold_turns_its_sweep_red(make):
    pairs = judged(make, *(0,) * 10)
    breach = judge([make.group(1.0)], None, Policy(), limits=[Limit(make.published(), 1.0)])
    pairs[3] = (pairs[3][0], breach)
    (curve,) = verdicts_on(pairs)
    assert curve.kind is Kind.REGRESSED


def test_the_sizes_of_a_process_are_slow_together_so_many_of_them_know_no_more_than_one(make):
    """Or the interval of 23 sizes would shrink by √23, while the process that is slow is slow at every one of them."""
    few, many = (one_verdict(make, *(2,) * count) for count in (4, 10))
    single = judged(make, 2)[0][1]
    assert few.interval == pytest.approx(single.interval)
    assert many.interval == pytest.approx(single.interval)


@given(st.lists(st.floats(-30, 30), min_size=4, max_size=10))
def test_the_estimate_of_a_sweep_is_the_mean_of_its_sizes_inside_its_interval(make, percents):
    curve = one_verdict(make, *percents)
    assert curve.estimate == pytest.approx(sum(math.log1p(percent / 100) for percent in percents) / len(percents))
    assert curve.interval[0] < curve.estimate < curve.interval[1]


@pytest.mark.parametrize(
    ("percents", "worst", "percent"),
    [
        ((0, 0, 0, 0, 0, 3, 3, 0, 0, 0), (5, 6), 3),
        ((9, 0, 0, 0, 0, 0, 0, 0, 5, 5), (8, 9), 5),
        ((4, 0, 0, 0), (0, 0), 4),
        ((-9, -8, -7, -6, -5, -4, -3, -2, -2, -9), (7, 8), -2),
    ],
)
def test_the_worst_region_is_the_quarter_of_the_sweep_that_got_slowest(make, percents, worst, percent):
    curve = one_verdict(make, *percents)
    assert curve.worst == (SIZES[worst[0]], SIZES[worst[1]])
    assert math.expm1(curve.worst_estimate) == pytest.approx(percent / 100)


def test_the_order_of_sizes_changes_no_verdict_on_a_sweep(make):
    pairs = judged(make, 0, 1, 2, 3, 4, 5, 6, 7)
    assert verdicts_on(pairs) == verdicts_on(pairs[::-1])


def test_a_sweep_tells_how_many_processes_stand_behind_it(make):
    assert one_verdict(make, *(0,) * 10, new=4).processes == (4, 15)


def test_the_strictest_tolerance_of_its_sizes_is_that_of_the_sweep(make):
    pairs = judged(make, *(4,) * 10)
    loose = [(measurement, replace(verdict, tolerance=0.5, kind=Kind.PASSED)) for measurement, verdict in pairs[1:]]
    (curve,) = verdicts_on([pairs[0], *loose])
    assert (curve.tolerance, curve.kind) == (0.05, Kind.INCONCLUSIVE)


@pytest.mark.parametrize("compared", [0, 3, 4])
def test_fewer_than_four_sizes_that_were_compared_have_no_verdict_together(make, compared):
    pairs = judged(make, *(0,) * 10)
    none = judge([make.group(0.0)], None, Policy(), why_none="no baseline recorded")
    pairs = pairs[:compared] + [(measurement, none) for measurement, _ in pairs[compared:]]
    assert [curve.points for curve in verdicts_on(pairs)] == [4] * (compared == 4)


def test_every_metric_and_benchmark_has_its_own_verdict(make):
    pairs = [
        *judged(make, *(0,) * 5, benchmark="a"),
        *judged(make, *(30,) * 5, benchmark="b"),
        *judged(make, *(-30,) * 5, benchmark="a", metric="triton_traffic_GBps"),
    ]
    found = [(curve.label, curve.kind) for curve in verdicts_on(pairs)]
    assert found == [("a", Kind.PASSED), ("b", Kind.REGRESSED), ("a", Kind.IMPROVED)]
