"""`first_calls` and `compiles`, as tests ask for them: what is written, shown and refused."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from pytest_roofline import Work
from pytest_roofline.baselines.proposals import propose
from pytest_roofline.engine.request import RankOptions, Request
from pytest_roofline.plugin import over_ranks

from .rank_runs import by_label

SUITE = """
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, tokens=500)


def starting(fake, first_s):
    left = [first_s]

    def step():
        if left:
            fake.pass_time(left.pop())
        fake.work(1e-3)

    return step


def test_warm_up(roofline, fake):
    roofline.measure(starting(fake, 0.5), work=WORK, first_calls=3)


def test_compiled(roofline, fake):
    roofline.measure(starting(fake, 0.25), work=WORK, compiles=True)


def test_compiled_with_first_calls(roofline, fake):
    roofline.measure(starting(fake, 0.125), work=WORK, compiles=True, first_calls=2)
"""
PLAIN = """
import pytest
from pytest_roofline import Work

def test_it(roofline, fake):
    roofline.measure(lambda: fake.work(1e-3), work=Work(read_bytes=10**9), first_calls=2)

@pytest.mark.parametrize("count", [-1, True, 1001], ids=str)
def test_refused(roofline, fake, count):
    roofline.measure(lambda: fake.work(1e-3), work=Work(read_bytes=10**9), first_calls=count)
"""


@pytest.fixture
def told(desk):
    """The measurements of the suite by label, and what the run said."""
    desk.suite(SUITE)
    result = desk.run("--roofline-save=it")
    result.assert_outcomes(passed=3)
    return by_label(desk.saved("it")), result.stdout, desk.saved("it")


def test_first_calls_and_compiling_are_recorded_and_shown(told):
    found, out, run = told
    first_calls_s = {label: measurement.samples.first_calls_s for label, measurement in found.items()}
    assert first_calls_s == {
        "warm_up": (pytest.approx(0.501), pytest.approx(1e-3), pytest.approx(1e-3)),
        "compiled": (pytest.approx(0.251),),
        "compiled_with_first_calls": (pytest.approx(0.126), pytest.approx(1e-3)),
    }
    compile_s = {label: measurement.compile_s for label, measurement in found.items()}
    assert compile_s == {
        "warm_up": None,
        "compiled": pytest.approx(0.25),
        "compiled_with_first_calls": pytest.approx(0.125),
    }
    out.fnmatch_lines(["test *tokens/s*compile*", "compiled *500000*250 ms*"])
    out.fnmatch_lines(
        [
            "warm_up: call 0 took 501 ms, 501 x the steady 1.00 ms by the host's clock; call 1 1.00 x; steady from *",
            "compiled_with_first_calls: call 0 took 126 ms, 126 x the steady 1.00 ms by the host's clock; call 1 *",
        ]
    )
    out.no_fnmatch_line("compiled: call 0*")
    without = replace(
        run,
        measurements=tuple(
            replace(one, compile_s=None, samples=replace(one.samples, first_calls_s=(), warm_calls_s=()))
            for one in run.measurements
        ),
    )
    assert propose([run]).baseline.entries == propose([without]).baseline.entries


def test_a_drill_is_in_the_first_calls_and_a_number_that_is_none_is_refused(desk):
    desk.suite(PLAIN)
    result = desk.run("--roofline-drill=50%", "--roofline-save=it")
    result.assert_outcomes(passed=1, failed=3)
    out = result.stdout.str()
    for count in (-1, True, 1001):
        assert f"BadInput: first_calls is {count!r}; expected how many calls to time alone, 0 to 1000" in out
    (measurement,) = desk.saved("it").measurements
    assert measurement.samples.first_calls_s[1] == pytest.approx(1.5e-3, rel=0.01)
    # A column with nothing in it only takes room.
    assert "tokens/s" not in out
    assert "compile" not in out


class Pool:
    """Stands for the ranks of a run in which another test needs four."""

    def __init__(self):
        self.size = 4
        self.stopped = []

    def stop(self):
        self.stopped.append(self.size)


@pytest.mark.parametrize(("fresh", "during", "stopped"), [(True, 1, [4, 1]), (False, 4, [])])
def test_fresh_ranks_are_as_many_as_asked_for_and_the_runs_own_come_back(fresh, during, stopped):
    # Idle ranks beside them would leave each fewer threads.
    pool = Pool()
    distributed = SimpleNamespace(pool=lambda size: pool)
    request = Request(Work(flops=1), 1.0, timing="isolated", ranks=RankOptions(1, fresh=fresh))
    call = over_ranks.RankCall(distributed, None, (), request)
    with over_ranks._ranks(call):
        assert pool.size == during
    assert (pool.size, pool.stopped) == (4, stopped)
