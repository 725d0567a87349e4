"""The difference between two sides of a comparison, in log seconds, and its standard error.

Var = σ_p² (1/n + 1/m) + σ_s² (1/N + 1/M) for n new processes in N sessions against m in M, with σ_g² added where the
other side is another device. Estimated spreads give it Satterthwaite's degrees of freedom.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from scipy import special

from ..core.verdicts import Difference, Group, Spread, finite_or_infinite
from .spread import (
    ASSUMED_SESSION,
    ENOUGH_SESSIONS,
    LEAST_SHARE_ALONE,
    LEAST_SPREAD,
    PRIOR_FREEDOM,
    SEPARATION_LEVEL,
    Prior,
    between_sessions,
    join_assumed,
    join_days,
    join_prior,
    within,
)

# The confidence of intervals that are printed, and of whatever is called sure.
CONFIDENCE = 0.99
# e to this is a million. A bound so far out says that nothing is known.
MOST_LOGS = 14.0


def bound_of(difference: Difference, confidence: float) -> float:
    """Return the distance of a one-sided bound from the estimate."""
    return quantile(confidence, difference.degrees) * difference.error


def interval_of(difference: Difference, confidence: float) -> tuple[float, float]:
    """Return a two-sided interval of the difference, in log seconds."""
    half = bound_of(difference, (1 + confidence) / 2)
    return difference.estimate - half, difference.estimate + half


def p_slower_than(difference: Difference, shift: float) -> float:
    """Return the one-sided p of "at most `shift` log seconds slower".

    The smaller it is, the surer the new side is slower by more than that.
    """
    score = (shift - difference.estimate) / difference.error
    if difference.freedom is None:
        return float(special.ndtr(score))
    return float(special.stdtr(difference.freedom, score))


def times_as_fast(
    new_s: Sequence[float], reference_s: Sequence[float], prior: Prior
) -> tuple[float, float, float]:
    """Return the speedup of new processes with its 99 % interval.

    Both sides are of one session. As in a verdict, the prior is joined with the spread that the
    processes show.
    """
    compared = difference([Group(tuple(new_s))], [Group(tuple(reference_s))], prior)
    low, high = interval_of(compared, CONFIDENCE)
    return math.exp(-compared.estimate), math.exp(-high), math.exp(-low)


def growth(logs: float) -> float:
    """Return a difference in log seconds as a share of the time.

    It is capped at about a million, so that an unbounded difference can still be written.
    """
    return math.expm1(min(logs, MOST_LOGS))


def quantile(probability: float, freedom: float) -> float:
    """Return a quantile of Student's t.

    It is that of the normal distribution where the degrees of freedom are infinite.
    """
    return float(
        special.ndtri(probability) if math.isinf(freedom) else special.stdtrit(freedom, probability)
    )


@dataclass(frozen=True, slots=True)
class Spreads:
    """Standard deviations of both sides of a comparison, as they are believed.

    Args:
        process: between processes of the reference; `new` that between new processes.
        session: between sessions; `known` is the part of it that is assumed and costs no degrees of freedom.
        own_session: between sessions, as estimated without a prior.
        hidden: as in `Difference`.
        alone: whether the reference's sessions hold one process each, so that `process` includes the spread between
            sessions.
    """

    process: Spread
    new: Spread
    session: Spread
    known: float = 0.0
    own_session: float = 0.0
    hidden: float = 0.0
    alone: bool = False


def difference(new: Sequence[Group], reference: Sequence[Group], prior: Prior) -> Difference:
    """Return the difference between new processes and a reference.

    Each side has at least one session with one process. Where the reference holds sessions of all
    devices of the new side, only those are compared; the spreads are still estimated from all.
    Otherwise all are compared, and the spread between devices is added.
    """
    reference, new = join_days(reference), _new_sessions(new)
    devices = {group.device for group in new}
    is_paired = devices <= {group.device for group in reference}
    compared = [group for group in reference if group.device in devices or not is_paired]
    spreads = spreads_of(new, reference, prior)
    new_centre, old_centre = centre_of(new), centre_of(compared)
    # The factor of the variance between sessions: 1/N + 1/M, or 1/N where `process` includes that of the reference.
    session_factor = 1 / new_centre.sessions + (0 if spreads.alone else 1 / old_centre.sessions)
    # The estimated parts of the variance, each with its degrees of freedom.
    parts = _process_parts(spreads, new_centre.processes, old_centre.processes)
    device = None
    if not is_paired:
        device = device_spread(compared, prior)
        parts.append((device.value**2 * (new_centre.device + old_centre.device), device.degrees))
    session_variance = spreads.session.value**2 * session_factor
    variance = math.fsum(part for part, _ in parts) + session_variance
    # The part of the spread between sessions that is assumed costs no degrees of freedom.
    estimated_part = session_variance - spreads.known**2 * session_factor
    parts.append((estimated_part, spreads.session.degrees))
    return Difference(
        estimate=new_centre.value - old_centre.value,
        error=math.sqrt(variance),
        freedom=_none_if_infinite(_freedom(variance, parts)),
        process=spreads.new,
        session=spreads.session,
        new_s=math.exp(new_centre.value),
        reference_s=math.exp(old_centre.value),
        device=device,
        paired=is_paired and devices != {""},
        unequal=spreads.new is not spreads.process,
        hidden=spreads.hidden,
        parts=tuple((part, _none_if_infinite(freedom)) for part, freedom in parts),
    )


def _process_parts(
    spreads: Spreads, new_processes: int, old_processes: int
) -> list[tuple[float, float]]:
    """Return the parts of a difference's variance that lie between processes.

    There is one for each side, with its degrees of freedom; one for both if they share an estimate.
    """
    new_part = spreads.new.value**2 / new_processes
    old_part = spreads.process.value**2 / old_processes
    if spreads.new is spreads.process:
        return [(math.fsum((new_part, old_part)), spreads.process.degrees)]
    return [(new_part, spreads.new.degrees), (old_part, spreads.process.degrees)]


def _freedom(variance: float, parts: Sequence[tuple[float, float]]) -> float:
    """Return Satterthwaite's degrees of freedom of a variance.

    `parts` are its estimated parts, each with its degrees of freedom.
    """
    denominator = math.fsum(part**2 / freedom for part, freedom in parts)
    return variance**2 / denominator if denominator else math.inf


def _none_if_infinite(freedom: float) -> float | None:
    """Return degrees of freedom as a record holds them: None for infinite."""
    return None if math.isinf(freedom) else freedom


def _new_sessions(new: Sequence[Group]) -> tuple[Group, ...]:
    """Return the sessions of the new side.

    Sessions of one day are joined, and so are all sessions of a device without a date.
    """
    sessions = [group for group in join_days(new) if group.started]
    for device in dict.fromkeys(group.device for group in new):
        undated = [group for group in new if group.device == device and not group.started]
        medians_s = tuple(median_s for group in undated for median_s in group.medians_s)
        sessions += [Group(medians_s, device)] if medians_s else []
    return tuple(sessions)


def spreads_of(new: Sequence[Group], reference: Sequence[Group], prior: Prior) -> Spreads:
    """Return the spreads of both sides, assumed where unknown.

    What can be estimated depends on the reference: sessions of one process each do not tell the spread between
    processes from that between sessions, and fewer than three sessions hardly show the latter.
    """
    _, within_freedom = within(reference)
    _, between_freedom, _ = between_sessions(reference)
    if between_freedom and not within_freedom:
        return _spreads_of_single_processes(new, reference, prior)
    if len(reference) < ENOUGH_SESSIONS:
        return _spreads_of_few_sessions(new, reference, prior)
    return _spreads_of_sessions(new, reference, prior)


def _spreads_of_sessions(new: Sequence[Group], reference: Sequence[Group], prior: Prior) -> Spreads:
    """Return the spreads of a reference of three sessions or more.

    The spread between its sessions is no less than what other tests make one believe.
    """
    # Both sides show the spread between processes; only the reference is sure to have enough sessions for theirs.
    squares, freedom = within([*new, *reference])
    process = join_prior(squares, freedom, prior, "estimated")
    variance, session_freedom = _session_variance(reference, process)
    least = prior.least_session(process.value)
    origin = f"estimated, {len(reference)} sessions"
    session = join_assumed(variance, session_freedom, least, origin)
    session = replace(session, value=max(session.value, least))
    return Spreads(process, process, session, known=prior.session, own_session=math.sqrt(variance))


def _spreads_of_few_sessions(
    new: Sequence[Group], reference: Sequence[Group], prior: Prior
) -> Spreads:
    """Return the spreads from sessions of one or two days.

    New processes that spread more than both sides together have a spread of their own.
    """
    squares, freedom = within([*new, *reference])
    process = join_prior(squares, freedom, prior, "estimated")
    new_squares, new_freedom = within(new)
    new_process = process
    if new_freedom and new_squares / new_freedom > process.value**2:
        new_deviation = math.sqrt(new_squares / new_freedom)
        new_process = Spread(new_deviation, "estimated, new processes", new_freedom)
    variance, session_freedom = _session_variance(reference, process)
    assumed, deviation_of_sessions = ASSUMED_SESSION * prior.session, math.sqrt(variance)
    sessions = f"{len(reference)} sessions" if len(reference) > 1 else "recorded within six hours"
    origin = f"estimated, {sessions}" if deviation_of_sessions > assumed else f"prior, {sessions}"
    session = Spread(max(assumed, deviation_of_sessions), origin, PRIOR_FREEDOM + session_freedom)
    return Spreads(process, new_process, session, own_session=deviation_of_sessions)


def _session_variance(reference: Sequence[Group], process: Spread) -> tuple[float, int]:
    """Return the variance between sessions with its degrees of freedom.

    The mean square between sessions also holds the spread between processes, `process`, which is removed.
    """
    mean_square, freedom, count = between_sessions(reference)
    return max(0.0, mean_square - process.value**2) / count, freedom


def _spreads_of_single_processes(
    new: Sequence[Group], reference: Sequence[Group], prior: Prior
) -> Spreads:
    """Return the spreads of a reference whose sessions hold one process each.

    How far such sessions lie apart shows the spread between processes and that between sessions together.
    """
    origin, prior = "estimated from sessions of one process", prior.of_total
    mean_square, freedom, _ = between_sessions(reference)
    squares = mean_square * freedom
    total = join_prior(squares, freedom, prior, origin)
    new_squares, new_freedom = within(new)
    # The new side has several sessions, which hold one process each, too.
    new_is_like_reference = len(new) > 1 and not new_freedom
    if new_is_like_reference:
        new_square, new_freedom, _ = between_sessions(new)
        new_squares = new_square * new_freedom
    # The spread that both sides show together.
    pooled = join_prior(squares + new_squares, freedom + new_freedom, prior, origin)
    # The part of `pooled` that lies between sessions matters once a new session holds several processes.
    least = max(prior.session, pooled.value * math.sqrt(LEAST_SHARE_ALONE))
    if new_is_like_reference or not new_freedom:
        session = Spread(0.0, "within the spread between processes")
        # Further processes of a single new session would not narrow this part of the spread.
        hidden = 0.0 if new_is_like_reference else least
        return Spreads(pooled, pooled, session, hidden=hidden, alone=True)
    new_square = max(LEAST_SPREAD**2, new_squares / new_freedom)
    session = Spread(least, f"estimated, {len(reference)} sessions", total.freedom)
    # New processes agree better than sessions of one process did: the excess lies between sessions.
    if special.fdtrc(total.degrees, new_freedom, total.value**2 / new_square) < SEPARATION_LEVEL:
        excess = math.sqrt(max(0.0, total.value**2 - new_square))
        session = replace(session, value=max(least, excess))
    return Spreads(pooled, pooled, session, known=least, alone=True)


def paired_difference(
    new_s: Sequence[float], reference_s: Sequence[float], prior: Prior
) -> Difference:
    """Return the difference of pairs: the t test of pairs.

    Each of two or more processes timed both sides, so what slows a process cancels. The spread of
    the pairs is joined with the prior only where that was borrowed from other tests.
    """
    # The log of such a ratio is the pair's difference in log seconds.
    pairs = Group(tuple(new / old for new, old in zip(new_s, reference_s, strict=True)))
    squares, freedom = within([pairs])
    estimated = Spread(
        max(LEAST_SPREAD, math.sqrt(squares / freedom)),
        f"estimated, {freedom} degrees of freedom",
        freedom,
    )
    spread = join_prior(squares, freedom, prior, "estimated") if prior.borrowed else estimated
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


def foreseen_error(now: Difference, count: int, processes: int) -> tuple[float, float]:
    """Return the standard error and freedom with so many processes.

    `processes` new ones of a session take the place of `count`. More of them narrow the part of the
    error that lies between processes, not that between sessions or devices.
    """
    further = processes - count
    # `hidden` is a spread between sessions that one process of the new session includes, and several do not.
    # The change of the variance, which is negative for more processes.
    change = now.process.value**2 * (1 / processes - 1 / count)
    hidden = now.hidden**2 if further > 0 else 0.0
    variance = max(now.error**2 + change + hidden, 1e-12)
    # The first part is that of the new processes.
    (part, freedom), *other_parts = (
        (part, finite_or_infinite(freedom)) for part, freedom in now.parts
    )
    return math.sqrt(variance), _freedom(
        variance, [(part + change, freedom + further), *other_parts]
    )


@dataclass(frozen=True, slots=True)
class Centre:
    """The mean of a side's processes, in log seconds.

    Args:
        processes: how many there are.
        sessions: how many sessions of equal size would give the same error.
        device: the factor of σ_g² in its variance.
    """

    value: float
    processes: int
    sessions: float
    device: float


def centre_of(groups: Sequence[Group]) -> Centre:
    """Return the mean of a side's processes; every process counts alike."""
    counts = [len(group.medians_s) for group in groups]
    processes = sum(counts)
    shares = [count / processes for count in counts]
    # `sessions` is the number of equally large sessions whose mean would vary as much. `device` is the factor by which
    # the variance between devices enters that of the mean.
    return Centre(
        value=math.fsum(log_s for group in groups for log_s in group.logs) / processes,
        processes=processes,
        sessions=1 / math.fsum(share**2 for share in shares),
        device=math.fsum(share**2 for share in _by_device(groups, shares).values()),
    )


