"""The page: what was found first, then the tables."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .peers import SLOWDOWNS, Called, Peer
from .rows import Count, Plan, Row, bounds

# The goals, as shares.
RED_SUITES, RED_SUITES_OVERALL = 0.05, 0.04
PASSED_AT, PASSED_AT_TWICE = 0.05, 0.005
# Of one slower test, with what is assumed in a run: by spreads, shape and slowdown in tolerances.
POWER = {("mix", "3 × 5", 2): 0.45, ("mix", "14 × 1", 2): 0.75, ("calm", "3 × 5", 1.6): 0.75}
UNCHANGED_PASSED, UNCHANGED_PROCESSES = 0.75, 3.5
GROUPS = {
    "rounds": "Rounds",
    "few": "Few recordings",
    "sessions": "Sessions that differ",
    "devices": "Another card than was recorded",
    "tails": "Heavy tails",
    "modes": "Two modes, 13 % apart",
    "sitting": "Recorded in one sitting",
    "shared": "What all tests share",
    "beyond": "Where it does not hold",
    "recorded": "Recorded processes",
}

Counted = Sequence[tuple[Row, Count]]


def findings(counted: Counted, plan: Plan) -> list[tuple[str, str, bool]]:
    """Each goal: what was asked for, what was seen, and whether it was reached."""
    goals = [(row, count) for row, count in counted if row.goal]
    if not goals:
        return []
    worst = max(goals, key=lambda one: bounds(one[1].red_suites, one[1].suites)[0])
    share = sum(count.red_suites for _, count in goals) / sum(count.suites for _, count in goals)
    low = bounds(worst[1].red_suites, worst[1].suites)[0]
    found = [
        (
            "no row with more than 5 % of unchanged suites red (lower 95 % bound)",
            f"at worst {_percent(worst[1].red_suites, worst[1].suites)} % ({_called(worst[0])})",
            low <= RED_SUITES,
        ),
        ("over all rows at most 4 %", f"{100 * share:.2f} %", share <= RED_SUITES_OVERALL),
    ]
    for factor, most in ((1, PASSED_AT), (2, PASSED_AT_TWICE)):
        slowdown = round(factor * plan.tolerance, 9)
        usual = [one for one in goals if one[0].group in ("rounds", "few", "recorded")]
        worst = max(usual, key=lambda one: _share(one[1].alone.get(slowdown), 2))
        tests, _, passed = worst[1].alone.get(slowdown, [1, 0, 0])
        asked = f"wrongly PASSED at most {100 * most:g} % where {100 * slowdown:g} % slower"
        seen = f"at worst {100 * passed / tests:.2f} % ({_called(worst[0])})"
        found.append((asked, seen, passed / tests <= most))
    for row, count in counted:
        if row.group != "rounds" or row.rounds != "auto":
            continue
        for (spreads, shape, factor), least in POWER.items():
            if (row.name, row.shape) == (spreads, shape):
                slowdown = round(factor * plan.tolerance, 9)
                share = _share(count.alone.get(slowdown), 1)
                asked = f"{shape}, {spreads}: one test {100 * slowdown:g} % slower found, at least {100 * least:g} %"
                found.append((asked, f"{100 * share:.1f} %", share >= least))
        if row.shape == "3 × 5":
            passed, processes = count.passed / count.tests, count.processes / count.tests
            reached = passed >= UNCHANGED_PASSED and processes <= UNCHANGED_PROCESSES
            asked = f"{row.shape}, {row.name}: unchanged PASSED at least 75 % after at most 3.5 processes"
            found.append((asked, f"{100 * passed:.1f} % after {processes:.2f}", reached))
    return found


def page(
    counted: Counted, plan: Plan, peers: Mapping[tuple[str, str], Called], told: Sequence[Peer]
) -> str:
    """Markdown."""
    missed = [one for one in findings(counted, plan) if not one[2]]
    said = (
        "All goals are reached." if not missed else f"{len(missed)} of the goals are not reached."
    )
    lines = [
        "# How good the verdicts are",
        "",
        _intro(plan),
        "",
        f"**{said}** " + _conclusion(counted, plan),
        "",
    ]
    lines += ["| goal | seen | |", "|---|---|---|"]
    lines += [
        f"| {asked} | {seen} | {'reached' if good else '**missed**'} |"
        for asked, seen, good in findings(counted, plan)
    ]
    alone = "".join(f" one +{100 * slowdown:g} % |" for slowdown in plan.alone[1:])
    first, twice = plan.alone[0], plan.alone[2]
    head = (
        "| set-up | baseline | rounds | red, % of tests | red, % of suites | PASSED % | processes "
        f"| PASSED at +{100 * first:g} % | PASSED at +{100 * twice:g} % |{alone} all +{100 * twice:g} % |"
    )
    for group, title in GROUPS.items():
        mine = [one for one in counted if one[0].group == group]
        if mine:
            lines += ["", f"## {title}", "", head, "|---" * (head.count("|") - 1) + "|"]
            lines += [_line(row, count, plan) for row, count in mine]
    if peers:
        lines += ["", *_peers(peers, told)]
    return "\n".join(lines) + "\n"


def _intro(plan: Plan) -> str:
    made_up = (
        f"made-up suites of {plan.tests} tests: calm ones (σ_p 0.06 to 1.8 %, the middle one 0.33 %), and a mix as in "
        "a large public corpus (0.2 to 5.9 %, the middle one 1.1 %)"
    )
    recorded = plan.recorded
    data = (
        f"drawn without replacement from {recorded.name}: {recorded.description}"
        if recorded
        else made_up
    )
    return f"""Made by `python benchmarks/detector_quality.py`: {plan.suites} suites a row, {data}; δ \
{100 * plan.tolerance:g} %, seed {plan.seed}.
A baseline of 3 × 5 is of three sessions of five processes, each on a day of its own. Sessions differ by σ_s, 0.5 %
where a row does not say otherwise. The rule is a twin in arrays of the plugin's own, with the prior that a run has; a
test holds the two together on thousands of cases. `auto` is `--roofline-rounds=auto` and `--roofline-ci`, `default` is
without any option. "One" slows a single test of an unchanged suite, each in turn, in two suites of a hundred; "all"
slows them all. Shares of suites have Clopper and Pearson's 95 % interval."""


