"""The verdict of two sides that ran in turn: fresh processes in blocks A B B A and B A A B, on one device, in one hour.

Log seconds are a block's own level, what side B adds, what a hidden second A adds, and a straight drift, by ordinary
least squares. So a session's offset goes out with the blocks, a drift cancels within each, and what is left between
processes is the error. A test's own spread is joined with what the other tests of the run show.
"""

import functools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from ..core.reasons import Reason, ReasonCode
from ..core.verdicts import Difference, Kind, Spread, Verdict
from .looks import FALSE_RED, FEWEST_TESTS, LATER_LEVELS, WORTHWHILE
from .outlook import WORTH_REPORTING, detectable
from .spread import LEAST_SPREAD, Prior, borrow, priors, with_lent
from .stats import CONFIDENCE, bound_of, interval_of, p_slower_than, quantile
from .verdicts import kind_unless_red, settle, would_decide

Floats = npt.NDArray[np.float64]
Arm = Literal["A", "B", "control"]

ORDERS: tuple[tuple[Arm, ...], ...] = (("A", "B", "B", "A"), ("B", "A", "A", "B"))
# A block holds two processes a side, or what is left of them.
A_SIDE = 2
# Before so many blocks nothing is decided.
FEWEST_BLOCKS = 2
# Of processes in two modes, each as likely as the other, four a side are parted just as the sides are once in 256
# tests, eight a side once in 65,536: fewer turn nothing red, unless all tests of the run spread alike.
FEWEST_BLOCKS_RED = 4
# How far the blocks to come may move the estimate, in standard errors, before a test is given up.
PLAY = 2.0
# Of tests that spreads are alike, in all and in the widest: modes, tails and outliers make them small.
ALIKE = 0.005


@dataclass(frozen=True, slots=True)
class TimedProcess:
    """One fresh process of an arm; `control` is a second A.

    Args:
        seconds: its centre.
        at: its place in the run, for the drift.
    """

    arm: Arm
    seconds: float
    at: float = 0.0


Block = Sequence[TimedProcess]


@dataclass(frozen=True, slots=True)
class Paired:
    """What is said of one test.

    Args:
        verdict: B against A, in logs; positive is slower. Its `processes` are those of B.
        control: the second A against A, in logs; None where none ran.
        open: whether further blocks could decide.
    """

    verdict: Verdict
    control: float | None
    open: bool


@dataclass(frozen=True, slots=True)
class _Looks:
    """The looks at a run of at most so many blocks: one after each, and each has a chance of error of its own.

    Args:
        ended: whether this look is the last although more were planned.
    """

    most: int
    ended: bool = False

    def share(self, fewest: int) -> float:
        """Return the share of a chance that one look may take, where the first is after so many blocks."""
        return 1 / max(1, self.most - fewest + 1)


@dataclass(frozen=True, slots=True)
class _Design:
    """What a set of processes can tell.

    Args:
        difference: [processes], the weights of log seconds in B against A; `control` those in the second A against A.
        residual: [processes, processes], what takes the model out.
        worth: processes a side that would tell as much in whole blocks; `freedom` those of the error.
    """

    difference: Floats
    control: Floats | None
    residual: Floats
    worth: float
    freedom: int


@dataclass(frozen=True, slots=True)
class _Told:
    """What the processes of one test say by themselves; `squares` is the sum of those of the errors."""

    design: _Design
    logs: Floats
    squares: float
    seconds: dict[Arm, list[float]]

    def beyond(self, spread: float) -> float:
        """The chance that processes so far apart show at least these errors."""
        return float(special.chdtrc(self.design.freedom, self.squares / spread**2))

    @property
    def control(self) -> float | None:
        """The second A against A, in logs."""
        return None if self.design.control is None else float(self.design.control @ self.logs)

    @property
    def blocks(self) -> int:
        """Whole blocks that would tell as much."""
        return math.floor(self.design.worth / A_SIDE + 1e-6)


