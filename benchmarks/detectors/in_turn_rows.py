"""The rows of the page on two sides in turn, and the counting of what is said of them, here and by other tools."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from pytest_roofline.core.verdicts import Kind

from .in_turn import Tally, World, draw, run
from .peers import PROCESS_PEERS, SLOWDOWNS, SWEEP

SUITE, SMALL = 200, 25
CHUNKS = 8
ONE, ALL = "one", "all"


@dataclass(frozen=True, slots=True)
class Row:
    """One set-up.

    Args:
        group: of the table; `name` in it.
        draws: suites, as a multiple of what is asked for.
        slower: `one` test drawn anew in each suite, or `all`; empty is none.
        goals: of the slower tests, shares to find by so many processes a side.
    """

    group: str
    name: str
    world: World
    tests: int = SUITE
    most: int = 8
    tolerance: float = 0.03
    draws: float = 1.0
    slower: str = ""
    slowdown: float = 0.0
    goals: tuple[tuple[int, float], ...] = ()


def rows() -> list[Row]:
    """All of them."""
    found = [
        Row("spreads", f"{_told(one)}", World(one), most=most)
        for most in (8, 12)
        for one in (0.01, "calm", "mix")
    ]
    found += [
        Row("drifts", "calm, nothing moves", World(session=0.0, drift=0.0)),
        Row("drifts", "calm, curved drift", World(curved=True)),
        Row("drifts", "mix, curved drift", World("mix", curved=True)),
        Row("drifts", "calm, resumed in another session half way", World(resumed=True)),
    ]
    for share in (0.15, 0.5):
        told = f"{100 * share:g} % of processes"
        found += [
            Row("modes", f"calm, every test, {told}", World(modes=share)),
            Row("modes", f"calm, 20 of 200 tests, {told}", World(modes=share, moody=0.1)),
        ]
    found += [
        Row(
            "modes",
            "σ_p 1 %, 4 of 200 tests, 50 % of processes",
            World(0.01, modes=0.5, moody=0.02),
        ),
        Row("modes", "mix, 20 of 200 tests, 50 % of processes", World("mix", modes=0.5, moody=0.1)),
        Row(
            "modes",
            "calm, 50 % of processes, each slow in all of its tests",
            World(modes=0.5, together=True),
        ),
        Row(
            "modes",
            "σ_p 1 %, one of 25 tests, 50 % of processes",
            World(0.01, modes=0.5, moody=0.04),
            SMALL,
            draws=4,
        ),
    ]
    found += [
        Row("tails", f"{one}, {told}", World(one, **how))
        for one in ("calm", "mix")
        for told, how in (
            ("t of 3 degrees of freedom", {"tails": 3.0}),
            ("3 % of processes 35 % slower", {"outliers": True}),
        )
    ]
    found += [Row("small", _told(one), World(one), SMALL, draws=4) for one in (0.01, "calm", "mix")]
    for name, world, tests, most, tolerance, slowdown, draws, goals in (
        ("σ_p 1 %", 0.01, SMALL, 8, 0.03, 0.05, 3, ((4, 0.9), (8, 0.9))),
        ("σ_p 1 %", 0.01, SUITE, 8, 0.03, 0.05, 1.5, ((4, 0.9), (8, 0.9))),
        ("calm", "calm", SUITE, 8, 0.03, 0.05, 1.5, ((8, 0.85),)),
        ("mix", "mix", SUITE, 8, 0.03, 0.05, 1.5, ((8, 0.55),)),
        ("σ_p 1 %", 0.01, SUITE, 12, 0.02, 0.03, 1, ((12, 0.8),)),
    ):
        found.append(
            Row(ONE, name, World(world), tests, most, tolerance, draws, ONE, slowdown, goals)
        )
    found += [
        Row(ALL, name, world, draws=0.08, slower=ALL, slowdown=slowdown)
        for name, world in (
            ("calm", World()),
            ("mix", World("mix")),
            ("calm, 20 of 200 tests in two modes, 50 %", World(modes=0.5, moody=0.1)),
        )
        for slowdown in (0.03, 0.0609)
    ]
    return found


PEER_WORLDS = {
    "calm, nothing moves": World(session=0.0, drift=0.0),
    "calm": World(),
    "mix": World("mix"),
    "calm, 20 of 200 tests in two modes": World(modes=0.5, moody=0.1),
    "calm, 3 % of processes 35 % slower": World(outliers=True),
}
PEER_DRAWS = 0.2
PEER_MOST = 8
OURS = "this plugin"


def _told(spread: str | float) -> str:
    return spread if isinstance(spread, str) else f"σ_p {100 * spread:g} %"


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to draw: suites a row, and the seed of everything."""

    draws: int
    seed: int


