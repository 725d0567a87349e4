"""Spreads of unchanged code: between processes, sessions and devices, estimated or assumed.

The model is log y = μ + device + session + process. The samples of a process say almost nothing of how processes
differ, so a process is one number, its log-median. Estimates are those of the analysis of variance, truncated at zero.
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

# The class of a program's figures. Programs differ too much from each other to lend their spreads.
PROGRAM = "program"
# Degrees of freedom of an assumed spread. They are few, because it is a guess and no fact.
PRIOR_FREEDOM = 4.0
# No smaller spread is believed: medians that agree to the tick show a coarse clock, not a calm machine.
LEAST_SPREAD = 1e-4
# Sessions of one day: they begin so soon after each other that a boot, a driver load and a temperature may be shared.
ONE_DAY = datetime.timedelta(hours=6)
# The assumed spread of fewer than three sessions, as a multiple of the least that is believed.
ASSUMED_SESSION = 1.5
# Fewer sessions than this say too little of how sessions differ.
ENOUGH_SESSIONS = 3
# The least variance between sessions, as a share of that between processes: where sessions hold several processes, and
# where they hold one each, so that the two variances cannot be separated.
LEAST_SHARE, LEAST_SHARE_ALONE = 1 / 25, 1 / 8
# The two are separated where new processes agree better than sessions of one process did, with less than this chance.
SEPARATION_LEVEL = 0.2
# Fewer tests than this say too little of how their spreads differ.
ENOUGH_TESTS = 8
# The share of tests, those whose sessions lie closest together, that tell how far sessions lie apart. The others may
# have an odd session.
TRIMMED = 0.8
# The degrees of freedom of the spread that is assumed of a program with a single process.
ALONE_FREEDOM = 2.0
# A smaller excess counts as none: the root of `_inverse_trigamma` would be too large.
LEAST_EXCESS = 1e-5
# The assumed spread is rejected where processes of a test so far apart would have less than this chance.
UNBELIEVED = 0.05
# A process or session is strange if it lies this share of time from the others of its test, and also so many standard
# deviations of the test: such a process is in another mode, such a session has a special cause. Noise is not strange.
STRANGE = {"device": 0.05, "program": 0.05, "host": 0.15}
STRANGE_DEVIATIONS = 4.0
# More degrees of freedom than this would claim that all tests of a class spread alike.
MOST_BORROWED = 10.0
# The standard deviation of a normal distribution, in median absolute deviations.
NORMAL_DEVIATION = 1.4826


@dataclass(frozen=True, slots=True)
class Prior:
    """Assumed standard deviations of log seconds, by class of benchmark.

    Args:
        process: between processes of a session.
        session: between sessions, the least that is believed; for fewer than three sessions half as much again.
        freedom: the degrees of freedom of `process`.
        borrowed: whether `process` was estimated from the other tests of the run. Then it is always joined with the
            spread of a test; a guess is dropped where the test rules it out.
        total: between sessions of one process each, estimated from the other tests of the run.
        lent: between sessions, estimated from the other tests, and that as a multiple of the spread between processes.
        strange: the share of the processes behind all tests of the class that lie in another mode.
        least: whether `process` is the least that is believed beside the spread of a test's own processes.
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
    least: bool = False

    def least_session(self, process: float) -> float:
        """Return the least spread between sessions that is believed.

        `process` is the test's spread between processes. What the other tests show may hold as an
        absolute spread or in proportion to `process`: the geometric mean of both is taken.
        """
        absolute, relative = self.lent
        shared = math.sqrt(absolute * relative * process)
        return max(self.session, shared, process * math.sqrt(LEAST_SHARE))

    @property
    def of_total(self) -> "Prior":
        """Return the prior for sessions of one process each.

        Such sessions show the spreads between processes and between sessions together, which is
        `total`. If no other tests gave it, the prior of processes alone is used, as a mere guess.
        """
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
    return {
        name: Prior(row["process"], row["session"], row["device"], least=name == PROGRAM)
        for name, row in raw.items()
    }


def class_of(device_type: str, metric: str = "") -> str:
    """Return the class of a benchmark that this package times, `host` or `device`.

    It is `host` where the CPU does the work, as it does for copies from pageable memory.
    """
    return "host" if device_type == "cpu" or metric.startswith("pageable_") else "device"


def within(groups: Sequence[Group]) -> tuple[float, int]:
    """Return the sum of squares of log seconds within sessions, and its freedom."""
    squares, freedom = 0.0, 0
    for group in groups:
        logs = group.logs
        centre = fmean(logs)
        squares += math.fsum((log_s - centre) ** 2 for log_s in logs)
        freedom += len(logs) - 1
    return squares, freedom


