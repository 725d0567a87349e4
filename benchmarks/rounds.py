"""Do rounds that are forked measure what fresh processes measure, and what does each take?

    python benchmarks/rounds.py -o docs/results/timing-rules.md

It writes its part of the page that `timing_rules.py` makes. Ten tests on the processor, in fresh processes and in
forked ones in turn, 30 of each: about eight minutes. Leave the machine alone meanwhile.
"""

import argparse
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median, variance

from load_time import ENVIRONMENT
from parts import part_of, with_part
from rank_figures.page import QUIET_LOAD, filled, table

from pytest_roofline.baselines.run_files import runs_of_child
from pytest_roofline.core.errors import BadFile
from pytest_roofline.core.samples import CANARY
from pytest_roofline.plugin import round_child
from pytest_roofline.processes.children import run_child
from pytest_roofline.processes.round_parent import ROUNDS_PER_PARENT, RoundParent

PROGRAM = "benchmarks/rounds.py"
PROCESSES = 30
# The centres are to agree within this share.
SAME_CENTRE = 0.01
# Of a normal distribution, two-sided, and the variance of a median against that of a mean.
QUANTILE_99, MEDIAN_VARIANCE = 2.576, math.pi / 2
QUIET_S = 120.0
FRESH, FORKED = "fresh", "forked"
PLUGINS = (
    "pytest_roofline.plugin",
    "xdist.plugin",
    "pytest_benchmark.plugin",
    "_hypothesis_pytestplugin",
)
COMMAND = (
    sys.executable,
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "--roofline-device=cpu",
    "--roofline-budget=0.2",
)
SUITE = """
import json

import pytest
import torch
import torch.nn.functional as F

torch.manual_seed(0)
VALUES = torch.rand(2**20)
SQUARE = torch.rand(256, 256)
HEADS = torch.rand(1, 4, 256, 64)
RECORD = {f"name {number}": [number, str(number)] for number in range(2000)}
NUMBERS = [(number * 7919) % 10007 for number in range(20_000)]
IMAGE, KERNEL = torch.rand(1, 16, 64, 64), torch.rand(16, 16, 3, 3)


def count_words():
    counts = {}
    for number in NUMBERS:
        counts[number % 97] = counts.get(number % 97, 0) + 1
    return counts


BODIES = {
    "add of 4 MiB": lambda: VALUES + VALUES,
    "sum of 4 MiB": lambda: VALUES.sum(),
    "softmax": lambda: F.softmax(VALUES.view(1024, 1024), -1),
    "layer norm": lambda: F.layer_norm(VALUES.view(1024, 1024), (1024,)),
    "matmul 256": lambda: SQUARE @ SQUARE,
    "attention": lambda: F.scaled_dot_product_attention(HEADS, HEADS, HEADS),
    "convolution": lambda: F.conv2d(IMAGE, KERNEL, padding=1),
    "sorting in Python": lambda: sorted(NUMBERS),
    "counting in Python": count_words,
    "JSON in Python": lambda: json.dumps(RECORD),
}


@pytest.mark.parametrize("name", BODIES)
def test_body(roofline, name):
    roofline.measure(BODIES[name])
"""
ONE = "one.py::test_add"
ONE_TEST = """
import torch

VALUES = torch.rand(2**20)


def test_add(roofline):
    roofline.measure(lambda: VALUES + VALUES)
"""


@dataclass(frozen=True, slots=True)
class Round:
    """One round.

    Args:
        kind: `FRESH` or `FORKED`.
        number: the same of the forked round and the fresh one that ran one after the other.
        medians_s: in seconds, by test.
        took_s: seconds, of the first of a parent with the parent's imports.
    """

    kind: str
    number: int
    medians_s: dict[str, float]
    took_s: float


def measure_rounds(folder: Path, ids: Sequence[str], count: int) -> list[Round]:
    """Run `count` rounds in fresh processes and as many in forked ones, in turn, each kind first every other time."""
    rounds: list[Round] = []
    parent = RoundParent(PLUGINS, folder=folder)
    for number in range(count):
        for kind in (FRESH, FORKED) if number % 2 else (FORKED, FRESH):
            began_s = time.monotonic()
            medians_s = run_round(folder, ids, parent if kind == FORKED else None)
            took_s = time.monotonic() - began_s
            rounds.append(Round(kind, number, medians_s, took_s))
            print(f"{number + 1} of {count}: {kind}, {took_s:.1f} s", flush=True)
    parent.close()
    return rounds


