"""How often a session is set aside: hardly ever among honest ones, and nearly always where it is odd."""

import itertools
import math

import numpy as np

from pytest_roofline.core.verdicts import Group
from pytest_roofline.stats.odd_sessions import odd_sessions

TESTS = 60
SHAPES = [(3, 5), (14, 1)]
PROCESS, SESSION = (0.003, 0.011), (0.005, 0.02)
# What all tests of a session share.
SHARED = 0.02


def normal(rng, *shape):
    return rng.standard_normal(shape)


def heavy(rng, *shape):
    """Student's t of three degrees of freedom, with a standard deviation of one."""
    return rng.standard_t(3, shape) / math.sqrt(3)


def suite(rng, draw, shape, process, session, odd=0):
    """Tests by name, of which the first are 20 % slower in the second session.

    Args:
        shape: sessions, and processes in each.
        process: the standard deviation between processes, in log seconds; `session` between sessions.
        odd: how many tests are slower.
    """
    sessions, processes = shape
    logs = session * draw(rng, TESTS, sessions, 1) + process * draw(rng, TESTS, sessions, processes)
    logs += SHARED * rng.standard_normal((sessions, 1))
    logs[:odd, 1] += math.log(1.2)
    return {
        f"t{number}": [
            Group(tuple(row), "GPU-1", f"2020-01-{place:02}") for place, row in enumerate(rows, 1)
        ]
        for number, rows in enumerate(np.exp(logs).tolist())
    }


def odd_days(tests):
    return [session.started for session in odd_sessions(tests, dict.fromkeys(tests, "device"))]


def half(*pairs):
    """Return every second combination of these pairs, so that any three of them meet in all ways."""
    places = itertools.product(range(2), repeat=len(pairs))
    return [
        tuple(pair[place] for pair, place in zip(pairs, row, strict=True))
        for row in places
        if sum(row) % 2 == 0
    ]


def test_of_two_hundred_honest_baselines_at_most_one_has_an_odd_session():
    for world in half((normal, heavy), SHAPES, PROCESS, SESSION):
        rng = np.random.default_rng(7)
        assert sum(bool(odd_days(suite(rng, *world))) for _ in range(200)) <= 1, world


def test_a_session_that_is_a_fifth_slower_in_a_tenth_or_half_of_the_tests_is_named():
    for shape, process, odd in itertools.product(SHAPES, PROCESS, (TESTS // 10, TESTS // 2)):
        rng, world = np.random.default_rng(7), (normal, shape, process, SESSION[0], odd)
        named = sum(odd_days(suite(rng, *world)) == ["2020-01-02"] for _ in range(100))
        assert named >= 95, world
