"""How often is unchanged code called slower, and how often is slower code found, in the set-ups that people have?

    python benchmarks/detector_quality.py -o docs/results/detector-quality.md
    python benchmarks/detector_quality.py --data FILE [--json]
    python benchmarks/detector_quality.py --record FILE --processes 20

Without `--data`: made-up processes whose truth is known. With it: the same table for the processes of that file, of
which each row takes random ones for the baseline and others for the new side.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from detectors.drawing import Setup, draw, read_recorded
from detectors.page import as_json, page
from detectors.peers import FIVE_ASIDE, Called, Peer, available, call, usual
from detectors.recording import record
from detectors.rows import SHAPES, Plan, Row, count_all, rows

from pytest_roofline.core.errors import BadInput, RooflineError
from pytest_roofline.core.units import parse_fraction
from pytest_roofline.stats.spread import priors

FEWEST_TO_RECORD = 18
# Of the rules of other tools.
PEER_SUITES = 100


def rows_of(plan: Plan) -> list[Row]:
    """The rows that the data allow."""
    if plan.recorded is None:
        return rows()
    found = []
    for name, shape in SHAPES.items():
        if plan.recorded.fits(shape):
            base = Row("recorded", "as recorded", name, Setup(session=0.0), goal=sum(shape) >= 3)
            found += [replace(base, rounds=rounds) for rounds in ("auto", "default", "1")]
            found += [
                replace(base, name=f"with σ_s {100 * session:g} %", setup=Setup(session=session))
                for session in (0.005, 0.01, 0.02)
            ]
            found += [
                replace(
                    base,
                    name=f"with σ_g {100 * device:g} %",
                    setup=Setup(session=0.0, device=device),
                )
                for device in (0.01, 0.03)
            ]
    return found


def peers_of(plan: Plan) -> tuple[dict[tuple[str, str], Called], list[Peer]]:
    """What the rules of other tools say, on their usual data and on the plugin's."""
    told = [*available(), FIVE_ASIDE]
    found: dict[tuple[str, str], Called] = {}
    shape = SHAPES["14 × 1"]
    if plan.recorded is not None:
        return found, told
    for spreads in ("calm", "mix"):
        for number in range(min(PEER_SUITES, plan.suites)):
            rng = np.random.default_rng([plan.seed, number])
            before, after = draw(rng, Setup(spreads), plan.tests, shape)
            sides = {
                "one process a side": usual(rng, before, after),
                "14 and 12 processes": (np.exp(before), np.exp(after)),
            }
            for peer in told:
                for data, pair in sides.items():
                    if peer is not FIVE_ASIDE or pair[0].shape[1] == len(shape):
                        call(
                            peer,
                            pair,
                            found.setdefault((peer.name, f"{spreads}, {data}"), Called()),
                        )
    return found, told


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, help="JSON: benchmark → list of processes → list of samples in seconds"
    )
    parser.add_argument(
        "--draws",
        type=int,
        default=1000,
        metavar="SUITES",
        help="of each row (default: %(default)s)",
    )
    parser.add_argument(
        "--tests", type=int, default=200, help="of each made-up suite (default: %(default)s)"
    )
    parser.add_argument("--tolerance", default="5%", metavar="SHARE", help="default: 5%%")
    parser.add_argument("--seed", type=int, default=4, help="default: %(default)s")
    classes = "whose starting values stand where a baseline does not tell (default: %(default)s)"
    parser.add_argument(
        "--class", dest="kind", choices=sorted(priors()), default="device", help=classes
    )
    parser.add_argument(
        "--only", default="", metavar="WORD", help="rows whose group or name has it"
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: one a core)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of Markdown")
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="run this machine's memcpy tests into a data file",
    )
    parser.add_argument(
        "--processes", type=int, default=20, metavar="K", help="to record (default: %(default)s)"
    )
    return parser.parse_args(arguments)


def _at_least(value: int, least: int, name: str) -> None:
    if value < least:
        raise BadInput(f"{name} is {value}; expected {least} or more")


def _run(options: argparse.Namespace) -> None:
    for value, least, name in (
        (options.draws, 1, "--draws"),
        (options.tests, 2, "--tests"),
        (options.seed, 0, "--seed"),
        (options.jobs, 1, "--jobs"),
    ):
        _at_least(value, least, name)
    if options.output and not options.output.parent.is_dir():
        raise BadInput(
            f"--output is in {options.output.parent}, which is no folder; make it, or name another"
        )
    if options.record:
        _at_least(options.processes, FEWEST_TO_RECORD, "--processes")
        record(options.record, options.processes)
        return
    recorded = read_recorded(options.data) if options.data else None
    tests = len(recorded.logs) if recorded is not None else options.tests
    tolerance = parse_fraction(options.tolerance, "--tolerance")
    plan = Plan(options.draws, tests, tolerance, options.kind, options.seed, recorded)
    wanted = [row for row in rows_of(plan) if options.only in f"{row.group} {row.name} {row.shape}"]
    if not wanted:
        raise BadInput(
            f"--only is {options.only!r}; no row has it in its group, its name or its baseline"
        )
    counted = []
    for number, (row, count) in enumerate(
        zip(wanted, count_all(plan, wanted, options.jobs), strict=True), 1
    ):
        print(
            f"{number}/{len(wanted)} {row.group}: {row.name}, {row.shape}",
            file=sys.stderr,
            flush=True,
        )
        counted.append((row, count))
    peers, told = peers_of(plan) if not options.only else ({}, [])
    text = page(counted, plan, peers, told)
    print(json.dumps(as_json(counted, plan, peers), indent=1) if options.json else text)
    if options.output:
        options.output.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 for input that cannot be used."""
    options = parse(arguments)
    try:
        _run(options)
    except RooflineError as error:
        print(f"detector_quality: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
