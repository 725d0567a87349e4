"""Cards of one machine held against each other: one that is surely slower than its siblings is named.

Each is held against the median of the others, in the same process and taken in turns, so that no published figure and
no recorded baseline is needed. How far siblings lie apart is what the others show, joined with what is assumed of
their kind (`outliers.scale_of`); of two camps, as on two sockets, neither is called slow. A link is held against
those that share no end with it, where there are four: a slow card is at the end of a quarter of all links of eight.

Named is one whose estimate lies beyond 6 %, and beyond the one-sided 99 % bound of Student's t, paid for as often as
there are siblings (Bonferroni). Where the estimate lies beyond 6 % and the bound is not reached, further processes
decide, as long as what is open is the spread between processes and not that between cards.

By simulation (tests/stats/test_siblings.py), with 1 % between processes, and between eight cards 1 % in memory and
5 % over the host's link and in a matrix product: of equal cards any is named in 6 of 10 000 suites of four tests. A
memory that takes 1.1 times as long is named 85 times in 100 from one process, 97 from two, 99 from up to twelve; a link
that takes 1.4 times as long 81 times in 100, and one of half the rate always.
All equally slow are not told from all equally fast: that is what floors and baselines are for.

Elsewhere: `plugin/in_process.py` measures each in turns, `engine/quiet.py` names those of a device,
`plugin/timed.py` has them judged, and `baselines/reasons.py` has the sentences.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..core.keys import Key
from ..core.reasons import Reason, ReasonCode
from ..core.records import Measurement, rate
from ..core.verdicts import Kind, Subject, Verdict
from ..core.work import rate_suffix
from .outliers import scale_of
from .stats import CONFIDENCE, quantile

# Fewer than this say too little of how siblings lie apart.
FEWEST = 4
# From here on a card is slower than anybody should have to live with.
TOLERANCE = 0.06
# Between the names of a link's two ends.
BETWEEN = " to "
# Of a median of n values, its variance as a multiple of σ²/n.
MEDIAN_VARIANCE = math.pi / 2


@dataclass(frozen=True, slots=True)
class Assumed:
    """Standard deviations of log seconds that unchanged siblings are assumed to have: between cards and processes."""

    card: float
    process: float = 0.01

    def together(self, processes: int) -> float:
        """Return the standard deviation of the mean of so many processes."""
        return math.hypot(self.card, self.process / math.sqrt(processes))


# Clocks and power move a matrix product, sockets the host's link, and neither moves a memory or a link between cards.
STEADY, UNSTEADY = Assumed(0.01), Assumed(0.05)


@dataclass(frozen=True, slots=True)
class Sibling:
    """One card, or one link between two, with all of its processes."""

    measurement: Measurement
    medians_s: tuple[float, ...]
    invalid: tuple[Reason, ...] = ()

    @property
    def ends(self) -> set[str]:
        """Return the names of its devices."""
        return set(self.measurement.key.name.split(BETWEEN))

    @property
    def log_s(self) -> float:
        """Return the mean of its log-medians."""
        return math.fsum(map(math.log, self.medians_s)) / len(self.medians_s)


def assumed_of(key: Key) -> Assumed:
    """Return the assumed spreads of a measurement's siblings."""
    kind, between = rate_suffix(key.metric), key.hardware.devices not in (None, 1)
    return STEADY if kind == "traffic_GBps" or between else UNSTEADY


def judge_sibling(
    suspect: Sibling, siblings: Sequence[Sibling], left_out: Sequence[Reason] = ()
) -> Verdict:
    """Return the verdict on one of several siblings.

    `left_out` gives the reasons why processes of it do not count.
    """
    sound = _without_shared_end(suspect, [sibling for sibling in siblings if not sibling.invalid])
    subject = _subject(suspect, left_out)
    processes = len(suspect.medians_s)
    if suspect.invalid:
        return Verdict(
            Kind.INVALID,
            TOLERANCE,
            subject,
            reasons=suspect.invalid,
            processes=processes,
            siblings=len(sound),
        )
    if len(sound) < FEWEST - 1:
        numbers: dict[str, int | float] = {"siblings": len(siblings), "expected": FEWEST - 1}
        few = Reason(ReasonCode.FEW_SIBLINGS, numbers, {"device": suspect.measurement.device})
        return Verdict(
            Kind.INCONCLUSIVE,
            TOLERANCE,
            subject,
            reasons=(few,),
            processes=processes,
            siblings=len(sound),
            futile=True,
        )
    return _compare(suspect, sound, subject, times=len(siblings) + 1)


