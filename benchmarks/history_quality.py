"""After how many nights does `roofline history` see a step, and how often does it invent one?

    pip install --no-deps --target FOLDER apache-otava==0.8.0
    PYTHONPATH=FOLDER python benchmarks/history_quality.py -o docs/results/history-quality.md

Nights of two GPUs, made up, whose truth is known: the whole-series pass alone, both passes, a rule of thumb and Otava.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import goals
import numpy as np
from detectors.rows import bounds
from many.nights import QUIET, WORLDS, Drawn, World, draw, measure
from many.watching import BOTH, MEDIANS, OTAVA, RULES, WHOLE, Report, otava_version, watch

from pytest_roofline.core.errors import BadInput, RooflineError

SIZES, NIGHTS = (0.05, 0.10), (2, 3, 4, 5, 7, 12)
# Of each set, so many tests become slower.
SLOWED = 16
# A step counts as seen where its night is right up to so many nights.
APART = 3
# "A series of 1 %": σ of these tests.
ABOUT_ONE = 0.007, 0.014
SEED = 39
# The goals: a slowdown by a night in so many tests, and invented findings in so many sets.
GOALS, MOST_INVENTED = {(0.10, 3): 0.80, (0.05, 5): 0.60}, 1 / 35
INTRO = """# How soon `roofline history` sees a step

{conclusion}

Made by `python benchmarks/history_quality.py`, seed {seed}. Sets of {tests} tests over {nights} nights,
made up so that they have the percentiles of nights of two real GPUs. Each has heavy tails: besides noise there are
outliers of four σ and more, in a few restless tests in every fifth night. Tests that become slower have old steps, too.
The rules see the same draws. A step is seen where a rule reports the test as slower, at a night that is right up to
{apart} nights. Each night is a look of its own at all nights until then, with nothing kept of the looks before. So the
rule of thumb forgets a step, and the second pass looks for none that is older than seven nights.
Ranges are Clopper and Pearson's, of 95 %.

| world | σ of one night at 10 / 50 / 90 % of tests | steps beyond 4 σ | autocorrelation | shared by all |
|---|---|---|---|---|
{worlds}

* **{whole}**: the pass that looks at all nights, as it was before there was another.
* **{both}**: as the command reports it.
* **{medians}**: the rule of thumb, of one test at a time.
* **{otava}**: run, version {version}, `compute_change_points` with the defaults of its command (window 50, p 0.001,
  any magnitude), of one test at a time.
