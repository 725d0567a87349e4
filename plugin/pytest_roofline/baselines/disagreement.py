"""Runs of unchanged code differ, but only so far: which of those that shall be one baseline lie apart from the rest.

Each session is held against all the others by the statistics of a verdict, with the spreads of the others, so that the
odd one cannot excuse itself by the spread that it makes. Runs that fall into two camps of equal size look like spread:
they are not refused, and what they make finds little, which `provisional` then says.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from scipy import special

from ..core.keys import Key
from ..stats.outlook import Reference
from ..stats.spread import PRIOR_FREEDOM, Group, Prior, Spread, priors, with_prior
from ..stats.stats import difference
from .comparators import class_of_key, prior_of

# Standard errors between a session and the others: of a whole run, by its middle test, and of a single test.
RUN_APART, TEST_APART = 4.0, 5.0
# Of a proposal whose runs are all honest: the chance that any run is refused, and that any test is left out. Where few
# processes stand behind the standard error, this asks for more of them than the above.
FALSE_ALARM = 0.005
# From so many degrees of freedom on, a spread between processes is believed as it was found.
MANY = 2 * PRIOR_FREEDOM
# The tests of a run share its hour, its node and its temperature: many of them agree on no more than a few do.
INDEPENDENT = 3


@dataclass(frozen=True, slots=True)
class Sessions:
    """The processes that measured one key, by the run that they belong to."""

    key: Key
    groups: Mapping[str, Group]


@dataclass(frozen=True, slots=True)
class Disagreement:
    """How far a session lies from the others.

    Args:
        run_id: whose it is.
        estimate: how much slower than the centre of the others, in log seconds: of several tests the median.
        errors: the same in standard errors, with the degrees of freedom of these.
        tests: over how many tests.
        others: against how many other sessions, at most.
    """

    run_id: str
    estimate: float
    errors: float
    freedom: float
    tests: int
    others: int


def runs_apart(tests: Sequence[Sessions]) -> list[Disagreement]:
    """The runs that disagree with the others over most of their tests, worst first, and how far from those that agree.

    One is set aside at a time, so that a run does not look odd beside the one that is. Where half of the runs or more
    come back, nobody can tell which of them are right. Runs that share no test with another are not judged.
    """
    left = list(dict.fromkeys(run_id for test in tests for run_id in test.groups))
    odd: list[str] = []
    while len(left) > 1:
        found = [one for run_id in left if (one := _run_apart(run_id, left, tests)) is not None]
        apart = [one for one in found if _is_apart(one, RUN_APART, _looks(len(left)))]
        if not apart:
            break
        odd.append(max(apart, key=lambda one: abs(one.errors)).run_id)
        left.remove(odd[-1])
    return [one for run_id in odd if (one := _run_apart(run_id, left, tests)) is not None]


def sessions_apart(tests: Sequence[Sessions]) -> list[Disagreement | None]:
    """Of each test the session that lies far from its others; None where they agree, or there is but one."""
    several = [test for test in tests if len(test.groups) > 1]
    assumed = _priors([(test.key, list(test.groups.values())) for test in several])
    looks = sum(_looks(len(test.groups)) for test in several)
    return [_session_apart(test, assumed[class_of_key(test.key)], looks) for test in tests]


def _session_apart(test: Sessions, prior: Prior, looks: int) -> Disagreement | None:
    found = []
    for run_id, group in test.groups.items():
        others = [other for name, other in test.groups.items() if name != run_id]
        if others and _is_apart(one := _distance(run_id, group, others, prior), TEST_APART, looks):
            found.append(one)
    return max(found, key=lambda apart: abs(apart.errors), default=None)


def _looks(sessions: int) -> int:
    """How many comparisons each session against its others are: of two sessions, both are the same one."""
    return sessions if sessions > 2 else 1


def _run_apart(run_id: str, among: Sequence[str], tests: Sequence[Sessions]) -> Disagreement | None:
    """How far the middle test of a run lies from those of the others; None where no test is of another one too."""
    rest = [(test, [test.groups[name] for name in among if name != run_id and name in test.groups]) for test in tests]
    known = [(test, others) for test, others in rest if others]
    assumed = _priors([(test.key, others) for test, others in known])
    found = [
        _distance(run_id, test.groups[run_id], others, assumed[class_of_key(test.key)])
        for test, others in known
        if run_id in test.groups
    ]
    if not found:
        return None
    estimate, errors, freedom = (
        median(getattr(one, name) for one in found) for name in ("estimate", "errors", "freedom")
    )
    return Disagreement(run_id, estimate, errors, freedom, len(found), max(one.others for one in found))


def _priors(known: Sequence[tuple[Key, Sequence[Group]]]) -> dict[str, Prior]:
    """What to assume of each class: the starting value, or what the many tests of the other runs tell."""
    references = [(key, Reference(tuple(groups), "")) for key, groups in known]
    return {kind: prior_of(references, kind) for kind in priors()}


def _distance(run_id: str, group: Group, others: Sequence[Group], prior: Prior) -> Disagreement:
    """How far a session lies from the others: the difference of a verdict, its spreads taken more carefully.

    A verdict may trust processes and sessions that happened to agree. Here nothing is trusted yet: the spread between
    sessions is at least the prior, and what few of either tell is joined with it.
    """
    found = difference([group], others, prior)
    freedom = found.process.freedom
    if freedom < MANY and not found.unequal:
        joined = difference([group], others, replace(prior, borrowed=True))
        freedom = joined.process.freedom
        found = max(found, joined, key=lambda one: one.process.value)
    held = sum(other.device == group.device for other in others) or len(others)
    session = _joined(found.session, prior.least_session(found.process.value))
    variance = found.error**2 + (session.value**2 - found.session.value**2) * (1 + 1 / held)
    known = [freedom, session.freedom, found.device.freedom if found.device else math.inf]
    # The least of all degrees of freedom: Satterthwaite's would count on a spread that came out small by luck.
    return Disagreement(run_id, found.estimate, found.estimate / math.sqrt(variance), min(known), 1, held)


def _joined(session: Spread, assumed: float) -> Spread:
    """The spread between sessions that some sessions tell, with what is assumed as if as many more had told it."""
    if math.isinf(session.freedom) or session.value <= assumed:
        return Spread(assumed, "prior")
    # A verdict lets what the sessions tell stand alone where it is larger, with the freedom of both.
    return with_prior(session.value**2, session.freedom - PRIOR_FREEDOM, assumed, "estimated")


def _is_apart(found: Disagreement, limit: float, looks: int) -> bool:
    """Whether the middle test lies beyond `limit` standard errors, and chance is no excuse."""
    errors, freedom = abs(found.errors), found.freedom
    tail = float(special.ndtr(-errors) if math.isinf(freedom) else special.stdtr(freedom, -errors))
    counted = min(found.tests, INDEPENDENT)
    # At least half of the tests lie that far out, all on the same side.
    chance = 2 * float(special.bdtrc(math.ceil(counted / 2) - 1, counted, tail))
    return errors > limit and chance <= FALSE_ALARM / looks
