"""The search for the first bad of a row of candidates, by measurements with noise. It reads and writes nothing.

The first candidate is as fast as the good end, the last one as slow as the bad end. A block holds processes of both
ends and of a candidate between them. The ends give the offset of the block, so that a drift of the machine cancels, and
the two levels between which the candidate is placed. Levels are shares of the slowdown: 0 is the good end, 1 the bad
one, and a candidate between two steps lies between them.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ..stats.spread import LEAST_SPREAD

Floats = npt.NDArray[np.float64]
# A candidate: its number in the row, or the numbers of the differences that it has.
Place = tuple[int, ...]

# The levels that a candidate may have, as shares of the slowdown.
SHARES = np.array([0.0, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0])
# The search ends where its answer has this chance, and a second time, after a confirmation that failed, at this one.
SURE, SURER = 0.99, 0.9999
# The chance of two steps, before anything was measured.
TWO_STEPS = 0.1
# The degrees of freedom of Student's t, whose tails are those of processes: now and then one is far off.
FREEDOM = 4.0
# Rounds of reweighting after which the fit of the ends no longer moves.
ROUNDS = 10
# A logarithm of a chance that no measurement can outweigh. Infinity would not cancel in differences.
IMPOSSIBLE = -1e5


@dataclass(frozen=True, slots=True)
class Observation:
    """One process of a candidate.

    Args:
        block: the number of the block in which it ran.
        place: the candidate.
        value: log seconds; of an exact figure the share that its level is.
    """

    block: int
    place: Place
    value: float


@dataclass(frozen=True, slots=True)
class FittedEnds:
    """The levels of both ends, as the processes of all blocks show them.

    Args:
        slowdown: of the bad end against the good one, in logs.
        spread: the standard deviation between processes, in logs.
        offset_by_block: in log seconds; `weight_by_block` how many processes it comes from.
    """

    slowdown: float
    spread: float
    offset_by_block: dict[int, float]
    weight_by_block: dict[int, float]


@dataclass(frozen=True, slots=True)
class Gap:
    """The candidates that hold a step: those behind `good`, up to `bad`, as positions in the row.

    Args:
        good: the last position ahead of the step; -1 if the first candidate may be behind it.
        bad: the first position behind it.
        chance: that the step lies there.
    """

    good: int
    bad: int
    chance: float


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The result of all measurements so far.

    Args:
        gaps: where the steps lie: one, or two for two steps.
        next: the position to measure next; None where the gaps are decided.
    """

    gaps: tuple[Gap, ...]
    next: int | None


class Measurer(Protocol):
    """The place where candidates are measured."""

    @property
    def broken(self) -> Collection[Place]:
        """The candidates that cannot be measured."""

    def evidence(self) -> Mapping[Place, Floats]:
        """Return the evidence for the levels of all candidates so far."""

    def measure(self, place: Place) -> None:
        """Measure a candidate once more. It may raise to end the search."""

    def report(self, place: Place, row: Sequence[Place], narrowed: Narrowed) -> None:
        """Tell the state of a search after a candidate of a row was measured."""


def fit_levels(
    observations: Sequence[Observation], ends: tuple[Place, Place]
) -> dict[Place, Floats]:
    """Return the evidence of each candidate and end for its level between both ends.

    A level is a share of the slowdown: 0 is the good end, 1 the bad one. The evidence is the logarithm of a likelihood
    for each level of `SHARES`, without a constant. A process far from the others of its
    end has little weight. A block without an end tells nothing.

    Args:
        observations: of the ends, in at least two blocks, and of candidates.
        ends: the good and the bad end.
    """
    fitted = fit_ends(observations, ends)
    evidence: dict[Place, Floats] = {}
    for observation in observations:
        if observation.block not in fitted.offset_by_block or observation.place in ends:
            continue
        offset = fitted.offset_by_block[observation.block]
        # The offset of the block is uncertain as well: it comes from processes of this weight.
        weight = fitted.weight_by_block[observation.block]
        scale = fitted.spread * math.sqrt(1 + 1 / weight)
        distances = (observation.value - offset - SHARES * fitted.slowdown) / scale
        # The density of Student's t.
        likelihoods = -(FREEDOM + 1) / 2 * np.log1p(distances**2 / FREEDOM)
        evidence[observation.place] = evidence.get(observation.place, 0.0) + likelihoods
    return evidence | _levels_of_ends(ends)


