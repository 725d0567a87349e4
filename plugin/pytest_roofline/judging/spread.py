"""How far runs of unchanged code lie apart: between processes, sessions and devices, estimated or assumed.

The model is log y = μ + device + session + process; the samples of a process say almost nothing of the rest, so a
process is one number, its log-median. Estimates are those of the analysis of variance, truncated at zero.
"""

import datetime
import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources
from statistics import fmean

from scipy import special

from ..core.units import moment

# Degrees of freedom that an assumed spread is worth: it is a guess, and the verdict must not lean on it as on a fact.
PRIOR_FREEDOM = 4.0
# Below this nothing is believed: medians that agree to the tick say that the clock is coarse, not the machine calm.
LEAST_SPREAD = 1e-4
# Sessions this close together may share a boot, a driver load and a temperature.
ONE_SITTING = datetime.timedelta(hours=1)
# Fewer sessions than this say too little of how sessions differ.
ENOUGH_SESSIONS = 3
# The new processes spread more than the reference's, beyond chance: the two are no longer pooled.
UNEQUAL = 0.01
FEWEST_UNEQUAL = 3
# Fewer tests than this say too little of how their spreads differ.
ENOUGH_TESTS = 8
# Less than this is nothing: the root would lie beyond all bounds.
LEAST_EXCESS = 1e-5
# More degrees of freedom than this would claim that all tests of a class spread alike.
MOST_BORROWED = 10.0


@dataclass(frozen=True, slots=True)
class Group:
    """The processes of one session on one device: their medians in seconds.

    Args:
        medians_s: one for each process.
        device: the device's UUID; empty where there is none, as on a CPU, or it is not told.
        started: when the session began, ISO 8601; empty is unknown.
    """

    medians_s: tuple[float, ...]
    device: str = ""
    started: str = ""

    @property
    def logs(self) -> list[float]:
        """The log-medians."""
        return [math.log(value) for value in self.medians_s]


@dataclass(frozen=True, slots=True)
class Spread:
    """A standard deviation of log seconds, where it comes from, and its degrees of freedom; infinite is known."""

    value: float
    origin: str
    freedom: float = math.inf


@dataclass(frozen=True, slots=True)
class Prior:
    """What to assume where the data do not tell, by class of benchmark: standard deviations of log seconds.

    Args:
        process: between processes of a session.
        session: between sessions; the least that is believed where fewer than three are known, or all within an hour.
        device: between devices of one product.
        freedom: how many degrees of freedom `process` is worth.
        origin: where `process` comes from, for the verdict.
        borrowed: whether `process` was estimated from the other tests of the run: then it is joined with a test's own.
    """

    process: float
    session: float
    device: float
    freedom: float = PRIOR_FREEDOM
    origin: str = "prior"
    borrowed: bool = False


@functools.cache
def priors() -> dict[str, Prior]:
    """The starting values, by class."""
    raw = json.loads(resources.files(__package__).joinpath("priors.json").read_text(encoding="utf-8"))
    return {name: Prior(row["process"], row["session"], row["device"]) for name, row in raw.items()}


def class_of(device_type: str, metric: str = "") -> str:
    """The class of a benchmark: `host` where the CPU does the work, as it does for copies from pageable memory."""
    return "host" if device_type == "cpu" or metric.startswith("pageable_") else "device"


def within(groups: Sequence[Group]) -> tuple[float, int]:
    """Sum of squares of the log-medians within their sessions, and its degrees of freedom."""
    squares, freedom = 0.0, 0
    for group in groups:
        logs = group.logs
        centre = fmean(logs)
        squares += math.fsum((value - centre) ** 2 for value in logs)
        freedom += len(logs) - 1
    return squares, freedom


