"""How often does `roofline ab` call unchanged code slower, and how often does it find slower code?

    python benchmarks/ab_quality.py -o docs/results/ab-quality.md

Runs of two sides in turn, made up, whose truth is known; the verdicts are those of the plugin's own `judge_paired`,
asked after every block as `roofline ab` asks it. The part of the page that `ab_page.py` wrote stays as it stands.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import ab_page
import goals
from detectors.in_turn import Tally
from detectors.in_turn_rows import (
    ALL,
    ONE,
    OURS,
    PEER_MOST,
    PEER_WORLDS,
    Called,
    Plan,
    Row,
    count_all,
    count_peers,
    rows,
)
from detectors.peers import PROCESS_PEERS, SLOWDOWNS, SWEEP
from detectors.rows import bounds
from parts import comments, part_of, with_part

from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.verdicts import Kind

# The goals, as shares.
RED_SUITES, RED_SUITES_OVERALL = 0.05, 0.04
PASSED_AT, PASSED_AT_TWICE = 0.05, 0.005
# The seed whose draws the settings of the rule were chosen on.
TUNED = 5

Counted = Sequence[tuple[Row, Tally]]


def findings(counted: Counted) -> list[tuple[str, str, bool]]:
    """Each goal: what was asked for, what was seen, and whether it was reached."""
    unchanged = [(row, tally) for row, tally in counted if not row.slower]
    found = []
    if unchanged:
        worst = max(unchanged, key=lambda one: bounds(one[1].red_suites, one[1].suites)[0])
        low = bounds(worst[1].red_suites, worst[1].suites)[0]
        red, suites = (
            sum(getattr(tally, name) for _, tally in unchanged) for name in ("red_suites", "suites")
        )
        seen = (
            f"at worst {_red(worst[1])} ({_called(worst[0])})"
            if red
            else f"none red of {suites} suites"
        )
        overall = f"{100 * red / suites:.2f} % of {suites}"
        found = [
            (
                "no row with more than 5 % of unchanged suites red (lower 95 % bound)",
                seen,
                low <= RED_SUITES,
            ),
            ("over all rows at most 4 %", overall, red / suites <= RED_SUITES_OVERALL),
        ]
    for row, tally in counted:
        for processes, least in row.goals:
            share = tally.share_found(processes)
            asked = f"{_called(row)}: one test {100 * row.slowdown:g} % slower at δ {100 * row.tolerance:g} % found by "
            asked += f"{processes} a side, at least {100 * least:g} %"
            low, high = bounds(round(share * tally.slower), tally.slower)
            found.append(
                (asked, f"{100 * share:.1f} % ({100 * low:.0f}–{100 * high:.0f})", share >= least)
            )
    for factor, most in ((1, PASSED_AT), (2, PASSED_AT_TWICE)):
        mine = [
            one
            for one in counted
            if one[0].slower == ALL and round(one[0].slowdown / one[0].tolerance) == factor
        ]
        if mine:
            row, tally = max(mine, key=lambda one: one[1].passed / one[1].slower)
            asked = f"wrongly PASSED at most {100 * most:g} % where {'twice ' * (factor > 1)}as slow as δ"
            share = tally.passed / tally.slower
            found.append((asked, f"at worst {100 * share:.2f} % ({_called(row)})", share <= most))
    return found


def _red(tally: Tally) -> str:
    low, high = bounds(tally.red_suites, tally.suites)
    return f"{100 * tally.red_suites / tally.suites:.1f} ({100 * low:.1f}–{100 * high:.1f}) %"


def _called(row: Row) -> str:
    return f"{row.name}, {row.tests} tests, up to {row.most} a side"


INTRO = """Made by `python benchmarks/ab_quality.py`: {draws} suites a row where the last column says no other number,
seed {seed}. Both sides run in turn, `A B B A` and `B A A B`, a hidden second A in one block of four; each test is
judged by the plugin's own `judge_paired` after every block, and left when it is decided. δ is 3 % where a row does not
say otherwise. In every row but those that say so, each test has an offset of its session (σ_s 3 %) and drifts over the
run by up to 10 %, straight, up or down. "calm" is σ_p 0.06 to 1.8 % between processes, the middle one 0.33 %; "mix" 0.2
to 5.9 %, the middle one 1.1 %, as in a large public corpus. A slow mode is 6 % slower. The rule's settings
were chosen on draws of seed {tuned}. Ranges are Clopper and Pearson's, of 95 %."""

