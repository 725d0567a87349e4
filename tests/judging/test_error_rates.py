"""How often whole suites err, drawn from the model: few false alarms, few slowdowns passed, most unchanged code green.

A compact simulation with fixed seeds; `benchmarks/detector_quality.py` is the thorough one. The bounds are those of
verdicts.md, "To reach", with three standard errors of the share that so few draws can tell.
"""

import functools
import math
import random
from dataclasses import replace

import numpy as np
import pytest

from pytest_roofline.judging.looks import Looks
from pytest_roofline.judging.spread import Group, Prior, borrow, priors, spread_within
from pytest_roofline.judging.verdicts import Kind, Policy, Reference, Verdict, judge, settle

TESTS, MOST = 50, 12
# Suites of unchanged code, and of slower code, which takes more looks.
UNCHANGED, SLOWER = 60, 20
TOLERANCE = 0.05
# σ_p of a real corpus at five of its percentiles: verdicts.md.
SHARES, SPREADS = (0.10, 0.25, 0.50, 0.75, 0.90), (0.002, 0.006, 0.011, 0.030, 0.059)
# Processes are exchangeable here: nothing lies between sessions.
EXCHANGEABLE = replace(priors()["device"], session=0.0)
DAYS = ("2026-01-02", "2026-01-03", "2026-01-04")


def at_most(share, draws):
    """A share as it may come out in so many draws of it."""
    return share + 3 * math.sqrt(share * (1 - share) / draws)


def spreads(rng):
    """σ_p of each test of a suite: the mix, and the same law beyond its ends."""
    drawn = np.interp(rng.uniform(0.02, 0.98, TESTS), SHARES, np.log(SPREADS))
    return np.exp(drawn)


def decide(reference: Reference, new: np.ndarray, prior: Prior) -> Verdict:
    """What is said of one test by the round that decides it, or the last that may."""
    for count in range(1, MOST + 1):
        group = Group(tuple(np.exp(new[:count]).tolist()))
        verdict = judge([group], reference, Policy(TOLERANCE, TESTS, prior, Looks(MOST)))
        if verdict.decided or verdict.futile:
            break
    return verdict


@functools.cache
def suites(slowdown: float, seed: int, count: int) -> list[list[Verdict]]:
    """Suites of tests that are all slower by a share of their time, each against a baseline of 3 × 5 processes."""
    rng = np.random.default_rng(seed)
    drawn = []
    for _ in range(count):
        spread = spreads(rng)[:, None]
        old = np.exp(spread * rng.standard_normal((TESTS, 15)))
        new = spread * rng.standard_normal((TESTS, MOST)) + math.log1p(slowdown)
        references = [
            Reference(tuple(Group(tuple(row[5 * n : 5 * n + 5].tolist()), "", day) for n, day in enumerate(DAYS)), "")
            for row in old
        ]
        prior = borrow(EXCHANGEABLE, [spread_within(reference.groups) for reference in references])
        verdicts = [decide(*pair, prior) for pair in zip(references, new, strict=True)]
        drawn.append(list(settle({str(n): verdict for n, verdict in enumerate(verdicts)}, TESTS).values()))
    return drawn


def share(kind: Kind, drawn: list[list[Verdict]]) -> float:
    """Of all tests."""
    return sum(verdict.kind is kind for suite in drawn for verdict in suite) / (len(drawn) * TESTS)


def test_a_suite_of_unchanged_tests_is_red_in_one_run_of_twenty_at_most():
    drawn = suites(0.0, seed=1, count=UNCHANGED)
    red = sum(any(verdict.kind is Kind.REGRESSED for verdict in suite) for suite in drawn)
    assert red / UNCHANGED <= at_most(0.05, UNCHANGED)


def test_an_unchanged_test_is_red_twice_in_a_thousand_at_most():
    assert share(Kind.REGRESSED, suites(0.0, seed=1, count=UNCHANGED)) <= at_most(0.002, UNCHANGED * TESTS)


def test_most_unchanged_tests_pass_after_a_few_processes():
    """The stretch is 92 % after 4.0; a rule that never passes anything errs never, and is of no use."""
    drawn = suites(0.0, seed=1, count=UNCHANGED)
    processes = sum(verdict.processes for suite in drawn for verdict in suite) / (UNCHANGED * TESTS)
    assert share(Kind.PASSED, drawn) >= 0.85
    assert processes <= 5.0


def test_code_exactly_as_slow_as_its_tolerance_is_passed_in_one_of_twenty_at_most():
    assert share(Kind.PASSED, suites(TOLERANCE, seed=2, count=SLOWER)) <= at_most(0.05, SLOWER * TESTS)


def test_code_twice_as_slow_as_its_tolerance_is_passed_in_one_of_two_hundred_at_most():
    drawn = suites(2 * TOLERANCE, seed=3, count=SLOWER)
    assert share(Kind.PASSED, drawn) <= at_most(0.005, SLOWER * TESTS)
    assert share(Kind.REGRESSED, drawn) >= 0.80


def test_unchanged_code_is_never_said_to_have_improved():
    assert share(Kind.IMPROVED, suites(0.0, seed=1, count=UNCHANGED)) <= at_most(0.001, UNCHANGED * TESTS)


@pytest.mark.parametrize("spread", [0.003, 0.01, 0.03])
def test_one_process_against_one_on_another_device_is_seldom_red(spread):
    """Where devices lie as far apart as was assumed."""
    rng, red, runs = random.Random(9), 0, 1500
    for _ in range(runs):
        old = Reference((Group((math.exp(rng.gauss(0, spread)),), "GPU-1"),), "")
        new = Group((math.exp(rng.gauss(0, 0.04 * math.sqrt(2)) + rng.gauss(0, spread)),), "GPU-2")
        red += judge([new], old, Policy(comparisons=TESTS)).kind is Kind.REGRESSED
    assert red / runs <= at_most(0.002, runs)