def run_round(folder: Path, ids: Sequence[str], parent: RoundParent | None) -> dict[str, float]:
    """Run one round of tests; return their medians in seconds by node id.

    Raises:
        RuntimeError: a test was not measured, or what it measured is invalid.
    """
    with tempfile.TemporaryDirectory() as name:
        asked = {"round": 2, "ids": list(ids), "deadline": None}
        ended = run_child(
            COMMAND,
            Path(name),
            asked,
            variable=round_child.VARIABLE,
            cwd=folder,
            environ=ENVIRONMENT,
            quiet_s=QUIET_S,
            parent=parent,
        )
        measurements = [
            measurement
            for run in runs_of_child(Path(name), _refuse)
            for measurement in run.measurements
            if CANARY not in measurement.samples.labels and not measurement.invalid
        ]
    medians_s = {measurement.test_id: measurement.median_s for measurement in measurements}
    if ended.status != 0 or set(medians_s) != set(ids):
        print(f"not every test was measured ({ended.cause}): {ended.tail}", flush=True)
    return medians_s


def _refuse(error: BadFile) -> None:
    raise RuntimeError(str(error))


@dataclass(frozen=True, slots=True)
class Comparison:
    """One test in forked processes against fresh ones that ran beside them; logarithms of seconds.

    Args:
        processes: pairs of a forked process and a fresh one.
        difference: the median over the pairs.
        half: half the width of its interval at 99 %.
        spread_forked, spread_fresh: between processes.
        shared: the correlation of two rounds of one parent; near 0 they know nothing of each other.
        shared_fresh: the same of the fresh processes that ran beside them, which share no more than the time of day.
    """

    test: str
    processes: int
    difference: float
    half: float
    spread_forked: float
    spread_fresh: float
    shared: float
    shared_fresh: float

    @property
    def differs(self) -> bool:
        """Return whether the centres surely differ by more than is allowed."""
        return abs(self.difference) - self.half > SAME_CENTRE


def compare(rounds: Sequence[Round], test_id: str) -> Comparison:
    """Compare the two kinds of processes of a test, each with the one of the other kind that ran beside it."""
    logs = {kind: _logs(rounds, test_id, kind) for kind in (FORKED, FRESH)}
    numbers = sorted(logs[FORKED].keys() & logs[FRESH].keys())
    differences = [logs[FORKED][number] - logs[FRESH][number] for number in numbers]
    return Comparison(
        test=test_id.partition("[")[2].rstrip("]"),
        processes=len(numbers),
        difference=median(differences),
        half=QUANTILE_99 * math.sqrt(MEDIAN_VARIANCE / len(numbers)) * _spread(differences),
        spread_forked=_spread(list(logs[FORKED].values())),
        spread_fresh=_spread(list(logs[FRESH].values())),
        shared=correlation_within(logs[FORKED]),
        shared_fresh=correlation_within(logs[FRESH]),
    )


def _logs(rounds: Sequence[Round], test_id: str, kind: str) -> dict[int, float]:
    """Return the logarithm of a test's median by the number of the round."""
    return {
        each.number: math.log(each.medians_s[test_id])
        for each in rounds
        if each.kind == kind and test_id in each.medians_s
    }


