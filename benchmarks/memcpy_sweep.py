"""How long a memcpy sweep takes on this CPU and how far repeated runs spread, by three timing rules.

    python benchmarks/memcpy_sweep.py -o docs/results/timing-rules.md

It writes its part of the page that `timing_rules.py` makes, and the figures behind it. Each rule runs the same sweep
in a fresh pytest process, the three rules in turn, ten times over; the order turns too, so that a drift of the machine
meets all of them. Takes about ten minutes; leave the machine alone meanwhile.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, quantiles, stdev
from typing import Any

from parts import part_of, with_part
from rank_figures.page import filled

from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.units import format_bytes, format_seconds
from pytest_roofline.engine.host import host_facts

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = "benchmarks/memcpy_sweep.py"
FIGURES = ROOT / "docs/results/data/memcpy-sweep.jsonl"
SUITE = ROOT / "benchmarks/suites/sweep_by_rule.py"
RULES = {
    "loop": "one-second loop",
    "benchmark": "pytest-benchmark",
    "roofline": "this engine, budget 0.3 s",
}
# What this engine is held against, as sentences call it.
PEERS = (("loop", "the one-second loop"), ("benchmark", "pytest-benchmark"))
REPEATS = 10
# Most sizes need a fifth of the default second; this bounds what an unquiet moment of the machine costs.
BUDGET_S = 0.3


def run(rule: str, folder: Path, number: int) -> dict[int, dict[str, Any]]:
    """One sweep by one rule, in a process of its own: seconds and wall seconds by size."""
    out = folder / f"{rule}-{number}.jsonl"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        f"{SUITE}::test_{rule}",
        "-p",
        "no:cacheprovider",
    ]
    command += [
        f"--roofline-dir={folder}",
        "--roofline-device=cpu",
        f"--roofline-budget={BUDGET_S}",
    ]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"SWEEP_RESULTS": str(out)},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    host = host_facts()
    return {
        row["size_bytes"]: row | {"cpu": host.cpu_model, "cores": host.usable_cores} for row in rows
    }


def spread(values: list[float]) -> float:
    """Standard deviation of the logarithms, as verdicts use it: a share of the time."""
    return stdev(map(math.log, values)) if len(values) > 1 else 0.0


def quartiles_apart(values: list[float]) -> float:
    """Interquartile range over the median. Of ten values in two groups it is luck which of the two it meets."""
    low, _, high = quantiles(values, n=4) if len(values) > 1 else (0.0, 0.0, 0.0)
    return (high - low) / median(values)


def pooled(spreads: list[float]) -> float:
    """One spread for all sizes: the root of the mean variance."""
    return math.sqrt(fmean(value**2 for value in spreads))


HEAD = """## The memcpy sweep by three rules, on a CPU

{conclusions}