def fit_ends(observations: Sequence[Observation], ends: tuple[Place, Place]) -> FittedEnds:
    """Fit the slowdown between both ends in log seconds, with an offset for each block of processes.

    A least squares that is weighted anew in each round, so that processes far from the fit have little weight.
    """
    _, bad_end = ends
    of_ends = [observation for observation in observations if observation.place in ends]
    logs = np.array([observation.value for observation in of_ends])
    is_bad = np.array([float(observation.place == bad_end) for observation in of_ends])
    # `numbers` is the index in `blocks` of the block of each observation.
    blocks, numbers = np.unique([observation.block for observation in of_ends], return_inverse=True)
    # Observations less the fitted numbers: an offset for each block, and the slowdown.
    freedom = max(1, len(logs) - len(blocks) - 1)
    weights = np.ones_like(logs)
    for _ in range(ROUNDS):
        weight_of_block = np.bincount(numbers, weights)
        # Without the weighted mean of their block, times and sides show the slowdown alone.
        centred_logs = logs - (np.bincount(numbers, weights * logs) / weight_of_block)[numbers]
        centred_side = is_bad - (np.bincount(numbers, weights * is_bad) / weight_of_block)[numbers]
        information = max(float(weights @ centred_side**2), 1e-12)
        slowdown = float((weights * centred_side) @ centred_logs) / information
        residuals = centred_logs - slowdown * centred_side
        spread = max(LEAST_SPREAD, math.sqrt(float(weights @ residuals**2) / freedom))
        weights = (FREEDOM + 1) / (FREEDOM + (residuals / spread) ** 2)
    weight_of_block = np.bincount(numbers, weights)
    offsets = np.bincount(numbers, weights * (logs - slowdown * is_bad)) / weight_of_block
    return FittedEnds(
        slowdown,
        spread,
        offset_by_block=dict(zip(blocks.tolist(), offsets.tolist(), strict=True)),
        weight_by_block=dict(zip(blocks.tolist(), weight_of_block.tolist(), strict=True)),
    )


def exact_levels(
    observations: Sequence[Observation], ends: tuple[Place, Place]
) -> dict[Place, Floats]:
    """Return the evidence for the levels of candidates with exact figures, and of both ends.

    Such figures have no noise, so one process decides: 0 and 1 are the levels of the ends, and 0.5
    stands for any level between them.
    """
    evidence = {}
    for observation in observations:
        is_between = 0 < observation.value < 1
        possible = (SHARES > 0) & (SHARES < 1) if is_between else observation.value == SHARES
        evidence[observation.place] = np.where(possible, 0.0, IMPOSSIBLE)
    return evidence | _levels_of_ends(ends)


def _levels_of_ends(ends: tuple[Place, Place]) -> dict[Place, Floats]:
    """Return the evidence for the levels of both ends, which are known: 0 and 1."""
    return {
        place: np.where(share == SHARES, 0.0, IMPOSSIBLE)
        for place, share in zip(ends, (0.0, 1.0), strict=True)
    }


def narrow(
    evidence: Mapping[Place, Floats],
    row: Sequence[Place],
    broken: Collection[Place],
    sure: float = SURE,
    *,
    every_step: bool = True,
) -> Narrowed:
    """Return where the slowdown may happen in a row of candidates, and the candidate to measure next.

    A step is a place at which candidates become slower. The next candidate is the one that a step lies ahead of with a
    chance nearest to a half, by all measurements so far (the median of the posterior).

    Args:
        evidence: by candidate, for its levels.
        row: the candidates in their order; the last one has the level of the bad end.
        broken: candidates that cannot be measured. They may be the first bad one all the same.
        sure: the chance at which a step counts as placed.
        every_step: False to place only the step up to the level of the bad end.
    """
    # A candidate that was not measured has no evidence for any level.
    table = np.array([evidence.get(place, np.zeros(len(SHARES))) for place in row])
    # The positions that can be measured. -1 stands for the good end, which may lie ahead of the row.
    sound = [-1, *(index for index, place in enumerate(row) if place not in broken)]
    first_chances, last_chances = _posterior(table)
    chances_of_steps = [first_chances, last_chances] if every_step else [last_chances]
    gaps = [_narrowest(chances, sound, sure) for chances in chances_of_steps]
    # With one step, both gaps are the same.
    steps = tuple({(gap.good, gap.bad): gap for gap in gaps}.values())
    inside = [[index for index in sound if gap.good < index < gap.bad] for gap in gaps]
    if not any(inside):
        # No candidate is left to measure within the gaps.
        return Narrowed(steps, None)
    # Of two steps, the one with more candidates left is narrowed first.
    widest = max(range(len(gaps)), key=lambda index: len(inside[index]))
    until = np.cumsum(chances_of_steps[widest])
    median = min(inside[widest], key=lambda index: abs(until[index] - 0.5))
    return Narrowed(steps, next=median)


