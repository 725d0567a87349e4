"""Suites of made-up processes whose truth is known: calm ones, a mix as real corpora have it, and unkind ones.

The log-median of a process is its test's centre plus what the kind says; its samples are spread around that, and
recentred, so that σ_p is the spread between medians and nothing else.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.signal import lfilter

from pytest_roofline.judging.spread import Group, Prior

from .suites import Case, Floats, Suite

TESTS = 200
SAMPLES = 20
# Of a large public corpus (verdicts.md): σ_p at the percentiles, how much wider processes lie apart than the standard
# error inside one says (the median), and the autocorrelation of neighbouring samples.
MIX_SHARES, MIX_SPREADS = (0.10, 0.25, 0.50, 0.75, 0.90), (0.002, 0.006, 0.011, 0.030, 0.059)
WIDER, AUTOCORRELATION = 3.5, 0.06
# 22.5 ms in one process, 25.5 ms in the next: seen, and typical of memory that falls well or badly.
SLOW_MODE, SLOW_SHARE = math.log(25.5 / 22.5), 0.15
# Inside a process the clock sags by up to this, each process by another amount.
MOST_DRIFT = 0.04
# Each process of a session finds the device warmer than the one before did, up to a point.
RAMP_STEP, RAMP_END = 0.005, 0.03
TAIL_FREEDOM = 3
SESSION = 5


@dataclass(frozen=True, slots=True)
class Batch:
    """How much to draw, and from what.

    Args:
        tests: of the suite.
        baseline: processes of the baseline.
        new: processes after it.
    """

    tests: int
    baseline: int
    new: int
    rng: np.random.Generator

    @property
    def processes(self) -> int:
        """On both sides."""
        return self.baseline + self.new

    def normal(self) -> Floats:
        """Of each test and process, one standard normal number."""
        return self.rng.standard_normal((self.tests, self.processes))


@dataclass(frozen=True, slots=True)
class Kind:
    """A way in which unchanged processes differ.

    Args:
        spread: of each test, σ_p.
        medians: [tests, processes], what lies between the log-medians, given σ_p of each.
        inside: the largest drift of log time inside a process.
    """

    name: str
    description: str
    spread: Callable[[Batch], Floats]
    medians: Callable[[Batch, Floats], Floats]
    drift: float = 0.0


def of_one_percent(batch: Batch) -> Floats:
    """Every test spreads by 1 %."""
    return np.full(batch.tests, 0.01)


def mixed(batch: Batch) -> Floats:
    """σ_p as tests of a real corpus have it, log-linear between its percentiles and beyond the outer two alike."""
    shares, logs = np.asarray(MIX_SHARES), np.log(MIX_SPREADS)
    first, last = (logs[1] - logs[0]) / (shares[1] - shares[0]), (logs[-1] - logs[-2]) / (shares[-1] - shares[-2])
    ends = np.array([logs[0] - first * shares[0], *logs, logs[-1] + last * (1 - shares[-1])])
    return np.exp(np.interp(batch.rng.random(batch.tests), [0.0, *shares, 1.0], ends))


def gaussian(batch: Batch, spread: Floats) -> Floats:
    """Normally distributed."""
    return batch.normal() * spread[:, None]


def bimodal(batch: Batch, spread: Floats) -> Floats:
    """Normally distributed around one of two modes."""
    slow = batch.rng.random((batch.tests, batch.processes)) < SLOW_SHARE
    return gaussian(batch, spread) + SLOW_MODE * slow


def heavy_tailed(batch: Batch, spread: Floats) -> Floats:
    """Student's t, scaled to the same standard deviation."""
    scale = math.sqrt((TAIL_FREEDOM - 2) / TAIL_FREEDOM)
    return batch.rng.standard_t(TAIL_FREEDOM, (batch.tests, batch.processes)) * spread[:, None] * scale