def _conclusion(counted: Counted, plan: Plan) -> str:
    by = {(row.group, row.name, row.shape, row.rounds): count for row, count in counted}
    parts = []
    for shape in ("3 × 1", "3 × 5", "14 × 1"):
        count = by.get(("rounds", "calm", shape, "auto"))
        if count is not None:
            found = ", ".join(
                f"+{100 * slowdown:g} % {100 * _share(count.alone.get(slowdown), 1):.0f} times in 100"
                for slowdown in plan.alone[1:]
            )
            passed = f"{100 * count.passed / count.tests:.0f} % of unchanged tests PASSED"
            parts.append(
                f"From {shape} on calm tests a single slower one is found: {found}; {passed}."
            )
    return " ".join(parts)


def _line(row: Row, count: Count, plan: Plan) -> str:
    low, high = bounds(count.red_suites, count.suites)
    alone = [count.alone.get(slowdown) for slowdown in plan.alone]
    cells = [
        row.name,
        row.shape,
        row.rounds,
        f"{100 * count.red / count.tests:.3f}",
        f"{100 * count.red_suites / count.suites:.1f} ({100 * low:.1f}–{100 * high:.1f})",
        f"{100 * count.passed / count.tests:.1f}",
        f"{count.processes / count.tests:.2f}",
        *(f"{100 * _share(alone[place], 2):.2f}" for place in (0, 2)),
        *(f"{100 * _share(counts, 1):.0f}" for counts in alone[1:]),
        f"{100 * _share(count.all_slower.get(2 * plan.tolerance), 1):.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def _peers(peers: Mapping[tuple[str, str], Called], told: Iterable[Peer]) -> list[str]:
    lines = [
        "## Rules of other tools",
        "",
        "Each on its usual data, one process a side with its samples, and on the same data as the plugin has: the "
        "processes of a baseline of 14 × 1 and twelve new ones. Most of what lies between them and this plugin is "
        "data, not rule.",
        "",
        *(f"* **{peer.name}**: {peer.origin}." for peer in told),
        "",
        "| rule | data | unchanged tests called slower, % | suites, % |"
        + "".join(f" all +{100 * one:g} % |" for one in SLOWDOWNS),
        "|---" * (4 + len(SLOWDOWNS)) + "|",
    ]
    for (name, data), called in peers.items():
        found = "".join(f" {100 * called.found[one] / called.tests:.1f} |" for one in SLOWDOWNS)
        red = f"{100 * called.slower / called.tests:.2f} | {100 * called.slower_suites / called.suites:.0f}"
        lines.append(f"| {name} | {data} | {red} |{found}")
    return lines


def as_json(
    counted: Counted, plan: Plan, peers: Mapping[tuple[str, str], Called]
) -> dict[str, Any]:
    """For machines."""
    return {
        "suites": plan.suites,
        "tests": plan.tests,
        "tolerance": plan.tolerance,
        "seed": plan.seed,
        "goals": [
            {"goal": asked, "seen": seen, "reached": good}
            for asked, seen, good in findings(counted, plan)
        ],
        "rows": [
            {
                "group": row.group,
                "name": row.name,
                "baseline": row.shape,
                "rounds": row.rounds,
                "goal": row.goal,
            }
            | asdict(count)
            | {"red_suites_bounds": bounds(count.red_suites, count.suites)}
            for row, count in counted
        ],
        "peers": [
            {"rule": name, "data": data} | asdict(called) for (name, data), called in peers.items()
        ],
    }


def _called(row: Row) -> str:
    return f"{row.name}, {row.shape}, {row.rounds}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}"


def _share(counts: Sequence[int] | None, place: int) -> float:
    return counts[place] / counts[0] if counts else 0.0