def judge_paired(
    tests: Mapping[str, Sequence[Block]],
    tolerances: Mapping[str, float],
    most: int,
    *,
    ended: bool = False,
) -> dict[str, Paired]:
    """All tests of a run after some blocks.

    A block in which a side is missing tells nothing of the difference and is left out.

    Args:
        tests: of each, its blocks; `tolerances` of each, as a share of time.
        most: how many processes a side the run may take.
        ended: whether this look is the last although more were planned.
    """
    told = {name: _told(blocks) for name, blocks in tests.items()}
    lent, alike = _lent([one for one in told.values() if one is not None])
    looks = _Looks(max(1, most // A_SIDE), ended)
    fewest = FEWEST_BLOCKS if alike else FEWEST_BLOCKS_RED
    alone, wanted = {}, {}
    for name, one in told.items():
        if one is None:
            arms = [each.arm for block in tests[name] for each in block]
            wanted[name] = max(arms.count("A"), arms.count("B")) < most and not ended
            alone[name] = Verdict(
                Kind.INCONCLUSIVE, tolerances[name], reasons=(Reason(ReasonCode.NO_WHOLE_BLOCK),)
            )
            continue
        # What is as good as known of all does not hold of a test whose own processes rule it out.
        mine = lent if lent.borrowed and not (alike and one.beyond(lent.process) < ALIKE) else None
        alone[name] = _judge(one, mine, tolerances[name], looks, fewest)
        more = one.blocks < looks.most and not ended
        wanted[name] = more and _may_decide(alone[name], one, looks, fewest, len(tests))
    found = {}
    for name, verdict in settle(alone, len(tests)).items():
        one, still = told[name], verdict.kind is Kind.INCONCLUSIVE
        if one is not None and still:
            reasons = _reasons(verdict, one.blocks, len(tests), final=not wanted[name])
            verdict = replace(verdict, reasons=reasons)
        found[name] = Paired(
            verdict, one.control if one is not None else None, wanted[name] and still
        )
    return found


def order_of_blocks(blocks: int, seed: int) -> list[tuple[Arm, ...]]:
    """The order of each block's processes.

    Of every two blocks one, drawn, begins with A and one with B; of every four whole ones the first or the second,
    drawn, holds a control in its middle, where a drift does not reach it.
    """
    drawn = random.Random(seed)
    orders: list[tuple[Arm, ...]] = []
    for start in range(0, blocks, 4):
        group = [order for _ in range(2) for order in drawn.sample(ORDERS, 2)]
        if start + 4 <= blocks:
            place = drawn.randrange(2)
            group[place] = (*group[place][:2], "control", *group[place][2:])
        orders += group
    return orders[:blocks]


def _told(blocks: Sequence[Block]) -> _Told | None:
    """What the blocks with both sides say; None where that is nothing."""
    whole = [block for block in blocks if {"A", "B"} <= {one.arm for one in block}]
    taken = [one for block in whole for one in block]
    design = _design(
        tuple((number, one.arm, one.at) for number, block in enumerate(whole) for one in block)
    )
    if design is None:
        return None
    seconds: dict[Arm, list[float]] = {
        arm: [one.seconds for one in taken if one.arm == arm] for arm in ("A", "B")
    }
    logs = np.log([one.seconds for one in taken])
    rest = design.residual @ logs
    return _Told(design, logs, float(rest @ rest), seconds)


@functools.lru_cache(maxsize=256)
def _design(places: tuple[tuple[int, Arm, float], ...]) -> _Design | None:
    """Of processes by block, arm and place in the run; None where they cannot tell the difference, or its error."""
    if not places:
        return None
    blocks = [
        [float(block == number) for block, _, _ in places] for number in range(places[-1][0] + 1)
    ]
    control, side = ([float(arm == which) for _, arm, _ in places] for which in ("control", "B"))
    columns = np.array([*blocks, [at - places[0][2] for _, _, at in places], control, side]).T
    freedom = len(places) - int(np.linalg.matrix_rank(columns))
    own, weights = _weights(columns, len(blocks) + 2)
    if freedom < 1 or weights is None:
        return None
    residual = np.eye(len(places)) - columns @ np.linalg.pinv(columns)
    second = _weights(columns, len(blocks) + 1)[1] if any(control) else None
    return _Design(weights, second, residual, 2 * own, freedom)


def _weights(columns: Floats, which: int) -> tuple[float, Floats | None]:
    """How much of a column the others do not explain, and the weights of observations in its coefficient."""
    others, column = np.delete(columns, which, axis=1), columns[:, which]
    rest = column - others @ np.linalg.lstsq(others, column)[0]
    own = float(rest @ rest)
    return own, (rest / own if own > 1e-9 * len(rest) else None)


def _lent(told: Sequence[_Told]) -> tuple[Prior, bool]:
    """How processes spread in all tests, where eight or more tell, and whether 25 or more spread alike."""
    lent = borrow(
        priors()["device"], [(one.squares / one.design.freedom, one.design.freedom) for one in told]
    )
    if len(told) < FEWEST_TESTS:
        return lent, False
    freedom = sum(one.design.freedom for one in told)
    pooled = max(LEAST_SPREAD, math.sqrt(math.fsum(one.squares for one in told) / freedom))
    # Bartlett (1937), "Properties of sufficiency and statistical tests"; it overlooks a single test.
    scores = [(one.design.freedom, one.squares / one.design.freedom / pooled**2) for one in told]
    apart = math.fsum(-known * math.log(max(LEAST_SPREAD, ratio)) for known, ratio in scores)
    apart /= 1 + (math.fsum(1 / known for known, _ in scores) - 1 / freedom) / (3 * (len(told) - 1))
    widest = len(told) * min(one.beyond(pooled) for one in told)
    if min(special.chdtrc(len(told) - 1, apart), widest) < ALIKE:
        return lent, False
    return replace(lent, process=pooled, freedom=float(freedom)), True


def _judge(
    told: _Told, lent: Prior | None, tolerance: float, looks: _Looks, fewest: int
) -> Verdict:
    """All but REGRESSED, which follows from all tests together."""
    found, blocks = _difference(told, lent), told.blocks
    p = p_slower_than(found, math.log1p(WORTH_REPORTING * tolerance))
    kind = Kind.INCONCLUSIVE
    if blocks >= min(FEWEST_BLOCKS, looks.most):
        kind = kind_unless_red(found.estimate, partial(bound_of, found), tolerance, LATER_LEVELS)
    if kind is Kind.IMPROVED and blocks < fewest:
        kind = Kind.INCONCLUSIVE
    return Verdict(
        kind=kind,
        tolerance=tolerance,
        estimate=found.estimate,
        interval=interval_of(found, CONFIDENCE),
        p=p,
        p_spent=min(1.0, p / looks.share(fewest)) if blocks >= fewest else 1.0,
        difference=found,
        processes=len(told.seconds["B"]),
        mde=detectable(found),
        fewest=A_SIDE * fewest,
        new_medians_s=tuple(told.seconds["B"]),
    )


def _difference(told: _Told, lent: Prior | None) -> Difference:
    freedom = told.design.freedom
    own = max(LEAST_SPREAD, math.sqrt(told.squares / freedom))
    alone = Spread(own, f"estimated, {freedom} degrees of freedom", freedom)
    spread = with_lent(told.squares, freedom, lent, "estimated") if lent is not None else alone
    sides = {arm: math.exp(fmean(map(math.log, values))) for arm, values in told.seconds.items()}
    return Difference(
        estimate=float(told.design.difference @ told.logs),
        error=spread.value * math.sqrt(2 / told.design.worth),
        freedom=spread.freedom,
        process=spread,
        session=Spread(0.0, "the same session on both sides"),
        new_s=sides["B"],
        reference_s=sides["A"],
        paired=True,
    )


def _may_decide(verdict: Verdict, told: _Told, looks: _Looks, fewest: int, tests: int) -> bool:
    """Whether the last look could decide, if the blocks to come move the estimate by two errors."""
    found, most, blocks = verdict.difference, looks.most, told.blocks
    assert found is not None
    if blocks < FEWEST_BLOCKS:
        return True
    error = found.error * math.sqrt(told.design.worth / (A_SIDE * most))
    freedom = found.degrees + 3 * (most - blocks)
    play = PLAY * math.sqrt(max(0.0, found.error**2 - error**2))
    limit, worthy = math.log1p(verdict.tolerance), math.log1p(WORTH_REPORTING * verdict.tolerance)
    fastest, slowest = found.estimate - play, found.estimate + play
    # What could end as IMPROVED could end as PASSED.
    if fastest + quantile(1 - LATER_LEVELS[1], freedom) * error < limit:
        return True
    level = FALSE_RED * looks.share(min(fewest, most)) / max(tests, FEWEST_TESTS)
    return slowest > limit and slowest - worthy > quantile(1 - level, freedom) * error


def _reasons(verdict: Verdict, blocks: int, tests: int, *, final: bool) -> tuple[Reason, ...]:
    """Return what an open test may be, and at the end how many processes would decide it."""
    may_be = Reason(ReasonCode.SIDES_MAY_BE)
    if verdict.looks_slow and A_SIDE * blocks < verdict.fewest:
        return Reason(ReasonCode.SIDES_NEED_PROCESSES), may_be
    if not final:
        return (may_be,)
    needed = would_decide(verdict, verdict.processes, tests)
    if needed is None:
        return may_be, Reason(ReasonCode.SIDES_TOO_FEW, {"processes": WORTHWHILE[-1]})
    processes = max(needed + needed % A_SIDE, verdict.fewest)
    return may_be, Reason(ReasonCode.SIDES_NEED_ABOUT, {"processes": processes})
