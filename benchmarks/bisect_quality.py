"""How often does `roofline bisect` name the right version, and how often a wrong one?

    python benchmarks/bisect_quality.py -o docs/results/bisect-quality.md

Histories of 64 steps, made up, whose truth is known. The search, the ends and the confirmation go through the functions
that the command uses: `place_steps`, `find_guilty` and `judge_paired`. Rules of other tools walk the same histories.
"""

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import goals
import numpy as np

from pytest_roofline.bisect.clear import MOST_PROCESSES, is_clear
from pytest_roofline.bisect.search import (
    SURE,
    SURER,
    Floats,
    Gap,
    Narrowed,
    Observation,
    Place,
    find_guilty,
    fit_levels,
    place_steps,
)
from pytest_roofline.core.verdicts import Kind, Verdict
from pytest_roofline.stats.paired import (
    PROCESSES_PER_BLOCK_SIDE,
    Arm,
    TimedProcess,
    judge_paired,
    order_of_blocks,
)

STEPS, GROUPS, TOLERANCE = 64, 40, 0.03
PROCESS, SESSION, TAILS = 0.01, 0.01, 3
BROKEN = 0.1
# The two figures by which a tool named a commit on one sample each (tritonparse#377).
FIGURES = (3.693, 3.739)
# The title of the last section, which `triton_wheels.py` writes.
WHEELS = "## Two real wheels"
RIGHT, WRONG, NOTHING, OPEN = "right", "wrong", "nothing", "open"
# The goals, as shares and numbers of processes.
RIGHT_AT_LEAST, WRONG_AT_MOST, NOTHING_AT_LEAST, PROCESSES_AT_MOST, GUILTY_PROCESSES = (
    0.95,
    0.01,
    0.99,
    70,
    300,
)


@dataclass(frozen=True)
class History:
    """The log seconds of every candidate, in order, the positions of its steps, and what cannot be measured."""

    levels: Floats
    steps: tuple[int, ...]
    broken: frozenset[Place] = frozenset()


class Machine:
    """Draws processes: Student's t around the level of a candidate, with an offset of each block."""

    def __init__(self, generator: np.random.Generator, level: Callable[[Place], float]) -> None:
        self._generator, self._level = generator, level
        self.processes = 0

    def offset(self) -> float:
        """Return the offset of a new block."""
        return float(self._generator.normal(0, SESSION))

    def log_s(self, place: Place, offset: float) -> float:
        """Return the log seconds of a process."""
        self.processes += 1
        noise = self._generator.standard_t(TAILS) / math.sqrt(TAILS / (TAILS - 2))
        return self._level(place) + offset + PROCESS * float(noise)