def correlation_within(logs: Mapping[int, float]) -> float:
    """Return the intraclass correlation of rounds at the time of one parent (analysis of variance, Fisher 1925)."""
    parents: dict[int, list[float]] = {}
    for number, log in logs.items():
        parents.setdefault(number // ROUNDS_PER_PARENT, []).append(log)
    groups = [group for group in parents.values() if len(group) == ROUNDS_PER_PARENT]
    within = fmean(variance(group) for group in groups)
    between = ROUNDS_PER_PARENT * variance(map(fmean, groups))
    return (between - within) / (between + (ROUNDS_PER_PARENT - 1) * within)


def _spread(values: Sequence[float]) -> float:
    """Return 1.4826 times the median absolute deviation, which a few strays do not move."""
    middle = median(values)
    return 1.4826 * median(abs(value - middle) for value in values)


def part(comparisons: Sequence[Comparison], alone: Sequence[Round], facts: dict[str, str]) -> str:
    """Return the part of the page, as Markdown."""
    apart = [each.test for each in comparisons if each.differs]
    took = {
        kind: median(each.took_s for each in alone if each.kind == kind) for kind in (FRESH, FORKED)
    }
    rows = [
        (
            each.test,
            f"{each.processes}",
            f"{math.expm1(each.difference):+.1%}",
            f"± {each.half:.1%}",
            f"{each.spread_forked:.1%}",
            f"{each.spread_fresh:.1%}",
            f"{each.shared:+.2f}",
            f"{each.shared_fresh:+.2f}",
        )
        for each in comparisons
    ]
    head = (
        "test",
        "pairs",
        "forked against fresh",
        "99 %",
        "spread, forked",
        "spread, fresh",
        "correlated by a parent",
        "fresh, at the same times",
    )
    verdict = (
        f"No centre surely differs by more than {SAME_CENTRE:.0%}: the intervals reach from "
        f"± {min(each.half for each in comparisons):.1%} to "
        f"± {max(each.half for each in comparisons):.1%}, and the mean of the differences is "
        f"{fmean(each.difference for each in comparisons):+.1%}."
        if not apart
        else f"The centres of {', '.join(apart)} differ by more than {SAME_CENTRE:.0%}."
    )
    ratio = median(
        each.spread_forked / each.spread_fresh for each in comparisons if each.spread_fresh
    )
    text = f"""A forked round of one test takes {took[FORKED]:.1f} s, a fresh process {took[FRESH]:.1f} s:
{took[FORKED] / took[FRESH]:.2f} times as long. {verdict} The spread between forked processes is {ratio:.2f} times that
between fresh ones, in the median of the tests. Rounds of one parent are correlated by
{median(each.shared for each in comparisons):+.2f} in the median, and fresh processes that ran beside them by
{median(each.shared_fresh for each in comparisons):+.2f}: what a parent adds is the difference, the rest is the
machine's.

Made by `python benchmarks/rounds.py`, every number here in one run: {facts["cpu"]},
{facts["cores"]} cores, a virtual machine; torch {facts["torch"]}. Load average {facts["before"]} when it began.
One test is an addition of 4 MiB; of forked rounds, {ROUNDS_PER_PARENT} of a parent, each time holds its share of the
parent's imports. A difference is the median over pairs of a forked and a fresh process that ran one after the other;
spreads are 1.4826 times the median absolute deviation.
"""
    return f"## Rounds: forked and fresh\n\n{filled(text)}\n\n{table(head, rows)}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, and write the part of the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help="Markdown page whose part to write")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="default: %(default)s")
    options = parser.parse_args(arguments)
    if options.output:
        try:
            # Nobody waits minutes for a part that has no place.
            part_of(options.output.read_text(encoding="utf-8"), PROGRAM)
        except (BadFile, OSError) as error:
            sys.exit(f"rounds: {options.output}: {error}")
    import torch

    from pytest_roofline.engine.host import host_facts

    host, before = host_facts(), os.getloadavg()[0]
    if before > QUIET_LOAD:
        print(f"load average is {before:.1f}; expected a quiet machine", file=sys.stderr)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "pytest.ini").touch()
        (folder / "test_suite.py").write_text(SUITE, encoding="utf-8")
        (folder / "one.py").write_text(ONE_TEST, encoding="utf-8")
        names = [line.split('"')[1] for line in SUITE.splitlines() if line.startswith('    "')]
        ids = [f"test_suite.py::test_body[{each}]" for each in names]
        rounds = measure_rounds(folder, ids, options.processes)
        alone = measure_rounds(folder, [ONE], options.processes // 2)
    facts = {
        "cpu": str(host.cpu_model),
        "cores": str(host.usable_cores),
        "torch": torch.__version__,
        "before": f"{before:.1f}",
    }
    text = part([compare(rounds, test_id) for test_id in ids], alone, facts)
    if options.output:
        page = options.output.read_text(encoding="utf-8")
        options.output.write_text(with_part(page, PROGRAM, text), encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
