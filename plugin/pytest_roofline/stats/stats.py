"""The difference between two sides of a comparison, in log seconds, with the error that it has.

Var(mean) = σ_g² [if the other side is another device] + Σ w² (σ_s² + σ_p²/R) over sessions of R processes, weighted by
how well each session is known. Where spreads are estimated, Satterthwaite's degrees of freedom go with them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy import special

from .spread import (
    ENOUGH_SESSIONS,
    LEAST_SPREAD,
    Group,
    Prior,
    Spread,
    process_spread,
    session_spread,
    sittings,
    total_spread,
    unequal,
    with_prior,
    within,
)

# Of the intervals that are printed, and of what is said to be sure.
CONFIDENCE = 0.99
# e to this is a million: a bound so far out says that nothing is known.
MOST_LOGS = 14.0


@dataclass(frozen=True, slots=True)
class Difference:
    """How much slower one side is than the other, in log seconds; positive is slower.

    Args:
        freedom: of the t distribution that goes with it; infinite is the normal one.
        process: the spread between processes; of the new ones where the sides differ in it.
        device: the spread between devices; None where the same device is on both sides, or nothing tells them apart.
        paired: whether the reference holds this very device, and only that part of it was used.
        unequal: whether the new processes spread more than the reference's.
        worth: how many processes the reference is worth: 1/R in the error σ_p √(1/n + 1/R) of n new ones of a session,
            by its own spreads alone.
        new_s: centre of the new side, in seconds; `reference_s` that of the part of the reference that was used.
    """

    estimate: float
    error: float
    freedom: float
    process: Spread
    session: Spread
    new_s: float
    reference_s: float
    device: Spread | None = None
    paired: bool = False
    unequal: bool = False
    worth: float = 1.0

    def bound(self, confidence: float) -> float:
        """Half the width of a one-sided bound at `confidence`, to add to or take from the estimate."""
        return quantile(confidence, self.freedom) * self.error

    def interval(self, confidence: float) -> tuple[float, float]:
        """A two-sided interval of the difference."""
        half = self.bound((1 + confidence) / 2)
        return self.estimate - half, self.estimate + half

    def p_slower_than(self, shift: float) -> float:
        """One-sided p of "no more than `shift` slower"."""
        score = (shift - self.estimate) / self.error
        return float(
            special.ndtr(score) if math.isinf(self.freedom) else special.stdtr(self.freedom, score)
        )


def times_as_fast(
    new_s: Sequence[float], reference_s: Sequence[float], prior: Prior
) -> tuple[float, float, float]:
    """How many times as fast processes of these medians are as others of one session, with a 99 % interval.

    As in a verdict, of what few processes do not show the class of benchmark is assumed.
    """
    found = difference([Group(tuple(new_s))], [Group(tuple(reference_s))], prior)
    low, high = found.interval(CONFIDENCE)
    return math.exp(-found.estimate), math.exp(-high), math.exp(-low)


def growth(logs: float) -> float:
    """A difference in log seconds as a share of the time; where hardly anything is known, as much as can be written."""
    return math.expm1(min(logs, MOST_LOGS))


def quantile(probability: float, freedom: float) -> float:
    """Of Student's t; of the normal distribution where the degrees of freedom are infinite."""
    return float(
        special.ndtri(probability) if math.isinf(freedom) else special.stdtrit(freedom, probability)
    )


def difference(new: Sequence[Group], reference: Sequence[Group], prior: Prior) -> Difference:
    """The difference between new processes and a reference, each of at least one session with one process.

    Where the reference holds sessions of the new side's own device, or devices, only those are compared, paired; the
    spreads are still estimated from all. Where it does not know one of them, the spread between devices is added.
    """
    reference = sittings(reference)
    devices, known = {group.device for group in new}, {group.device for group in reference}
    same = devices <= known
    held = [group for group in reference if group.device in devices] if same else list(reference)
    apart = unequal(new, reference)
    process = apart[0] if apart else process_spread(new, reference, prior)
    before = apart[1] if apart else process
    session = session_spread(new, reference, before, prior)
    # Weights from the reference alone: what the new processes show must not move what they are held against.
    alone = process_spread([], reference, prior)
    weights = alone, session_spread([], reference, alone, prior)
    new_centre, old_centre = centre_of(new, *weights), centre_of(held, *weights)
    parts = [
        (process.value**2 * new_centre.process, process.freedom),
        (before.value**2 * old_centre.process, before.freedom),
        (session.value**2 * (new_centre.session + old_centre.session), session.freedom),
    ]
    if not apart:
        parts[:2] = [
            (process.value**2 * (new_centre.process + old_centre.process), process.freedom)
        ]
    total = (
        total_spread(reference, prior) if len(reference) > 1 and not within(reference)[1] else None
    )
    if total is not None and process.value < total.value:
        # The centre of sessions of one process each is known by their total spread, however that divides.
        parts = [
            (process.value**2 * new_centre.process, process.freedom),
            (total.value**2 * old_centre.process, total.freedom),
            (session.value**2 * new_centre.session, session.freedom),
        ]
    device = None
    if not same:
        device = device_spread(held, prior)
        parts.append((device.value**2 * (new_centre.device + old_centre.device), device.freedom))
    variance = math.fsum(part for part, _ in parts)
    doubt = math.fsum(part**2 / freedom for part, freedom in parts)
    return Difference(
        estimate=new_centre.value - old_centre.value,
        error=math.sqrt(variance),
        freedom=variance**2 / doubt if doubt else math.inf,
        process=process,
        session=session,
        new_s=math.exp(new_centre.value),
        reference_s=math.exp(old_centre.value),
        device=device,
        paired=same and devices != {""},
        unequal=apart is not None,
        worth=1
        / (
            old_centre.process
            + (weights[1].value / weights[0].value) ** 2 * (1 + old_centre.session)
        ),
    )