def between_sessions(groups: Sequence[Group]) -> tuple[float, int, float]:
    """Mean square between the sessions of each device, its degrees of freedom, and the processes in a typical session.

    Its expectation is process² + processes · session², also where sessions differ in size.
    """
    squares, freedom, weight = 0.0, 0, 0.0
    for device in dict.fromkeys(group.device for group in groups):
        mine = [group for group in groups if group.device == device]
        counts = [len(group.medians_s) for group in mine]
        total = sum(counts)
        centre = math.fsum(value for group in mine for value in group.logs) / total
        squares += math.fsum(len(group.logs) * (fmean(group.logs) - centre) ** 2 for group in mine)
        freedom += len(mine) - 1
        weight += total - sum(count**2 for count in counts) / total
    return (squares / freedom if freedom else 0.0), freedom, (weight / freedom if freedom else 1.0)


def spread_within(groups: Sequence[Group]) -> tuple[float, int]:
    """The variance between the processes of a reference's sessions, and its degrees of freedom."""
    squares, freedom = within(groups)
    return (squares / freedom, freedom) if freedom else (0.0, 0)


def spread_between(groups: Sequence[Group]) -> tuple[float, int]:
    """The variance between the sessions of a reference, not truncated, and its degrees of freedom.

    None (0) where it cannot be told: from sessions of one process each, too few of them, or all in one sitting.
    """
    square, processes = spread_within(groups)
    mean_square, freedom, count = between_sessions(groups)
    if not processes or len(groups) < ENOUGH_SESSIONS or _one_sitting(groups):
        return 0.0, 0
    return (mean_square - square) / count, freedom


def process_spread(new: Sequence[Group], reference: Sequence[Group], prior: Prior) -> Spread:
    """The spread between processes, pooled over both sides: the same machine, so the same spread."""
    squares, freedom = within([*new, *reference])
    mean_square, sessions, _ = between_sessions(reference)
    if sessions and freedom == 0:
        # Sessions of one process each: what lies between them holds both spreads.
        return _joined(mean_square * sessions, sessions, prior, "estimated from sessions of one process")
    if sessions and mean_square * freedom <= squares:
        # Sessions differ no more than processes do, so they tell of the same spread: the restricted maximum likelihood.
        return _joined(squares + mean_square * sessions, freedom + sessions, prior, "estimated")
    return _joined(squares, freedom, prior, "estimated")


def _joined(squares: float, freedom: int, prior: Prior, origin: str) -> Spread:
    """A test's own estimate, with what it lacks taken from the prior."""
    if freedom >= 2 and not prior.borrowed:
        told = f"{origin}, {freedom} degrees of freedom"
        return Spread(max(LEAST_SPREAD, math.sqrt(squares / freedom)), told, freedom)
    joined = (squares + prior.freedom * prior.process**2) / (freedom + prior.freedom)
    told = f"{prior.origin}" if freedom == 0 else f"{origin}, with {prior.origin}"
    return Spread(max(LEAST_SPREAD, math.sqrt(joined)), told, freedom + prior.freedom)


def unequal(new: Sequence[Group], reference: Sequence[Group]) -> tuple[Spread, Spread] | None:
    """Both sides' own spreads, where the new processes differ more than the reference's and chance is no excuse."""
    (new_squares, new_freedom), (old_squares, old_freedom) = within(new), within(reference)
    if min(new_freedom, old_freedom) < FEWEST_UNEQUAL:
        return None
    new_square = max(LEAST_SPREAD**2, new_squares / new_freedom)
    old_square = max(LEAST_SPREAD**2, old_squares / old_freedom)
    if special.fdtrc(new_freedom, old_freedom, new_square / old_square) > UNEQUAL:
        return None
    return (
        Spread(math.sqrt(new_square), "estimated, new processes", new_freedom),
        Spread(math.sqrt(old_square), "estimated, baseline", old_freedom),
    )


