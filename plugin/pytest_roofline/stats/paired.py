"""The verdict of two sides that ran in turn: fresh processes in blocks A B B A and B A A B, on one device, in one hour.

Log seconds are the sum of a level of each block, the effect of side B, the effect of a hidden second A (the control),
and a straight drift, fitted by ordinary least squares. So the blocks absorb the offset of a session, a drift cancels
within each block, and what is left between processes is the error. The spread of a test is joined with what the other
tests of the run show.
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

from ..core.errors import BadInput
from ..core.reasons import Reason, ReasonCode
from ..core.verdicts import Difference, Kind, Spread, Verdict
from .analyses import FALSE_RED, FEWEST_TESTS, LATER_LEVELS, SUGGESTED_COUNTS
from .outlook import WORTH_REPORTING, detectable_effect
from .spread import LEAST_SPREAD, Prior, borrow, join_prior, priors
from .stats import CONFIDENCE, bound_of, interval_of, p_slower_than, quantile
from .verdicts import kind_unless_red, settle, would_decide

Floats = npt.NDArray[np.float64]
Arm = Literal["A", "B", "control"]

ORDERS: tuple[tuple[Arm, ...], ...] = (("A", "B", "B", "A"), ("B", "A", "A", "B"))
# Processes of each side in a block, unless some have failed.
PROCESSES_PER_BLOCK_SIDE = 2
# Nothing is decided before so many blocks.
FEWEST_BLOCKS = 2
# Where processes have two equally likely modes, four a side split into modes exactly as they split into sides once in
# 256 tests, eight a side once in 65,536. So fewer blocks turn nothing red, unless all tests of the run spread alike.
FEWEST_BLOCKS_RED = 4
# How far the blocks to come may move the estimate, in standard errors, before a test is given up.
PLAY = 2.0
# Spreads count as alike unless their p is below this, over all tests or of the widest test. Modes, tails and outliers
# make p small.
ALIKE = 0.005


@dataclass(frozen=True, slots=True)
class TimedProcess:
    """One fresh process of an arm; `control` is a second A.

    Args:
        seconds: the median of its samples.
        place: its number in the order of the run, for the drift; a gap where another process came.

    Raises:
        BadInput: the place is no whole number. Uneven times would make a block worth less than it is.
    """

    arm: Arm
    seconds: float
    place: int

    def __post_init__(self) -> None:
        if not isinstance(self.place, int) or isinstance(self.place, bool):
            raise BadInput(
                f"place is {self.place!r}; expected the number of the process in the order of the run"
            )


Block = Sequence[TimedProcess]


@dataclass(frozen=True, slots=True)
class Paired:
    """The result of one test.

    Args:
        verdict: B against A, in logs; positive is slower. Its `processes` are those of B.
        control: the second A against A, in logs; None where none ran.
        open: whether further blocks could decide.
    """

    verdict: Verdict
    control: float | None
    open: bool


@dataclass(frozen=True, slots=True)
class _Analyses:
    """The interim analyses of a run, one after each of its blocks.

    Each has a chance of error of its own.

    Args:
        most: how many blocks the run may take.
        ended: whether this analysis is the last although more were planned.
    """

    most: int
    ended: bool = False

    def red_share(self, blocks_for_red: int) -> float:
        """Return the share of a test's chance of error that one analysis has.

        All analyses that may be red share it equally. The first of these comes after `blocks_for_red` blocks.
        """
        return 1 / max(1, self.most - blocks_for_red + 1)


@dataclass(frozen=True, slots=True)
class _Design:
    """The weights of a set of processes in the model.

    Args:
        difference: [processes], the weights of log seconds in B against A; `control` those in the second A against A.
        residual: [processes, processes], the matrix that removes the fitted model from log seconds.
        worth: how many processes a side in whole blocks would tell as much.
        freedom: the degrees of freedom of the error.
    """

    difference: Floats
    control: Floats | None
    residual: Floats
    worth: float
    freedom: int


@dataclass(frozen=True, slots=True)
class _Observations:
    """The processes of one test in whole blocks; `squares` is the sum of squared errors."""

    design: _Design
    logs: Floats
    squares: float
    seconds: dict[Arm, list[float]]

    def chance_under(self, spread: float) -> float:
        """Return the chance of errors at least so large under a spread."""
        return float(special.chdtrc(self.design.freedom, self.squares / spread**2))

    @property
    def control(self) -> float | None:
        """Return the second A against A, in logs, or None."""
        return None if self.design.control is None else float(self.design.control @ self.logs)

    @property
    def blocks(self) -> int:
        """Return the number of whole blocks with as much information."""
        return math.floor(self.design.worth / PROCESSES_PER_BLOCK_SIDE + 1e-6)


def judge_paired(
    tests: Mapping[str, Sequence[Block]],
    tolerances: Mapping[str, float],
    most: int,
    *,
    ended: bool = False,
) -> dict[str, Paired]:
    """Return the verdicts on all tests of a run after some blocks.

    A block in which a side is missing tells nothing of the difference and is left out.

    Args:
        tests: of each, its blocks; `tolerances` of each, as a share of time.
        most: how many processes a side the run may take.
        ended: whether this analysis is the last although more were planned.
    """
    observations = {name: _observe(blocks) for name, blocks in tests.items()}
    shared_prior, alike = _pool_spreads(
        [observed for observed in observations.values() if observed is not None]
    )
    analyses = _Analyses(max(1, most // PROCESSES_PER_BLOCK_SIDE), ended)
    # Tests that spread alike have no modes, so two blocks may turn red.
    blocks_for_red = FEWEST_BLOCKS if alike else FEWEST_BLOCKS_RED
    # Of each test the verdict, and whether further blocks could decide it.
    verdicts, can_decide = {}, {}
    for name, observed in observations.items():
        if observed is None:
            # No block has both sides yet. The test stays open while processes may still follow.
            arms = [process.arm for block in tests[name] for process in block]
            can_decide[name] = max(arms.count("A"), arms.count("B")) < most and not ended
            verdicts[name] = Verdict(
                Kind.INCONCLUSIVE, tolerances[name], reasons=(Reason(ReasonCode.NO_WHOLE_BLOCK),)
            )
            continue
        # The spread that all tests share does not hold for a test whose processes rule it out.
        ruled_out = alike and observed.chance_under(shared_prior.process) < ALIKE
        prior = shared_prior if shared_prior.borrowed and not ruled_out else None
        verdicts[name] = _judge(observed, prior, tolerances[name], analyses, blocks_for_red)
        unfinished = observed.blocks < analyses.most and not ended
        can_decide[name] = unfinished and _may_decide(
            verdicts[name], observed, analyses, blocks_for_red, len(tests)
        )
    paired = {}
    for name, verdict in settle(verdicts, len(tests)).items():
        observed, is_open = observations[name], verdict.kind is Kind.INCONCLUSIVE
        if observed is not None and is_open:
            reasons = _reasons(verdict, observed.blocks, len(tests), final=not can_decide[name])
            verdict = replace(verdict, reasons=reasons)
        paired[name] = Paired(
            verdict,
            control=observed.control if observed is not None else None,
            open=can_decide[name] and is_open,
        )
    return paired


def order_of_blocks(blocks: int, seed: int) -> list[tuple[Arm, ...]]:
    """Return the order of each block's processes, drawn by `seed`.

    Of every two blocks one begins with A and one with B. Of every four whole blocks the first or the second has a
    control in its middle, where a drift does not bias it.
    """
    generator = random.Random(seed)
    orders: list[tuple[Arm, ...]] = []
    for start in range(0, blocks, 4):
        # Four blocks: two pairs, of one order with A and one with B at the beginning.
        group = [order for _ in range(2) for order in generator.sample(ORDERS, 2)]
        if start + 4 <= blocks:
            place = generator.randrange(2)
            first, second, *last_two = group[place]
            group[place] = (first, second, "control", *last_two)
        orders += group
    return orders[:blocks]


def _observe(blocks: Sequence[Block]) -> _Observations | None:
    """Return the log seconds of one test, with the weights that give B against A and its error, or None.

    Only blocks with both sides count. None where these cannot tell the difference, or its error.
    """
    blocks_with_both = [
        block for block in blocks if {"A", "B"} <= {process.arm for process in block}
    ]
    processes = [process for block in blocks_with_both for process in block]
    places = tuple(
        (number, process.arm, process.place)
        for number, block in enumerate(blocks_with_both)
        for process in block
    )
    design = _design(places)
    if design is None:
        return None
    seconds: dict[Arm, list[float]] = {
        arm: [process.seconds for process in processes if process.arm == arm] for arm in ("A", "B")
    }
    logs = np.log([process.seconds for process in processes])
    residuals = design.residual @ logs
    return _Observations(design, logs, float(residuals @ residuals), seconds)


@functools.lru_cache(maxsize=256)
def _design(places: tuple[tuple[int, Arm, int], ...]) -> _Design | None:
    """Return the design for processes, each given by block, arm and place.

    None where the processes cannot tell the difference, or its error.
    """
    if not places:
        return None
    last_block, _, _ = places[-1]
    _, _, first_place = places[0]
    # Each of these is a column of the fit, with one number for each process: `blocks` has one for each block.
    blocks = [
        [float(block == number) for block, _, _ in places] for number in range(last_block + 1)
    ]
    control, side = ([float(arm == name) for _, arm, _ in places] for name in ("control", "B"))
    drift = [float(place - first_place) for _, _, place in places]
    columns = np.array([*blocks, drift, control, side]).T
    control_index, side_index = len(blocks) + 1, len(blocks) + 2
    freedom = len(places) - int(np.linalg.matrix_rank(columns))
    unexplained, weights = _weights(columns, side_index)
    if freedom < 1 or weights is None:
        return None
    residual = np.eye(len(places)) - columns @ np.linalg.pinv(columns)
    _, control_weights = _weights(columns, control_index) if any(control) else (0.0, None)
    return _Design(
        difference=weights,
        control=control_weights,
        residual=residual,
        # With n processes a side in whole blocks, n / 2 of the square of side B's column is unexplained.
        worth=2 * unexplained,
        freedom=freedom,
    )


def _weights(columns: Floats, index: int) -> tuple[float, Floats | None]:
    """Return the square of a fit's column that the other columns leave unexplained, and weights.

    `columns` are those of a least squares fit, and `index` is that of the column. The weights, times the log seconds,
    give the column's coefficient in the fit. They are None where the other columns explain it.
    """
    other_columns, column = np.delete(columns, index, axis=1), columns[:, index]
    coefficients, *_ = np.linalg.lstsq(other_columns, column)
    residuals = column - other_columns @ coefficients
    unexplained = float(residuals @ residuals)
    # Less than this is the rounding of the arithmetic.
    is_explained = unexplained <= 1e-9 * len(residuals)
    return unexplained, None if is_explained else residuals / unexplained


def _pool_spreads(observations: Sequence[_Observations]) -> tuple[Prior, bool]:
    """Return the prior from all tests, and whether all of them spread alike.

    With fewer than eight tests the prior is the assumed one; with fewer than 25 the flag is False. Where all spread
    alike, the prior is their pooled spread: the root of all squared errors over all degrees of freedom.
    """
    prior = borrow(
        priors()["device"],
        [
            (observed.squares / observed.design.freedom, observed.design.freedom)
            for observed in observations
        ],
    )
    if len(observations) < FEWEST_TESTS:
        return prior, False
    freedom = sum(observed.design.freedom for observed in observations)
    pooled = max(
        LEAST_SPREAD, math.sqrt(math.fsum(observed.squares for observed in observations) / freedom)
    )
    # Bartlett's test overlooks a single wide test, so the p of the widest test, times the number of tests
    # (Bonferroni), counts too.
    widest_p = len(observations) * min(observed.chance_under(pooled) for observed in observations)
    if min(_equal_spreads_p(observations, pooled), widest_p) < ALIKE:
        return prior, False
    return replace(prior, process=pooled, freedom=float(freedom)), True


def _equal_spreads_p(observations: Sequence[_Observations], pooled: float) -> float:
    """Return the p of Bartlett's test, small where the spreads of the tests differ.

    Bartlett (1937), "Properties of sufficiency and statistical tests". `pooled` is the spread of all tests together.
    """
    freedoms = [observed.design.freedom for observed in observations]
    # The variance of each test, as a multiple of that of all tests together.
    ratios = [observed.squares / observed.design.freedom / pooled**2 for observed in observations]
    statistic = math.fsum(
        -freedom * math.log(max(LEAST_SPREAD, ratio))
        for freedom, ratio in zip(freedoms, ratios, strict=True)
    )
    # Bartlett's correction for small samples.
    excess = math.fsum(1 / freedom for freedom in freedoms) - 1 / sum(freedoms)
    statistic /= 1 + excess / (3 * (len(observations) - 1))
    return float(special.chdtrc(len(observations) - 1, statistic))


def _judge(
    observed: _Observations,
    prior: Prior | None,
    tolerance: float,
    analyses: _Analyses,
    blocks_for_red: int,
) -> Verdict:
    """Return any verdict on a test but REGRESSED, which needs the p of all tests.

    Args:
        prior: the spread that the tests of the run share; None where the test does not share it.
        tolerance: as a share of time.
        blocks_for_red: how many blocks an analysis needs to call a difference real, in either direction.
    """
    difference, blocks = _difference(observed, prior), observed.blocks
    p = p_slower_than(difference, math.log1p(WORTH_REPORTING * tolerance))
    kind = Kind.INCONCLUSIVE
    # Nothing is decided after one block, unless the run takes no more.
    if blocks >= min(FEWEST_BLOCKS, analyses.most):
        kind = kind_unless_red(
            difference.estimate, partial(bound_of, difference), tolerance, LATER_LEVELS
        )
    # A side that seems faster may have its few processes all in the fast one of two modes, so IMPROVED waits as long as
    # red does. Sides that split into modes do not look equal, so PASSED need not wait.
    if kind is Kind.IMPROVED and blocks < blocks_for_red:
        kind = Kind.INCONCLUSIVE
    return Verdict(
        kind=kind,
        tolerance=tolerance,
        estimate=difference.estimate,
        interval=interval_of(difference, CONFIDENCE),
        p=p,
        # The p with which this analysis counts among all tests: 1 where it may not be red.
        p_spent=(
            min(1.0, p / analyses.red_share(blocks_for_red)) if blocks >= blocks_for_red else 1.0
        ),
        difference=difference,
        processes=len(observed.seconds["B"]),
        mde=detectable_effect(difference),
        processes_for_red=PROCESSES_PER_BLOCK_SIDE * blocks_for_red,
        new_medians_s=tuple(observed.seconds["B"]),
    )


def _difference(observed: _Observations, prior: Prior | None) -> Difference:
    """Return the difference of B against A.

    Its spread is that of the test, joined with the prior where there is one.
    """
    freedom = observed.design.freedom
    deviation = max(LEAST_SPREAD, math.sqrt(observed.squares / freedom))
    unshared = Spread(deviation, f"estimated, {freedom} degrees of freedom", freedom)
    spread = (
        join_prior(observed.squares, freedom, prior, "estimated") if prior is not None else unshared
    )
    sides = {
        arm: math.exp(fmean(map(math.log, values))) for arm, values in observed.seconds.items()
    }
    return Difference(
        estimate=float(observed.design.difference @ observed.logs),
        error=spread.value * math.sqrt(2 / observed.design.worth),
        freedom=spread.freedom,
        process=spread,
        session=Spread(0.0, "the same session on both sides"),
        new_s=sides["B"],
        reference_s=sides["A"],
        paired=True,
    )


def _may_decide(
    verdict: Verdict, observed: _Observations, analyses: _Analyses, blocks_for_red: int, tests: int
) -> bool:
    """Return True where the last analysis could decide.

    The blocks to come may move the estimate by two standard errors.

    Args:
        blocks_for_red: how many blocks red needs.
        tests: the number of tests, which share the chance of error.
    """
    difference, most, blocks = verdict.difference, analyses.most, observed.blocks
    assert difference is not None
    # Nothing may be decided before so many blocks, so nothing is known yet.
    if blocks < FEWEST_BLOCKS:
        return True
    # The standard error after all blocks.
    error = difference.error * math.sqrt(observed.design.worth / (PROCESSES_PER_BLOCK_SIDE * most))
    # A block of four processes has one level: three degrees of freedom are left.
    freedom = difference.degrees + 3 * (most - blocks)
    play = PLAY * math.sqrt(max(0.0, difference.error**2 - error**2))
    limit, worthy = math.log1p(verdict.tolerance), math.log1p(WORTH_REPORTING * verdict.tolerance)
    fastest, slowest = difference.estimate - play, difference.estimate + play
    # A test that could end as IMPROVED could also end as PASSED, so only PASSED is tried.
    _, passed_level, _ = LATER_LEVELS
    if fastest + quantile(1 - passed_level, freedom) * error < limit:
        return True
    # Red needs an estimate beyond the tolerance that is surely worth reporting, at this test's share of the error.
    level = FALSE_RED * analyses.red_share(min(blocks_for_red, most)) / max(tests, FEWEST_TESTS)
    return slowest > limit and slowest - worthy > quantile(1 - level, freedom) * error


def _reasons(verdict: Verdict, blocks: int, tests: int, *, final: bool) -> tuple[Reason, ...]:
    """Return why a test is undecided: its interval, or a slowdown with too few processes.

    At the end of a run (`final`) a second reason says how many processes would decide, or that no number that is worth
    trying would. A block holds `PROCESSES_PER_BLOCK_SIDE` processes of each side.
    """
    may_be = Reason(ReasonCode.SIDES_MAY_BE)
    if verdict.looks_slow and PROCESSES_PER_BLOCK_SIDE * blocks < verdict.processes_for_red:
        return Reason(ReasonCode.SIDES_NEED_PROCESSES), may_be
    if not final:
        return (may_be,)
    needed = would_decide(verdict, verdict.processes, tests)
    if needed is None:
        return may_be, Reason(ReasonCode.SIDES_TOO_FEW, {"processes": SUGGESTED_COUNTS[-1]})
    # Whole blocks of two processes a side, and at least as many processes as red needs.
    processes = max(needed + needed % PROCESSES_PER_BLOCK_SIDE, verdict.processes_for_red)
    return may_be, Reason(ReasonCode.SIDES_NEED_ABOUT, {"processes": processes})