def between_sessions(groups: Sequence[Group]) -> tuple[float, int, float]:
    """Return the mean square between sessions, freedom and typical size.

    Only sessions of the same device are compared. The size is the number of processes in a typical
    session: the mean square is expected to be process² + size · session².
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
        # As in an analysis of variance with unequal groups: divided by the freedom, this is the typical size.
        weight += total - sum(count**2 for count in counts) / total
    if not freedom:
        return 0.0, 0, 1.0
    mean_square, typical_size = squares / freedom, weight / freedom
    return mean_square, freedom, typical_size


def join_days(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Return sessions with those of one device and day joined.

    Each that began within six hours of the one before is of the same day. A session without a date
    stays alone.
    """
    joined: list[Group] = []
    # By device: the index in `joined` of its last day, and when the last session of that day began.
    last: dict[str, tuple[int, datetime.datetime]] = {}
    dated = [(moment(group.started), group) for group in groups]

    def timestamp(time_and_group: tuple[datetime.datetime | None, Group]) -> float:
        # Sessions without a date come last.
        time, _ = time_and_group
        return time.timestamp() if time is not None else math.inf

    for time, group in sorted(dated, key=timestamp):
        last_place, last_time = last.get(group.device, (None, None))
        is_same_day = time is not None and last_time is not None and time - last_time < ONE_DAY
        if is_same_day and last_place is not None:
            place, day = last_place, joined[last_place]
            joined[place] = replace(day, medians_s=day.medians_s + group.medians_s)
        else:
            place = len(joined)
            joined.append(group)
        if time is not None:
            last[group.device] = place, time
    return tuple(joined)


def has_fewer_days(groups: Sequence[Group]) -> bool:
    """Return True where there are fewer days than sessions.

    It is True of a single session, too.
    """
    return len(groups) == 1 or len(join_days(groups)) < len(groups)


def join_prior(squares: float, freedom: int, prior: Prior, origin: str) -> Spread:
    """Return the spread between processes of a test, joined with the prior.

    Both variances are averaged, weighted by their degrees of freedom. A prior that was not estimated from other tests
    is left out where the processes of the test rule it out.

    Args:
        squares: the sum of squares within the sessions of the test, with its degrees of `freedom`.
        origin: the start of the text that tells where the spread comes from.
    """
    source = f"{origin}, {freedom} degrees of freedom"
    # The prior of programs is the least spread that is believed: the processes of the test may only widen it.
    if prior.least and freedom:
        return Spread(max(prior.process, math.sqrt(squares / freedom)), source, freedom)
    if prior.least:
        # A single process shows no spread, and how other programs spread says nothing of this one. With so few degrees
        # of freedom one process against one decides nothing, but a rate of half of its limit is still red.
        return Spread(prior.process, "assumed, as one process shows no spread", ALONE_FREEDOM)
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
    """Return the spread of a variance joined with an assumed spread, a standard deviation.

    The assumed spread counts as one with four degrees of freedom. `origin` tells where the variance comes from.
    """
    joined = (freedom * variance + PRIOR_FREEDOM * assumed**2) / (freedom + PRIOR_FREEDOM)
    source = origin if origin.startswith("prior") else f"{origin}, with prior"
    return Spread(math.sqrt(joined), source, freedom + PRIOR_FREEDOM)


def lend(prior: Prior, tests: Sequence[Sequence[Group]], kind: str = "device") -> Prior:
    """Return a prior from the references of all tests of a class, so that each test learns from the others.

    Each of its parts is estimated from at least eight tests; with fewer it stays as in `prior`.

    Args:
        kind: the class, which decides how far away another mode is.
    """
    # Such a prior is that of whole programs, which differ too much to learn from each other.
    if prior.least:
        return prior
    joined = [join_days(groups) for groups in tests]
    # Tests with several processes in a session, and tests whose sessions have one process each.
    several, single = [], []
    for groups in joined:
        _, freedom_within = within(groups)
        if freedom_within:
            several.append(groups)
        elif len(groups) > 1:
            single.append(groups)
    shared = borrow(
        prior, [(squares / freedom, freedom) for squares, freedom in map(within, several)]
    )
    # Sessions of one process each show both spreads together, so they have a prior of their own.
    if len(single) >= ENOUGH_TESTS:
        estimates = [(square, freedom) for square, freedom, _ in map(between_sessions, single)]
        total = borrow(replace(prior, freedom=PRIOR_FREEDOM), estimates)
        if total.borrowed:
            total_spread = Spread(total.process, total.origin, total.freedom)
            shared = replace(shared, total=total_spread)
    return replace(
        shared, lent=_pool_sessions(shared, several), strange=_strange_share(joined, STRANGE[kind])
    )