@dataclass(slots=True)
class Called:
    """What a rule says: suites with an unchanged test called slower, and slower tests found, by slowdown."""

    suites: int
    red_suites: int
    tests: int
    found: dict[float, int]


def count_all(plan: Plan, wanted: Sequence[Row], jobs: int) -> Iterator[Tally]:
    """What was seen of each row, in their order."""
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        tasks = [(row, part) for row in wanted for part in range(CHUNKS)]
        parts = pool.map(_part, repeat(plan), *zip(*tasks, strict=True))
        for _ in wanted:
            whole = Tally()
            for _ in range(CHUNKS):
                whole.add(next(parts))
            yield whole


def _part(plan: Plan, row: Row, part: int) -> Tally:
    suites, tally = max(1, round(plan.draws * row.draws)), Tally()
    for number in range(suites * part // CHUNKS, suites * (part + 1) // CHUNKS):
        rng = np.random.default_rng(
            [plan.seed, number, *map(ord, f"{row.group}{row.name}{row.tests}{row.most}")]
        )
        drawn = draw(rng, row.world, row.tests, row.most)
        slower = {"": (), ONE: (int(rng.integers(row.tests)),), ALL: tuple(range(row.tests))}[
            row.slower
        ]
        tally.count(run(drawn.slower(slower, row.slowdown), row.tolerance, row.most), slower)
    return tally


def count_peers(plan: Plan, jobs: int) -> dict[tuple[str, str], Called]:
    """What each rule says of the same processes, by rule and world."""
    suites = max(1, round(plan.draws * PEER_DRAWS))
    tasks = [(name, number) for name in PEER_WORLDS for number in range(suites)]
    found: dict[tuple[str, str], Called] = {}
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        for (world, _), said in zip(
            tasks, pool.map(_peers, repeat(plan), *zip(*tasks, strict=True)), strict=True
        ):
            for rule, (red, slower) in said.items():
                called = found.setdefault(
                    (rule, world), Called(0, 0, 0, dict.fromkeys(SLOWDOWNS, 0))
                )
                called.suites += 1
                called.red_suites += red > 0
                called.tests += SWEEP
                for slowdown, count in slower.items():
                    called.found[slowdown] += count
    return found


def _peers(plan: Plan, world: str, number: int) -> dict[str, tuple[int, dict[float, int]]]:
    """Of one suite, by rule: unchanged tests called slower, and by slowdown those found in a sweep that is slower."""
    rng = np.random.default_rng([plan.seed, number, *map(ord, world)])
    drawn = draw(rng, PEER_WORLDS[world], SUITE, PEER_MOST)
    first = SWEEP * int(rng.integers(SUITE // SWEEP))
    sweep = range(first, first + SWEEP)
    slowed = {slowdown: drawn.slower(sweep, slowdown) for slowdown in SLOWDOWNS}
    found = {
        peer.name: (
            int(np.sum(peer.rule(*drawn.sides()) > 0)),
            {
                slowdown: int(np.sum(peer.rule(*one.sides())[sweep] > 0))
                for slowdown, one in slowed.items()
            },
        )
        for peer in PROCESS_PEERS
    }
    kinds = {slowdown: run(one, 0.03, PEER_MOST).kinds for slowdown, one in slowed.items()}
    red = run(drawn, 0.03, PEER_MOST).kinds.count(Kind.REGRESSED)
    found[OURS] = (
        red,
        {
            slowdown: [said[test] for test in sweep].count(Kind.REGRESSED)
            for slowdown, said in kinds.items()
        },
    )
    return found
