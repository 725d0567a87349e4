"""The options that both programs share, parsed once."""

import argparse
import math
from pathlib import Path

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.units import parse_fraction
from pytest_roofline.judging.spread import Prior, priors

from .drawing import Plan, cores
from .simulated import KINDS, Simulated
from .suites import Recorded, Source, exchangeable, read_recorded

TOLERANCES = ("3%", "5%")
# So many tests drawn tell a rate of 0.2 % from one of 0.1 %; but suites, too, must be many.
TESTS_WANTED, FEWEST_DRAWS, MOST_DRAWS = 20_000, 100, 1000
SEED = 4


def add_shared(parser: argparse.ArgumentParser) -> None:
    """Add them."""
    parser.add_argument("--data", type=Path, help="JSON: benchmark → list of processes → list of samples in seconds")
    parser.add_argument("--baseline-processes", type=int, default=15, metavar="N", help="default: %(default)s")
    parser.add_argument("--new-max", type=int, default=12, metavar="M", help="default: %(default)s")
    parser.add_argument("--tolerance", action="append", metavar="SHARE", help="repeatable; default: 3%% and 5%%")
    parser.add_argument("--draws", type=int, metavar="SUITES", help="of each data set; default: for 20,000 tests")
    parser.add_argument("--seed", type=int, default=SEED, help="default: %(default)s")
    classes = "whose starting values stand where a baseline does not tell (default: %(default)s)"
    parser.add_argument("--class", dest="kind", choices=sorted(priors()), default="device", help=classes)
    parser.add_argument("--jobs", type=int, metavar="N", help="processes to draw in; default: one a core")
    parser.add_argument("--json", action="store_true", help="print JSON in place of Markdown")
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")


def at_least(value: int | None, least: int, name: str) -> None:
    """Refuse a count that is too small.

    Raises:
        BadInput: it is.
    """
    if value is not None and value < least:
        raise BadInput(f"{name} is {value}; expected {least} or more")


def check_shared(options: argparse.Namespace) -> None:
    """Refuse what cannot be.

    Raises:
        BadInput: a count below what it needs, or a folder that is not there.
    """
    if options.output and not options.output.parent.is_dir():
        raise BadInput(f"--output is in {options.output.parent}, which is no folder; make it, or name another")
    at_least(options.baseline_processes, 1, "--baseline-processes")
    at_least(options.new_max, 1, "--new-max")
    at_least(options.draws, 1, "--draws")
    at_least(options.jobs, 1, "--jobs")
    at_least(options.seed, 0, "--seed")


def tolerances(options: argparse.Namespace) -> tuple[float, ...]:
    """As shares, each once, in rising order.

    Raises:
        BadInput: one is no share.
    """
    given = options.tolerance or TOLERANCES
    return tuple(sorted({parse_fraction(text, "--tolerance") for text in given}))


def simulated(options: argparse.Namespace, names: tuple[str, ...] = ()) -> list[Simulated]:
    """The simulated data sets, or those of the names."""
    prior = starting_prior(options)
    return [
        Simulated(kind.name, options.baseline_processes, options.new_max, prior)
        for kind in KINDS
        if not names or kind.name in names
    ]


def recorded(options: argparse.Namespace, path: Path) -> Recorded:
    """The data file."""
    return read_recorded(path, options.baseline_processes, options.new_max, starting_prior(options))


def starting_prior(options: argparse.Namespace) -> Prior:
    """What to assume of processes that are exchangeable."""
    return exchangeable(priors()[options.kind])


def draws_for(options: argparse.Namespace, source: Source) -> int:
    """As asked, or enough."""
    enough = math.ceil(TESTS_WANTED / source.tests)
    return int(options.draws or min(MOST_DRAWS, max(FEWEST_DRAWS, enough)))


def plan(options: argparse.Namespace, draws: int) -> Plan:
    """What to draw."""
    return Plan(tolerances(options), options.new_max, draws, options.seed, options.jobs or cores())
