"""How often honest runs are refused, and odd ones found: simulated sessions whose truth is known."""

import math
import random

from pytest_roofline.baselines.picking import runs_apart
from pytest_roofline.core.verdicts import Group
from pytest_roofline.stats.spread import priors

from ..baselines.test_disagreement import day, names, sessions

DEVICE = priors()["device"]


def honest(
    make,
    dice,
    runs,
    tests,
    processes,
    *,
    shared=False,
    process=DEVICE.process,
    session=DEVICE.session,
):
    """Runs of unchanged code, spread as the model says; `shared` sessions move all tests together."""
    together = [dice.gauss(0, session) for _ in range(runs)]
    return [
        sessions(
            make,
            *[
                tuple(
                    math.exp(own + dice.gauss(0, process))
                    for own in [together[run] if shared else dice.gauss(0, session)]
                    for _ in range(processes)
                )
                for run in range(runs)
            ],
            benchmark=f"test{number}",
        )
        for number in range(tests)
    ]


def test_honest_runs_pass(make):
    """At most one in a hundred is refused; the bound leaves room for what chance does to so many tries."""
    for runs, tests, processes, shared, times in [
        (14, 1, 1, False, 300),
        (14, 8, 1, True, 60),
        (14, 3, 3, True, 100),
        (2, 1, 1, False, 600),
        (3, 4, 1, True, 300),
        (5, 1, 1, False, 400),
        (5, 4, 5, True, 200),
    ]:
        dice = random.Random(1)
        tried = [honest(make, dice, runs, tests, processes, shared=shared) for _ in range(times)]
        assert sum(bool(runs_apart(one)) for one in tried) <= 0.01 * times, (runs, tests, processes)
    dice = random.Random(2)
    wide = [honest(make, dice, 5, 2, 1, process=0.059) for _ in range(300)]
    assert sum(bool(runs_apart(one)) for one in wide) <= 3


def test_a_run_that_is_a_tenth_off_among_honest_ones_is_found(make):
    dice, found = random.Random(3), 0
    for _ in range(50):
        slow = []
        for key, groups in honest(make, dice, 5, 6, 1, shared=True):
            odd = Group((groups["r2"].medians_s[0] * 1.15,), "GPU-1", day(2))
            slow.append((key, groups | {"r2": odd}))
        found += names(runs_apart(slow)) == ["r2"]
    assert found >= 45
