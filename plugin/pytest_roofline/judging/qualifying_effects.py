"""What a judged driver is: its effect on each test, what was lost with it, and the advice that follows."""

from collections.abc import Sequence
from dataclasses import dataclass

from ..core.keys import Key
from ..core.units import listed
from .qualifying_apart import Apart
from .qualifying_pairs import Pair, Rollout, nodes
from .qualifying_sides import Change
from .stats import growth
from .verdicts import Kind

# Devices that an advice names.
MOST_NAMED = 4
NOTHING = Apart()


@dataclass(frozen=True, slots=True)
class Effect:
    """What the driver does to one test.

    Args:
        estimate: in log seconds, positive is slower; `error` is its standard error, `freedom` its degrees of freedom.
        interval: of the estimate, at 99 %.
        p: of "no more than the smallest effect worth reporting slower"; `p_adjusted` is paid for all tests.
        drift: the mean change of the controls; None without any.
        origin: where the error comes from.
        apart: what is strange among the upgraded devices; `controls_apart` among the controls.
    """

    key: Key
    kind: Kind
    estimate: float
    error: float
    freedom: float
    interval: tuple[float, float]
    p: float
    treated: tuple[Change, ...]
    controls: tuple[Change, ...]
    drift: float | None
    origin: str
    apart: Apart = NOTHING
    controls_apart: Apart = NOTHING
    p_adjusted: float = 1.0
    reason: str = ""

    @property
    def label(self) -> str:
        """The test as people call it."""
        return self.key.label

    @property
    def change(self) -> float:
        """The effect as a share of time."""
        return growth(self.estimate)


@dataclass(frozen=True, slots=True)
class Lost:
    """A test that upgraded devices had a sound time of before, and have none after that may be compared.

    Args:
        devices: these devices, of `known` upgraded ones that had a time before.
        controls: the controls that lost it too, of `controls_known`.
    """

    label: str
    devices: tuple[str, ...]
    known: int
    controls: tuple[str, ...]
    controls_known: int

    @property
    def everywhere(self) -> bool:
        """Whether every control lost it as well: then it is no effect of the driver."""
        return 0 < self.controls_known == len(self.controls)


@dataclass(frozen=True, slots=True)
class Qualification:
    """A driver, judged: the rollout, its effect on each test, worst first, and the tests that it lost."""

    rollout: Rollout
    effects: tuple[Effect, ...]
    tolerance: float
    lost: tuple[Lost, ...] = ()

    def count(self, kind: Kind) -> int:
        """How many tests have a verdict."""
        return sum(effect.kind is kind for effect in self.effects)

    @property
    def slower_devices(self) -> list[str]:
        """Upgraded devices that got slower in some test where others did not."""
        return list(dict.fromkeys(change.pair.device for effect in self.effects for change in effect.apart.slower))

    @property
    def worse(self) -> bool:
        """Whether something is slower or gone, so that the driver must not be rolled out as it is."""
        gone = self.rollout.gone or self.slower_devices or any(not lost.everywhere for lost in self.lost)
        return bool(self.count(Kind.REGRESSED) or gone)

    @property
    def advice(self) -> str:
        """`do not roll out`, `roll out`, or what is needed first."""
        if self.count(Kind.REGRESSED):
            return "do not roll out"
        first = []
        if self.rollout.gone:
            first.append(f"find out why {_some(self.rollout.gone)} did not run after the upgrade")
        if any(not lost.everywhere for lost in self.lost):
            first.append("find out why tests have no sound time any more")
        if self.slower_devices:
            first.append(f"look at {_some(self.slower_devices)}, slower than the other upgraded devices")
        if first:
            return f"not yet: first {' and '.join(first)}"
        return "need more devices" if self.count(Kind.INCONCLUSIVE) else "roll out"


def _some(names: Sequence[str]) -> str:
    return listed(names, MOST_NAMED)


def describe_fleet(rollout: Rollout) -> str:
    """`6 devices of 3 nodes, 4 controls of 2`."""
    count, controls = len(rollout.treated), len(rollout.controls)
    text = f"{count} device{'s' * (count > 1)} of {_nodes(rollout.treated)}"
    return f"{text}, {controls} control{'s' * (controls > 1)} of {_nodes(rollout.controls)}" if controls else text


def _nodes(pairs: Sequence[Pair]) -> str:
    count = nodes(pairs)
    return f"{count} node{'s' * (count > 1)}"
