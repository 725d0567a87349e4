"""One run that lies apart is named, and never the honest ones beside it; how often is simulated in tests/slow."""

import itertools
import math

import pytest

from pytest_roofline.baselines.picking import runs_apart
from pytest_roofline.core.verdicts import Group


def day(number):
    return f"2026-01-{number + 1:02d}T03:00:00Z"


def sessions(make, *medians, benchmark="copy", device="GPU-1", host=False):
    """One test, measured by run r0, r1, …: each a number or the several processes of a session, in seconds."""
    hardware = make.hardware(partition="8-cores") if host else make.hardware()
    groups = {
        f"r{number}": Group(value if isinstance(value, tuple) else (value,), device, day(number))
        for number, value in enumerate(medians)
        if value is not None
    }
    return make.key(benchmark, hardware=hardware), groups


def suite(make, *factors, tests=12, processes=1):
    """Tests of a tenth of a second to more than one, with every run slower or faster by its factor."""
    return [
        sessions(
            make,
            *[tuple([(0.1 + 0.1 * number) * factor] * processes) for factor in factors],
            benchmark=f"test{number}",
        )
        for number in range(tests)
    ]


def names(apart):
    return [one.run_id for one in apart]


def test_runs_that_agree_or_share_nothing_agree(make):
    for count in (1, 2, 3, 5, 14):
        assert runs_apart(suite(make, *[1.0] * count)) == [], count
    # The spread between processes comes out as nothing; sessions differ by more than that all the same.
    assert runs_apart(suite(make, 1.0, 1.0, 1.0, 1.0, 1.01, processes=5)) == []
    alone = [sessions(make, 1.0, None, benchmark="a"), sessions(make, None, 9.0, benchmark="b")]
    assert runs_apart(alone) == runs_apart([]) == []


def test_the_one_of_three_that_is_off_is_named_alone_and_several_worst_first(make):
    for place, factor, processes in itertools.product((0, 1, 2), (1.2, 1 / 1.2), (1, 5)):
        factors = [1.0, 1.004, 0.997]
        factors[place] *= factor
        (apart,) = runs_apart(suite(make, *factors, processes=processes))
        assert (apart.run_id, apart.tests) == (f"r{place}", 12), (place, factor, processes)
        assert apart.estimate == pytest.approx(math.log(factor), abs=0.01)
        assert abs(apart.errors) > 4
    assert names(runs_apart(suite(make, 1.0, 1.003, 0.998, 1.001, 1.0, 2.0, 1.3))) == ["r5", "r6"]
    # One slow test does not make its run the odd one.
    assert runs_apart([*suite(make, 1.0, 1.0, 1.0, 1.0), sessions(make, 1.0, 1.0, 1.0, 2.0)]) == []


def test_a_cpu_or_another_device_may_be_further_off_and_each_device_is_held_against_itself(make):
    assert runs_apart([sessions(make, 1.0, 1.3, host=True)]) == []
    assert names(runs_apart([sessions(make, 1.0, 1.3)])) != []
    groups = {
        "r0": Group((1.0,), "GPU-1"),
        "r1": Group((1.0,), "GPU-1"),
        "r2": Group((1.07,), "GPU-2"),
    }
    same = {name: Group(group.medians_s, "GPU-1") for name, group in groups.items()}
    apart = [runs_apart([(make.key(f"t{i}"), held) for i in range(5)]) for held in (groups, same)]
    assert [names(found) for found in apart] == [[], ["r2"]]
    # Two devices lie ten percent apart; what is new on the second is compared with the second.
    groups = {f"r{i}": Group((1.0 if i < 3 else 1.1,), f"GPU-{i // 3}") for i in range(6)}
    assert runs_apart([(make.key(f"t{i}"), groups) for i in range(5)]) == []
