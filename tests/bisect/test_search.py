"""The search alone, on scripted processes: what it names, what it measures next, and what it leaves open."""

import math
import random

import numpy as np
import pytest

from pytest_roofline.bisect.search import (
    SHARES,
    Gap,
    Observation,
    exact_levels,
    find_guilty,
    fit_ends,
    fit_levels,
    narrow,
    place_steps,
)

LAST = 8
ROW = [(number,) for number in range(LAST + 1)]
ENDS = ROW[0], ROW[-1]


class Scripted:
    """Candidates whose processes are exact but for a scripted noise and a machine that drifts from block to block."""

    def __init__(self, level, ends=ENDS, noise=0.0, broken=()):
        self.level, self.ends, self.broken = level, ends, set(broken)
        self.generator, self.noise = random.Random(3), noise
        self.observations, self.measured, self.lines = [], [], []
        for _ in range(4):
            self.run(ends[0], ends[1], ends[1], ends[0])

    def run(self, *places):
        block = len({observation.block for observation in self.observations})
        for place in places:
            value = self.level(place) + 0.07 * block + self.generator.gauss(0, self.noise)
            self.observations.append(Observation(block, place, value))

    def evidence(self):
        return fit_levels(self.observations, self.ends)

    def measure(self, place):
        assert place not in self.broken
        self.measured.append(place)
        self.run(self.ends[0], place, self.ends[1])

    def report(self, place, row, narrowed):
        self.lines.append((place, narrowed))


def stepped(*steps, slowdown=0.05):
    """Log seconds that rise at some candidates of the row."""
    return lambda place: slowdown * sum(place[0] >= step for step in steps)


def named(gaps):
    return [(gap.good, gap.bad) for gap in gaps]


@pytest.mark.parametrize("step", range(1, LAST + 1))
def test_without_noise_halving_names_the_step_wherever_it_is(step):
    scripted = Scripted(stepped(step))
    assert named(place_steps(scripted, ROW)) == [(step - 1, step)]
    assert len(scripted.measured) <= 3


@pytest.mark.parametrize("noise", [0.005, 0.01])
def test_noise_takes_more_processes_and_names_the_same_step(noise):
    scripted = Scripted(stepped(3), noise=noise)
    assert named(place_steps(scripted, ROW)) == [(2, 3)]
    assert 3 <= len(scripted.measured) <= 12


def test_one_process_far_off_in_a_block_moves_neither_level():
    scripted = Scripted(stepped(3), noise=0.002)
    first = scripted.observations[0]
    scripted.observations[0] = Observation(first.block, first.place, first.value + 1.0)
    assert fit_ends(scripted.observations, ENDS).slowdown == pytest.approx(0.05, abs=0.01)


def test_a_drift_of_the_machine_is_no_step():
    observations = Scripted(stepped(3)).observations
    levels = fit_ends(observations, ENDS)
    assert (levels.slowdown, levels.spread) == (pytest.approx(0.05), pytest.approx(1e-4))
    assert set(fit_levels(observations, ENDS)) == set(ENDS)


def test_what_cannot_be_measured_stays_in_the_range():
    scripted = Scripted(stepped(4), broken=[(3,), (4,)])
    assert named(place_steps(scripted, ROW)) == [(2, 5)]
    assert not {(3,), (4,)} & set(scripted.measured)


def test_two_steps_are_two():
    scripted = Scripted(stepped(2, 6))
    assert named(place_steps(scripted, ROW)) == [(1, 2), (5, 6)]


def test_the_next_candidate_is_the_median_of_the_posterior():
    of_ends = exact_levels([], ENDS)
    assert narrow(of_ends, ROW, ()).next == 4
    assert narrow(of_ends, ROW, {(4,), (5,)}).next == 3
    # Half of the row is ruled out by one process of the middle.
    is_slow = np.where(SHARES == 1, 0.0, -50.0)
    narrowed = narrow(of_ends | {(4,): is_slow}, ROW, ())
    assert (narrowed.gaps[-1].bad, narrowed.next) == (4, 2)


def test_a_chance_that_is_not_reached_is_measured_again():
    leaning = np.where(SHARES == 1, 0.0, -2.0)
    evidence = exact_levels([], (ROW[0], ROW[2])) | {(1,): leaning}
    assert [narrow(evidence, ROW[:3], (), sure).next for sure in (0.5, 0.99)] == [None, 1]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({4: 1.0, 2: 0.0, 3: 1.0}, [(2, 3)]),
        # A value of neither end lies between two steps.
        ({4: 0.5, 2: 0.0, 3: 0.5, 6: 0.5, 7: 1.0}, [(2, 3), (6, 7)]),
    ],
)
def test_of_exact_figures_one_process_decides(values, expected):
    observations = [Observation(0, (place,), value) for place, value in values.items()]
    narrowed = narrow(exact_levels(observations, ENDS), ROW, ())
    assert (named(narrowed.gaps), narrowed.next) == (expected, None)
    assert all(gap.chance > 0.999 for gap in narrowed.gaps)


COUNT = 12


def of_parts(*guilty, together=False):
    """Log seconds of a candidate with some differences: each guilty one adds to it, or only all of them."""

    def level(place):
        present = len({*guilty} & {*place})
        return 0.05 * (present == len(guilty) if together else present)

    return level


@pytest.mark.parametrize("noise", [0.0, 0.008])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("guilty", [(0,), (7,), (2, 9), (0, 11)])
def test_the_guilty_differences_are_named_and_no_other(guilty, together, noise):
    ends = (), tuple(range(COUNT))
    scripted = Scripted(of_parts(*guilty, together=together), ends, noise)
    parts = find_guilty(scripted, COUNT)
    assert sorted(number for part, _ in parts for number in part) == [*guilty]
    # Without any of them the slowdown is gone.
    without = [tuple(sorted({*guilty} - {number})) for number in guilty]
    assert all(scripted.level(place) < scripted.level(ends[1]) for place in without)


def test_differences_that_cannot_be_told_apart_are_one_part():
    ends = (), tuple(range(COUNT))
    # Up to 5 alone, or up to 6 alone, nothing can be imported.
    scripted = Scripted(of_parts(5), ends, broken=[tuple(range(end)) for end in (5, 6)])
    assert [part for part, _ in find_guilty(scripted, COUNT)] == [(4, 5, 6)]


def test_a_gap_says_how_likely_it_is():
    scripted = Scripted(stepped(3), noise=0.01)
    (gap,) = place_steps(scripted, ROW)
    assert isinstance(gap, Gap)
    assert 0.99 <= gap.chance <= 1.0
    assert math.isclose(scripted.lines[-1][1].gaps[0].chance, gap.chance)
