"""Nights of one GPU, made up: what each test takes each night, as nights of real GPUs differ.

log seconds = noise of the test, which follows the night before a little + what all tests share + outliers + old steps.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.ndimage import median_filter

from pytest_roofline.many.steps import RunSeries

Floats = npt.NDArray[np.float64]

# What all tests share in a night; of a quiet test at most half of its noise.
SHARED, MOST_SHARED = 0.003, 0.5
# The share of nights that are outliers in restless tests, and how many tests are restless.
RESTLESS_OUTLIERS, RESTLESS = 0.20, 0.08
# An outlier is so many σ away or more, twice as far a quarter as often; and so many of them are slow.
OUTLIER, SLOW = 4.0, 2 / 3
LEAST_OUTLIER, MOST_OUTLIER = -0.5, 1.0
# Old steps of a test, in the middle; they lie before the last nights, on so many nights in all.
OLD_STEPS, STEP_NIGHTS, QUIET = 0.6, 20, 20
OLD_STEP = 0.015, 0.12
WARM_UP = 20


@dataclass(frozen=True, slots=True)
class World:
    """Nights of one GPU.

    Args:
        spreads: σ of the tests, in log seconds, at 10, 50 and 90 % of them.
        correlation: how much of a night's noise stays for the next one, before outliers are added.
        outliers: the share of nights that are outliers, in tests that are not restless.
    """

    name: str
    spreads: tuple[float, float, float]
    correlation: float
    outliers: float
    tests: int = 160
    nights: int = 110


WORLDS = (
    World("GPU A", (0.0007, 0.011, 0.0185), correlation=0.35, outliers=0.035),
    World("GPU B", (0.0007, 0.0055, 0.0175), correlation=0.55, outliers=0.05),
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A set of tests: [tests, nights] log seconds and [tests] σ."""

    logs: Floats
    spreads: Floats

    def series(self) -> list[RunSeries]:
        """Return the set as `roofline history` looks at it."""
        nights = np.arange(self.logs.shape[1])
        return [
            RunSeries(number, "", nights, nights.astype(float), row)
            for number, row in enumerate(self.logs)
        ]

    def slower(self, tests: npt.NDArray[np.int_], by: float, nights: int) -> "Drawn":
        """Return the set with these tests slower by the share `by` in the last nights."""
        logs = self.logs.copy()
        logs[tests, -nights:] += math.log1p(by)
        return Drawn(logs, self.spreads)


def draw(rng: np.random.Generator, world: World, *, old_steps: bool) -> Drawn:
    """Draw a set of tests."""
    spreads = _spreads(rng, world)
    size = world.tests, world.nights
    shares = np.minimum(MOST_SHARED, SHARED / spreads)[:, None]
    noise = np.sqrt(1 - shares**2) * _followed(rng, world) + shares * rng.standard_normal(size[1])
    rates = np.where(rng.random((world.tests, 1)) < RESTLESS, RESTLESS_OUTLIERS, world.outliers)
    signs = np.where(rng.random(size) < SLOW, 1, -1)
    outliers = signs * OUTLIER / np.sqrt(rng.random(size)) * (rng.random(size) < rates)
    logs = spreads[:, None] * noise
    logs += np.clip(spreads[:, None] * outliers, LEAST_OUTLIER, MOST_OUTLIER)
    if old_steps:
        logs += _old_steps(rng, world)
    return Drawn(logs, spreads)


def _spreads(rng: np.random.Generator, world: World) -> Floats:
    """[tests]: log-linear between the percentiles of the world, and beyond the outer two."""
    low, middle, high = np.log(world.spreads)
    ends = [low - (middle - low) / 4, low, middle, high, high + (high - middle) / 4]
    return np.exp(np.interp(rng.random(world.tests), [0.0, 0.1, 0.5, 0.9, 1.0], ends))


def _followed(rng: np.random.Generator, world: World) -> Floats:
    """[tests, nights]: noise of standard deviation 1 of which a part stays for the next night."""
    fresh = rng.standard_normal((world.tests, world.nights + WARM_UP))
    noise, stays = fresh.copy(), world.correlation
    for night in range(1, noise.shape[1]):
        noise[:, night] = stays * noise[:, night - 1] + math.sqrt(1 - stays**2) * fresh[:, night]
    return noise[:, WARM_UP:]


def _old_steps(rng: np.random.Generator, world: World) -> Floats:
    """[tests, nights]: what steps of the past add."""
    nights = rng.choice(np.arange(6, world.nights - QUIET), STEP_NIGHTS, replace=False)
    added = np.zeros((world.tests, world.nights))
    for row in added:
        for _ in range(rng.poisson(OLD_STEPS)):
            row[rng.choice(nights) :] += rng.choice([-1, 1]) * math.log1p(rng.uniform(*OLD_STEP))
    return added


@dataclass(frozen=True, slots=True)
class Measured:
    """What a set shows of its world, measured as on nights of real GPUs; shares and log seconds.

    Args:
        spreads: robust σ of one night by the differences of neighbours, at 10, 50 and 90 % of the tests.
        steps: the share of differences of neighbours beyond four of their σ.
        correlation: of neighbours, in what a rolling median of 15 nights leaves, drawn in to four σ; the middle test's.
        shared: standard deviation of the mean of all tests.
    """

    spreads: tuple[float, ...]
    steps: float
    correlation: float
    shared: float


def measure(drawn: Drawn) -> Measured:
    """Return the percentiles of a set."""
    differences = np.diff(drawn.logs, axis=1)
    scales = scale(differences)[:, None]
    left = drawn.logs - median_filter(drawn.logs, size=(1, 15), mode="nearest")
    drawn_in = np.clip(left, *(side * OUTLIER * scales / math.sqrt(2) for side in (-1, 1)))
    neighbours = [np.corrcoef(row[1:], row[:-1])[0, 1] for row in drawn_in]
    return Measured(
        tuple(np.percentile(scales / math.sqrt(2), [10, 50, 90]).tolist()),
        float((np.abs(differences) > OUTLIER * scales).mean()),
        float(np.median(neighbours)),
        float(left.mean(axis=0).std()),
    )


def scale(values: Floats) -> Floats:
    """Return the robust standard deviation of each row."""
    apart = np.abs(values - np.median(values, axis=1, keepdims=True))
    return np.asarray(np.median(apart, axis=1) / 0.6745)
