"""`roofline fleet`, `history` and `rollout` on thousands of files: what they find, and how long it takes.

    python benchmarks/many_runs.py -o docs/results/many-machines.md
    python benchmarks/many_runs.py --files 400 --clean 0 --rollouts 20

A fleet is 25 nights of nodes with four GPUs each; the files are written by the plugin's own records.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from goals import Goal, rows_of, verdict_on
from many.commands import Done, peer, rollout, roofline
from many.faults import Score, names, score_fleet, score_history
from many.fleets import DEVICE, LINK, PROCESS, SESSION, Plan, planted, write
from many.logs import write_logs
from many.rollouts import (
    BETWEEN_NODES,
    BETWEEN_RUNS,
    CHANGED,
    NODES,
    TESTS,
    Rates,
    compare_rules,
    silent_named,
    table,
)
from statsmodels.stats.proportion import proportion_confint

from pytest_roofline.core.errors import BadInput, RooflineError

GPUS, NIGHTS = 4, 25
FILES = (1_000, 10_000)
CLEAN = 20
ROLLOUTS = 200
SEED = 8
FEWEST_NODES = 4
LOG_NODES = 1_000
# Other programs only add to what a command takes, so the shortest of so many counts.
TIMES = 3
PEERS = {
    "json": "`json.loads` and pandas, nothing judged",
    "read_run": "`read_run` and pandas",
}
SCORES = {"fleet": score_fleet, "history": score_history}
# The goals: seconds of CPU and MB on the most run files, and on the logs of all nodes.
FILES_CPU_S, FILES_MB = 4, 300
LOGS_CPU_S, LOGS_MB = 20, 500
PAGE = """# Many machines

{conclusion}

{goals}

Made by `python benchmarks/many_runs.py`, every number of it, seed {seed}. Run files of made-up nodes with four GPUs
each, {nights} nights, 16 tests on each GPU and 14 more on each node. Standard deviations of log seconds are those that
the plugin assumes of accelerators: {process} between processes, {session} between sessions, {device} between GPUs; and
{link} between links and between nodes. One measurement in 200 is up to 30 % slow by itself, one in 200 invalid.

Planted: a GPU that is 40 % slower in memory and arithmetic, host links of a node that are 40 % slower, a link that is
20 % slower, a GPU whose memory drifts by 12 %, and a new driver that makes arithmetic 6 % slower on every GPU from
night {step} on. A fault counts as found when the right part is named, at the right level, in the right class of tests,
and of the step the right night. Whatever else is reported is invented, except that a GPU that drifts may also be called
slow.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """One command on one fleet."""

    command: str
    files: int
    done: Done
    score: Score | None = None
    planted: int = 0

    def cells(self) -> list[str]:
        """As a row of the table."""
        found = "" if self.score is None else f"{len(set(self.score.found))}/{self.planted}"
        invented = "" if self.score is None else str(len(self.score.invented))
        took = [f"{self.done.seconds:.1f}", f"{self.done.cpu_s:.1f}"]
        return [
            self.command,
            f"{self.files:,}",
            *took,
            f"{self.done.peak_bytes / 1e6:.0f}",
            found,
            invented,
        ]