"""


@dataclass(slots=True)
class Tally:
    """What was seen of one world, by rule.

    Args:
        seen: by rule, slowdown, night and whether σ is about 1 %: steps seen, and all.
        invented: by rule, sets with a report among unchanged tests; `reports` how many; `sets` of all.
        late: the same among the last nights of tests with old steps, which have none there.
    """

    seen: dict[tuple[str, float, int, bool], list[int]] = field(default_factory=dict)
    invented: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RULES, 0))
    reports: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RULES, 0))
    late: dict[str, int] = field(default_factory=lambda: dict.fromkeys(RULES, 0))
    sets: int = 0
    stepped: int = 0


def unchanged(world: World, sets: int, seed: int, tally: Tally) -> None:
    """Count what rules report of tests that do not change at all."""
    for number in range(sets):
        drawn = draw(np.random.default_rng([seed, 1, number]), world, old_steps=False)
        for rule, reports in watch(drawn, range(world.tests)).items():
            tally.invented[rule] += bool(reports)
            tally.reports[rule] += len(reports)
        tally.sets += 1


def slowed(world: World, sets: int, seed: int, tally: Tally) -> None:
    """Count what rules report of tests with old steps, as they are and with a step among their last nights."""
    for number in range(sets):
        rng = np.random.default_rng([seed, 2, number])
        drawn = draw(rng, world, old_steps=True)
        tests = rng.choice(world.tests, SLOWED, replace=False)
        for rule, reports in watch(drawn, range(world.tests)).items():
            last = world.nights - QUIET + APART
            tally.late[rule] += any(report.night > last for report in reports)
        tally.stepped += 1
        for by in SIZES:
            for night in NIGHTS:
                _count(drawn, tests, by, night, tally)


def _count(
    drawn: Drawn, tests: "np.typing.NDArray[np.int_]", by: float, night: int, tally: Tally
) -> None:
    first = drawn.logs.shape[1] - night
    for rule, reports in watch(drawn.slower(tests, by, night), tests).items():
        right = {report.test for report in reports if _fits(report, first)}
        for test in tests.tolist():
            about = ABOUT_ONE[0] < drawn.spreads[test] < ABOUT_ONE[1]
            for key in {(rule, by, night, False), (rule, by, night, about)}:
                counts = tally.seen.setdefault(key, [0, 0])
                counts[0] += test in right
                counts[1] += 1


def _fits(report: Report, first: int) -> bool:
    return report.slower and abs(report.night - first) <= APART


def page(tallies: dict[str, Tally], seed: int) -> str:
    """The page."""
    worlds = [_world(world, seed) for world in WORLDS]
    results = findings(tallies)
    intro = INTRO.format(
        conclusion=conclusion(results),
        seed=seed,
        tests=WORLDS[0].tests,
        nights=WORLDS[0].nights,
        apart=APART,
        worlds="\n".join(worlds),
        whole=WHOLE,
        both=BOTH,
        medians=MEDIANS,
        otava=OTAVA,
        version=otava_version(),
    )
    head = ["| goal, both passes | seen | |", "|---|---|---|"]
    parts = [intro.strip(), "\n".join([*head, *goals.rows_of(results)])]
    for name, tally in tallies.items():
        for about, which in ((False, "all tests"), (True, "tests with σ of 0.7 to 1.4 %")):
            parts += [f"## {name}, {which}", _delays(tally, about=about)]
    parts += ["## Invented findings", INVENTED, _invented(tallies)]
    return "\n\n".join(parts) + "\n"


INVENTED = f"""Sets of unchanged tests with a report, each an invented one, looked at once; and how many reports a set
has. The last column is of sets whose tests have old steps: those with a report of a step in the last {QUIET - APART}
nights, where there is none. Who looks every morning looks often: each look has this chance anew, though neighbours
mostly agree."""


def _world(world: World, seed: int) -> str:
    seen = measure(draw(np.random.default_rng([seed, 0]), world, old_steps=False))
    spreads = " / ".join(f"{100 * spread:.2f}" for spread in seen.spreads)
    shares = f"{100 * seen.steps:.1f} % | {seen.correlation:.2f} | {100 * seen.shared:.2f} %"
    return f"| {world.name} | {spreads} % | {shares} |"


def findings(tallies: dict[str, Tally]) -> list[goals.Goal]:
    """Return each goal, what was seen, and whether it was reached."""
    results = []
    for name, tally in tallies.items():
        for (by, night), least in GOALS.items():
            seen, count = tally.seen[BOTH, by, night, False]
            goal = f"{name}: +{100 * by:g} % seen on night {night}, at least {100 * least:g} %"
            results.append((goal, _share(seen, count), seen >= least * count))
    wrong = sum(tally.invented[BOTH] for tally in tallies.values())
    sets = sum(tally.sets for tally in tallies.values())
    goal = "sets with an invented finding, at most 1 in 35"
    return [*results, (goal, _share(wrong, sets), wrong <= MOST_INVENTED * sets)]


def conclusion(results: Sequence[goals.Goal]) -> str:
    """Return the paragraph that the page begins with: steps that are seen, and findings that are invented."""
    step = next(iter(GOALS))
    words = f"+{100 * step[0]:g} % seen on night {step[1]}"
    seen = [f"{share} ({goal.partition(':')[0]})" for goal, share, _ in results if words in goal]
    invented = results[-1][1]
    return (
        f"A slowdown of {100 * step[0]:g} % is seen on night {step[1]} in {' and '.join(seen)} tests, and "
        f"{invented} unchanged sets have an invented finding. {goals.verdict_on(results)}"
    )


def _share(part: int, whole: int) -> str:
    low, high = bounds(part, whole)
    return f"{100 * part / whole:.1f} % ({100 * low:.1f}–{100 * high:.1f}) of {whole}"


def _delays(tally: Tally, *, about: bool) -> str:
    lines = [
        "| rule | step |" + "".join(f" night {night} |" for night in NIGHTS),
        "|---|---|" + "---:|" * len(NIGHTS),
    ]
    for by in SIZES:
        for rule in RULES:
            cells = [_cell(*tally.seen[rule, by, night, about]) for night in NIGHTS]
            lines.append(f"| {rule} | +{100 * by:g} % | {' | '.join(cells)} |")
    tests = tally.seen[WHOLE, SIZES[0], NIGHTS[0], about][1]
    return "\n".join(
        [f"The last night is the nth slow one; seen of {tests} tests, in %.", "", *lines]
    )


def _cell(part: int, whole: int) -> str:
    low, high = bounds(part, whole)
    return f"{100 * part / whole:.0f} ({100 * low:.0f}–{100 * high:.0f})"


def _invented(tallies: dict[str, Tally]) -> str:
    lines = [
        "| rule | world | unchanged sets with a report | reports a set | sets with old steps |",
        "|---|---|---|---:|---|",
    ]
    for rule in RULES:
        for name, tally in tallies.items():
            cells = [
                _share(tally.invented[rule], tally.sets),
                f"{tally.reports[rule] / tally.sets:.2f}",
                _share(tally.late[rule], tally.stepped),
            ]
            lines.append(f"| {rule} | {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _at_least_one(options: argparse.Namespace, names: Iterable[str]) -> None:
    for name in names:
        if getattr(options, name) < 1:
            raise BadInput(f"--{name} is {getattr(options, name)}; expected 1 or more")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or print it; exit status 2 for input that cannot be used."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sets",
        type=int,
        default=15,
        help="with slowed tests, of each world (default: %(default)s)",
    )
    parser.add_argument(
        "--unchanged", type=int, default=100, help="sets of each world (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    options = parser.parse_args(arguments)
    try:
        _at_least_one(options, ("sets", "unchanged", "seed"))
        otava_version()
    except RooflineError as error:
        print(f"history_quality: {error}", file=sys.stderr)
        return 2
    tallies = {}
    for world in WORLDS:
        tally = tallies[world.name] = Tally()
        print(f"{world.name}: tests that are slower", file=sys.stderr, flush=True)
        slowed(world, options.sets, options.seed, tally)
        print(f"{world.name}: tests that do not change", file=sys.stderr, flush=True)
        unchanged(world, options.unchanged, options.seed, tally)
    text = page(tallies, options.seed)
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
