"""How many processes, and how much time, until a test is decided: this plugin against a fixed design of five a side.

    python benchmarks/time_to_verdict.py -o docs/results/time-to-verdict.md
    python benchmarks/time_to_verdict.py --data FILE [--json]

Draws and code are those of `detector_quality.py`. A fixed design runs its five new processes whatever they show.
"""

import argparse
import functools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from detectors.criteria import percent
from detectors.drawing import Plan, five, gather, generator, judged
from detectors.fixed import FIVE_ORIGIN
from detectors.options import add_shared, check_shared, plan, recorded, simulated
from detectors.page import SETTINGS, filled, table
from detectors.suites import Source
from detectors.tally import OURS, Cell, Tallies, Tally, merge, row

from pytest_roofline.core.errors import RooflineError
from pytest_roofline.core.units import format_seconds, parse_seconds

SLOWDOWNS = (0.05, 0.10)
MIXES = ("σ_p 1 %", "mix", "two modes", "heavy tails")
DRAWS = 40
STARTS = 3
STARTUP = "import torch, pytest_roofline.plugin, pytest_roofline.judging.verdicts"
PAGE = """# How long until a verdict

Made by `python benchmarks/time_to_verdict.py`, every number of it. The baseline is there before, {baseline} processes
a test. New processes come in one at a time, up to {looks}, and only tests that are undecided, and not given up as
beyond deciding, are run again; {draws} suites of each data set, seed {seed}. The fixed design: {five}; it runs five
new processes and can call a test slower or not, but never fast enough.

"Decided" is any verdict but INCONCLUSIVE; "right" is PASSED on unchanged code and REGRESSED on slower code, where the
fixed design counts as right on unchanged code when it calls nothing. A slowdown of no more than δ has no right
answer. Time is processes × {process}, {measured}; the tests' own measuring comes on top of either. "Started" is the
number of processes that the run of a whole suite started: it ends with its last undecided test.
"""
GIVEN = "as it was given"
MEASURED = "the median of {starts} fresh interpreters here that import torch and the plugin"


@dataclass(frozen=True, slots=True)
class Timing:
    """What was counted, and the seconds that a process takes."""

    sources: Sequence[Source]
    counts: dict[str, Tallies]
    plan: Plan
    baseline: int
    process_s: float
    measured: bool

    def page(self) -> str:
        """Markdown."""
        text = PAGE.format(
            baseline=self.baseline,
            looks=self.plan.looks,
            draws=self.plan.draws,
            seed=self.plan.seed,
            five=FIVE_ORIGIN,
            process=format_seconds(self.process_s),
            measured=MEASURED.format(starts=STARTS) if self.measured else GIVEN,
        )
        sources = "\n".join(f"* {source.name}: {source.description}." for source in self.sources)
        return "\n\n".join([filled(text.strip()), self._table(), sources]) + "\n"

    def _table(self) -> str:
        header = [
            "data",
            "code",
            "δ",
            "rule",
            "new processes",
            "median",
            "90 %",
            "time",
            "decided %",
            "right %",
            "started",
        ]
        rows = [
            [name, *self._row(cell, tallies[cell])]
            for name, tallies in self.counts.items()
            for cell in sorted(tallies, key=lambda c: (c.slowdown, c.tolerance, c.rule != OURS, c.setting))
        ]
        return table(header, rows)

    def _row(self, cell: Cell, tally: Tally) -> list[str]:
        code = f"+{percent(cell.slowdown)}, {SETTINGS[cell.setting]}" if cell.slowdown else "unchanged"
        seconds = format_seconds(tally.mean_processes * self.process_s)
        processes = [f"{tally.mean_processes:.2f}", f"{tally.processes_at(0.5)}", f"{tally.processes_at(0.9)}"]
        shares = [f"{tally.decided}", f"{tally.share(right(cell))}" if right(cell) else ""]
        started = f"{tally.mean_rounds:.1f}" if tally.suites else ""
        return [code, percent(cell.tolerance), cell.rule, *processes, seconds, *shares, started]

    def plain(self) -> dict[str, Any]:
        """For machines."""
        unusable = {source.name: source.unusable for source in self.sources}
        return {
            "process_s": self.process_s,
            "process_s_measured_here": self.measured,
            "baseline_processes": self.baseline,
            "new_max": self.plan.looks,
            "draws": self.plan.draws,
            "seed": self.plan.seed,
            "rows": [
                row(name, cell, tally, self.plan.seed, unusable[name])
                | {
                    "median_processes": tally.processes_at(0.5),
                    "processes_90": tally.processes_at(0.9),
                    "mean_seconds": tally.mean_processes * self.process_s,
                    "decided_rate": tally.decided.rate,
                    "processes_started": tally.mean_rounds if tally.suites else None,
                }
                for name, tallies in self.counts.items()
                for cell, tally in tallies.items()
            ],
        }


def right(cell: Cell) -> str:
    """The verdict that is right; empty where none is."""
    if cell.slowdown == 0:
        return "PASSED"
    assert cell.tolerance is not None
    return "REGRESSED" if cell.slowdown > cell.tolerance else ""


def one_draw(source: Source, drawn: Plan, number: int) -> Tallies:
    """What both rules say of one suite."""
    suite = source.draw(generator(drawn.seed, source.name, number))
    tallies: Tallies = {}
    for tolerance in drawn.tolerances:
        merge(tallies, judged(suite, tolerance, drawn.looks, SLOWDOWNS))
        merge(tallies, five(suite, tolerance, SLOWDOWNS))
    return tallies


def startup_s() -> float:
    """Seconds that a fresh interpreter takes to be ready to measure."""
    times = []
    for _ in range(STARTS):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", STARTUP], check=True)
        times.append(time.perf_counter() - began)
    return median(times)


def measure(options: argparse.Namespace) -> Timing:
    """Draw, count, and time a process where its seconds are not given."""
    given = parse_seconds(options.process_seconds, "--process-seconds") if options.process_seconds else None
    sources: list[Source] = [recorded(options, options.data)] if options.data else [*simulated(options, MIXES)]
    drawn = plan(options, options.draws or DRAWS)
    counts = {
        source.name: gather(functools.partial(one_draw, source, drawn), range(drawn.draws), drawn.jobs)
        for source in sources
    }
    return Timing(sources, counts, drawn, options.baseline_processes, given or startup_s(), measured=given is None)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 for input that cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared(parser)
    how = "median seconds of a process; default: timed here, on fresh interpreters that import torch and the plugin"
    parser.add_argument("--process-seconds", metavar="SECONDS", help=how)
    options = parser.parse_args(arguments)
    try:
        check_shared(options)
        timing = measure(options)
    except RooflineError as error:
        print(f"time_to_verdict: {error}", file=sys.stderr)
        return 2
    print(json.dumps(timing.plain(), indent=1, ensure_ascii=False) if options.json else timing.page())
    if options.output:
        options.output.write_text(timing.page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