def place_steps(
    measurer: Measurer, row: Sequence[Place], sure: float = SURE, *, every_step: bool = True
) -> tuple[Gap, ...]:
    """Measure candidates of a row until it is certain where they become slower, and return these places.

    `sure` and `every_step` are as in `narrow`.
    """
    narrowed = narrow(measurer.evidence(), row, measurer.broken, sure, every_step=every_step)
    while narrowed.next is not None:
        place = row[narrowed.next]
        measurer.measure(place)
        narrowed = narrow(measurer.evidence(), row, measurer.broken, sure, every_step=every_step)
        measurer.report(place, row, narrowed)
    return narrowed.gaps


def find_guilty(measurer: Measurer, count: int, sure: float = SURE) -> list[tuple[Place, float]]:
    """Return the fewest of some differences that bring the whole slowdown, each part with its chance.

    A delta debugging: differences are added in a row, and the first that brings the slowdown is guilty. It stays, and
    what lies ahead of it is searched again, until the guilty alone are slow. So taking any part out ends the slowdown.
    A part is one difference, or several of which at least one is guilty, if not all of them can be told apart.
    """
    guilty: list[tuple[Place, float]] = []
    # Differences from this number on are guilty, or not needed for the slowdown.
    until = count
    while True:
        guilty_numbers = [number for part, _ in guilty for number in part]
        # Each candidate has the guilty differences, and one more of the others than the candidate before it.
        row = [tuple(sorted([*guilty_numbers, *range(end)])) for end in range(until + 1)]
        (gap,) = place_steps(measurer, row, sure, every_step=False)
        # The guilty differences alone, the first candidate, are slow.
        if gap.bad <= 0:
            return guilty
        until = max(gap.good, 0)
        guilty.append((tuple(range(until, gap.bad)), gap.chance))


def _posterior(table: Floats) -> tuple[Floats, Floats]:
    """Return the chances of each position to be the first that is slower, and the first as slow as the bad end.

    They are computed from the evidence of all candidates by Bayes' rule. Both are [positions]. `table` is
    [positions, shares]. With one step both are the same position. Two steps share a level, which the candidates
    between them have.
    """
    count, middles = len(table), slice(1, -1)
    # The evidence of all candidates ahead of a position, if all of them had one level.
    ahead = np.vstack([np.zeros(len(SHARES)), np.cumsum(table, axis=0)[:-1]])
    # The evidence for a step from the good level to a middle one here, and for a step from there to the bad level.
    begins, ends = ahead[:, :1] - ahead[:, middles], ahead[:, middles] - ahead[:, -1:]
    level_count = begins.shape[1]
    nothing = np.full((1, level_count), -np.inf)
    # The same for a first step at any earlier position, and for a second step at any later one.
    begun = np.vstack([nothing, np.logaddexp.accumulate(begins)[:-1]])
    to_end = np.vstack([np.logaddexp.accumulate(ends[::-1])[::-1][1:], nothing])
    # The number of ways in which two steps may lie, among which their chance is shared out.
    pairs = max(1, count * (count - 1) // 2) * level_count
    # One step straight from the good level to the bad one, at each position.
    single = ahead[:, 0] - ahead[:, -1] + math.log((1 - TWO_STEPS) / count)
    first, last = (
        np.logaddexp(single, np.logaddexp.reduce(steps, axis=1) + math.log(TWO_STEPS / pairs))
        for steps in (begins + to_end, ends + begun)
    )
    return _normalized(first), _normalized(last)


def _normalized(logs: Floats) -> Floats:
    """Return chances that add up to 1, from the logarithms of likelihoods."""
    likelihoods = np.exp(logs - logs.max())
    chances: Floats = likelihoods / likelihoods.sum()
    return chances


def _narrowest(chances: Floats, sound: Sequence[int], sure: float) -> Gap:
    """Return the shortest gap of candidates that holds a step with the chance `sure`.

    `sound` are the positions that can be measured, -1 ahead of them: the candidates between two neighbours cannot be
    told apart.
    """
    places = np.array(sound)
    # The chance that the step lies at a place or ahead of it.
    until = np.concatenate([[0.0], np.cumsum(chances)])[places + 1]
    # For each place as the left end of a gap, the nearest right end that gives the chance `sure`, if any does.
    # The tiny number keeps rounding errors from missing a chance that is just reached.
    right = np.searchsorted(until, until + sure - 1e-9)
    (left,) = np.nonzero(right < len(places))
    right = right[left]
    # The shortest gap; among equals, that of the largest chance.
    order = np.lexsort((until[left] - until[right], places[right] - places[left]))
    best = order[0]
    good, bad = left[best], right[best]
    return Gap(int(places[good]), int(places[bad]), float(until[bad] - until[good]))
