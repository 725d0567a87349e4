"""The distance of a time from a limit, its certainty, and a remedy where that is open.

A limit says how fast one machine has to be: each of several devices is compared with it alone, and the worst counts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..core.reasons import Reason, ReasonCode
from ..core.verdicts import Group, Spread
from .analyses import FEWEST_RED, MOST_ROUNDS, SUGGESTED_COUNTS, Analyses, rounds_for
from .limits import Limit
from .outlook import PLAY
from .spread import Prior, join_days, within
from .stats import CONFIDENCE, centre_of, quantile, spreads_of

# A time may turn red after one process if it still would with processes so many times as far apart as is assumed: at
# half the speed no second process is needed.
FAR_APART = 5


@dataclass(frozen=True, slots=True)
class Breach:
    """New processes of one device compared with a limit.

    Args:
        estimate: log seconds by which their centre lies beyond the limit, with its standard `error`.
        freedom: degrees of freedom of that error.
        process: the spread between processes.
        share: the part of the chance of error that this interim analysis may spend; 0 where it may not be red.
        devices: how many devices were compared with the limit; `missed` is the number that lie beyond it.
    """

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
        """Return True where the new processes surely take longer than a published limit.

        The confidence of 99 % is shared among the interim analyses; the limit itself has no error.
        """
        # So far beyond that no spread between processes explains it: no further process is needed, even where this
        # analysis may not be red otherwise (`share` is 0).
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


def find_breaches(
    limits: Sequence[Limit], medians: Sequence[Group], prior: Prior, analyses: Analyses
) -> list[Breach]:
    """Return the breach of each limit, the sure and largest first.

    A limit that is kept has one too: its estimate is negative.

    Args:
        medians: the new processes by their medians, for limits that hold no processes summed up by another statistic.
    """
    breaches = [_worst_breach(limit, limit.new or medians, prior, analyses) for limit in limits]
    return sorted(breaches, key=lambda breach: (not breach.sure, -breach.estimate))


def _worst_breach(limit: Limit, new: Sequence[Group], prior: Prior, analyses: Analyses) -> Breach:
    """Return the breach of the device that is worst.

    Each device is compared with the limit alone. A sure breach is worse than a larger one.
    """
    devices = dict.fromkeys(group.device for group in new)
    breaches = [
        _breach(limit, [group for group in new if group.device == device], prior, analyses)
        for device in devices
    ]
    worst = max(breaches, key=lambda breach: (breach.sure, breach.estimate))
    # Of a single device no count is told.
    missed = sum(breach.estimate > 0 for breach in breaches)
    return worst if len(breaches) == 1 else replace(worst, devices=len(breaches), missed=missed)


def _breach(limit: Limit, new: Sequence[Group], prior: Prior, analyses: Analyses) -> Breach:
    """Return how far one device's processes lie beyond a limit."""
    centre = centre_of(new)
    # A limit has no processes, so the new ones take the place of a reference: they alone show the spreads.
    spreads = spreads_of([], join_days(new), prior)
    process = spreads.process
    # Where each session holds one process, `process` already includes the spread between sessions.
    session = 0.0 if spreads.alone else max(prior.session, spreads.own_session)
    variance = process.value**2 / centre.processes + session**2 / centre.sessions
    # Red needs three processes, as one of fewer may be strange; or all that the run takes.
    fewest = min(FEWEST_RED, centre.processes if analyses.ended else analyses.most)
    # The spread of a single process is merely assumed, so it may not be red where a second may follow.
    _, freedom_within = within(new)
    is_assumed = freedom_within == 0 and len(new) == 1
    must_wait = is_assumed and analyses.most > 1 and not analyses.ended
    may_be_red = analyses.due(centre.processes) and not must_wait and centre.processes >= fewest
    return Breach(
        limit=limit,
        estimate=centre.value - math.log(limit.time_limit.seconds),
        error=math.sqrt(variance),
        # The spread between sessions is assumed: it adds no degrees of freedom.
        freedom=process.degrees,
        process=process,
        processes=centre.processes,
        sessions=len(new),
        share=1 / analyses.red_analyses(fewest) if may_be_red else 0.0,
        device=new[0].device,
    )


def _bound(share: float, freedom: float) -> float:
    """Return the one-sided bound of the estimate, in standard errors.

    `share` is the part that may be spent of the chance of error, which is half of 1 %.
    """
    return quantile(1 - share * (1 - CONFIDENCE) / 2, freedom)


def open_reasons(breach: Breach, analyses: Analyses) -> tuple[Reason, ...]:
    """Return why a limit is undecided, with a remedy."""
    lower_end, _ = breach.interval
    # The interval reaches down to the limit, so the limit may be kept.
    if lower_end <= 0:
        return breach.reason(ReasonCode.MAY_MISS_LIMIT), _remedy(breach, analyses)
    least = min(FEWEST_RED, analyses.most)
    if breach.processes < least:
        return (breach.reason(ReasonCode.LIMIT_NEEDS_PROCESSES, least=least),)
    # The interval lies beyond the limit, but several analyses share the chance of error: each needs more certainty.
    return breach.reason(ReasonCode.LIMIT_UNSURE), _remedy(breach, analyses)


def _remedy(breach: Breach, analyses: Analyses) -> Reason:
    """Return how many rounds would show a sure breach, or that no number worth trying would."""
    for processes in SUGGESTED_COUNTS:
        # More processes than this run may take need the plan of a longer run.
        plan = analyses if processes <= analyses.most else Analyses(max(MOST_ROUNDS, analyses.most))
        if processes > breach.processes and _decides(breach, plan, processes, breach.estimate):
            return Reason(ReasonCode.NEEDS_ROUNDS, {"processes": rounds_for(processes)})
    return Reason(ReasonCode.FEW_NEAR_LIMIT, {"sessions": breach.sessions})


def _decides(breach: Breach, analyses: Analyses, processes: int, estimate: float) -> bool:
    """Return True where so many processes with this estimate would surely lie beyond the limit.

    The spread between processes stays the same; more of them narrow the error.
    """
    fewest = min(FEWEST_RED, analyses.most)
    freedom = breach.freedom + processes - breach.processes
    bound = _bound(1 / analyses.red_analyses(fewest), freedom)
    return processes >= fewest and estimate > bound * breach.error_at(processes)


def may_decide(breach: Breach, analyses: Analyses) -> bool:
    """Return True where the last analysis could still be red or green.

    The processes to come may move the centre by one standard error.
    """
    count, most = breach.processes, analyses.most
    if count >= most or analyses.ended:
        return False
    if not analyses.due(count):
        return True
    play = PLAY * breach.process.value * math.sqrt(1 / count - 1 / most)
    # Green: a centre that moves by `play` reaches the limit. Red: one that moves away is surely beyond it.
    return breach.estimate <= play or _decides(breach, analyses, most, breach.estimate + play)
