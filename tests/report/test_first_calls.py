"""What is printed of the first calls of a function."""

import pytest

from pytest_roofline.baselines.rows import rows_of_run
from pytest_roofline.core.samples import Ranks, Samples
from pytest_roofline.report.explain import explanation
from pytest_roofline.report.figures import first_call_lines, first_call_text, steady_from


@pytest.fixture
def step(make):
    """A measurement of 140 ms a call whose first calls took these times."""

    def build(*first_calls_s, seconds=(0.14,), iterations=1, warm_calls_s=(), **changes):
        samples = Samples(seconds, iterations, 1e-9, first_calls_s=first_calls_s, warm_calls_s=warm_calls_s)
        return make.measurement(samples=samples, label="warm_up[large]", **changes)

    return build


@pytest.mark.parametrize(
    ("first_calls_s", "text"),
    [
        (
            (1.764, 0.141, 0.14),
            "call 0 took 1.76 s, 12.6 x the steady 140 ms; call 1 1.01 x; steady from call 1 on",
        ),
        ((0.14,), "call 0 took 140 ms, 1.00 x the steady 140 ms; steady from call 0 on"),
        ((0.28,), "call 0 took 280 ms, 2.00 x the steady 140 ms"),
        ((0.28, 0.21), "call 0 took 280 ms, 2.00 x the steady 140 ms; call 1 1.50 x; not steady within 2 calls"),
        (
            (0.28, 0.14, 0.21, 0.14),
            "call 0 took 280 ms, 2.00 x the steady 140 ms; call 1 1.00 x; call 2 1.50 x; call 3 1.00 x; "
            "steady from call 3 on",
        ),
        (
            (0.28,) * 8 + (0.14,),
            "call 0 took 280 ms, 2.00 x the steady 140 ms; call 1 2.00 x; call 2 2.00 x; call 3 2.00 x; "
            "call 4 2.00 x; steady from call 8 on",
        ),
    ],
)
def test_first_calls_stand_beside_the_steady_time(step, first_calls_s, text):
    assert text == first_call_text(step(*first_calls_s))


def test_behind_a_queue_first_calls_compare_with_warm_ones_by_the_same_clock(step):
    text = "call 0 took 38.0 µs, 1.00 x the steady 38.0 µs by the host's clock; steady from call 0 on"
    assert text == first_call_text(step(38e-6, 38e-6, seconds=(20e-6,), warm_calls_s=(38e-6, 39e-6, 37e-6)))


def test_a_call_as_fast_as_the_slowest_warm_one_is_steady(step):
    assert steady_from(step(1.0, 60e-6, seconds=(20e-6,), warm_calls_s=(38e-6, 38e-6, 60e-6))) == 1


@pytest.mark.parametrize(("tolerance", "began"), [(0.05, None), (0.2, 1)])
def test_a_call_within_the_tolerance_is_steady(step, tolerance, began):
    assert began == steady_from(step(1.0, 0.16), tolerance)


@pytest.mark.parametrize(("iterations", "began"), [(1, None), (100, 1)])
def test_a_call_within_the_known_noise_is_steady_and_a_sample_of_many_calls_hides_noise(step, iterations, began):
    # Half of the samples are 1 % off, so a call of its own deviates by 1.5 %, or by 15 % where a sample is 100 calls.
    seconds = (0.1386, 0.1386, 0.14, 0.1414, 0.1414)
    assert began == steady_from(step(1.0, 0.16, seconds=seconds, iterations=iterations))


def test_the_tolerance_is_that_of_the_verdict(step, make):
    measurement = step(1.0, 0.16, tolerance=0.2)
    (line,) = first_call_lines([make.row(measurement)])
    assert line.startswith("warm_up[large]: call 0 took 1.00 s")
    assert line.endswith("steady from call 1 on")


def test_new_ranks_are_said_to_be_new(step):
    ranks = Ranks(2, "local", "gloo", fresh=True)
    assert first_call_text(step(0.28, ranks=ranks)).startswith("call 0 on new ranks took 280 ms")


def test_nothing_is_said_where_nobody_asked(make, step):
    assert first_call_lines([make.row(step()), make.row(step(1.0, compile_s=0.86))]) == []


def test_of_many_the_first_are_listed(make, step):
    lines = first_call_lines([make.row(step(0.14))] * 5, at_most=3)
    assert (len(lines), lines[-1]) == (4, "… and 2 more with first calls")


def test_an_explanation_tells_of_first_calls_and_of_compiling(step, make, tmp_path):
    run = make.run(tmp_path / "r.jsonl", step(1.764, 0.14, compile_s=1.62))
    (row,) = rows_of_run(run)
    lines = explanation(row, 120)
    assert (
        "      first calls: call 0 took 1.76 s, 12.6 x the steady 140 ms; call 1 1.00 x; steady from call 1 on" in lines
    )
    assert "      compiling: 1.62 s beyond a warm call" in lines
