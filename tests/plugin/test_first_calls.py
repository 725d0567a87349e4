"""`first_calls` and `compiles`, as tests ask for them: what is written, shown and refused."""

from types import SimpleNamespace

import pytest

from pytest_roofline import Work
from pytest_roofline.engine.request import RankOptions, Request
from pytest_roofline.plugin import over_ranks

PLAIN = """
import pytest
from pytest_roofline import Work

def test_it(roofline, fake):
    roofline.measure(lambda: fake.work(1e-3), work=Work(read_bytes=10**9), first_calls=2)

@pytest.mark.parametrize("count", [-1, True, 1001], ids=str)
def test_refused(roofline, fake, count):
    roofline.measure(lambda: fake.work(1e-3), work=Work(read_bytes=10**9), first_calls=count)
"""


def test_a_drill_is_in_the_first_calls_and_a_number_that_is_none_is_refused(desk):
    desk.suite(PLAIN)
    result = desk.run("--roofline-drill=50%", "--roofline-save=it")
    result.assert_outcomes(passed=1, failed=3)
    out = result.stdout.str()
    for count in (-1, True, 1001):
        assert (
            f"BadInput: first_calls is {count!r}; expected a number of calls from 0 to 1000" in out
        )
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


def test_fresh_ranks_are_as_many_as_asked_for_and_the_runs_own_come_back():
    # Idle ranks beside them would leave each fewer threads.
    pool = Pool()
    distributed = SimpleNamespace(pool=lambda size: pool)
    request = Request(Work(flops=1), 1.0, timing="isolated", ranks=RankOptions(1, fresh=True))
    with over_ranks._new_ranks(over_ranks.RankCall(distributed, None, (), request)):
        assert pool.size == 1
    assert (pool.size, pool.stopped) == (4, [4, 1])
