import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.judging.curves import summarise

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