def _pool_sessions(prior: Prior, tests: Sequence[Sequence[Group]]) -> tuple[float, float]:
    """Return the spread between sessions in all tests, absolute and relative.

    The second is a multiple of the spread between processes. One test's estimate from three
    sessions is zero half of the time; the mean of many is not. The fifth of the tests whose
    sessions lie furthest apart is left out, as an odd session of a few tests would widen the mean.
    """
    absolutes, relatives, freedoms, counts = [], [], [], []
    for groups in tests:
        mean_square, session_freedom, count = between_sessions(groups)
        # Where each session is of another device, nothing shows how sessions differ.
        if len(groups) < ENOUGH_SESSIONS or not session_freedom:
            continue
        squares, freedom = within(groups)
        process_variance = join_prior(squares, freedom, prior, "").value ** 2
        # The mean square is expected to be process² + count · session²: the first part is removed.
        absolutes.append((mean_square - squares / freedom) / count)
        relatives.append(mean_square / process_variance)
        freedoms.append(session_freedom)
        counts.append(count)
    if len(counts) < ENOUGH_TESTS:
        return 0.0, 0.0
    freedom, count = round(fmean(freedoms)), fmean(counts)
    # The lower four fifths of variances have a smaller mean than all: this factor corrects for it.
    lower = _trimmed_share(freedom)
    absolute = max(0.0, _trimmed_mean(absolutes) / lower)
    relative = max(0.0, (_trimmed_mean(relatives) / lower - 1) / count)
    return math.sqrt(absolute), math.sqrt(relative)


def _trimmed_mean(values: Sequence[float]) -> float:
    """Return the mean of the lower four fifths."""
    return fmean(sorted(values)[: math.ceil(TRIMMED * len(values))])


def _trimmed_share(freedom: int) -> float:
    """Return the mean of the lower four fifths of χ², as a share of the mean of all of it.

    E[χ²; χ² < c] is f · P(χ²_{f+2} < c).
    """
    border = special.chdtri(freedom, 1 - TRIMMED)
    return float(special.chdtr(freedom + 2, border)) / TRIMMED


def _strange_share(tests: Sequence[Sequence[Group]], distance: float) -> float:
    """Return the share of all processes that lie in another, slower mode than their test's median.

    `distance` is the least share of time by which such a process is slower than the median.
    """
    if len(tests) < ENOUGH_TESTS:
        return 0.0
    slow_count = count = 0
    for groups in tests:
        logs = [log_s for group in groups for log_s in group.logs]
        middle = median(logs)
        deviation = NORMAL_DEVIATION * median(abs(log_s - middle) for log_s in logs)
        border = middle + max(math.log1p(distance), STRANGE_DEVIATIONS * deviation)
        slow_count += sum(log_s > border for log_s in logs)
        count += len(logs)
    return slow_count / count


def borrow(prior: Prior, estimates: Sequence[tuple[float, int]]) -> Prior:
    """Return a prior from the variances of the other tests.

    Empirical Bayes after Smyth (2004), "Linear models and empirical Bayes methods for assessing differential
    expression": variances are drawn from a scaled inverse χ², whose two parameters follow from the mean and the
    variance of their logarithms.

    Args:
        prior: returned as it is where fewer than eight tests have an estimate.
        estimates: the variance of each test and its degrees of freedom.
    """
    usable = [(max(square, LEAST_SPREAD**2), freedom) for square, freedom in estimates if freedom]
    if len(usable) < ENOUGH_TESTS:
        return prior
    scores = [
        math.log(square) - float(special.digamma(freedom / 2)) + math.log(freedom / 2)
        for square, freedom in usable
    ]
    centre = fmean(scores)
    # The variance of the scores beyond the one that the few degrees of freedom of each test cause.
    excess = math.fsum((score - centre) ** 2 for score in scores) / (len(scores) - 1)
    excess -= fmean(_trigamma(freedom / 2) for _, freedom in usable)
    # Half the degrees of freedom of the inverse χ². Without an excess all tests spread alike, which is not believed
    # beyond `MOST_BORROWED`.
    half = (
        min(_inverse_trigamma(excess), MOST_BORROWED / 2)
        if excess > LEAST_EXCESS
        else MOST_BORROWED / 2
    )
    square = math.exp(centre + float(special.digamma(half)) - math.log(half))
    origin = f"prior of {len(usable)} tests"
    return replace(prior, process=math.sqrt(square), freedom=2 * half, origin=origin, borrowed=True)


def _inverse_trigamma(value: float) -> float:
    """Return the number whose trigamma function is `value`."""
    from scipy.optimize import brentq

    return float(brentq(lambda half: _trigamma(half) - value, 1e-4, 1e6))


@functools.lru_cache(maxsize=4096)
def _trigamma(value: float) -> float:
    return float(special.polygamma(1, value))