@dataclass(frozen=True, slots=True)
class Clean:
    """Fleets without faults, and the findings on them."""

    fleets: int
    files: int
    invented: dict[str, list[str]]
    wrong: dict[str, int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or print it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--files", type=int, nargs="+", default=list(FILES), help="default: 1000 10000"
    )
    parser.add_argument(
        "--clean", type=int, default=CLEAN, help="fleets without faults (default: %(default)s)"
    )
    parser.add_argument(
        "--rollouts",
        type=int,
        default=ROLLOUTS,
        help="roll-outs of each kind (default: %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    options = parser.parse_args(arguments)
    try:
        text = page(options.files, options.clean, options.seed, options.rollouts)
    except RooflineError as error:
        print(f"many_runs: {error}", file=sys.stderr)
        return 2
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    else:
        print(text)
    return 0


def page(files: Sequence[int], clean: int, seed: int, rollouts: int) -> str:
    """The page."""
    rows = [row for count in files for row in measure(plan_of(count, seed))]
    first = plan_of(files[0], seed)
    step = next(fault.from_night for fault in first.faults if fault.name == "step")
    spreads = {"process": PROCESS, "session": SESSION, "device": DEVICE, "link": LINK}
    shares = {name: f"{value * 100:g} %" for name, value in spreads.items()}
    simulated = simulate(rollouts)
    results = findings(rows, simulated)
    table_of_goals = "\n".join(["| goal | seen | |", "|---|---|---|", *rows_of(results)])
    text = PAGE.format(
        conclusion=conclusion(rows, results),
        goals=table_of_goals,
        seed=seed,
        nights=NIGHTS,
        **shares,
        step=step,
    )
    parts = [text.strip(), _table(rows), _growth(rows), *_invented_lines(rows)]
    parts.append(rollout_text(simulated))
    if clean:
        parts.append(_clean_text(without_faults(clean, files[0], seed)))
    return "\n\n".join(part for part in parts if part) + "\n"


def plan_of(files: int, seed: int, *, faults: bool = True) -> Plan:
    """The fleet that has so many run files.

    Raises:
        BadInput: no whole number of nodes has, or too few.
    """
    nodes, rest = divmod(files, GPUS * NIGHTS)
    if rest or nodes < FEWEST_NODES:
        least = FEWEST_NODES * GPUS * NIGHTS
        raise BadInput(
            f"--files is {files}; expected a multiple of {GPUS * NIGHTS}, and {least} or more"
        )
    return Plan(nodes, GPUS, NIGHTS, seed, planted(nodes, NIGHTS) if faults else ())


def measure(plan: Plan) -> list[Row]:
    """Both commands on one fleet, and the peers on the same files: all in turn, three times, the shortest of each."""
    with tempfile.TemporaryDirectory(prefix="roofline-many-") as place:
        runs = Path(place) / "runs"
        runs.mkdir()
        _say(f"writing {plan.files:,} run files")
        write(plan, runs)
        commands: dict[str, Callable[[], Done]] = {
            f"`roofline {name}`": partial(roofline, name, runs) for name in SCORES
        }
        commands |= {name: partial(peer, kind, runs) for kind, name in PEERS.items()}
        ended: dict[str, list[Done]] = {name: [] for name in commands}
        for name, command in list(commands.items()) * TIMES:
            _say(name)
            ended[name].append(command())
        shortest = {name: min(done, key=lambda one: one.cpu_s) for name, done in ended.items()}
        rows = []
        for command, score in SCORES.items():
            name = f"`roofline {command}`"
            told = score(plan, json.loads(shortest[name].out))
            planted_count = len(names(plan, command))
            rows.append(Row(name, plan.files, shortest[name], told, planted_count))
        return [*rows, *(Row(name, plan.files, shortest[name]) for name in PEERS.values())]


def without_faults(fleets: int, files: int, seed: int) -> Clean:
    """Both commands on fleets without faults: whatever they find is invented."""
    invented: dict[str, list[str]] = {command: [] for command in SCORES}
    wrong = dict.fromkeys(SCORES, 0)
    for number in range(fleets):
        plan = plan_of(files, seed + 1 + number, faults=False)
        _say(f"fleet {number + 1} of {fleets} without faults")
        with tempfile.TemporaryDirectory(prefix="roofline-many-") as place:
            runs = Path(place) / "runs"
            runs.mkdir()
            write(plan, runs)
            for command, score in SCORES.items():
                told = score(plan, json.loads(roofline(command, runs).out)).invented
                invented[command] += told
                wrong[command] += bool(told)
    return Clean(fleets, files, invented, wrong)


@dataclass(frozen=True, slots=True)
class Simulated:
    """Roll-outs of which the truth is known, `count` of each kind.

    Args:
        rules: how often each rule is right, by its name.
        silent: in how many of half as many fleets exactly the silent nodes are named.
        logs: the command on the logs of a thousand nodes.
    """

    count: int
    rules: dict[str, Rates]
    silent: int
    logs: Done


def simulate(count: int) -> Simulated:
    """Return simulated roll-outs judged by every rule, and the command on the logs of a thousand nodes."""
    _say(f"{count} roll-outs of each kind")
    rules = compare_rules(count, count, count // 2)
    silent = silent_named(count // 2)
    _say(f"roofline rollout on {2 * LOG_NODES:,} logs")
    with tempfile.TemporaryDirectory(prefix="roofline-many-") as place:
        write_logs(Path(place), LOG_NODES)
        return Simulated(count, rules, silent, rollout(Path(place), LOG_NODES))


def findings(rows: Sequence[Row], simulated: Simulated) -> list[Goal]:
    """Return the goals, with what was seen."""
    most = max(row.files for row in rows)
    on_files = [
        _within(f"{row.command} on {most:,} files", row.done, FILES_CPU_S, FILES_MB)
        for row in rows
        if row.files == most and row.score is not None
    ]
    name = f"`roofline rollout` on {2 * LOG_NODES:,} logs"
    on_logs = _within(name, simulated.logs, LOGS_CPU_S, LOGS_MB)
    return [*on_files, on_logs, *_rollout_goals(simulated)]


def _within(name: str, done: Done, most_cpu_s: float, most_mb: float) -> Goal:
    """Return the goal of a command's time and memory."""
    megabytes = done.peak_bytes / 1e6
    goal = f"{name}: at most {most_cpu_s} s of CPU and {most_mb} MB"
    is_reached = done.cpu_s <= most_cpu_s and megabytes <= most_mb
    return goal, f"{done.cpu_s:.1f} s, {megabytes:.0f} MB", is_reached


def _rollout_goals(simulated: Simulated) -> list[Goal]:
    """Return the goals of simulated roll-outs."""
    count, fleets = simulated.count, simulated.count // 2
    rates = simulated.rules["`roofline rollout`"]
    slow, healthy = 5 * fleets, (NODES - 5) * fleets
    entries = (
        ("`roofline rollout` finds +5 % in 95 %", rates.found, count, rates.found >= 0.95 * count),
        ("no unchanged roll-out is red", rates.red, count, not rates.red),
        ("a node that is 10 % slower is named in 95 %", rates.named, slow, rates.named >= 0.95 * slow),
        ("at most 1 % of healthy nodes are named", rates.invented, healthy, rates.invented <= 0.01 * healthy),
        ("five silent nodes, and no others, are named", simulated.silent, fleets, simulated.silent == fleets),
    )  # fmt: skip
    return [(goal, f"{seen} of {total}", is_reached) for goal, seen, total, is_reached in entries]


def conclusion(rows: Sequence[Row], results: Sequence[Goal]) -> str:
    """Return what the page begins with: what was found of what was planted, in what time, and the goals."""
    most = max(row.files for row in rows)
    parts = [
        f"{row.command} finds {len(set(row.score.found))} of {row.planted} planted faults in {row.done.cpu_s:.1f} s "
        "of CPU"
        for row in rows
        if row.files == most and row.score is not None
    ]
    return f"On {most:,} run files {' and '.join(parts)}. {verdict_on(results)}"


def rollout_text(simulated: Simulated) -> str:
    """Return the chapter on roll-outs."""
    count, done = simulated.count, simulated.logs
    lines = "\n".join(table(simulated.rules, count, count, count // 2))
    sentence = json.loads(done.out)["sentence"]
    return f"""## Roll-outs

Made-up roll-outs on {NODES} nodes, of which {CHANGED} change, with {TESTS} tests:
{BETWEEN_NODES * 100:g} % between nodes, {BETWEEN_RUNS * 100:g} % between runs.
`roofline rollout` is `judge_rollout`, which the command calls, with its own tolerance of 3 %.
Floors are 0.9 of the rate that was typical before; one standard deviation is that of all nodes; the t test compares
the changed nodes after and before, at 5 %.

{lines}

Of five silent nodes of {NODES}, `--nodes` named exactly these in {simulated.silent} of {count // 2} roll-outs.

{2 * LOG_NODES:,} logs of nccl-tests, of {LOG_NODES:,} nodes and 62 readings each, half of them 5 % slower after:
{done.cpu_s:.1f} s of CPU, {done.peak_bytes / 1e6:.0f} MB, and `{sentence}`"""


def _table(rows: Sequence[Row]) -> str:
    head = ["command", "files", "s", "CPU s", "peak RSS MB", "found", "invented"]
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *(row.cells() for row in rows))]
    return "\n".join([lines[0], "|---" + "|---:" * (len(head) - 1) + "|", *lines[1:]])


def _growth(rows: Sequence[Row]) -> str:
    """How the time compares with that of the peers on the same files."""
    lines = [
        "Times are of whole commands, interpreter and imports included, "
        f"the shortest of {TIMES} in turn; every file is read."
    ]
    for row in (row for row in rows if row.score is not None):
        lines += [
            f"{row.command} on {row.files:,} files takes {row.done.cpu_s / other.done.cpu_s:.2f} times the CPU time "
            f"of {other.command}."
            for other in rows
            if other.score is None and other.files == row.files
        ]
    return "\n".join(f"* {line}" for line in lines)


def _invented_lines(rows: Sequence[Row]) -> list[str]:
    return [
        f"Invented by {row.command} on {row.files:,} files: {'; '.join(row.score.invented)}."
        for row in rows
        if row.score is not None and row.score.invented
    ]


def _clean_text(clean: Clean) -> str:
    lines = [
        f"On {clean.fleets} more fleets of {clean.files:,} files without any fault (the {clean.fleets} seeds behind "
        "this one), the fleets with a finding, each an invented one, with Clopper and Pearson's 95 % interval:",
        "",
    ]
    for command, count in clean.wrong.items():
        low, high = proportion_confint(count, clean.fleets, method="beta")
        told = f" ({'; '.join(clean.invented[command])})" if clean.invented[command] else ""
        share = f"{low * 100:.1f} to {high * 100:.1f} %"
        lines.append(f"* `roofline {command}`: {count} of {clean.fleets}, {share}{told}")
    return "\n".join(lines)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