def _subject(suspect: Sibling, left_out: Sequence[Reason]) -> Subject:
    measurement = suspect.measurement
    return Subject(
        test_id=measurement.test_id,
        label=measurement.label,
        name=measurement.key.name,
        clock_hz=measurement.samples.clock_hz,
        left_out=tuple(left_out),
    )


def _without_shared_end(suspect: Sibling, siblings: list[Sibling]) -> list[Sibling]:
    """Return the links that share no end with a link.

    Fewer than four of them are no scale: then all links are returned.
    """
    separate = [sibling for sibling in siblings if not suspect.ends & sibling.ends]
    return separate if len(separate) >= FEWEST else siblings


def _compare(suspect: Sibling, sound: Sequence[Sibling], subject: Subject, times: int) -> Verdict:
    import numpy
    from scipy import special

    assumed = assumed_of(suspect.measurement.key)
    processes = min(len(sibling.medians_s) for sibling in (suspect, *sound))
    scale = scale_of(numpy.array([sibling.log_s for sibling in sound]), assumed.together(processes))
    estimate = suspect.log_s - scale.centre
    widened = math.sqrt(1 + MEDIAN_VARIANCE / len(sound))
    error = scale.spread * widened
    bound = quantile(1 - (1 - CONFIDENCE) / times, scale.freedom)
    half = quantile((1 + CONFIDENCE) / 2, scale.freedom) * error
    kind = _kind(estimate, bound * error)
    # What lies between cards stays, however many processes there are.
    futile = kind is Kind.INCONCLUSIVE and estimate <= bound * assumed.card * widened
    return Verdict(
        kind,
        TOLERANCE,
        subject,
        reasons=(_distance(suspect, math.exp(scale.centre), scale.spread),),
        estimate=estimate,
        interval=(estimate - half, estimate + half),
        p=float(special.stdtr(scale.freedom, -estimate / error)),
        processes=len(suspect.medians_s),
        new_medians_s=suspect.medians_s,
        siblings=len(sound),
        futile=futile,
    )


def _kind(estimate: float, bound: float) -> Kind:
    """Return the verdict word for an estimate and its one-sided bound.

    Both are in log seconds.
    """
    if estimate <= math.log1p(TOLERANCE):
        return Kind.PASSED
    return Kind.REGRESSED if estimate > bound else Kind.INCONCLUSIVE


def _distance(suspect: Sibling, siblings_s: float, spread: float) -> Reason:
    """Return how far a sibling lies from the others.

    Both are given as rates under the metric, as times where it has none.
    """
    measurement = suspect.measurement
    metric = measurement.key.metric
    times_s = math.exp(suspect.log_s), siblings_s
    rates = [rate(measurement.work, metric, seconds) for seconds in times_s]
    value, siblings_value = (per_second or 0.0 for per_second in rates) if all(rates) else times_s
    numbers = {"value": value, "siblings_value": siblings_value, "spread": spread}
    texts = {"device": measurement.device, "metric": metric if all(rates) else ""}
    return Reason(ReasonCode.AMONG_SIBLINGS, numbers, texts)


def unless_busy(verdict: Verdict, measurements: Sequence[Measurement]) -> Verdict:
    """Return the verdict, or INCONCLUSIVE where siblings used the same link."""
    busy = next(
        (
            measurement.siblings_busy
            for measurement in measurements
            if measurement.siblings_busy and not measurement.invalid
        ),
        "",
    )
    if not busy or verdict.kind in (Kind.NO_BASELINE, Kind.INVALID):
        return verdict
    reasons = (Reason(ReasonCode.SHARED_LINK, texts={"text": busy}),)
    return replace(verdict, kind=Kind.INCONCLUSIVE, reasons=reasons, p_spent=None, futile=True)