def _by_device(groups: Sequence[Group], shares: Sequence[float]) -> dict[str, float]:
    """Return the sum of the shares of each device's sessions."""
    weights: dict[str, float] = {}
    for group, share in zip(groups, shares, strict=True):
        weights[group.device] = weights.get(group.device, 0.0) + share
    return weights


def device_spread(groups: Sequence[Group], prior: Prior) -> Spread:
    """Return the spread between devices, assumed for fewer than three."""
    logs_by_device: dict[str, list[float]] = {}
    for group in groups:
        logs_by_device.setdefault(group.device, []).extend(group.logs)
    centres = [fmean(logs) for logs in logs_by_device.values()]
    if len(centres) < ENOUGH_SESSIONS:
        devices_text = "1 device" if len(centres) == 1 else f"{len(centres)} devices"
        return Spread(prior.device, f"prior, {devices_text}")
    middle = fmean(centres)
    freedom = len(centres) - 1
    variance = math.fsum((centre - middle) ** 2 for centre in centres) / freedom
    if variance >= prior.device**2:
        return Spread(math.sqrt(variance), f"estimated, {len(centres)} devices", freedom)
    # Three devices that agree may do so by chance, so a small variance is joined with the assumed spread.
    return join_assumed(variance, freedom, prior.device, f"estimated, {len(centres)} devices")