TITLES = {
    "spreads": "Spreads and lengths",
    "drifts": "What moves",
    "modes": "Two modes, 6 % apart",
    "tails": "Heavy tails",
    "small": "Suites of 25",
}


def page(counted: Counted, peers: dict[tuple[str, str], Called], plan: Plan) -> str:
    """Markdown."""
    results = findings(counted)
    intro = INTRO.format(draws=plan.draws, seed=plan.seed, tuned=TUNED)
    lines = ["# How good the verdicts of `roofline ab` are", "", conclusion(results), "", intro, ""]
    lines += ["| goal | seen | |", "|---|---|---|", *goals.rows_of(results)]
    lines += ["", "## Unchanged suites", ""]
    head = "| set-up | tests | up to | red suites % | red tests % | PASSED % | IMPROVED % | open % | a side | suites |"
    for group, title in TITLES.items():
        mine = [one for one in counted if one[0].group == group]
        if mine:
            lines += [
                f"### {title}",
                "",
                head,
                "|---" * (head.count("|") - 1) + "|",
                *map(_unchanged, mine),
                "",
            ]
    lines += ["## One slower test in an unchanged suite", ""]
    lines += [
        "| set-up | tests | δ | slower by | by 4 a side | by 8 | by 12 | wrongly PASSED % | suites |"
    ]
    lines += ["|---" * 9 + "|", *[_slower(one) for one in counted if one[0].slower == ONE]]
    lines += [
        "",
        "## All tests slower",
        "",
        "| set-up | slower by | REGRESSED % | wrongly PASSED % | tests |",
    ]
    lines += ["|---" * 5 + "|", *[_all(one) for one in counted if one[0].slower == ALL]]
    lines += [*(_rivals(peers) if peers else []), "", *_limits(counted)]
    return "\n".join([*lines, "", *comments(ab_page.PROGRAM)]) + "\n"


def conclusion(results: Sequence[goals.Goal]) -> str:
    """Return what the page begins with: how often unchanged code is red, and slower code is found."""
    red, power = goals.seen_of(results, "over all rows"), goals.seen_of(results, " found by ")
    sentences = [goals.verdict_on(results)]
    if red and power:
        setup, _, slower = power[0].partition(": ")
        by = slower.partition(", at least")[0].replace(" found by ", " is found by ")
        sentences.insert(
            0,
            f"Of unchanged suites {red[1]} are red, and {by} in {power[1]} of all runs ({setup}).",
        )
    return " ".join(sentences)


def _unchanged(one: tuple[Row, Tally]) -> str:
    row, tally = one
    shares = [
        100 * tally.kinds[kind.value] / tally.tests
        for kind in (Kind.PASSED, Kind.IMPROVED, Kind.INCONCLUSIVE)
    ]
    cells = [
        row.name,
        str(row.tests),
        str(row.most),
        _red(tally).removesuffix(" %"),
        f"{100 * tally.red / tally.tests:.3f}",
    ]
    cells += [
        f"{shares[0]:.1f}",
        f"{shares[1]:.3f}",
        f"{shares[2]:.1f}",
        f"{2 * tally.blocks / tally.tests:.1f}",
    ]
    return f"| {' | '.join([*cells, str(tally.suites)])} |"


def _slower(one: tuple[Row, Tally]) -> str:
    row, tally = one
    by = [
        f"{100 * tally.share_found(count):.1f} %" if count <= row.most else ""
        for count in (4, 8, 12)
    ]
    cells = [
        row.name,
        str(row.tests),
        f"{100 * row.tolerance:g} %",
        f"{100 * row.slowdown:g} %",
        *by,
    ]
    return (
        f"| {' | '.join([*cells, f'{100 * tally.passed / tally.slower:.1f}', str(tally.slower)])} |"
    )


def _all(one: tuple[Row, Tally]) -> str:
    row, tally = one
    shares = f"{100 * tally.share_found():.1f} | {100 * tally.passed / tally.slower:.2f}"
    return f"| {row.name} | {100 * row.slowdown:.3g} % | {shares} | {tally.slower} |"


