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
from statistics import fmean, median

from scipy import special

from ..core.units import moment

# Degrees of freedom that an assumed spread is worth: it is a guess, and the verdict must not lean on it as on a fact.
PRIOR_FREEDOM = 4.0
# Below this nothing is believed: medians that agree to the tick say that the clock is coarse, not the machine calm.
LEAST_SPREAD = 1e-4
# Sessions that begin so soon one after the other may share a boot, a driver load and a temperature: one sitting.
ONE_SITTING = datetime.timedelta(hours=6)
# What is assumed of sessions where fewer than three tell, as a multiple of the least that is believed of them.
ASSUMED_SESSION = 2
# Fewer sessions than this say too little of how sessions differ.
ENOUGH_SESSIONS = 3
# The new processes spread more than the reference's, beyond chance: the two are no longer pooled.
UNEQUAL = 0.01
FEWEST_UNEQUAL = 3
# Fewer tests than this say too little of how their spreads differ.
ENOUGH_TESTS = 8
# Less than this is nothing: the root would lie beyond all bounds.
LEAST_EXCESS = 1e-5
# What is assumed of processes is not believed where a test's own differ by more, with less than this chance.
UNBELIEVED = 0.05
# A process that lies so far above the middle of its test is in another mode, whatever spread the others have.
STRANGE = {"device": 0.05, "host": 0.15}
# More degrees of freedom than this would claim that all tests of a class spread alike.
MOST_BORROWED = 10.0