def warming(batch: Batch, spread: Floats) -> Floats:
    """Normally distributed, slower from process to process: sessions of five in the baseline, one long one after."""
    place = np.concatenate([np.arange(batch.baseline) % SESSION, np.arange(batch.new)])
    return gaussian(batch, spread) + np.minimum(RAMP_STEP * place, RAMP_END)


def even(spread: float) -> Kind:
    """Every test spreads alike."""

    def alike(batch: Batch) -> Floats:
        return np.full(batch.tests, spread)

    return Kind(f"σ_p {100 * spread:g} %", "normally distributed processes", alike, gaussian)


KINDS = (
    even(0.003),
    even(0.01),
    even(0.02),
    Kind(
        "mix",
        "normally distributed, σ_p of "
        + " / ".join(f"{value:.1%}".removesuffix("%") for value in MIX_SPREADS)
        + " % at the 10th / 25th / 50th / 75th / 90th percentile, log-linear between them and on beyond the outer two "
        "at the slope of the neighbouring piece (no test calmer than 0.1 %, none wilder than 9.3 %)",
        mixed,
        gaussian,
    ),
    Kind("two modes", "σ_p 1 %; 15 % of the processes 13 % slower (22.5 and 25.5 ms)", of_one_percent, bimodal),
    Kind("drift", "σ_p 1 %; inside a process times rise by 0 to 4 %", of_one_percent, gaussian, MOST_DRIFT),
    Kind(
        "throttle ramp",
        "σ_p 1 %; each process 0.5 % slower than the one before it, up to 3 %: from anew after every five in the "
        "baseline, all the way on the new side, so that later new processes are hotter than the baseline ever was",
        of_one_percent,
        warming,
    ),
    Kind("heavy tails", "Student's t with 3 degrees of freedom, scaled to σ_p 1 %", of_one_percent, heavy_tailed),
)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Suites of one kind, every one drawn afresh, tests and processes."""

    kind: str
    baseline: int
    new_max: int
    prior: Prior
    tests: int = TESTS
    unusable: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the kind."""
        return self.kind

    @property
    def description(self) -> str:
        """Of the kind."""
        return f"simulated: {kind_of(self.kind).description}"

    def draw(self, rng: np.random.Generator) -> Suite:
        """The processes of another suite."""
        samples_s = np.exp(logs_of(kind_of(self.kind), Batch(self.tests, self.baseline, self.new_max, rng)))
        medians_s = np.median(samples_s, axis=2)
        return Suite.of([self._case(*pair) for pair in zip(samples_s, medians_s, strict=True)], self.prior)

    def _case(self, samples_s: Floats, medians_s: Floats) -> Case:
        before, after = medians_s[: self.baseline].tolist(), medians_s[self.baseline :].tolist()
        return Case((Group(tuple(before)),), tuple(after), samples_s[0], samples_s[self.baseline])


def kind_of(name: str) -> Kind:
    """The kind of this name."""
    return next(kind for kind in KINDS if kind.name == name)


def logs_of(kind: Kind, batch: Batch) -> Floats:
    """[tests, processes, samples]: the logarithms of seconds around a test of one second."""
    spread = kind.spread(batch)
    medians = kind.medians(batch, spread)
    noise = inside(batch, spread * math.sqrt(SAMPLES) / WIDER)
    ramp = kind.drift * batch.rng.random((batch.tests, batch.processes, 1)) * np.linspace(0, 1, SAMPLES)
    logs: Floats = medians[:, :, None] + noise + ramp
    return logs


def inside(batch: Batch, spread: Floats) -> Floats:
    """[tests, processes, samples]: noise of one process, autocorrelated, with a median of zero."""
    shocks = batch.rng.standard_normal((batch.tests, batch.processes, SAMPLES))
    shocks[:, :, 1:] *= math.sqrt(1 - AUTOCORRELATION**2)
    noise = lfilter([1.0], [1.0, -AUTOCORRELATION], shocks, axis=2) * spread[:, None, None]
    return np.asarray(noise - np.median(noise, axis=2, keepdims=True))
