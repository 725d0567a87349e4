"""The settings and the measurements of a search, which its folder `.roofline/bisect/NAME` keeps."""

from dataclasses import dataclass, field

from ..ab.command_plan import CommandPlan
from ..ab.results import State
from ..core.records import SCHEMA
from .search import Observation, Place

# The part of the difference between both ends by which a figure may differ from the end whose level it has.
NEAR = 0.1


@dataclass(frozen=True, slots=True)
class Lead:
    """The result that a search follows: the one that is slower for certain.

    Args:
        identity: of its key.
        test_id: the test that measures it.
        label: its name for people.
        change: how much worse the bad end is, in words.
        good: exact figures of the good end, by name; empty where a time with noise is judged. `bad` likewise.
        is_kernel: True for the figures of a compiled kernel.
    """

    identity: str
    test_id: str
    label: str
    change: str
    good: dict[str, float] = field(default_factory=dict)
    bad: dict[str, float] = field(default_factory=dict)
    is_kernel: bool = False

    @property
    def word(self) -> str:
        """The comparative of a sentence. A kernel with more registers is worse, and may be as fast."""
        return "worse" if self.is_kernel else "slower"

    @property
    def is_exact(self) -> bool:
        """True for figures without noise, of which an end may have none."""
        return bool(self.good or self.bad)

    def share(self, figures: dict[str, float]) -> float:
        """Return the level of a candidate with exact figures.

        It is 0 of the good end, 1 of the bad one, else between.
        """
        levels = {self._level(name, figures.get(name)) for name in (*self.good, *self.bad)}
        return levels.pop() if len(levels) == 1 else 0.5

    def _level(self, name: str, value: float | None) -> float:
        """Return the level of a figure; None is a figure that the candidate lacks.

        A time may be rounded, and a compiler may make a kernel that neither end has. So a figure near that of an end
        or beyond it has the level of that end.
        """
        good, bad = self.good.get(name), self.bad.get(name)
        if value is None or good is None or bad is None:
            return float(value == bad) if value in (good, bad) else 0.5
        part = (value - good) / (bad - good)
        level = 0.0 if part < 0.5 else 1.0
        return level if abs(part - level) <= NEAR or not 0 < part < 1 else 0.5


@dataclass(frozen=True, slots=True)
class Broken:
    """A candidate that cannot be measured, with the reason."""

    place: Place
    reason: str


@dataclass(frozen=True, slots=True)
class BisectState:
    """All that `--resume` needs.

    Args:
        name: of the search.
        ends: the good and the bad end, as the user wrote them.
        row: the candidates in their order, as sides of `roofline ab`; of two runs the differences.
        arguments: pytest's.
        cwd: the folder in which the search began.
        seed: of the order of processes.
        options: the words of the command line that an `ab` of two candidates needs as well.
        variables: those that name the index of packages.
        runs: the files of both runs whose differences are searched; empty for versions and commits.
        lead: None before the ends were compared.
        observations: of all processes that count.
        blocks: how many were run.
        processes: how many were started, warm-ups included.
    """

    name: str
    ends: tuple[str, str]
    row: tuple[str, ...]
    arguments: tuple[str, ...]
    cwd: str
    seed: int
    tolerance: float | None = None
    program: CommandPlan | None = None
    options: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    runs: tuple[str, ...] = ()
    lead: Lead | None = None
    observations: tuple[Observation, ...] = ()
    broken: tuple[Broken, ...] = ()
    blocks: int = 0
    processes: int = 0
    schema: int = SCHEMA

    def comparison(self, name: str, sides: tuple[str, str], processes: int) -> State:
        """Return the settings of an `ab` of two candidates.

        Args:
            name: of the comparison; the name of the search goes before it.
            sides: both candidates.
            processes: of each side.
        """
        return State(
            name=f"{self.name}-{name}",
            sides=sides,
            arguments=self.arguments,
            cwd=self.cwd,
            seed=self.seed,
            processes=processes,
            tolerance=self.tolerance,
            program=self.program,
        )