def session_spread(new: Sequence[Group], reference: Sequence[Group], process: Spread, prior: Prior) -> Spread:
    """The spread between sessions; at least the prior where fewer than three are known, or all in one sitting."""
    mean_square, freedom, count = between_sessions(reference)
    merged = within([*new, *reference])[1] == 0 and freedom > 0
    own = 0.0 if merged else math.sqrt(max(0.0, mean_square - process.value**2) / count)
    few = len(reference) < ENOUGH_SESSIONS
    if few or _one_sitting(reference):
        if own > prior.session:
            return Spread(own, f"estimated, {len(reference)} sessions", max(1, freedom))
        why = f"{len(reference)} session{'s' * (len(reference) > 1)}" if few else "all within one hour"
        return Spread(prior.session, f"prior, {why}")
    if merged:
        return Spread(0.0, "within the spread between processes")
    if own >= prior.session:
        return Spread(own, f"estimated, {len(reference)} sessions", freedom)
    # An estimate from few sessions is zero half of the time, also where they do differ.
    return with_prior(own**2, freedom, prior.session, f"estimated, {len(reference)} sessions")


def with_prior(variance: float, freedom: float, assumed: float, origin: str) -> Spread:
    """A variance that few have told, joined with a spread that is assumed as if more had told it."""
    joined = (freedom * variance + PRIOR_FREEDOM * assumed**2) / (freedom + PRIOR_FREEDOM)
    return Spread(math.sqrt(joined), f"{origin}, with prior", freedom + PRIOR_FREEDOM)


def _one_sitting(groups: Sequence[Group]) -> bool:
    times = [moment(group.started) for group in groups]
    known = [time for time in times if time is not None]
    return len(known) == len(times) and bool(known) and max(known) - min(known) < ONE_SITTING


def borrow_sessions(prior: Prior, estimates: Sequence[tuple[float, int]]) -> Prior:
    """A prior whose spread between sessions is at least what the tests of a class show together.

    One test's estimate from three sessions is zero half of the time; the mean of many is not.

    Args:
        prior: to keep where fewer than eight tests tell anything.
        estimates: of each test, the variance between sessions, not truncated, and its degrees of freedom.
    """
    usable = [(variance, freedom) for variance, freedom in estimates if freedom]
    if len(usable) < ENOUGH_TESTS:
        return prior
    total = sum(freedom for _, freedom in usable)
    together = math.sqrt(max(0.0, math.fsum(variance * freedom for variance, freedom in usable) / total))
    return replace(prior, session=max(prior.session, together))


def borrow(prior: Prior, estimates: Sequence[tuple[float, int]]) -> Prior:
    """A prior from the other tests of a run: the distribution that their variances come from.

    Empirical Bayes after Smyth (2004), "Linear models and empirical Bayes methods for assessing differential
    expression": variances are drawn from a scaled inverse χ², whose two parameters follow from the mean and the
    variance of their logarithms.

    Args:
        prior: to keep where fewer than eight tests tell anything.
        estimates: of each test, the variance between processes and its degrees of freedom.
    """
    usable = [(max(square, LEAST_SPREAD**2), freedom) for square, freedom in estimates if freedom >= 2]
    if len(usable) < ENOUGH_TESTS:
        return prior
    scores = [
        math.log(square) - float(special.digamma(freedom / 2)) + math.log(freedom / 2) for square, freedom in usable
    ]
    centre = fmean(scores)
    excess = math.fsum((score - centre) ** 2 for score in scores) / (len(scores) - 1)
    excess -= fmean(float(special.polygamma(1, freedom / 2)) for _, freedom in usable)
    half = min(_inverse_trigamma(excess), MOST_BORROWED / 2) if excess > LEAST_EXCESS else MOST_BORROWED / 2
    square = math.exp(centre + float(special.digamma(half)) - math.log(half))
    origin = f"prior of {len(usable)} tests"
    return Prior(math.sqrt(square), prior.session, prior.device, 2 * half, origin, borrowed=True)


def _inverse_trigamma(value: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(lambda half: float(special.polygamma(1, half)) - value, 1e-4, 1e6))