@dataclass
class Bench:
    """Measures the candidates of a search, as `bisect.measuring` does with processes.

    `warm` is the candidate that was measured last: another one warms up first.
    """

    machine: Machine
    ends: tuple[Place, Place]
    broken: frozenset[Place]
    observations: list[Observation] = field(default_factory=list)
    blocks: int = 0
    warm: Place | None = None

    def evidence(self) -> Mapping[Place, Floats]:
        return fit_levels(self.observations, self.ends)

    def measure(self, place: Place) -> None:
        assert place not in self.broken
        if place != self.warm:
            self.machine.processes += 1
        self.warm = place
        self.run((self.ends[0], place, self.ends[1]))

    def run(self, places: Sequence[Place]) -> None:
        offset = self.machine.offset()
        for place in places:
            self.observations.append(
                Observation(self.blocks, place, self.machine.log_s(place, offset))
            )
        self.blocks += 1

    def report(self, place: Place, row: Sequence[Place], narrowed: Narrowed) -> None:
        """The command prints a line here."""

    def differ(self, seed: int) -> bool:
        """Return True if the bad end is clearly slower. Keep the processes for the search."""
        verdict = self._compare(self.ends, seed, lambda verdict: is_clear(verdict, 1), keep=True)
        return is_clear(verdict, 1)

    def confirm(self, sides: tuple[Place, Place], seed: int) -> bool:
        """Return True if `roofline ab` calls the second candidate slower than the first."""
        verdict = self._compare(sides, seed, lambda _: False, keep=False)
        return verdict.kind is Kind.REGRESSED

    def _compare(
        self,
        sides: tuple[Place, Place],
        seed: int,
        is_enough: Callable[[Verdict], bool],
        *,
        keep: bool,
    ) -> Verdict:
        """Return the verdict of `roofline ab` on two candidates, or the one so far that is enough.

        Keep their processes for the search, or not. Each side warms up once.
        """
        self.machine.processes += 2
        places: dict[Arm, Place] = {"A": sides[0], "B": sides[1], "control": sides[0]}
        blocks: list[list[TimedProcess]] = []
        number, paired = 0, None
        for order in order_of_blocks(MOST_PROCESSES // PROCESSES_PER_BLOCK_SIDE, seed):
            offset, block = self.machine.offset(), []
            for arm in order:
                number += 1
                log_s = self.machine.log_s(places[arm], offset)
                block.append(TimedProcess(arm, math.exp(log_s), number))
                if keep and arm != "control":
                    self.observations.append(Observation(self.blocks, places[arm], log_s))
            self.blocks += 1
            blocks.append(block)
            paired = judge_paired({"test": blocks}, {"test": TOLERANCE}, MOST_PROCESSES)["test"]
            if not paired.open or is_enough(paired.verdict):
                break
        assert paired is not None
        return paired.verdict


def search_history(history: History, generator: np.random.Generator) -> tuple[str, int]:
    """Return how the search of a history ends, and its processes, warm-ups included."""
    last = len(history.levels) - 1
    row: list[Place] = [(number,) for number in range(last + 1)]
    machine = Machine(generator, lambda place: float(history.levels[place[0]]))
    bench = Bench(machine, (row[0], row[-1]), history.broken)
    if not bench.differ(_seed(generator)):
        return NOTHING, machine.processes
    word = OPEN
    for sure in (SURE, SURER):
        gaps = place_steps(bench, row, sure)
        confirmed = [bench.confirm((row[gap.good], row[gap.bad]), _seed(generator)) for gap in gaps]
        if all(confirmed):
            word = RIGHT if _holds(gaps, history.steps) else WRONG
            break
        # The sides of the candidates are made anew.
        bench.warm = None
    return word, machine.processes


def _holds(gaps: Sequence[Gap], steps: Sequence[int]) -> bool:
    """Return True if each gap holds one step."""
    return len(gaps) == len(steps) and all(
        gap.good < step <= gap.bad for gap, step in zip(gaps, steps, strict=True)
    )


def _seed(generator: np.random.Generator) -> int:
    return int(generator.integers(2**16))


def by_samples(
    history: History, generator: np.random.Generator, is_bad: Callable[[float, float, float], bool]
) -> str:
    """Return how a bisection with one sample of each candidate ends.

    `is_bad` gets the times of the sample, the good end and the bad end.
    """
    machine = Machine(generator, lambda place: float(history.levels[place[0]]))

    def sample(position: int) -> float:
        return math.exp(machine.log_s((position,), machine.offset()))

    good, bad = 0, len(history.levels) - 1
    good_s, bad_s = sample(good), sample(bad)
    if not is_bad(bad_s, good_s, bad_s):
        return NOTHING
    while sound := [
        position for position in range(good + 1, bad) if (position,) not in history.broken
    ]:
        middle = min(sound, key=lambda position: abs(position - (good + bad) / 2))
        if is_bad(sample(middle), good_s, bad_s):
            bad = middle
        else:
            good = middle
    # It names one step, and so at best the first of two.
    return RIGHT if any(good < step <= bad for step in history.steps) else WRONG


PEERS: dict[str, Callable[[float, float, float], bool]] = {
    "`git bisect run`, one sample, 3 % above the good end": (
        lambda sample, good, bad: sample > good * (1 + TOLERANCE)
    ),
    "one sample, above the middle of both ends (as tritonparse)": (
        lambda sample, good, bad: bad > good and sample > (good + bad) / 2
    ),
}


def draw_history(name: str, generator: np.random.Generator) -> History:
    """Return a history of a kind."""
    positions = np.arange(STEPS + 1)
    slowdowns = {
        "none": (),
        "+10 %": (0.10,),
        "two steps, +5 % each": (0.05, 0.05),
        "+1.2 %": (FIGURES[1] / FIGURES[0] - 1,),
    }.get(name, (0.05,))
    steps = tuple(sorted(generator.choice(positions[1:], len(slowdowns), replace=False).tolist()))
    levels = np.zeros(STEPS + 1)
    for step, slowdown in zip(steps, slowdowns, strict=True):
        levels += np.where(positions >= step, math.log1p(slowdown), 0.0)
    broken = frozenset[Place]()
    if "broken" in name:
        inside = positions[1:-1]
        broken = frozenset(
            (int(place),) for place in inside[generator.random(len(inside)) < BROKEN]
        )
    return History(levels, steps, broken)


KINDS = ("+5 %", "+10 %", "two steps, +5 % each", "+5 %, one in ten broken", "none", "+1.2 %")
GUILTY = ("one", "two that add up, +5 % each", "two that need each other")


def search_groups(name: str, generator: np.random.Generator) -> tuple[bool, int]:
    """Return whether the guilty of some differences were named, and the processes that it took."""
    count = 1 if name == "one" else 2
    guilty = tuple(sorted(generator.choice(GROUPS, count, replace=False).tolist()))
    slowdown = math.log1p(0.05)

    def level(place: Place) -> float:
        present = len(set(guilty) & set(place))
        return slowdown * (present == count if "need" in name else present)

    machine = Machine(generator, level)
    bench = Bench(machine, ((), tuple(range(GROUPS))), frozenset())
    if not bench.differ(_seed(generator)):
        return False, machine.processes
    parts = find_guilty(bench, GROUPS)
    named = tuple(sorted(number for part, _ in parts for number in part))
    is_confirmed = bench.confirm(((), named), _seed(generator))
    return named == guilty and is_confirmed, machine.processes


@dataclass
class Tally:
    """The ends of all histories of a kind, by rule, and the processes of this plugin."""

    ends: dict[str, Counter[str]] = field(default_factory=dict)
    processes: list[int] = field(default_factory=list)


OURS = "this plugin"


def tally(name: str, draws: int, seed: int) -> Tally:
    """Return the ends of all histories of a kind. Each rule sees the same history, with draws of its own."""
    tallied = Tally({rule: Counter() for rule in (*PEERS, OURS)})
    for draw in range(draws):
        history = draw_history(name, np.random.default_rng([seed, draw]))
        for number, (rule, is_bad) in enumerate(PEERS.items(), 1):
            generator = np.random.default_rng([seed, draw, number])
            tallied.ends[rule][by_samples(history, generator, is_bad)] += 1
        word, processes = search_history(history, np.random.default_rng([seed, draw, 0]))
        tallied.ends[OURS][word] += 1
        tallied.processes.append(processes)
    return tallied


INTRO = """Made by `python benchmarks/bisect_quality.py`: {draws} histories a row, {groups} of differences, seed {seed}.
A history has 64 steps; the first slow version is any of them. Processes spread by 1 %, as Student's t of 3 degrees of
freedom; each block has an offset of 1 %, as a session has. The tolerance is 3 %. Search, ends and confirmation are the
functions that `roofline bisect` calls. A step counts as named only if the comparison at the end confirms it; "right"
is the first slow version, or where neighbours cannot be built a range that holds it. Two steps are right if both are
named. A rule of one sample names one step, so one of the two is enough for it. Processes are all that run: warm-ups of
both ends, of each candidate and of both sides of the confirmation, and the second A that guards an `ab`."""


def page(
    tallies: Mapping[str, Tally],
    guilty: Mapping[str, list[tuple[bool, int]]],
    draws: int,
    seed: int,
) -> str:
    """Return the page as Markdown."""
    groups = len(next(iter(guilty.values())))
    results = findings(tallies, guilty)
    lines = ["# How good the answers of `roofline bisect` are", ""]
    lines += [conclusion(results), "", INTRO.format(draws=draws, groups=groups, seed=seed), ""]
    lines += ["| goal | seen | |", "|---|---|---|", *goals.rows_of(results)]
    lines += [
        "",
        "## Histories",
        "",
        "| history | rule | right | a wrong one | nothing | undecided | processes |",
    ]
    lines += ["|---" * 7 + "|"]
    for name, tallied in tallies.items():
        for rule, ends in tallied.ends.items():
            shares = [f"{100 * ends[word] / draws:.1f} %" for word in (RIGHT, WRONG, NOTHING, OPEN)]
            processes = f"{median(tallied.processes):g}" if rule == OURS else ""
            lines.append(f"| {' | '.join([name, rule, *shares, processes])} |")
    lines += ["", "## Differences of two environments", ""]
    lines += ["| guilty of 40 | right | processes in the median | at most |", "|---" * 4 + "|"]
    for name, results in guilty.items():
        counts = [processes for _, processes in results]
        right = sum(good for good, _ in results) / len(results)
        lines.append(f"| {name} | {100 * right:.1f} % | {median(counts):g} | {max(counts)} |")
    lines += ["", "## What this does not show", ""]
    lines += [
        "* Times are made up. Levels go up at a step and stay; a version that is slow for a while is not drawn.",
    ]
    return "\n".join(lines) + "\n"


def conclusion(results: Sequence[goals.Goal]) -> str:
    """Return the paragraph that the page begins with: how often the answer is right, and how often it is wrong."""
    right, wrong = goals.seen_of(results, ": right at"), goals.seen_of(results, ": a wrong one")
    sentences = [goals.verdict_on(results)]
    if right and wrong:
        step = right[0].partition(":")[0]
        sentences.insert(
            0,
            f"Of histories with a step of {step} the right version is named in {right[1]}, and a wrong one in "
            f"{wrong[1]}.",
        )
    return " ".join(sentences)


def wheels_section(page: str) -> str:
    """Return the section of a page that `triton_wheels.py` wrote; empty without one."""
    _, title, section = page.partition(WHEELS)
    return title + section


def findings(
    tallies: Mapping[str, Tally], guilty: Mapping[str, list[tuple[bool, int]]]
) -> list[tuple[str, str, bool]]:
    """Return each goal, what was seen, and whether it was reached."""
    found = []
    for name, tallied in tallies.items():
        ends, draws = tallied.ends[OURS], tallied.ends[OURS].total()
        shares = {word: ends[word] / draws for word in (RIGHT, WRONG, NOTHING)}
        texts = {word: f"{100 * share:.1f} %" for word, share in shares.items()}
        if name in ("none", "+1.2 %"):
            good = shares[NOTHING] >= NOTHING_AT_LEAST
            found.append(
                (f"{name}: “nothing to bisect at 3 %” at least 99 %", texts[NOTHING], good)
            )
            continue
        good = shares[RIGHT] >= RIGHT_AT_LEAST
        found.append((f"{name}: right at least 95 %", texts[RIGHT], good))
        found.append(
            (f"{name}: a wrong one at most 1 %", texts[WRONG], shares[WRONG] <= WRONG_AT_MOST)
        )
        if "two" not in name:
            processes = median(tallied.processes)
            good = processes <= PROCESSES_AT_MOST
            goal = f"{name}: at most 70 processes in the median, confirmation and warm-ups included"
            found.append((goal, f"{processes:g}", good))
    for name, results in guilty.items():
        within = sum(good and count <= GUILTY_PROCESSES for good, count in results) / len(results)
        goal = f"guilty {name} of 40: right within 300 processes at least 95 %"
        found.append((goal, f"{100 * within:.1f} %", within >= RIGHT_AT_LEAST))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status, 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for option, default, text in (
        ("--draws", 1000, "histories a row"),
        ("--groups", 300, "draws of differences a row"),
        ("--seed", 47, "of all draws"),
    ):
        parser.add_argument(option, type=int, default=default, help=f"{text} (default: {default})")
    parser.add_argument(
        "-o", "--output", type=Path, help="Markdown file to write; else it is printed"
    )
    options = parser.parse_args(arguments)
    tallies = {}
    for name in KINDS:
        tallies[name] = tally(name, options.draws, options.seed)
        print(name, dict(tallies[name].ends[OURS]), file=sys.stderr, flush=True)
    guilty = {}
    for number, name in enumerate(GUILTY):
        generators = (
            np.random.default_rng([options.seed, number, draw]) for draw in range(options.groups)
        )
        guilty[name] = [search_groups(name, generator) for generator in generators]
    text = page(tallies, guilty, options.draws, options.seed)
    if options.output:
        before = options.output.read_text(encoding="utf-8") if options.output.exists() else ""
        # A section that another program wrote stays.
        parts = filter(None, (text, wheels_section(before)))
        options.output.write_text("\n".join(parts), encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
