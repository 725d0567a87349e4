"""Spreads of unchanged code: between processes, sessions and devices, estimated or assumed.

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
from statistics import fmean, median

from scipy import special

from ..core.units import moment
from ..core.verdicts import Group, Spread

# Degrees of freedom that an assumed spread is worth: it is a guess, and the verdict must not lean on it as on a fact.
PRIOR_FREEDOM = 4.0
# Below this nothing is believed: medians that agree to the tick say that the clock is coarse, not the machine calm.
LEAST_SPREAD = 1e-4
# Sessions of one day: they begin so soon after each other that a boot, a driver load and a temperature may be shared.
ONE_DAY = datetime.timedelta(hours=6)
# Of sessions where fewer than three tell, as a multiple of the least that is believed of them.
ASSUMED_SESSION = 1.5
# Fewer sessions than this say too little of how sessions differ.
ENOUGH_SESSIONS = 3
# Sessions differ at least by this share of what processes do, as variances: where they hold several processes each, and
# where they hold one, so that the two cannot be told apart.
LEAST_SHARE, LEAST_SHARE_ALONE = 1 / 25, 1 / 8
# New processes that agree better than sessions of one process did, with less than this chance, tell the two apart.
SEPARATION_LEVEL = 0.2
# Fewer tests than this say too little of how their spreads differ.
ENOUGH_TESTS = 8
# Of tests in the order of how far their sessions lie apart, so many tell what all share: one odd session does not.
TRIMMED = 0.8
# Less than this is nothing: the root would lie beyond all bounds.
LEAST_EXCESS = 1e-5
# What is assumed of processes is not believed where a test's own differ by more, with less than this chance.
UNBELIEVED = 0.05
# What lies so far from the rest of its test, and so many of the test's own standard deviations, is strange: a process
# above the middle is in another mode, and a session has a cause of its own. What is noisy is not strange.
STRANGE = {"device": 0.05, "host": 0.15}
STRANGE_DEVIATIONS = 4.0
# More degrees of freedom than this would claim that all tests of a class spread alike.
MOST_BORROWED = 10.0
# Of a normal distribution, the standard deviation by the median absolute deviation.
NORMAL_DEVIATION = 1.4826


@dataclass(frozen=True, slots=True)
class Prior:
    """Assumed standard deviations of log seconds, by class of benchmark.

    Args:
        process: between processes of a session.
        session: between sessions, the least that is believed; of fewer than three sessions half as much again.
        freedom: how many degrees of freedom `process` is worth.
        borrowed: whether `process` was estimated from the other tests of the run: then it is joined with a test's own.
        total: between sessions of one process each, as the other tests of the run have it.
        lent: what other tests show between sessions, and that as a multiple of what they show between processes.
        strange: the share of the processes behind all tests of the class that lie in another mode.
    """

    process: float
    session: float
    device: float
    freedom: float = PRIOR_FREEDOM
    origin: str = "prior"
    borrowed: bool = False
    total: Spread | None = None
    lent: tuple[float, float] = (0.0, 0.0)
    strange: float = 0.0

    def least_session(self, process: float) -> float:
        """Return the least spread between sessions that is believed.

        `process` is the test's spread between processes. What the other tests show holds in part as
        it stands, in part in proportion: the geometric mean of both.
        """
        absolute, relative = self.lent
        shared = math.sqrt(absolute * relative * process)
        return max(self.session, shared, process * math.sqrt(LEAST_SHARE))

    @property
    def of_total(self) -> "Prior":
        """Return the prior of sessions of one process each."""
        if self.total is None:
            return replace(self, borrowed=False)
        total = self.total
        return replace(
            self, process=total.value, freedom=total.degrees, origin=total.origin, borrowed=True
        )


@functools.cache
def priors() -> dict[str, Prior]:
    """Return the starting values, by class."""
    raw = json.loads(
        resources.files(__package__).joinpath("priors.json").read_text(encoding="utf-8")
    )
    return {name: Prior(row["process"], row["session"], row["device"]) for name, row in raw.items()}


def class_of(device_type: str, metric: str = "") -> str:
    """Return the class of a benchmark, `host` or `device`.

    It is `host` where the CPU does the work, as it does for copies from pageable memory.
    """
    return "host" if device_type == "cpu" or metric.startswith("pageable_") else "device"


def within(groups: Sequence[Group]) -> tuple[float, int]:
    """Return the sum of squares within sessions, and its degrees of freedom."""
    squares, freedom = 0.0, 0
    for group in groups:
        logs = group.logs
        centre = fmean(logs)
        squares += math.fsum((log_s - centre) ** 2 for log_s in logs)
        freedom += len(logs) - 1
    return squares, freedom


def between_sessions(groups: Sequence[Group]) -> tuple[float, int, float]:
    """Return the mean square between sessions, freedom and typical size.

    Sessions are those of each device; the size is the processes in a typical session. Its
    expectation is process² + processes · session², also where sessions differ in size.
    """
    squares, freedom, weight = 0.0, 0, 0.0
    for device in dict.fromkeys(group.device for group in groups):
        groups_of_device = [group for group in groups if group.device == device]
        counts = [len(group.medians_s) for group in groups_of_device]
        total = sum(counts)
        centre = math.fsum(log_s for group in groups_of_device for log_s in group.logs) / total
        squares += math.fsum(
            len(group.logs) * (fmean(group.logs) - centre) ** 2 for group in groups_of_device
        )
        freedom += len(groups_of_device) - 1
        weight += total - sum(count**2 for count in counts) / total
    return (squares / freedom if freedom else 0.0), freedom, (weight / freedom if freedom else 1.0)


def join_days(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Return sessions with those of one device and day joined.

    Those are of one day that began within hours of each other; without a date each stays alone.
    """
    joined: list[Group] = []
    last: dict[str, tuple[int, datetime.datetime]] = {}
    dated = [(moment(group.started), group) for group in groups]
    for time, group in sorted(
        dated, key=lambda pair: pair[0].timestamp() if pair[0] is not None else math.inf
    ):
        previous = last.get(group.device)
        if time is not None and previous is not None and time - previous[1] < ONE_DAY:
            place = previous[0]
            joined[place] = replace(
                joined[place], medians_s=joined[place].medians_s + group.medians_s
            )
        else:
            place = len(joined)
            joined.append(group)
        if time is not None:
            last[group.device] = place, time
    return tuple(joined)


