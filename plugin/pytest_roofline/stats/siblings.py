"""Cards of one machine compared with each other: a card that is surely slower than its siblings is named.

Each is compared with the median of the others, in the same process and measured in turns, so that no published figure
and no recorded baseline is needed. The spread between siblings is what the others show, joined with the one assumed
for their kind (`outliers.scale_of`); of two camps, as on two sockets, neither is called slow. A link is compared with
those that share no end with it, where there are four: a slow card is at the end of a quarter of all links of eight.

A card is named if its estimate lies beyond 6 %, and beyond the one-sided 99 % bound of Student's t, whose chance of
error is shared among all siblings (Bonferroni). Where the estimate lies beyond 6 % but not beyond the bound, further
processes decide, unless the spread between cards alone leaves the verdict open.

By simulation (tests/stats/test_siblings.py), with 1 % between processes, and between eight cards 1 % in memory and
5 % over the host's link and in a matrix product: of equal cards any is named in 6 of 10 000 suites of four tests. A
memory that takes 1.1 times as long is named 85 times in 100 from one process, 97 from two, 99 from up to twelve; a link
that takes 1.4 times as long 81 times in 100, and one of half the rate always.
All equally slow are not told from all equally fast: that is what floors and baselines are for.

Elsewhere: `plugin/in_process.py` measures each in turns, `engine/quiet.py` names those of a device,
`plugin/judging.py` has them judged, and `baselines/reasons.py` has the sentences.
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

# Fewer siblings than this say too little of how far they lie apart.
FEWEST = 4
# From here on a card is slower than anybody should have to live with.
TOLERANCE = 0.06
# Stands between the names of a link's two ends.
BETWEEN = " to "
# The variance of a median of n values, as a multiple of σ²/n.
MEDIAN_VARIANCE = math.pi / 2


# Standard deviations of log seconds that unchanged siblings are assumed to have, between processes and between cards.
# Clocks and power move a matrix product, sockets move the host's link. Neither moves a memory or a link between cards.
PROCESS_SPREAD = 0.01
STEADY, UNSTEADY = 0.01, 0.05


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


def card_spread(key: Key) -> float:
    """Return the assumed spread between siblings, as a standard deviation of log seconds."""
    is_memory = rate_suffix(key.metric) == "traffic_GBps"
    is_between_cards = key.hardware.devices not in (None, 1)
    return STEADY if is_memory or is_between_cards else UNSTEADY


def judge_sibling(
    suspect: Sibling, siblings: Sequence[Sibling], left_out: Sequence[Reason] = ()
) -> Verdict:
    """Return the verdict on one of several siblings, which are like devices or links of a machine.

    It is compared with the others, of which there must be enough that can be trusted. `left_out` gives the reasons
    why some of its processes do not count.
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
    # The suspect itself is one of the fewest siblings.
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
    return _compare(suspect, sound, subject, comparisons=len(siblings) + 1)


def _subject(suspect: Sibling, left_out: Sequence[Reason]) -> Subject:
    """Return the subject of a verdict on a sibling."""
    measurement = suspect.measurement
    return Subject(
        test_id=measurement.test_id,
        label=measurement.label,
        name=measurement.key.name,
        clock_hz=measurement.samples.clock_hz,
        left_out=tuple(left_out),
    )


def _without_shared_end(suspect: Sibling, siblings: list[Sibling]) -> list[Sibling]:
    """Return the siblings that share no end with the suspect.

    Fewer than four of them are no scale: then all siblings are returned.
    """
    separate = [sibling for sibling in siblings if not suspect.ends & sibling.ends]
    return separate if len(separate) >= FEWEST else siblings


def _compare(
    suspect: Sibling, sound: Sequence[Sibling], subject: Subject, comparisons: int
) -> Verdict:
    """Return the verdict on a suspect against its sound siblings.

    The chance of error is shared among all `comparisons`, one for each sibling that is judged.
    """
    import numpy
    from scipy import special

    between_cards = card_spread(suspect.measurement.key)
    # The sibling with the fewest processes has the least exact mean: its error counts for all.
    processes = min(len(sibling.medians_s) for sibling in (suspect, *sound))
    # Means of processes differ by the spread between cards, and by what is left of that between processes.
    assumed = math.hypot(between_cards, PROCESS_SPREAD / math.sqrt(processes))
    scale = scale_of(numpy.array([sibling.log_s for sibling in sound]), assumed)
    estimate = suspect.log_s - scale.centre
    # The error of the siblings' median adds to the spread of one card.
    widening = math.sqrt(1 + MEDIAN_VARIANCE / len(sound))
    error = scale.spread * widening
    bound = quantile(1 - (1 - CONFIDENCE) / comparisons, scale.freedom)
    half = quantile((1 + CONFIDENCE) / 2, scale.freedom) * error
    kind = _kind(estimate, bound * error)
    # More processes do not reduce the spread between cards.
    futile = kind is Kind.INCONCLUSIVE and estimate <= bound * between_cards * widening
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
    """Return the distance of a sibling from the others, as a reason.

    Both sides are given as rates of the metric, or in seconds where it has no rate.
    """
    measurement = suspect.measurement
    metric = measurement.key.metric
    times_s = math.exp(suspect.log_s), siblings_s
    rates = [rate(measurement.work, metric, seconds) for seconds in times_s]
    # No rate is None where all are there; `or` says so to the type checker.
    value, siblings_value = (per_second or 0.0 for per_second in rates) if all(rates) else times_s
    numbers = {"value": value, "siblings_value": siblings_value, "spread": spread}
    texts = {"device": measurement.device, "metric": metric if all(rates) else ""}
    return Reason(ReasonCode.AMONG_SIBLINGS, numbers, texts)


def unless_busy(verdict: Verdict, measurements: Sequence[Measurement]) -> Verdict:
    """Return the verdict, or INCONCLUSIVE where siblings used the same link meanwhile.

    `siblings_busy` of a measurement tells of such use; measurements that do not count are skipped. A verdict of
    NO_BASELINE or INVALID stays.
    """
    busy_text = next(
        (
            measurement.siblings_busy
            for measurement in measurements
            if measurement.siblings_busy and not measurement.invalid
        ),
        "",
    )
    if not busy_text or verdict.kind in (Kind.NO_BASELINE, Kind.INVALID):
        return verdict
    reasons = (Reason(ReasonCode.SHARED_LINK, texts={"text": busy_text}),)
    return replace(verdict, kind=Kind.INCONCLUSIVE, reasons=reasons, p_spent=None, futile=True)
