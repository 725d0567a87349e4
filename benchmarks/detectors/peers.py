"""What other tools say of one process a side, each named by where its rule comes from.

Rules take [tests, samples] of seconds before and after and answer +1 where they call a test slower, -1 where faster,
0 where they call nothing. They are written afresh from the descriptions named here; no code of theirs is copied.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt
from scipy import stats

from pytest_roofline.stats.outlook import WORTH_REPORTING

from .drawing import Floats

Calls = npt.NDArray[np.int_]
Rule = Callable[[Floats, Floats], Calls]

THRESHOLD = "mean:5%"
ALPHA = 0.05
FEWEST_REPETITIONS = 2
# Criterion's defaults, but for the resamples: 100,000 there, and a warning below 1,000.
NOISE_THRESHOLD, RESAMPLES = 0.01, 2000
FEWEST_FOR_NOISE = 5
ASV_FACTOR, ASV_ALPHA = 1.1, 0.002
SWEEP = 8
RCCL_SAFETY, RCCL_MADS, RCCL_DROP = 2.0, 3.0, (0.03, 0.06)
CLEAR_GAP = 0.005
TOLERANCE = 0.05
SLOWDOWNS = (0.05, 0.10)
# Of a large public corpus: how much wider processes lie apart than the standard error inside one says (the median).
SAMPLES, WIDER = 20, 3.5


@dataclass(frozen=True, slots=True)
class Peer:
    """A rule of another tool, how it was had, and from which text."""

    name: str
    origin: str
    rule: Rule


def pytest_benchmark(before_s: Floats, after_s: Floats, threshold: str = THRESHOLD) -> Calls:
    """The check that `--benchmark-compare-fail=mean:5%` makes, by its own functions; or `min:5%`."""
    from pytest_benchmark.utils import parse_compare_fail

    check, field = parse_compare_fail(threshold), threshold.partition(":")[0]
    centres = (getattr(np, field)(side, axis=1).tolist() for side in (before_s, after_s))
    pairs = zip(*centres, strict=True)
    return np.array(
        [1 if check.fails({field: after}, {field: before}) else 0 for before, after in pairs]
    )


def mann_whitney(before_s: Floats, after_s: Floats, alpha: float = ALPHA) -> Calls:
    """Two-sided, over repetitions in one process; which side is slower is seen from the medians printed beside it."""
    if min(before_s.shape[1], after_s.shape[1]) < FEWEST_REPETITIONS:
        return np.zeros(len(before_s), dtype=int)
    p = stats.mannwhitneyu(before_s, after_s, alternative="two-sided", axis=1).pvalue
    ahead = np.median(after_s, axis=1) >= np.median(before_s, axis=1)
    return np.where(p < alpha, np.where(ahead, 1, -1), 0)


def asv(before_s: Floats, after_s: Floats) -> Calls:
    """Mann-Whitney below 0.002, and the medians a factor of 1.1 apart."""
    ratio = np.median(after_s, axis=1) / np.median(before_s, axis=1)
    apart = (ratio > ASV_FACTOR) | (ratio < 1 / ASV_FACTOR)
    return np.where(apart, mann_whitney(before_s, after_s, ASV_ALPHA), 0)


def rccl_gate(before_s: Floats, after_s: Floats) -> Calls:
    """Three gates on bandwidths: the median's drop, quartiles that do not overlap, and a neighbour that says the same.

    Tests stand for message sizes, `SWEEP` of them in a sweep. The drop is derived, as there, from the reference's own
    repeats, within the bounds of large messages.
    """
    before, after = 1 / before_s, 1 / after_s
    middle = np.median(before, axis=1)
    noise = before.std(axis=1) / middle
    spread = np.median(noise) + RCCL_MADS * 1.4826 * np.median(np.abs(noise - np.median(noise)))
    dropped = 1 - np.median(after, axis=1) / middle > np.clip(RCCL_SAFETY * spread, *RCCL_DROP)
    apart = np.percentile(after, 75, axis=1) < np.percentile(before, 25, axis=1)
    sweeps = np.pad((dropped & apart).reshape(-1, SWEEP), ((0, 0), (1, 1)))
    confirmed = sweeps[:, 1:-1] & (sweeps[:, :-2] | sweeps[:, 2:])
    return np.asarray(confirmed.ravel()).astype(int)


def criterion(before_s: Floats, after_s: Floats) -> Calls:
    """p of Welch's t by resampling both sides pooled; then the interval of the means' ratio beyond the threshold."""
    before_n, after_n = before_s.shape[1], after_s.shape[1]
    if min(before_n, after_n) < 2:
        return np.zeros(len(before_s), dtype=int)
    pooled = np.hstack([after_s, before_s])
    pooled = pooled - pooled.mean(axis=1, keepdims=True)
    seen = _welch(
        _moments(pooled[:, :after_n], np.ones((1, after_n))),
        _moments(pooled[:, after_n:], np.ones((1, before_n))),
    )
    both = after_n + before_n
    drawn = _welch(
        _moments(pooled, picks(after_n, both, 1)), _moments(pooled, picks(before_n, both, 2))
    )
    below = (drawn < seen).mean(axis=0)
    p = 2 * np.minimum(below, 1 - below)
    after = picks(after_n, after_n, 3) @ after_s.T / after_n
    before = picks(before_n, before_n, 4) @ before_s.T / before_n
    low, high = np.percentile(after / before - 1, [2.5, 97.5], axis=0)
    called = np.where(low > NOISE_THRESHOLD, 1, np.where(high < -NOISE_THRESHOLD, -1, 0))
    return np.where(p < ALPHA, called, 0)


@functools.lru_cache(maxsize=64)
def picks(count: int, among: int, seed: int) -> Floats:
    """[resamples, among]: how often each sample is drawn into a resample of `count`."""
    drawn = np.random.default_rng([seed, count, among]).multinomial(
        count, np.full(among, 1 / among), RESAMPLES
    )
    return drawn.astype(np.float64)


def _moments(samples: Floats, weights: Floats) -> tuple[Floats, Floats, int]:
    """[resamples, tests] means and unbiased variances, and the samples behind them."""
    count = round(float(weights[0].sum()))
    mean = weights @ samples.T / count
    square = weights @ (samples**2).T / count
    return mean, np.maximum(square - mean**2, 0.0) * count / (count - 1), count


def _welch(after: tuple[Floats, Floats, int], before: tuple[Floats, Floats, int]) -> Floats:
    error = np.sqrt(after[1] / after[2] + before[1] / before[2])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((after[0] - before[0]) / error)


def nvbench_legacy(before_s: Floats, after_s: Floats) -> Calls:
    """The change of the mean against the smaller of both relative standard deviations."""
    if min(before_s.shape[1], after_s.shape[1]) < FEWEST_FOR_NOISE:
        return np.zeros(len(before_s), dtype=int)
    noises = [side.std(axis=1, ddof=1) / side.mean(axis=1) for side in (before_s, after_s)]
    # A noise of exactly zero counts as not known there; then the other's is taken, and with neither nothing is called.
    known = np.where(np.asarray(noises) > 0, noises, np.inf)
    change = after_s.mean(axis=1) / before_s.mean(axis=1) - 1
    return np.where(np.abs(change) <= known.min(axis=0), 0, np.sign(change).astype(int))


def nvbench_robust(before_s: Floats, after_s: Floats) -> Calls:
    """A gap of half a percent between the intervals from the minimum to the third quartile."""
    (low, high), (new_low, new_high) = (
        (side.min(axis=1), np.percentile(side, 75, axis=1)) for side in (before_s, after_s)
    )
    slower, faster = (new_low - high) / high >= CLEAR_GAP, (low - new_high) / new_high >= CLEAR_GAP
    return slower.astype(int) - faster.astype(int)


PEERS = (
    Peer(
        "pytest-benchmark mean:5%",
        "run: the check that the installed pytest-benchmark's `parse_compare_fail` makes, on the means of one process "
        "a side",
        pytest_benchmark,
    ),
    Peer(
        "google/benchmark U test",
        "reimplemented from its published description (docs/tools.md, tools/gbench/report.py, 267a1115): a two-sided "
        "Mann-Whitney U test over the repetitions of one process a side at 0.05, through scipy as there",
        mann_whitney,
    ),
    Peer(
        "criterion.rs",
        "reimplemented from its published description (book/src/analysis.md and src/analysis/compare.rs, 0.7.0): the "
        "bootstrapped t at significance 0.05, then the 95 % interval of the mean's change beyond the noise threshold "
        f"of 1 %; {RESAMPLES} resamples in place of 100,000",
        criterion,
    ),
    Peer(
        "NVBench legacy",
        "reimplemented from its published description (python/scripts/nvbench_compare.py, 66212f1, installed as "
        "nvbench-compare-legacy): SLOW where the mean moved by more than the smaller relative standard deviation",
        nvbench_legacy,
    ),
    Peer(
        "NVBench robust, gap only",
        "reimplemented from its published description (docs/nvbench_compare_robust.md, 66212f1): a gap of 0.5 % "
        "between [minimum, third quartile]; the confirmation in clock cycles that it asks for besides needs clocks, "
        "which this data lacks, so the tool itself may call less",
        nvbench_robust,
    ),
)

# Of two sides with the same number of processes, each one number.
PROCESS_PEERS = (
    Peer(
        "pytest-benchmark mean:5%",
        "run: the check that the installed pytest-benchmark's `parse_compare_fail` makes, on the mean of the processes",
        pytest_benchmark,
    ),
    Peer(
        "pytest-benchmark min:5%",
        "run: the same on their minimum",
        functools.partial(pytest_benchmark, threshold="min:5%"),
    ),
    Peer(
        "asv continuous",
        "reimplemented from its published source (`_is_result_better` in asv/commands/compare.py, `is_different` in "
        "asv/statistics.py): a Mann-Whitney U test below 0.002 and medians a factor of 1.1 apart",
        asv,
    ),
    Peer(
        "benchstat",
        "reimplemented from its published source (golang.org/x/perf/benchmath, anone.go and sample.go, af31a767): a "
        "Mann-Whitney U test below 0.05",
        mann_whitney,
    ),
    Peer(
        "NVBench robust, gap only",
        "as on [the other page](detector-quality.md), on processes in place of samples: a gap of 0.5 % between "
        "[minimum, third quartile], without the confirmation in clock cycles",
        nvbench_robust,
    ),
    Peer(
        "RCCL perf gate",
        "reimplemented from its published source (ROCm/cvs, cvs/lib/regression_lib.py, 5651ae92, which the workflow "
        "`rccl_perf_regression` of ROCm/rocm-systems runs): the median bandwidth drops by more than 2 (median + 3 MAD) "
        "of the reference's coefficients of variation, held within 3 and 6 % as for large messages (within 10 and 15 % "
        "for small ones); its upper quartile lies below the reference's lower one; and a neighbouring size says the "
        "same. There the noise is of a run of its own, here of the reference's repeats",
        rccl_gate,
    ),
)


def available() -> list[Peer]:
    """Those that can be run here: pytest-benchmark only where it is installed."""
    return [
        peer for peer in PEERS if peer.rule is not pytest_benchmark or find_spec("pytest_benchmark")
    ]


FIVE = 5


def fixed_five(before_s: Floats, after_s: Floats) -> Calls:
    """Five processes a side, once: what careful people do by hand. Red only; Benjamini and Hochberg over the suite."""
    before, after = np.log(before_s[:, :FIVE]), np.log(after_s[:, :FIVE])
    least = math.log1p(WORTH_REPORTING * TOLERANCE)
    p = stats.ttest_ind(
        after - least, before, axis=1, equal_var=False, alternative="greater"
    ).pvalue
    beyond = after.mean(axis=1) - before.mean(axis=1) > math.log1p(TOLERANCE)
    return np.asarray(
        (stats.false_discovery_control(np.nan_to_num(p, nan=1.0)) <= ALPHA) & beyond
    ).astype(int)


FIVE_ASIDE = Peer(
    "fixed five a side",
    "five processes a side, once: Welch's t on log medians, p of no more than 0.4 δ slower, Benjamini-Hochberg at 5 % "
    "over the suite, and the estimate beyond δ",
    fixed_five,
)


@dataclass(slots=True)
class Called:
    """Of one rule on one kind of data: unchanged tests and suites called slower, and slower ones found, by slowdown."""

    tests: int = 0
    slower: int = 0
    suites: int = 0
    slower_suites: int = 0
    found: dict[float, int] = field(default_factory=dict)


def usual(rng: np.random.Generator, before: Floats, after: Floats) -> tuple[Floats, Floats]:
    """One process a side with its samples, as these tools are used: processes lie 3.5 standard errors apart."""
    spread = np.std(before, axis=1, ddof=1, keepdims=True) * math.sqrt(SAMPLES) / WIDER
    noise = rng.standard_normal((2, len(before), SAMPLES)) * spread
    return np.exp(before[:, :1] + noise[0]), np.exp(after[:, :1] + noise[1])


def call(peer: Peer, sides: tuple[Floats, Floats], called: Called) -> None:
    """Count what a rule says of unchanged code, and of code that is slower."""
    before, after = sides
    red = int(np.sum(peer.rule(before, after) > 0))
    called.tests += len(before)
    called.slower += red
    called.suites += 1
    called.slower_suites += red > 0
    for slowdown in SLOWDOWNS:
        found = int(np.sum(peer.rule(before, after * (1 + slowdown)) > 0))
        called.found[slowdown] = called.found.get(slowdown, 0) + found
