"""How often a healthy machine is red on day one by its floors, and from how far beyond a floor a slow one is.

    python benchmarks/day_one.py -o docs/results/floors.md

Draws medians of processes and puts them through the decision of a run: floors of `baselines/`, up to twelve rounds. It
writes its part of the page; the tables of floors are those of `baselines/published/build.py`.
"""

import argparse
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parts import part_of, with_part

from pytest_roofline.core.entries import SHARE, Entry
from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.records import Ceiling
from pytest_roofline.core.verdicts import Group, Kind, TimeLimit
from pytest_roofline.stats.analyses import MOST_ROUNDS, Analyses
from pytest_roofline.stats.limits import Limit
from pytest_roofline.stats.outlook import Policy
from pytest_roofline.stats.verdicts import judge

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "baselines" / "published"))
from floors import Cell, cells  # noqa: E402

PROGRAM = "benchmarks/day_one.py"
RUNS, DRAWS, SEED = 500, 400, 19
# Standard deviations of log seconds: between processes, between cards of a product, and of those in arithmetic.
PROCESS, CARD, CARD_GEMM = 0.01, 0.01, 0.05
FOUND = 0.8
STEP = 0.001
# Tests of the quick tier at sizes that saturate, on one card, by resource.
TESTS = {
    "memory, copied": 4,
    "memory, by kernels": 8,
    "memory, dot product": 2,
    "host to device": 2,
    "device to host": 2,
}
PART = """## Day one, simulated

Made by `python benchmarks/day_one.py`, every number of it, with {runs} runs of each product and
seed {seed}.
A machine is healthy where its rates are the median of the healthy figures behind [the floors](#the-floors). Cards are
{card:.0%} apart (in arithmetic {gemm:.0%}), the processes of one {process:.0%}.
Each test takes up to {rounds} rounds, in which only what is undecided is
measured again, and goes through the decision of a run with its floor. These spreads are assumed: nobody has
measured them here on accelerators.

**How often anything is red.** At most 5 % of healthy runs may be.

| product | tests with a floor | healthy runs with anything red |
|---|---:|---:|
{table}

**From where a slow machine is red.** A test that takes {excess:.1%} longer than its floor allows
is red {found:.0%} of the time, in up to {rounds} rounds; in a single one it must take {single:.1%}
longer. The column *red from* of [the floors](#the-floors) adds the first to what lies between typical and floor.
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """The cells of a product that have a floor, and how many tests are held by each."""

    product: str
    floors: list[tuple[Cell, int]]

    @property
    def tests(self) -> int:
        """All of them."""
        return sum(count for _, count in self.floors)


def machines() -> list[Machine]:
    """Every product with a floor of one card."""
    found: dict[str, list[tuple[Cell, int]]] = {}
    for cell in cells():
        count = TESTS.get(cell.resource.name, 1 if cell.resource.method == "GEMM" else 0)
        if cell.rate is not None and count:
            found.setdefault(cell.product, []).append((cell, count))
    return [Machine(product, floors) for product, floors in found.items()]


def is_red(draw: random.Random, centre: float, rounds: int) -> bool:
    """Whether a test whose processes lie around `centre`, in log seconds beyond its floor, is red."""
    times: list[float] = []
    policy = Policy(analyses=Analyses(rounds))
    while len(times) < rounds:
        times.append(math.exp(draw.gauss(centre, PROCESS)))
        verdict = judge([Group(tuple(times))], None, policy, limits=[ONE_SECOND])
        if verdict.decided or verdict.futile:
            return verdict.kind is Kind.REGRESSED
    return verdict.kind is Kind.REGRESSED


ONE_SECOND = Limit(
    TimeLimit(
        1.0,
        Entry(
            "simulated",
            "traffic_GBps",
            "floor",
            value=0.5,
            unit=SHARE,
            source="this program",
            figures=1,
        ),
        Ceiling("traffic_GBps", 1e9, "datasheet", "this program"),
        share=0.5,
    )
)


def healthy_runs_red(machine: Machine, runs: int, draw: random.Random) -> int:
    """How many of so many runs on healthy cards have anything red."""
    return sum(_run_is_red(machine, draw) for _ in range(runs))


def _run_is_red(machine: Machine, draw: random.Random) -> bool:
    red = False
    for cell, count in machine.floors:
        assert cell.typical is not None
        assert cell.rate is not None
        card = draw.gauss(0, CARD_GEMM if cell.resource.method == "GEMM" else CARD)
        centre = card - math.log(cell.typical / cell.rate)
        red |= sum(is_red(draw, centre, MOST_ROUNDS) for _ in range(count)) > 0
    return red


def excess(rounds: int, draws: int, seed: int) -> float:
    """By how much of its time a test must lie beyond its floor to be found 80 times in 100, in so many rounds."""
    beyond = 0.0
    while True:
        beyond += STEP
        draw = random.Random(seed)
        if sum(is_red(draw, math.log1p(beyond), rounds) for _ in range(draws)) >= FOUND * draws:
            return beyond


def part(runs: int, draws: int, seed: int) -> str:
    """Return the part of the page, as Markdown."""
    rows = []
    for machine in machines():
        red = healthy_runs_red(machine, runs, random.Random(seed))
        rows.append(f"| {machine.product} | {machine.tests} | {red} of {runs} ({red / runs:.1%}) |")
        print(rows[-1], flush=True)
    return PART.format(
        runs=runs, seed=seed, card=CARD, gemm=CARD_GEMM, process=PROCESS, rounds=MOST_ROUNDS, found=FOUND,
        table="\n".join(rows), excess=excess(MOST_ROUNDS, draws, seed), single=excess(1, draws, seed),
    )  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, or 2 for a page that has no place for the part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help="Markdown page whose part to write")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--draws", type=int, default=DRAWS)
    options = parser.parse_args(arguments)
    try:
        if options.output:
            # Nobody waits minutes for a part that has no place.
            part_of(options.output.read_text(encoding="utf-8"), PROGRAM)
    except (BadFile, OSError) as error:
        print(f"day_one: {options.output}: {error}", file=sys.stderr)
        return 2
    text = part(options.runs, options.draws, SEED)
    print(text)
    if options.output:
        page = options.output.read_text(encoding="utf-8")
        options.output.write_text(with_part(page, PROGRAM, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
