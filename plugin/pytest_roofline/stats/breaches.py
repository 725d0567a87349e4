"""The distance of a time from a limit, its certainty, and a remedy where that is open.

A limit says how fast one machine has to be: of several devices each is held against it alone, and the worst stands.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..core.reasons import Reason, ReasonCode
from ..core.verdicts import Group, Spread
from .limits import Limit
from .looks import FEWEST_RED, MOST_ROUNDS, WORTHWHILE, Looks, rounds_for
from .outlook import PLAY
from .spread import Prior, join_days, within
from .stats import CONFIDENCE, centre_of, quantile, spreads_of

# A first process is sure by itself where it would be with processes so many times as far apart as is assumed: half the
# speed needs no second one.
FAR_APART = 5


@dataclass(frozen=True, slots=True)
class Breach:
    """New processes of one device held against a limit."""

    limit: Limit
    estimate: float
    error: float
    freedom: float
    process: Spread
    processes: int
    sessions: int
    share: float
    device: str = ""
    devices: int = 1
    missed: int = 1

    @property
    def sure(self) -> bool:
        """Return True where the time surely lies beyond the limit.

        The confidence is 99 %, paid for over the looks; the limit itself has no error.
        """
        if self.estimate > FAR_APART * _bound(1.0, self.freedom) * self.error:
            return True
        return self.share > 0 and self.estimate > _bound(self.share, self.freedom) * self.error

    @property
    def interval(self) -> tuple[float, float]:
        """Return the two-sided 99 % interval of the estimate, in log seconds."""
        half = _bound(1.0, self.freedom) * self.error
        return self.estimate - half, self.estimate + half

    def reason(self, code: ReasonCode, **numbers: int | float) -> Reason:
        """Return a reason with the evidence of the estimate."""
        evidence = {"spread": self.process.value, "devices": self.devices, "missed": self.missed}
        texts = {"device": self.device, "origin": self.process.origin}
        return Reason(code, evidence | numbers, texts)

    def error_at(self, processes: int) -> float:
        """Return the standard error with so many processes."""
        variance = self.error**2 + self.process.value**2 * (1 / processes - 1 / self.processes)
        return math.sqrt(max(variance, 1e-12))


def hold(
    limits: Sequence[Limit], medians: Sequence[Group], prior: Prior, looks: Looks
) -> list[Breach]:
    """Return the breach of each limit, the sure and largest first."""
    breaches = [_worst_breach(limit, limit.new or medians, prior, looks) for limit in limits]
    return sorted(breaches, key=lambda breach: (not breach.sure, -breach.estimate))


def _worst_breach(limit: Limit, new: Sequence[Group], prior: Prior, looks: Looks) -> Breach:
    devices = dict.fromkeys(group.device for group in new)
    breaches = [
        _breach(limit, [group for group in new if group.device == device], prior, looks)
        for device in devices
    ]
    worst = max(breaches, key=lambda breach: (breach.sure, breach.estimate))
    missed = sum(breach.estimate > 0 for breach in breaches)
    return worst if len(breaches) == 1 else replace(worst, devices=len(breaches), missed=missed)


def _breach(limit: Limit, new: Sequence[Group], prior: Prior, looks: Looks) -> Breach:
    centre = centre_of(new)
    spreads = spreads_of([], join_days(new), prior)
    process = spreads.process
    # What is assumed of sessions is known no better than what is assumed of processes.
    session = 0.0 if spreads.alone else max(prior.session, spreads.own_session)
    within_s, between_s = process.value**2 / centre.processes, session**2 / centre.sessions
    is_due = looks.due(centre.processes)
    # Not red by what is merely assumed of one process where a second may follow.
    fewest = min(FEWEST_RED, centre.processes if looks.ended else looks.most)
    process_assumed = within(new)[1] == 0 and len(new) == 1 and looks.most > 1 and not looks.ended
    may_be_red = is_due and not process_assumed and centre.processes >= fewest
    return Breach(
        limit=limit,
        estimate=centre.value - math.log(limit.of.seconds),
        error=math.sqrt(within_s + between_s),
        freedom=process.degrees,
        process=process,
        processes=centre.processes,
        sessions=len(new),
        share=1 / looks.red_looks(fewest) if may_be_red else 0.0,
        device=new[0].device,
    )


def _bound(share: float, freedom: float) -> float:
    """Return the bound of the estimate, in standard errors.

    `share` is the part of the chance of error that may be spent.
    """
    return quantile(1 - share * (1 - CONFIDENCE) / 2, freedom)


def open_reasons(breach: Breach, looks: Looks) -> tuple[Reason, ...]:
    """Return why a limit is undecided, with a remedy."""
    if breach.interval[0] <= 0:
        return breach.reason(ReasonCode.MAY_MISS_LIMIT), _remedy(breach, looks)
    least = min(FEWEST_RED, looks.most)
    if breach.processes < least:
        return (breach.reason(ReasonCode.LIMIT_NEEDS_PROCESSES, least=least),)
    return breach.reason(ReasonCode.LIMIT_UNSURE), _remedy(breach, looks)


def _remedy(breach: Breach, looks: Looks) -> Reason:
    for processes in WORTHWHILE:
        plan = looks if processes <= looks.most else Looks(max(MOST_ROUNDS, looks.most))
        if processes > breach.processes and _decides(breach, plan, processes, breach.estimate):
            return Reason(ReasonCode.NEEDS_ROUNDS, {"processes": rounds_for(processes)})
    return Reason(ReasonCode.FEW_NEAR_LIMIT, {"sessions": breach.sessions})


def _decides(breach: Breach, looks: Looks, processes: int, estimate: float) -> bool:
    """Return True where so many processes with this estimate would be red."""
    fewest = min(FEWEST_RED, looks.most)
    freedom = breach.freedom + processes - breach.processes
    bound = _bound(1 / looks.red_looks(fewest), freedom)
    return processes >= fewest and estimate > bound * breach.error_at(processes)


def may_decide(breach: Breach, looks: Looks) -> bool:
    """Return True where the last look could still be red or green.

    The processes to come may move the centre by one standard error.
    """
    count, most = breach.processes, looks.most
    if count >= most or looks.ended:
        return False
    if not looks.due(count):
        return True
    play = PLAY * breach.process.value * math.sqrt(1 / count - 1 / most)
    return breach.estimate <= play or _decides(breach, looks, most, breach.estimate + play)