def is_one_day(groups: Sequence[Group]) -> bool:
    """Return True where all sessions but one are of one day."""
    return len(groups) == 1 or len(join_days(groups)) < len(groups)


def join_prior(squares: float, freedom: int, prior: Prior, origin: str) -> Spread:
    """Return a test's own spread joined with the prior.

    They stay apart where the prior is a guess and the test's own processes rule it out.
    """
    source = f"{origin}, {freedom} degrees of freedom"
    if (
        freedom
        and not prior.borrowed
        and special.chdtrc(freedom, squares / prior.process**2) < UNBELIEVED
    ):
        return Spread(math.sqrt(squares / freedom), source, freedom)
    joined = (squares + prior.freedom * prior.process**2) / (freedom + prior.freedom)
    source = f"{source}, with {prior.origin}" if freedom else prior.origin
    return Spread(max(LEAST_SPREAD, math.sqrt(joined)), source, freedom + prior.freedom)


def join_assumed(variance: float, freedom: float, assumed: float, origin: str) -> Spread:
    """Return a variance joined with an assumed spread.

    The variance has few degrees of freedom; the assumed spread counts as if it had more.
    """
    joined = (freedom * variance + PRIOR_FREEDOM * assumed**2) / (freedom + PRIOR_FREEDOM)
    source = origin if origin.startswith("prior") else f"{origin}, with prior"
    return Spread(math.sqrt(joined), source, freedom + PRIOR_FREEDOM)


def lend(prior: Prior, tests: Sequence[Sequence[Group]], kind: str = "device") -> Prior:
    """Return a prior from the references of all tests of a class.

    It takes at least eight tests.

    Args:
        kind: of the class, for what counts as another mode.
    """
    joined = [join_days(groups) for groups in tests]
    several = [groups for groups in joined if within(groups)[1]]
    single = [groups for groups in joined if len(groups) > 1 and not within(groups)[1]]
    shared = borrow(
        prior, [(squares / freedom, freedom) for squares, freedom in map(within, several)]
    )
    if len(single) >= ENOUGH_TESTS:
        estimates = [(square, freedom) for square, freedom, _ in map(between_sessions, single)]
        total = borrow(replace(prior, freedom=PRIOR_FREEDOM), estimates)
        shared = (
            replace(shared, total=Spread(total.process, total.origin, total.freedom))
            if total.borrowed
            else shared
        )
    return replace(
        shared, lent=_pool_sessions(shared, several), strange=_strange_share(joined, STRANGE[kind])
    )


