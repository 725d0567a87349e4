"""Suites of unchanged code: made-up processes whose truth is known, or processes that really ran."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import msgspec
import numpy as np
import numpy.typing as npt
from scipy import special

from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.storage import decode_json, read_bytes
from pytest_roofline.stats.spread import NORMAL_DEVIATION

Floats = npt.NDArray[np.float64]

# σ_p of a large public corpus at its percentiles; "calm" is a third of it, as on an accelerator's own clock.
MIX_SHARES, MIX_SPREADS = (0.10, 0.25, 0.50, 0.75, 0.90), (0.002, 0.006, 0.011, 0.030, 0.059)
CALM = 0.3
# One value a night and a test of two GPUs in fixed hosts over about 110 nights: the standard deviation between nights.
NIGHT_SHARES = (0.10, 0.50, 0.90)
NIGHTS = {"nights of GPU A": (0.0007, 0.011, 0.0185), "nights of GPU B": (0.0007, 0.0055, 0.0175)}
# Of these nights 4 to 7 % lie more than four robust standard deviations away: Student's t of so few degrees of
# freedom.
NIGHT_TAILS = 2.0
# What all tests of such a night share.
NIGHT_SHARED = 0.003
# One session of a baseline in which some tests were so much slower.
ODD = math.log(1.2)
# 22.5 ms in one process, 25.5 ms in the next: seen, and typical of memory that falls well or badly.
SLOW_MODE = math.log(25.5 / 22.5)
NEW = 12
# A shape is possible where so many processes are left for the new side.
FEWEST_NEW = 3
# A sample of more than a year is a number in another unit.
LONGEST_S = 3e7


@dataclass(frozen=True, slots=True)
class Setup:
    """How unchanged processes differ.

    Args:
        spreads: `calm`, `mix` or one of `NIGHTS`; of recorded processes their own.
        session: σ_s, between sessions, in each test another offset; `relative` adds that multiple of the test's σ_p.
        shared: the same between sessions, one offset for all tests.
        device: σ_g of the device that the new processes run on; 0 where it is the baseline's.
        tails: degrees of freedom of Student's t; infinite is normal.
        modes: the share of processes in a mode that is 13 % slower, and `moody` the share of tests that have it.
        sitting: whether the baseline was recorded within six hours: one offset for all of its sessions.
        louder: how many times as far as the baseline's the new processes lie apart.
        odd: the share of tests of which the baseline's first session was 20 % slower.
    """

    spreads: str = "calm"
    session: float = 0.005
    relative: float = 0.0
    shared: float = 0.0
    device: float = 0.0
    tails: float = math.inf
    modes: float = 0.0
    moody: float = 1.0
    sitting: bool = False
    louder: float = 1.0
    odd: float = 0.0


def mixed(
    rng: np.random.Generator,
    tests: int,
    percentiles: tuple[float, ...] = MIX_SHARES,
    spreads: tuple[float, ...] = MIX_SPREADS,
) -> Floats:
    """[tests]: spreads as tests have them, log-linear between percentiles and beyond the outer two."""
    shares, logs = np.asarray(percentiles), np.log(spreads)
    first, last = (
        (logs[1] - logs[0]) / (shares[1] - shares[0]),
        (logs[-1] - logs[-2]) / (shares[-1] - shares[-2]),
    )
    ends = np.array([logs[0] - first * shares[0], *logs, logs[-1] + last * (1 - shares[-1])])
    return np.asarray(np.exp(np.interp(rng.random(tests), [0.0, *shares, 1.0], ends)))


def draw(
    rng: np.random.Generator, setup: Setup, tests: int, shape: Sequence[int]
) -> tuple[Floats, Floats]:
    """[tests, processes of the baseline] and [tests, new processes]: log-medians of a suite of unchanged code."""
    if setup.spreads in NIGHTS:
        spread = mixed(rng, tests, NIGHT_SHARES, NIGHTS[setup.spreads])[:, None]
    else:
        spread = mixed(rng, tests)[:, None] * (CALM if setup.spreads == "calm" else 1.0)
    size = (tests, sum(shape) + NEW)
    if math.isinf(setup.tails):
        logs = rng.standard_normal(size) * spread
    else:
        logs = rng.standard_t(setup.tails, size) * spread * _scale(setup)
    logs[:, sum(shape) :] *= setup.louder
    logs[: round(setup.odd * tests), : shape[0]] += ODD
    moody = round(setup.moody * tests)
    logs[:moody] += SLOW_MODE * (rng.random((moody, size[1])) < setup.modes)
    return with_sessions(rng, setup, logs, spread, shape)


def _scale(setup: Setup) -> float:
    """Return the factor that gives Student's t the spread that is asked for."""
    if setup.spreads in NIGHTS:
        # What was measured of nights is a robust standard deviation.
        return 1 / (NORMAL_DEVIATION * float(special.stdtrit(setup.tails, 0.75)))
    # The same standard deviation, where there is one.
    return math.sqrt((setup.tails - 2) / setup.tails) if setup.tails > 2 else 0.5


