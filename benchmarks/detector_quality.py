"""How often do rules call unchanged code slower, and how often do they find slower code?

    python benchmarks/detector_quality.py -o docs/results/detector-quality.md
    python benchmarks/detector_quality.py --data FILE [--json]
    python benchmarks/detector_quality.py --record FILE --processes 20

Without `--data`: simulated processes, other devices and sessions, and the processes of one machine that this repository
holds. With it: that file alone. The rule of this plugin is the plugin's own code; the rules of other tools say where
they come from.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from detectors.conditions import DEVICES, PAIRED, SESSIONS, Condition, draw_condition
from detectors.drawing import draw_all
from detectors.options import add_shared, at_least, check_shared, draws_for, plan, recorded, simulated, tolerances
from detectors.recording import ROOT, record
from detectors.report import Report
from detectors.suites import Source

from pytest_roofline.core.errors import RooflineError

RECORDED = ROOT / "docs/results/data/memcpy-processes.json"
FEWEST_TO_RECORD = 18
# Of a condition, where the number of suites is not asked for.
CONDITION_DRAWS = 200
Named = TypeVar("Named", Source, Condition)


def measure(options: argparse.Namespace) -> Report:
    """Draw everything that the options ask for."""
    sources = sources_of(options)
    draws = {source.name: draws_for(options, source) for source in sources}
    conditions: Sequence[Condition] = () if options.data else (*DEVICES, *PAIRED, *SESSIONS)
    apart = plan(options, options.draws or CONDITION_DRAWS)
    return Report(
        sources=sources,
        data={source.name: draw_all(source, plan(options, draws[source.name])) for source in told(sources)},
        conditions={condition.name: draw_condition(condition, apart) for condition in told(conditions)},
        draws=draws,
        baseline=options.baseline_processes,
        looks=options.new_max,
        tolerances=tolerances(options),
        seed=options.seed,
    )


def sources_of(options: argparse.Namespace) -> list[Source]:
    """The data file; without one, the simulated data sets and what was recorded of this repository's own tests."""
    if options.data:
        return [recorded(options, options.data)]
    own: list[Source] = [recorded(options, RECORDED)] if RECORDED.exists() else []
    return [*simulated(options), *own]


def told(named: Sequence[Named]) -> Iterator[Named]:
    """Each in turn, its name said on the way, since the whole takes minutes."""
    for number, one in enumerate(named, 1):
        print(f"{number}/{len(named)} {one.name}", file=sys.stderr, flush=True)
        yield one


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_shared(parser)
    parser.add_argument("--record", type=Path, metavar="FILE", help="run this machine's memcpy tests into a data file")
    parser.add_argument("--processes", type=int, default=20, metavar="K", help="to record (default: %(default)s)")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 for input that cannot be used."""
    options = parse(arguments)
    try:
        check_shared(options)
        if options.record:
            at_least(options.processes, FEWEST_TO_RECORD, "--processes")
            record(options.record, options.processes)
            return 0
        report = measure(options)
    except RooflineError as error:
        print(f"detector_quality: {error}", file=sys.stderr)
        return 2
    print(report.json() if options.json else report.page())
    if options.output:
        options.output.write_text(report.page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
