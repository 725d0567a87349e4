"""`roofline fleet` and `history` on thousands of run files with planted faults: what they find, and how long it takes.

    python benchmarks/many_runs.py -o docs/results/many-machines.md
    python benchmarks/many_runs.py --files 400 --clean 0

A fleet is 25 nights of nodes with four GPUs each; the files are written by the plugin's own records.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from many.commands import Done, peer, roofline
from many.faults import Score, names, score_fleet, score_history
from many.fleets import DEVICE, LINK, PROCESS, SESSION, Plan, planted, write
from stamp import stamped
from statsmodels.stats.proportion import proportion_confint

from pytest_roofline.core.errors import BadInput, RooflineError

GPUS, NIGHTS = 4, 25
FILES = (1_000, 10_000)
CLEAN = 20
SEED = 8
FEWEST_NODES = 4
SCORES = {"fleet": score_fleet, "history": score_history}
PAGE = """# Many machines

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
    first: Done | None
    later: Done
    score: Score | None = None
    planted: int = 0

    def cells(self) -> list[str]:
        """As a row of the table."""
        found = "" if self.score is None else f"{len(set(self.score.found))}/{self.planted}"
        invented = "" if self.score is None else str(len(self.score.invented))
        first = ("", "") if self.first is None else _seconds(self.first)
        peak = max(done.peak_bytes for done in (self.first, self.later) if done is not None)
        took = [*first, *_seconds(self.later), f"{peak / 1e6:.0f}"]
        return [self.command, f"{self.files:,}", *took, found, invented]


def _seconds(done: Done) -> tuple[str, str]:
    return f"{done.seconds:.1f}", f"{done.cpu_s:.1f}"


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
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    options = parser.parse_args(arguments)
    try:
        text = page(options.files, options.clean, options.seed)
    except RooflineError as error:
        print(f"many_runs: {error}", file=sys.stderr)
        return 2
    if options.output:
        options.output.write_text(stamped(text), encoding="utf-8")
    else:
        print(text)
    return 0


def page(files: Sequence[int], clean: int, seed: int) -> str:
    """The page."""
    rows = [row for count in files for row in measure(plan_of(count, seed))]
    first = plan_of(files[0], seed)
    step = next(fault.from_night for fault in first.faults if fault.name == "step")
    spreads = {"process": PROCESS, "session": SESSION, "device": DEVICE, "link": LINK}
    shares = {name: f"{value * 100:g} %" for name, value in spreads.items()}
    text = PAGE.format(seed=seed, nights=NIGHTS, **shares, step=step)
    parts = [text.strip(), _table(rows), _growth(rows, files), *_invented_lines(rows)]
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
    """Both commands on one fleet, cold and warm, and the peers on the same files."""
    with tempfile.TemporaryDirectory(prefix="roofline-many-") as place:
        runs = Path(place) / "runs"
        runs.mkdir()
        _say(f"writing {plan.files:,} run files")
        write(plan, runs)
        rows = []
        for command, score in SCORES.items():
            _say(f"roofline {command}")
            first, later = (roofline(command, runs, Path(place) / command) for _ in range(2))
            told = score(plan, json.loads(later.out))
            rows.append(
                Row(
                    f"`roofline {command}`",
                    plan.files,
                    first,
                    later,
                    told,
                    len(names(plan, command)),
                )
            )
        for kind, name in (
            ("json", "`json.loads` and pandas, nothing judged"),
            ("read_run", "`read_run` and pandas"),
        ):
            _say(name)
            rows.append(Row(name, plan.files, None, peer(kind, runs)))
    return rows


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
                told = score(plan, json.loads(roofline(command, runs, Path(place)).out)).invented
                invented[command] += told
                wrong[command] += bool(told)
    return Clean(fleets, files, invented, wrong)


def _table(rows: Sequence[Row]) -> str:
    head = [
        "command",
        "files",
        "first time s",
        "CPU s",
        "later s",
        "CPU s",
        "peak RSS MB",
        "found",
        "invented",
    ]
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *(row.cells() for row in rows))]
    return "\n".join([lines[0], "|---" + "|---:" * (len(head) - 1) + "|", *lines[1:]])


def _growth(rows: Sequence[Row], files: Sequence[int]) -> str:
    """How time and memory grow with the number of files, and how they compare with the peers."""
    lines = [
        "Times are of whole commands, interpreter and imports included. The first time reads every file and keeps an "
        "index; later times read the index, and what changed since. Ratios are of CPU seconds, which what else the "
        "machine does moves less."
    ]
    by = {(row.command, row.files): row for row in rows}
    small, large = min(files), max(files)
    for command in dict.fromkeys(row.command for row in rows if row.score is not None):
        a, b = by[command, small], by[command, large]
        assert a.first is not None
        assert b.first is not None
        if small != large:
            lines.append(
                f"{command}: {large / small:.0f} times the files take {b.first.cpu_s / a.first.cpu_s:.1f} times "
                f"the CPU time at first, {b.later.cpu_s / a.later.cpu_s:.1f} times later, and "
                f"{b.first.peak_bytes / a.first.peak_bytes:.1f} times the memory."
            )
        for peer_name in dict.fromkeys(row.command for row in rows if row.score is None):
            took = by[peer_name, large].later.cpu_s
            lines.append(
                f"{command} on {large:,} files takes {b.first.cpu_s / took:.2f} times the CPU time of {peer_name} at "
                f"first, and {b.later.cpu_s / took:.2f} times later."
            )
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