@dataclass(frozen=True, slots=True)
class Group:
    """The processes of one session on one device: their medians in seconds.

    Args:
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
        session: between sessions, the least that is believed; of fewer than three sessions twice as much is assumed.
        freedom: how many degrees of freedom `process` is worth.
        borrowed: whether `process` was estimated from the other tests of the run: then it is joined with a test's own.
        total: between sessions of one process each, as the other tests of the run have it.
        lent: what other tests show between sessions, and that as a multiple of what they show between processes: of a
            test the lower of the two is believed at least.
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
        """The least spread that is believed between sessions of a test with such a spread between processes."""
        absolute, relative = self.lent
        return max(self.session, min(absolute, relative * process))


@functools.cache
def priors() -> dict[str, Prior]:
    """The starting values, by class."""
    raw = json.loads(
        resources.files(__package__).joinpath("priors.json").read_text(encoding="utf-8")
    )
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


def sittings(groups: Sequence[Group]) -> tuple[Group, ...]:
    """Sessions of one device that began within hours of each other, joined into one; without a date each stands."""
    joined: list[Group] = []
    last: dict[str, tuple[int, datetime.datetime]] = {}
    dated = [(moment(group.started), group) for group in groups]
    for time, group in sorted(
        dated, key=lambda pair: pair[0].timestamp() if pair[0] is not None else math.inf
    ):
        known = last.get(group.device)
        if time is not None and known is not None and time - known[1] < ONE_SITTING:
            place = known[0]
            joined[place] = replace(
                joined[place], medians_s=joined[place].medians_s + group.medians_s
            )
        else:
            place = len(joined)
            joined.append(group)
        if time is not None:
            last[group.device] = place, time
    return tuple(joined)


def process_spread(new: Sequence[Group], reference: Sequence[Group], prior: Prior) -> Spread:
    """The spread between processes, pooled over both sides: the same machine, so the same spread."""
    mean_square, sessions, _ = between_sessions(reference)
    if sessions and within(reference)[1] == 0:
        # Sessions of one process each: what lies between them holds both spreads.
        total = total_spread(reference, prior)
        squares, freedom = within(new)
        if not freedom:
            return total
        if total.value**2 > squares / freedom:
            return Spread(
                max(LEAST_SPREAD, math.sqrt(squares / freedom)), "estimated, new processes", freedom
            )
        together = (squares + total.freedom * total.value**2) / (freedom + total.freedom)
        return Spread(math.sqrt(together), total.origin, freedom + total.freedom)
    squares, freedom = within([*new, *reference])
    if sessions and mean_square * freedom <= squares:
        # Sessions differ no more than processes do, so they tell of the same spread: the restricted maximum likelihood.
        return with_lent(squares + mean_square * sessions, freedom + sessions, prior, "estimated")
    return with_lent(squares, freedom, prior, "estimated")


def total_spread(reference: Sequence[Group], prior: Prior) -> Spread:
    """The spread between sessions of one process each, which holds what lies between sessions and between processes."""
    mean_square, sessions, _ = between_sessions(reference)
    if prior.total is not None:
        lent = prior.total
        prior = replace(
            prior, process=lent.value, freedom=lent.freedom, origin=lent.origin, borrowed=True
        )
    else:
        prior = replace(prior, borrowed=False)
    return with_lent(
        mean_square * sessions, sessions, prior, "estimated from sessions of one process"
    )


def with_lent(squares: float, freedom: int, prior: Prior, origin: str) -> Spread:
    """A test's own estimate joined with the prior, unless that is a guess and the test's own processes rule it out."""
    told = f"{origin}, {freedom} degrees of freedom"
    if (
        freedom
        and not prior.borrowed
        and special.chdtrc(freedom, squares / prior.process**2) < UNBELIEVED
    ):
        return Spread(math.sqrt(squares / freedom), told, freedom)
    joined = (squares + prior.freedom * prior.process**2) / (freedom + prior.freedom)
    told = f"{told}, with {prior.origin}" if freedom else prior.origin
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


def session_spread(
    new: Sequence[Group],
    reference: Sequence[Group],
    process: Spread,
    prior: Prior,
    assumed: float = ASSUMED_SESSION,
) -> Spread:
    """The spread between sessions: what the reference's show, joined with the least that is believed.

    Args:
        assumed: of fewer than three sessions, as a multiple of the least that is believed.
    """
    mean_square, told, count = between_sessions(reference)
    freedom: float = told
    if told and within(reference)[1] == 0:
        if not within(new)[1]:
            return Spread(0.0, "within the spread between processes")
        # What one-process sessions show in all, less what the new processes show of it.
        total = total_spread(reference, prior)
        mean_square, freedom, count = total.value**2, total.freedom, 1.0
    own = math.sqrt(max(0.0, mean_square - process.value**2) / count) if freedom else 0.0
    known = len(reference)
    if known < ENOUGH_SESSIONS:
        least = assumed * prior.session
        origin = "recorded in one sitting" if known == 1 else f"{known} sessions"
    else:
        least, origin = prior.least_session(process.value), f"estimated, {known} sessions"
    joined = with_prior(
        own**2, freedom, least, origin if known >= ENOUGH_SESSIONS else f"prior, {origin}"
    )
    # An estimate from few sessions is zero half of the time, also where they do differ; what is larger stands.
    return (
        replace(joined, value=own, origin=f"estimated, {known} sessions")
        if own > joined.value
        else joined
    )


def with_prior(variance: float, freedom: float, assumed: float, origin: str) -> Spread:
    """A variance that few have told, joined with a spread that is assumed as if more had told it."""
    joined = (freedom * variance + PRIOR_FREEDOM * assumed**2) / (freedom + PRIOR_FREEDOM)
    told = origin if origin.startswith("prior") else f"{origin}, with prior"
    return Spread(math.sqrt(joined), told, freedom + PRIOR_FREEDOM)


def lend(prior: Prior, tests: Sequence[Sequence[Group]], kind: str = "device") -> Prior:
    """A prior from the references of all tests of a class: what each lends to the others, from eight of them on.

    Args:
        kind: of the class, for what counts as another mode.
    """
    joined = [sittings(groups) for groups in tests]
    several = [groups for groups in joined if within(groups)[1]]
    alone = [groups for groups in joined if len(groups) > 1 and not within(groups)[1]]
    found = borrow(
        prior, [(squares / freedom, freedom) for squares, freedom in map(within, several)]
    )
    if len(alone) >= ENOUGH_TESTS:
        told = [(square, freedom) for square, freedom, _ in map(between_sessions, alone)]
        total = borrow(replace(prior, freedom=PRIOR_FREEDOM), told)
        found = (
            replace(found, total=Spread(total.process, total.origin, total.freedom))
            if total.borrowed
            else found
        )
    return replace(
        found, lent=_lent_sessions(found, several), strange=_strange(joined, STRANGE[kind])
    )


def _lent_sessions(prior: Prior, tests: Sequence[Sequence[Group]]) -> tuple[float, float]:
    """What tests show together between sessions, and that as a multiple of what they show between processes.

    One test's estimate from three sessions is zero half of the time; the mean of many is not.
    """
    # Sessions on as many devices tell nothing of how sessions differ.
    usable = [
        groups for groups in tests if len(groups) >= ENOUGH_SESSIONS and between_sessions(groups)[1]
    ]
    if len(usable) < ENOUGH_TESTS:
        return 0.0, 0.0
    absolute, relative, total = 0.0, 0.0, 0
    for groups in usable:
        mean_square, freedom, count = between_sessions(groups)
        squares, known = within(groups)
        process = with_lent(squares, known, prior, "").value ** 2
        absolute += freedom * (mean_square - squares / known) / count
        relative += freedom * (mean_square / process - 1) / count
        total += freedom
    return math.sqrt(max(0.0, absolute / total)), math.sqrt(max(0.0, relative / total))


def _strange(tests: Sequence[Sequence[Group]], apart: float) -> float:
    """The share of all processes that lie further above the middle of their test than a mode's width."""
    if len(tests) < ENOUGH_TESTS:
        return 0.0
    found = count = 0
    for groups in tests:
        logs = [value for group in groups for value in group.logs]
        middle = median(logs)
        found += sum(value - middle > math.log1p(apart) for value in logs)
        count += len(logs)
    return found / count


def borrow(prior: Prior, estimates: Sequence[tuple[float, int]]) -> Prior:
    """A prior from the other tests of a run: the distribution that their variances come from.

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
