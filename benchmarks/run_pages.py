"""What pages that are made from run files have in common: where a run was made, and tables that others published."""

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

from rank_figures.page import table

from pytest_roofline.baselines.run_files import resolve_run
from pytest_roofline.baselines.runs import Run, read_run
from pytest_roofline.core.errors import RooflineError
from pytest_roofline.core.records import Header
from pytest_roofline.core.units import format_memory

ROOT = Path(__file__).resolve().parent.parent

# Where a run holds nothing, or a table of others has an empty cell.
NOTHING = "–"


def environment(header: Header) -> str:
    """On what a run was made, in a sentence."""
    device, host, software = (
        header.environment.device,
        header.environment.host,
        header.environment.software,
    )
    facts = [device.product]
    facts += [f"{host.usable_cores} cores"] if device.type == "cpu" else []
    facts += [format_memory(device.memory_bytes)] if device.memory_bytes else []
    facts += [f"driver {device.driver}"] if device.driver else []
    facts += [f"{name} {version}" for name, version in software.items()]
    return f"{', '.join(facts)}. Run `{header.run_id}`, {header.started[:10]}."


def published(path: Path) -> Iterator[str]:
    """The tables of others, from a file of records with title, hardware, method, note, columns and rows."""
    for source in json.loads(path.read_text(encoding="utf-8")):
        yield f"### {source['hardware']}"
        yield f"{source['title']}. {_sentence(source['method'])} {_sentence(source['note'])}"
        yield table(
            source["columns"],
            [[NOTHING if one is None else str(one) for one in row] for row in source["rows"]],
        )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def remarks(run: Run, benchmarks: Collection[str]) -> Iterator[str]:
    """What a reader must know of the numbers that a run has of these benchmarks, as a whole."""
    # What ran out of memory says so where its number would be.
    ran_out = {one.test_id for one in run.out_of_memory}
    own = [
        m for m in run.measurements if m.key.benchmark in benchmarks and m.test_id not in ran_out
    ]
    why = {m.label: run.unfit(m, accept_slower=True) for m in own}
    unsound = {label: reason for label, reason in why.items() if reason}
    if unsound:
        label, reason = next(iter(unsound.items()))
        yield f"{len(unsound)} of {len(why)} measurements are not sound and have no number here, as {label}: {reason}."
    unsettled = {m.label for m in own if {"noisy", "drifting"} & set(m.samples.labels)} - set(
        unsound
    )
    if unsettled:
        yield f"{len(unsettled)} of {len(why)} had not settled when their budget ended."
    if run.cut or run.footer is None:
        yield "The run did not come to its end."


def titled(run: Run, parts: Sequence[str], benchmarks: Collection[str]) -> list[str]:
    """What a run has for a page, below its title and where it was made."""
    told = " ".join([environment(run.header), *remarks(run, benchmarks)])
    return [f"## {run.header.environment.device.product}, {run.header.run_id}", told, *parts]


def main(
    program: str,
    about: str | None,
    page: Callable[[Sequence[Run]], str],
    arguments: Sequence[str] | None = None,
) -> int:
    """Print a page of runs, and write it where asked to. Exit status: 0, or 2 for runs that cannot be used."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a saved run, by name or path")
    parser.add_argument("-o", "--output", type=Path, help="Markdown file to write")
    options = parser.parse_args(arguments)
    try:
        text = page([read_run(resolve_run(name, ROOT / ".roofline")) for name in options.runs])
    except RooflineError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    print(text, end="")
    if options.output:
        options.output.write_text(text, encoding="utf-8")
    return 0