def _pool_sessions(prior: Prior, tests: Sequence[Sequence[Group]]) -> tuple[float, float]:
    """Return the spread between sessions in all tests, absolute and relative.

    The second is a multiple of the spread between processes. One test's estimate from three
    sessions is zero half of the time; the mean of many is not. The fifth of the tests whose
    sessions lie furthest apart is left out: one odd session of a few tests tells nothing of the
    others.
    """
    absolutes, relatives, freedoms, counts = [], [], [], []
    for groups in tests:
        mean_square, between, count = between_sessions(groups)
        # Sessions on as many devices tell nothing of how sessions differ.
        if len(groups) < ENOUGH_SESSIONS or not between:
            continue
        squares, freedom = within(groups)
        process = join_prior(squares, freedom, prior, "").value ** 2
        absolutes.append((mean_square - squares / freedom) / count)
        relatives.append(mean_square / process)
        freedoms.append(between)
        counts.append(count)
    if len(counts) < ENOUGH_TESTS:
        return 0.0, 0.0
    freedom, count = round(fmean(freedoms)), fmean(counts)
    lower = _trimmed_share(freedom)
    absolute = max(0.0, _trimmed_mean(absolutes) / lower)
    relative = max(0.0, (_trimmed_mean(relatives) / lower - 1) / count)
    return math.sqrt(absolute), math.sqrt(relative)


def _trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean of the lower four fifths."""
    return fmean(sorted(values)[: math.ceil(TRIMMED * len(values))])


def _trimmed_share(freedom: int) -> float:
    """Return the trimmed mean of χ² by its mean.

    E[χ²; χ² < c] is f · P(χ²_{f+2} < c).
    """
    border = special.chdtri(freedom, 1 - TRIMMED)
    return float(special.chdtr(freedom + 2, border)) / TRIMMED


def _strange_share(tests: Sequence[Sequence[Group]], apart: float) -> float:
    """Return the share of all processes that lie in another mode."""
    if len(tests) < ENOUGH_TESTS:
        return 0.0
    modes = count = 0
    for groups in tests:
        logs = [log_s for group in groups for log_s in group.logs]
        middle = median(logs)
        deviation = NORMAL_DEVIATION * median(abs(log_s - middle) for log_s in logs)
        border = middle + max(math.log1p(apart), STRANGE_DEVIATIONS * deviation)
        modes += sum(log_s > border for log_s in logs)
        count += len(logs)
    return modes / count


def borrow(prior: Prior, estimates: Sequence[tuple[float, int]]) -> Prior:
    """Return a prior from the variances of the other tests.

    Empirical Bayes after Smyth (2004), "Linear models and empirical Bayes methods for assessing differential
    expression": variances are drawn from a scaled inverse χ², whose two parameters follow from the mean and the
    variance of their logarithms.

    Args:
        prior: to keep where fewer than eight tests tell anything.
        estimates: of each test, a variance and its degrees of freedom.
    """
    usable = [(max(square, LEAST_SPREAD**2), freedom) for square, freedom in estimates if freedom]
    if len(usable) < ENOUGH_TESTS:
        return prior
    scores = [
        math.log(square) - float(special.digamma(freedom / 2)) + math.log(freedom / 2)
        for square, freedom in usable
    ]
    centre = fmean(scores)
    excess = math.fsum((score - centre) ** 2 for score in scores) / (len(scores) - 1)
    excess -= fmean(_trigamma(freedom / 2) for _, freedom in usable)
    half = (
        min(_inverse_trigamma(excess), MOST_BORROWED / 2)
        if excess > LEAST_EXCESS
        else MOST_BORROWED / 2
    )
    square = math.exp(centre + float(special.digamma(half)) - math.log(half))
    origin = f"prior of {len(usable)} tests"
    return replace(prior, process=math.sqrt(square), freedom=2 * half, origin=origin, borrowed=True)


def _inverse_trigamma(value: float) -> float:
    from scipy.optimize import brentq

    return float(brentq(lambda half: _trigamma(half) - value, 1e-4, 1e6))


@functools.lru_cache(maxsize=4096)
def _trigamma(value: float) -> float:
    return float(special.polygamma(1, value))
