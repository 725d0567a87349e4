"""What a measurement is compared with, how strictly, and what more processes would make of it.

The statistics are those of `stats` and `spread`, the chances of error those of `looks`.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from ..core.errors import MOST_TOLERANCE, WIDE_TOLERANCE
from ..core.units import format_percent, format_tolerance
from .looks import FALSE_RED, FEWEST_TESTS, MOST_ROUNDS, PLAY, WORTHWHILE, Looks, needs_processes
from .spread import ENOUGH_SESSIONS, Group, Prior, priors, sittings
from .stats import CONFIDENCE, Difference, error_at, growth, quantile

# By class of benchmark: what a host's copies scatter by, nobody can judge finer.
DEFAULT_TOLERANCES = {"device": 0.05, "host": 0.15}
DEFAULT_TOLERANCE = DEFAULT_TOLERANCES["device"]
# The smallest slowdown worth reporting, as a share of the tolerance: red must be surely more than this.
WORTH_REPORTING = 0.4
POWER = 0.8
# So many processes are hardly all in a mode that few of the baseline's were in.
ENOUGH_TO_REPEAT = 5
# Fewer standard errors from the tolerance than this, and more processes alone will not tell.
NEAR = 3.0


@dataclass(frozen=True, slots=True)
class Reference:
    """What a measurement is compared with: the processes of its sessions, and where they come from.

    Args:
        clock_hz: the median clock of the sessions that know theirs.
        moved: the groups as they would be in the new session, where all tests of it moved together (`shared`); none
            where they did not.
        shift: by how much that makes this test slower, in log seconds.
    """

    groups: tuple[Group, ...]
    source: str
    environments: tuple[dict[str, str], ...] = ()
    tolerance: float | None = None
    achieved: frozenset[tuple[str, ...]] = frozenset()
    clock_hz: float | None = None
    moved: tuple[Group, ...] = ()
    shift: float = 0.0
    peak_bytes: int | None = None

    @property
    def medians_s(self) -> tuple[float, ...]:
        """Every process's median, in seconds."""
        return tuple(value for group in self.groups for value in group.medians_s)

    @property
    def devices(self) -> int:
        """How many devices stand behind it; those that are not told count as one."""
        return len({group.device for group in self.groups})

    @property
    def median_s(self) -> float:
        """The geometric mean of the processes' medians: the centre of the comparison."""
        return math.exp(
            math.fsum(math.log(value) for value in self.medians_s) / len(self.medians_s)
        )

    @property
    def behind(self) -> str:
        """`15 processes of 3 sessions on 2 devices`."""
        processes, sessions = len(self.medians_s), len(self.groups)
        text = f"{processes} process{'es' * (processes > 1)} of {sessions} session{'s' * (sessions > 1)}"
        return text + (f" on {self.devices} devices" if self.devices > 1 else "")

    def on(self, devices: Collection[str]) -> Sequence[Group]:
        """The sessions on these devices, where there are some; else all."""
        groups = self.moved or self.groups
        return [group for group in groups if group.device in devices] or groups


@dataclass(frozen=True, slots=True)
class Policy:
    """How strict to be: the tolerance of time, the comparisons of this run, what to assume, when to look."""

    tolerance: float = DEFAULT_TOLERANCE
    comparisons: int = 1
    prior: Prior = field(default_factory=lambda: priors()["device"])
    looks: Looks = field(default_factory=Looks)


def detectable(found: Difference) -> float:
    """The minimum detectable effect, as a share of time: found 80 times in 100 at the 1 % level."""
    return growth(
        (quantile(CONFIDENCE, found.freedom) + quantile(POWER, found.freedom)) * found.error
    )