def _rivals(peers: dict[tuple[str, str], Called]) -> list[str]:
    lines = ["", "## Rules of other tools on the same processes", ""]
    lines += [
        f"Each rule has {PEER_MOST} processes a side, interleaved as here, of which this plugin takes as many as it "
        f"needs. Slower is a sweep of {SWEEP} neighbouring tests, since one of the rules asks for neighbours. What "
        "drifts, drifts for all; none but this plugin takes it out.",
        "",
        *(f"* **{peer.name}**: {peer.origin}." for peer in PROCESS_PEERS),
        f"* **{OURS}**: as above, at δ 3 %.",
        "",
        "| rule | processes | unchanged suites called slower % |"
        + "".join(f" +{100 * by:g} % found |" for by in SLOWDOWNS),
        "|---" * (3 + len(SLOWDOWNS)) + "|",
    ]
    for world in PEER_WORLDS:
        for (rule, mine), called in peers.items():
            if mine == world:
                shares = "".join(
                    f" {100 * called.found[by] / called.tests:.0f} % |" for by in SLOWDOWNS
                )
                lines.append(
                    f"| {rule} | {world} | {100 * called.red_suites / called.suites:.0f} |{shares}"
                )
    least = min(SLOWDOWNS)
    better = [
        f"{rule} ({world}: {100 * called.found[least] / called.tests:.0f} %)"
        for (rule, world), called in peers.items()
        if called.red_suites <= peers[OURS, world].red_suites
        and called.found[least] > peers[OURS, world].found[least]
    ]
    told = (
        f"find more of what is {100 * least:g} % slower than this plugin does, "
        "and call no more unchanged suites slower"
    )
    return [*lines, "", f"These {told}: {'; '.join(better) or 'none'}."]


def _limits(counted: Counted) -> list[str]:
    """What the numbers do not show, and where the rule finds little."""
    moody = [(row, tally) for row, tally in counted if row.group == "modes"]
    said = ["## What this does not show", ""]
    if moody:
        row, tally = max(
            moody, key=lambda one: one[1].kinds[Kind.INCONCLUSIVE.value] / one[1].tests
        )
        share = 100 * tally.kinds[Kind.INCONCLUSIVE.value] / tally.tests
        said += [
            f"* Where processes have modes, much stays INCONCLUSIVE: {share:.0f} % of tests at worst ({row.name})."
        ]
    return [
        *said,
        "* Each process is drawn without regard to the last: a neighbour that comes for the length of one side's "
        "processes, and leaves, is in no row, nor is code whose two sides drift apart.",
        "* The processes of a test in two modes can part by chance just as the sides do: of four a side, half of them "
        "slow, once in 256 tests. Where it is the only such test and all others spread alike, four a side decide.",
        "* Times are made up; [what real processes do](detector-quality.md) gave the spreads.",
    ]


def measured_part(path: Path) -> str:
    """Return the part of `ab_page.py` in the page at a path; empty where no page stands there.

    Raises:
        BadFile: the page has no place for the part.
    """
    return part_of(path.read_text(encoding="utf-8"), ab_page.PROGRAM) if path.exists() else ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, or 2 for a page that has no place for the part of `ab_page.py`."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--draws",
        type=int,
        default=150,
        metavar="SUITES",
        help="of each row (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=11, help="default: %(default)s")
    parser.add_argument(
        "--only", default="", metavar="WORD", help="rows whose group or name has it"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)"
    )
    parser.add_argument(
        "-o", "--output", type=Path, help="Markdown file to write; else it is printed"
    )
    options = parser.parse_args(arguments)
    try:
        part = measured_part(options.output) if options.output else ""
    except BadFile as error:
        print(f"ab_quality: {options.output}: {error}", file=sys.stderr)
        return 2
    plan = Plan(options.draws, options.seed)
    wanted = [row for row in rows() if options.only in f"{row.group} {row.name}"]
    counted = []
    for number, (row, tally) in enumerate(
        zip(wanted, count_all(plan, wanted, options.jobs), strict=True), 1
    ):
        print(f"{number}/{len(wanted)} {row.group}: {_called(row)}", file=sys.stderr, flush=True)
        counted.append((row, tally))
    text = page(counted, {} if options.only else count_peers(plan, options.jobs), plan)
    if options.output:
        text = with_part(text, ab_page.PROGRAM, part)
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