def paired_difference(
    new_s: Sequence[float], reference_s: Sequence[float], lent: Prior
) -> Difference:
    """The difference where each of two or more processes gave a time of both sides: the t test of pairs.

    What a process does to both goes out. How pairs differ is told by these alone, joined with what others lend.
    """
    pairs = Group(tuple(new / old for new, old in zip(new_s, reference_s, strict=True)))
    squares, freedom = within([pairs])
    own = Spread(
        max(LEAST_SPREAD, math.sqrt(squares / freedom)),
        f"estimated, {freedom} degrees of freedom",
        freedom,
    )
    spread = process_spread([pairs], [], lent) if lent.borrowed else own
    return Difference(
        estimate=fmean(pairs.logs),
        error=spread.value / math.sqrt(len(pairs.logs)),
        freedom=spread.freedom,
        process=spread,
        session=Spread(0.0, "the same session on both sides"),
        new_s=math.exp(fmean(map(math.log, new_s))),
        reference_s=math.exp(fmean(map(math.log, reference_s))),
        paired=True,
    )


def error_at(processes: int, error: float, spread: float, count: int) -> float:
    """The standard error with so many new processes in place of `count`, by the spread between them."""
    return math.sqrt(max(error**2 + spread**2 * (1 / processes - 1 / count), 1e-12))


@dataclass(frozen=True, slots=True)
class Centre:
    """The weighted mean of a side, with the factors on σ_p², σ_s² and σ_g² in its variance."""

    value: float
    process: float
    session: float
    device: float


def centre_of(groups: Sequence[Group], process: Spread, session: Spread) -> Centre:
    """The centre of a side whose sessions weigh as much as is known of each, by these spreads."""
    counts = [len(group.medians_s) for group in groups]
    weights = [1 / (session.value**2 + process.value**2 / count) for count in counts]
    total = math.fsum(weights)
    shares = [weight / total for weight in weights]
    return Centre(
        value=math.fsum(
            share * fmean(group.logs) for share, group in zip(shares, groups, strict=True)
        ),
        process=math.fsum(share**2 / count for share, count in zip(shares, counts, strict=True)),
        session=math.fsum(share**2 for share in shares),
        device=math.fsum(share**2 for share in _by_device(groups, shares).values()),
    )


def _by_device(groups: Sequence[Group], shares: Sequence[float]) -> dict[str, float]:
    weights: dict[str, float] = {}
    for group, share in zip(groups, shares, strict=True):
        weights[group.device] = weights.get(group.device, 0.0) + share
    return weights


def device_spread(groups: Sequence[Group], prior: Prior) -> Spread:
    """The spread between devices: of the reference's own where it holds three or more, else assumed."""
    means: dict[str, list[float]] = {}
    for group in groups:
        means.setdefault(group.device, []).extend(group.logs)
    centres = [fmean(logs) for logs in means.values()]
    if len(centres) < ENOUGH_SESSIONS:
        return Spread(prior.device, f"prior, {len(centres)} device{'s' * (len(centres) > 1)}")
    middle = fmean(centres)
    freedom = len(centres) - 1
    variance = math.fsum((centre - middle) ** 2 for centre in centres) / freedom
    if variance >= prior.device**2:
        return Spread(math.sqrt(variance), f"estimated, {len(centres)} devices", freedom)
    # As with sessions: three devices that agree may do so by chance.
    return with_prior(variance, freedom, prior.device, f"estimated, {len(centres)} devices")