@dataclass(frozen=True, slots=True)
class Outlook:
    """A comparison under the policy of its run: what more processes would make of it."""

    found: Difference
    reference: Reference
    policy: Policy
    count: int
    fewest: int
    hot: float = 0.0

    @property
    def limit(self) -> float:
        """The tolerance, in log seconds."""
        return math.log1p(self.policy.tolerance)

    @property
    def worthy(self) -> float:
        """The smallest slowdown worth reporting, in log seconds."""
        return math.log1p(WORTH_REPORTING * self.policy.tolerance)

    @property
    def looks_slow(self) -> bool:
        """Whether the estimate lies beyond the tolerance."""
        return self.found.estimate > self.limit

    def error_at(self, processes: int) -> float:
        """The standard error with so many new processes."""
        return error_at(processes, self.found.error, self.found.process.value, self.count)

    @property
    def reach(self) -> float | None:
        """The slowdown that is found 80 times in 100 after all rounds: beyond the tolerance, surely worth reporting."""
        looks = self.policy.looks
        most = self.count if looks.ended else max(self.count, looks.most)
        level = self._red_level(looks, most)
        if not level:
            return None
        error, freedom = self._foreseen(most)
        least = self.worthy + quantile(1 - level, freedom) * error
        return growth(max(self.limit, least) + quantile(POWER, freedom) * error)

    def _red_level(self, looks: Looks, processes: int) -> float:
        share = looks.red_share(processes, self.found.worth, self.fewest)
        return FALSE_RED * share / max(self.policy.comparisons, FEWEST_TESTS)

    def _foreseen(self, processes: int) -> tuple[float, float]:
        """The standard error with so many new processes, and its degrees of freedom (Satterthwaite's).

        More processes tell of the spread between processes alone. Where one-process sessions show what lies between
        processes and sessions in one sum, a quarter of it is taken to lie between sessions.
        """
        found, more = self.found, processes - self.count
        whole = found.process.value**2
        rest, freedom = found.error**2 - whole / self.count, found.process.freedom + more
        apart = not math.isinf(found.session.freedom)
        if more and not apart:
            between = min(whole, max(self.policy.prior.session**2, whole / 4))
            rest, whole, freedom = rest + between, whole - between, more
        new, rest = whole / processes, max(rest, 1e-12)
        known = found.freedom if apart or not more else found.process.freedom
        return math.sqrt(new + rest), (new + rest) ** 2 / (new**2 / freedom + rest**2 / known)

    @property
    def may_decide(self) -> bool:
        """Whether a last look could be green or red, if the processes to come move the centre by two errors."""
        found, looks, count = self.found, self.policy.looks, self.count
        most = looks.most
        if count >= most or looks.ended or (looks.slow_only and not self.looks_slow):
            return False
        error, freedom = self.error_at(most), found.freedom + (most - count)
        play = PLAY * found.process.value * math.sqrt(1 / count - 1 / most)
        green = (
            found.estimate
            - play
            + quantile(1 - looks.pass_level(most, found.worth), freedom) * error
            < self.limit
        )
        level = FALSE_RED * looks.red_share(most, found.worth, self.fewest)
        surely = (
            found.estimate + play - self.worthy > quantile(1 - level, freedom) * error
            if level > 0
            else False
        )
        return green or (surely and found.estimate + play > self.limit)

    def _decides(self, processes: int) -> bool:
        """Whether so many processes would be green or red, if neither the centre nor the spreads moved."""
        found, looks = self.found, Looks(max(MOST_ROUNDS, self.policy.looks.most, processes))
        error, freedom = self.error_at(processes), found.freedom + (processes - self.count)
        if (
            found.estimate + quantile(1 - looks.pass_level(processes, found.worth), freedom) * error
            < self.limit
        ):
            return True
        level = self._red_level(looks, processes)
        return (
            level > 0
            and self.looks_slow
            and found.estimate - self.worthy > quantile(1 - level, freedom) * error
        )

    @property
    def reason(self) -> str:
        """What an open test may be, and what would decide it."""
        found, count = self.found, self.count
        low, high = (
            format_percent(growth(bound)).removesuffix(" %") for bound in found.interval(CONFIDENCE)
        )
        processes = f"{count} process{'es' * (count > 1)} ({_share(found.process.value)} apart: {found.process.origin})"
        said = f"may be {low} to {high} % after {processes}"
        slower = _share(growth(found.estimate))
        if self.hot and self.looks_slow:
            return (
                f"looks {slower} slower, but its further rounds are {_share(growth(self.hot))} slower than its first "
                "process, and the baseline holds first processes alone: heat, or another trace of the rounds before; "
                f"record the baseline with --roofline-rounds={ENOUGH_TO_REPEAT}; {said}"
            )
        if self.looks_slow and count < self.fewest:
            needed = f"red needs {self.fewest} processes against a baseline of {len(self.reference.medians_s)}"
            return f"looks {slower} slower; --roofline-rounds=auto decides: {needed}; {said}"
        return f"{said}; {self._remedy}{self._wider}"

    @property
    def _wider(self) -> str:
        """The tolerance that could be judged, where the test does not look slow."""
        found, most = self.found, max(self.count, self.policy.looks.most)
        level = self.policy.looks.pass_level(most, found.worth)
        widest = found.estimate + quantile(1 - level, found.freedom) * self.error_at(most)
        percent = max(math.ceil(growth(widest) * 100), math.floor(self.policy.tolerance * 100) + 1)
        if self.looks_slow or percent > 100 * MOST_TOLERANCE:
            return ""
        return f", or --roofline-tolerance={percent}%{'!' * (percent > 100 * WIDE_TOLERANCE)}"

    @property
    def _remedy(self) -> str:
        """What would decide: processes while they help, else a better baseline."""
        found, behind = self.found, self.reference.behind
        for processes in WORTHWHILE:
            if processes > self.count and self._decides(processes):
                return needs_processes(processes)
        if found.device is not None:
            return f"the baseline has other devices only ({found.device.value:.1%} apart): record this one"
        days = len(sittings(self.reference.groups))
        if days < ENOUGH_SESSIONS:
            of = f"{behind}{' of one day' * (days == 1)}"
            return f"the baseline has {of}: record {ENOUGH_SESSIONS} sessions or more, each on another day"
        if self.error_at(WORTHWHILE[-1]) * NEAR > abs(found.estimate - self.limit):
            return f"the baseline has only {behind}, too few this near the tolerance: record more"
        return f"needs more sessions and processes behind the baseline (there are {behind})"


def _share(value: float) -> str:
    return format_tolerance(round(value, 3))
