"""A suite as a rule sees it: of every test the baseline, and the new processes in the order in which they ran."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from pytest_roofline.core.errors import BadFile, BadInput
from pytest_roofline.judging.spread import Group, Prior, borrow, spread_within
from pytest_roofline.judging.storage import decode_json, read_bytes

Floats = npt.NDArray[np.float64]

# A benchmark is usable with so many processes beyond its baseline.
FEWEST_NEW = 3
# A sample of more than a year is a number in another unit.
LONGEST_S = 3e7


@dataclass(frozen=True, slots=True)
class Case:
    """One test.

    Args:
        baseline: its processes, by session.
        new_s: medians of the new processes, in seconds, in the order in which they ran.
        before_s: the samples of one process of the baseline, in seconds, for rules that know one process a side.
        after_s: the samples of one new process.
        device: on which the new processes run.
    """

    baseline: tuple[Group, ...]
    new_s: tuple[float, ...]
    before_s: Floats
    after_s: Floats
    device: str = ""

    @property
    def baseline_s(self) -> list[float]:
        """The medians of the baseline's processes, in seconds."""
        return [value for group in self.baseline for value in group.medians_s]


@dataclass(frozen=True, slots=True)
class Suite:
    """Tests that are judged together, and what is assumed of them."""

    cases: tuple[Case, ...]
    prior: Prior

    @classmethod
    def of(cls, cases: Sequence[Case], prior: Prior) -> "Suite":
        """A suite whose tests lend each other their spreads, as `comparators.prior_of` has it in a run."""
        return cls(tuple(cases), borrow(prior, [spread_within(case.baseline) for case in cases]))


class Source(Protocol):
    """Where suites are drawn from."""

    @property
    def name(self) -> str:
        """In a table."""

    @property
    def description(self) -> str:
        """In words."""

    @property
    def tests(self) -> int:
        """In every suite."""

    @property
    def unusable(self) -> tuple[str, ...]:
        """Benchmarks with too few processes."""

    def draw(self, rng: np.random.Generator) -> Suite:
        """Another suite of unchanged code."""


def exchangeable(prior: Prior) -> Prior:
    """The prior for processes of which any could have run in any session: nothing lies between sessions."""
    return replace(prior, session=0.0)


@dataclass(frozen=True, slots=True)
class Recorded:
    """Processes that really ran; a suite is drawn from them without replacement.

    Args:
        processes: of each usable benchmark, the samples of each process in seconds.
        baseline: how many processes are its baseline.
        new_max: how many others are new, where there are so many.
    """

    name: str
    processes: dict[str, tuple[Floats, ...]]
    baseline: int
    new_max: int
    prior: Prior
    unusable: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """How many benchmarks and processes, and how far apart these lie."""
        counts = [len(processes) for processes in self.processes.values()]
        spreads = sorted(_spread(processes) for processes in self.processes.values())
        apart = f"{100 * median(spreads):.3g} % apart in the median benchmark, {100 * spreads[-1]:.3g} % in the worst"
        return f"recorded: {len(counts)} benchmarks of {min(counts)} to {max(counts)} processes, {apart}"

    @property
    def tests(self) -> int:
        """The usable benchmarks."""
        return len(self.processes)

    def draw(self, rng: np.random.Generator) -> Suite:
        """A random baseline and random other processes of every benchmark."""
        return Suite.of([self._case(processes, rng) for processes in self.processes.values()], self.prior)

    def _case(self, processes: Sequence[Floats], rng: np.random.Generator) -> Case:
        order = rng.permutation(len(processes))[: self.baseline + self.new_max]
        picked = [processes[index] for index in order]
        medians = [float(np.median(samples)) for samples in picked]
        group = Group(tuple(medians[: self.baseline]))
        return Case((group,), tuple(medians[self.baseline :]), picked[0], picked[self.baseline])


def _spread(processes: Sequence[Floats]) -> float:
    """The standard deviation of the log-medians."""
    return float(np.std([math.log(np.median(samples)) for samples in processes], ddof=1))


def read_recorded(path: Path, baseline: int, new_max: int, prior: Prior) -> Recorded:
    """Recorded processes from JSON: benchmark → list of processes → list of samples in seconds.

    Raises:
        BadFile: missing, not such JSON, or a sample that is no time.
        BadInput: no benchmark has enough processes.
    """
    raw = decode_json(read_bytes(path, "data file"), f"data file {path}")
    if not isinstance(raw, dict):
        seen = type(raw).__name__
        raise BadFile(f"data file {path} holds a {seen}; expected an object: benchmark → processes → samples")
    known = {name: _processes(value, f"data file {path}: benchmark {name!r}") for name, value in raw.items()}
    usable = {name: processes for name, processes in known.items() if len(processes) >= baseline + FEWEST_NEW}
    unusable = tuple(name for name in known if name not in usable)
    if not usable:
        most = max((len(processes) for processes in known.values()), default=0)
        raise BadInput(
            f"data file {path} has no usable benchmark: none of its {len(known)} has {baseline + FEWEST_NEW} processes "
            f"(the most is {most}); take a smaller --baseline-processes, or record more"
        )
    return Recorded(path.stem, usable, baseline, new_max, exchangeable(prior), unusable)


def _processes(value: object, where: str) -> tuple[Floats, ...]:
    try:
        lists = msgspec.convert(value, list[list[float]])
    except msgspec.ValidationError as error:
        raise BadFile(f"{where}: {error}; expected a list of processes, each a list of seconds") from None
    for number, samples in enumerate(lists, 1):
        if not samples:
            raise BadFile(f"{where}: process {number} has no samples; expected at least one, or leave the process out")
        bad = next((x for x in samples if not (math.isfinite(x) and 0 < x < LONGEST_S)), None)
        if bad is not None:
            raise BadFile(f"{where}: process {number} has the sample {bad!r}; expected seconds, above 0, below a year")
    return tuple(np.asarray(samples, dtype=np.float64) for samples in lists)