Made by `python benchmarks/memcpy_sweep.py`: {sizes} sizes from {first} to {last},
`target.copy_(source)` of the same two buffers; {repeats} repeated runs of each rule, each in a fresh process, the rules
in turn. {cpu}, {cores} cores, a virtual machine. Wall time is that of the tests; starting Python and making the
buffers, which is the same for all, is excluded. Spread is the standard deviation of the logarithms of a size's reported
times, in brackets their interquartile range over the median.
"""


def in_two_groups(values: list[float]) -> bool:
    """Whether times fall into a fast and a slow group of two at least: a gap of half of a range of over 10 %."""
    logs = sorted(map(math.log, values))
    apart = logs[-1] - logs[0]
    gaps = [after - before for before, after in pairwise(logs)]
    return apart > math.log(1.1) and max(gaps[1:-1], default=0.0) >= apart / 2


def conclusions(
    times: dict[str, dict[int, list[float]]],
    walls: dict[str, float],
    ranges: dict[str, list[float]],
) -> str:
    """What the numbers below say, in sentences."""
    own, total = "roofline", len(times["roofline"])
    first, second = (f"{walls[own] / walls[rule]:.2f} times" for rule, _ in PEERS)
    sentences = [
        f"The sweep takes this engine {first} the wall time of {PEERS[0][1]} and {second} that of {PEERS[1][1]}"
    ]
    others = " and ".join(f"{pooled(ranges[rule]):.1%} by {peer}" for rule, peer in PEERS)
    sentences.append(
        f"Its pooled interquartile range is {pooled(ranges[own]):.1%}, against {others}"
    )
    split = [size for size in times[own] if any(in_two_groups(times[rule][size]) for rule in RULES)]
    sentences.append(
        f"At {len(split)} of {total} sizes the processes of a rule fall into a fast and a slow group (two at least in "
        "each, a gap of half of a range of over 10 %), which no rule can see from inside a process"
    )
    return " ".join(f"{sentence}." for sentence in sentences)


def report(runs: dict[str, list[dict[int, dict[str, Any]]]]) -> str:
    """The page."""
    sizes = list(runs["loop"][0])
    times = {
        rule: {size: [one[size]["seconds"] for one in runs[rule]] for size in sizes}
        for rule in RULES
    }
    walls = {
        rule: median(sum(row["wall_s"] for row in one.values()) for one in runs[rule])
        for rule in RULES
    }
    spreads = {rule: [spread(times[rule][size]) for size in sizes] for rule in RULES}
    ranges = {rule: [quartiles_apart(times[rule][size]) for size in sizes] for rule in RULES}
    steadier = {
        rule: sum(a <= b for a, b in zip(spreads[rule], spreads["loop"], strict=True))
        for rule in RULES
    }
    host = runs["loop"][0][sizes[0]]
    head = HEAD.format(
        sizes=len(sizes), first=format_bytes(sizes[0]), last=format_bytes(sizes[-1]), repeats=len(runs["loop"]),
        cpu=host["cpu"], cores=host["cores"], conclusions=conclusions(times, walls, ranges),
    )  # fmt: skip
    summary = {
        "wall time of the sweep (median)": [f"{walls[rule]:.2f} s" for rule in RULES],
        "… against the one-second loop": [f"{walls['loop'] / walls[rule]:.1f} ×" for rule in RULES],
        "spread, pooled over the sizes": [
            f"{pooled(spreads[r]):.1%} ({pooled(ranges[r]):.1%})" for r in RULES
        ],
        "spread, median of the sizes": [
            f"{median(spreads[r]):.1%} ({median(ranges[r]):.1%})" for r in RULES
        ],
        "sizes with no more spread than the loop": [
            f"{steadier[r]} of {len(sizes)}" for r in RULES
        ],
    }
    details = {
        format_bytes(size): [
            f"{format_seconds(median(times[r][size]))}, {spreads[r][at]:.1%} ({ranges[r][at]:.1%})"
            for r in RULES
        ]
        for at, size in enumerate(sizes)
    }
    return "\n".join(
        [
            filled(head),
            "",
            *_table("", summary),
            "",
            "Time and spread by size:",
            "",
            *_table("size", details),
        ]
    )


def _table(corner: str, rows: dict[str, list[str]]) -> list[str]:
    lines = [f"| {corner} | {' | '.join(RULES.values())} |", "|---" * (len(RULES) + 1) + "|"]
    return lines + [f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items()]


def read(figures: Path) -> dict[str, list[dict[int, dict[str, Any]]]]:
    """The runs behind a page, by rule."""
    rows = [json.loads(line) for line in figures.read_text(encoding="utf-8").splitlines()]
    count = 1 + max(row["run"] for row in rows)
    return {
        rule: [
            {row["size_bytes"]: row for row in rows if (row["rule"], row["run"]) == (rule, run)}
            for run in range(count)
        ]
        for rule in RULES
    }


def main(words: Sequence[str] | None = None) -> None:
    """Run all sweeps and write the part of the page and the figures behind it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument(
        "--figures", type=Path, help="write the page from these figures and measure nothing"
    )
    arguments = parser.parse_args(words)
    try:
        # Nobody waits minutes for a part that has no place.
        part_of(arguments.output.read_text(encoding="utf-8"), PROGRAM)
    except (BadFile, OSError) as error:
        sys.exit(f"memcpy_sweep: {arguments.output}: {error}")
    if arguments.figures is not None:
        write(arguments.output, report(read(arguments.figures)))
        return
    runs: dict[str, list[dict[int, dict[str, Any]]]] = {rule: [] for rule in RULES}
    with tempfile.TemporaryDirectory() as name:
        for number in range(arguments.repeats):
            rules = list(RULES)
            for rule in rules[number % 3 :] + rules[: number % 3]:
                runs[rule].append(run(rule, Path(name), number))
                print(
                    number,
                    rule,
                    f"{sum(row['wall_s'] for row in runs[rule][-1].values()):.2f} s",
                    flush=True,
                )
    text = report(runs)
    write(arguments.output, text)
    rows = [
        row | {"run": number}
        for rule in RULES
        for number, one in enumerate(runs[rule])
        for row in one.values()
    ]
    FIGURES.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    print(text)


def write(path: Path, text: str) -> None:
    """Write the part of the page at a path."""
    page = path.read_text(encoding="utf-8")
    path.write_text(with_part(page, PROGRAM, text), encoding="utf-8")


if __name__ == "__main__":
    main()