def with_sessions(
    rng: np.random.Generator, setup: Setup, logs: Floats, spread: Floats, shape: Sequence[int]
) -> tuple[Floats, Floats]:
    """Both sides with what lies between sessions and devices."""
    tests, known = len(logs), sum(shape)
    offsets = rng.standard_normal((tests, len(shape) + 1)) * np.hypot(
        setup.session, setup.relative * spread
    )
    offsets = offsets + setup.shared * rng.standard_normal(len(shape) + 1)
    if setup.sitting:
        offsets[:, :-1] = offsets[:, :1]
    device = setup.device * rng.standard_normal((tests, 1))
    return logs[:, :known] + np.repeat(offsets[:, :-1], shape, axis=1), logs[:, known:] + offsets[
        :, -1:
    ] + device


@dataclass(frozen=True, slots=True)
class Recorded:
    """Processes that really ran; of each benchmark the log-medians, and the samples in seconds."""

    name: str
    logs: tuple[Floats, ...]
    samples: tuple[tuple[Floats, ...], ...] = field(repr=False)

    @property
    def description(self) -> str:
        """How many benchmarks and processes, and how far apart these lie."""
        counts, spreads = (
            [len(logs) for logs in self.logs],
            sorted(float(np.std(logs, ddof=1)) for logs in self.logs),
        )
        apart = f"{100 * median(spreads):.3g} % apart in the median benchmark, {100 * spreads[-1]:.3g} % in the worst"
        return f"{len(counts)} benchmarks of {min(counts)} to {max(counts)} processes, {apart}"

    @property
    def fewest(self) -> int:
        """The processes of the benchmark that has the fewest."""
        return min(len(logs) for logs in self.logs)

    def fits(self, shape: Sequence[int]) -> bool:
        """Whether every benchmark has enough processes."""
        return self.fewest >= sum(shape) + FEWEST_NEW

    def draw(
        self, rng: np.random.Generator, setup: Setup, shape: Sequence[int]
    ) -> tuple[Floats, Floats]:
        """A random baseline and random other processes of every benchmark, none of them twice."""
        most = min(sum(shape) + NEW, min(len(logs) for logs in self.logs))
        logs = np.stack([rng.permutation(one)[:most] for one in self.logs])
        spread = np.array([[float(np.std(one, ddof=1))] for one in self.logs])
        return with_sessions(rng, setup, logs, spread, shape)


def read_recorded(path: Path) -> Recorded:
    """Recorded processes from JSON: benchmark → list of processes → list of samples in seconds.

    Raises:
        BadFile: missing, not such JSON, a sample that is no time, or too few processes.
    """
    raw = decode_json(read_bytes(path, "data file"), f"data file {path}")
    if not isinstance(raw, dict) or not raw:
        seen = "nothing" if isinstance(raw, dict) else type(raw).__name__
        raise BadFile(
            f"data file {path} holds {seen}; expected an object: benchmark → processes → samples"
        )
    known = {
        name: _processes(value, f"data file {path}: benchmark {name!r}")
        for name, value in raw.items()
    }
    usable = [processes for processes in known.values() if len(processes) > FEWEST_NEW]
    if not usable:
        most = max(len(processes) for processes in known.values())
        expected = f"expected {1 + FEWEST_NEW} processes or more"
        raise BadFile(
            f"data file {path} has no usable benchmark: {expected}, and the most is {most}; record more"
        )
    logs = tuple(
        np.log([float(np.median(samples)) for samples in processes]) for processes in usable
    )
    return Recorded(path.stem, logs, tuple(usable))


def _processes(value: object, where: str) -> tuple[Floats, ...]:
    try:
        lists = msgspec.convert(value, list[list[float]])
    except msgspec.ValidationError as error:
        raise BadFile(
            f"{where}: {error}; expected a list of processes, each a list of seconds"
        ) from None
    for number, samples in enumerate(lists, 1):
        if not samples:
            raise BadFile(
                f"{where}: process {number} has no samples; expected at least one, or leave the process out"
            )
        bad = next((x for x in samples if not (math.isfinite(x) and 0 < x < LONGEST_S)), None)
        if bad is not None:
            raise BadFile(
                f"{where}: process {number} has the sample {bad!r}; expected seconds, above 0, below a year"
            )
    return tuple(np.asarray(samples, dtype=np.float64) for samples in lists)
