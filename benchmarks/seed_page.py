"""The five documents that the project grew from, row by row: what makes each here, and what it made on this machine.

    python benchmarks/seed_page.py --try       # run every row's smallest command, then write docs/authors/seeds.md
    python benchmarks/seed_page.py --check     # what has no command that runs, and which figures no test can meet
    python benchmarks/seed_page.py             # write the page of what was tried last

Rows are in seeds/rows.json, what a `roofline` command reads in place of RUN in seeds/samples.json, what they printed
in seeds/tried.json, figures in baselines/published/seed_figures.json. A check collects every pytest command, runs every
`roofline` command on a sample, and asks of each figure whether a test that a command of its row selects would show it:
exit status 1 where anything is missing.
"""

import argparse
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from rank_figures.page import filled, table
from stamp import stamp

from pytest_roofline import usable_cores
from pytest_roofline.baselines.files import PlannedTest, unused_entries
from pytest_roofline.baselines.runs import read_run
from pytest_roofline.core.units import count
from pytest_roofline.plugin.planned import measures, plan

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "baselines" / "published"
ROWS, TRIED, SAMPLES = (
    Path(__file__).with_name("seeds") / f"{one}.json" for one in ("rows", "tried", "samples")
)
PAGE = ROOT / "docs" / "authors" / "seeds.md"
# In the order of their numbers; what they call themselves stands in baselines/published/documents.json.
DOCUMENTS = {
    "mi300x-memcpy": ("000", "a5f7976c40d1e404"),
    "mi300x-memcpy-peer": ("001", "78aac807a50b83b8"),
    "cs336-report-1": ("002", "af853275c7b031d3"),
    "cs336-report-2": ("003", "c1a1ffd12905b44e"),
    "cs336-report-3": ("004", "61642524973d7c56"),
}
PROMISED = "promised"
# A test that passed with what it measured; at most so many lines of a row.
PASSED = r"::test_(\S+) PASSED (\S.*?) +\[ *\d+%\]"
MOST_SHOWN = 2
# So wide that no line of the output is broken.
WIDTH, BUDGET_S, TIMEOUT_S = 400, 0.05, 900.0

HEAD = """# The five documents, row by row

{stamp}

Made by `python benchmarks/seed_page.py --try`: every system, table and figure of the five documents that this project
grew from, with the lines where it stands, the command that makes it here, and what that command printed when it was
last tried, at the smallest size that runs here. {figures} figures are in the tables; `--check` collects every command,
runs each of `roofline` on a sample, and asks whether a test that the row selects would show each figure.

Tried on {device}, {cores} cores, torch {torch}, with {budget} s for a measurement. {load} **No accelerator has
run any row.** What only an accelerator can show says here what it needs; its command was collected, with the tests that
a machine of as many GPUs would have. The figures of the documents themselves, from A100, V100, H100 and MI300X, stand
in [published figures](../results/published.md).

## What differs

* The documents count one FLOP for each float32 that is copied. We count none: their FLOP/s is the payload's bytes/s
  divided by 4, and their operational intensity of 1/4 is that convention. `flops_per_s` of a copy is empty here.
* They count a copy within a device by its one-way bytes, beside a peak of bytes read and written. We count both.
* They copy zeros between the same two buffers. We copy random bits, and rotate buffers that a cache would hold.
* Their times are means behind a fixed warm-up, or sums of ten steps. Ours are medians behind one that converged; means
  and deviations of ten steps stand beside them where `first_calls` asks.
* Their all_reduce is a whole program with its start. Ours is told apart from the steady call; both are measured.
* 001 says of MPI that it reaches 40 GB/s at 1 MB (line 33), and 12 GB/s there (line 36). Both are kept as they stand.
* 004 has 16 · 128 · 768 · 2 bytes as 0.75 MiB (line 119). They are 3 MiB, which `transformer_memory` shows for them.
"""


@dataclass(frozen=True, slots=True)
class Row:
    """What stands in a document, and how it is made here.

    Args:
        document: of `DOCUMENTS`, or `PROMISED`.
        commands: that make it whole: each `pytest …` or `roofline …`.
        tried: what runs on any machine in seconds; without it the first command.
        show: what of its output is told, as patterns of lines.
        tables: of baselines/published/seeds.py, whose figures they make.
        gpus: that the machine shall seem to have while tests are collected; 0 for those that it has.
    """

    document: str
    lines: str
    what: str
    commands: tuple[str, ...]
    tried: str = ""
    show: tuple[str, ...] = (PASSED,)
    tables: tuple[str, ...] = ()
    gpus: int = 0
    note: str = ""

    @property
    def name(self) -> str:
        """How a message calls it."""
        return f"{DOCUMENTS.get(self.document, (self.document,))[0]}:{self.lines} {self.what}"

    @property
    def sample(self) -> str:
        """The command that was tried."""
        return self.tried or self.commands[0]


@dataclass(frozen=True, slots=True)
class Tried:
    """What the sample of a row did."""

    command: str
    status: int
    shown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Collected:
    """What a pytest command selects: the measuring tests among so many."""

    tests: int
    planned: tuple[PlannedTest, ...]


def published(name: str) -> Any:
    """A module of baselines/published, which is a folder of programs and no package."""
    if str(PUBLISHED) not in sys.path:
        sys.path.insert(0, str(PUBLISHED))
    return importlib.import_module(name)


def rows(path: Path = ROWS) -> list[Row]:
    """Every row, in the order of the documents."""
    lists = ("commands", "show", "tables")
    raw = json.loads(path.read_text(encoding="utf-8"))
    return [
        Row(**{key: tuple(value) if key in lists else value for key, value in one.items()})
        for one in raw
    ]


class _Selected:
    """Counts what pytest selected, and notes what of it measures."""

    found = Collected(0, ())

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Called by pytest."""
        plans = plan([item for item in session.items if measures(item)]).values()
        self.found = Collected(
            len(session.items), tuple(PlannedTest(one.benchmark, one.parameters) for one in plans)
        )


def _collect(command: str, gpus: int) -> Collected:
    """In a process of its own, which has torch already."""
    if gpus:
        torch.cuda.device_count = lambda: gpus
    os.chdir(ROOT)
    selected = _Selected()
    with (
        Path(os.devnull).open("w", encoding="utf-8") as nowhere,
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        asked = [*shlex.split(command)[1:], "--collect-only", "-q", "-p", "no:cacheprovider"]
        status = pytest.main(asked, plugins=[selected])
    return selected.found if status == pytest.ExitCode.OK else Collected(0, ())


def collected(asked: Iterable[tuple[str, int]]) -> dict[tuple[str, int], Collected]:
    """What each command selects on a machine of so many GPUs."""
    each = sorted(set(asked))
    # A process collects once: a second collection would find the modules of the first.
    with get_context("fork").Pool(usable_cores(), maxtasksperchild=1) as pool:
        return dict(zip(each, pool.starmap(_collect, each, chunksize=1), strict=True))


def run(command: str, out: Path) -> tuple[int, str]:
    """Exit status and output of a sample; `{out}` in it is a folder. 124 is one that took too long."""
    program, *arguments = shlex.split(command.replace("{out}", str(out)))
    if program == "pytest":
        named = ["-v", "-rs", "-p", "no:cacheprovider", f"--roofline-dir={out}"]
        named += [] if "--roofline-budget" in command else [f"--roofline-budget={BUDGET_S}"]
        arguments = ["-m", "pytest", *arguments, *named]
    else:
        arguments = [str(Path(sys.executable).with_name(program)), *arguments]
    try:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, env=os.environ | {"COLUMNS": str(WIDTH)}, timeout=TIMEOUT_S,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return 124, ""
    return done.returncode, done.stdout


def told(row: Row, status: int, output: str) -> Tried:
    """What a row tells of its sample: lines of the output, those of its first pattern first."""
    found = [match for pattern in row.show for match in re.finditer(pattern, output, re.MULTILINE)]
    lines = [" ".join(" ".join(filter(None, one.groups() or (one[0],))).split()) for one in found]
    return Tried(row.sample, status, tuple(dict.fromkeys(lines))[:MOST_SHOWN])


def attempt(wanted: Sequence[Row]) -> dict[str, Any]:
    """Run the sample of each row once, one after the other, and tell on what machine."""
    loads, outputs = [os.getloadavg()[0]], {}
    with tempfile.TemporaryDirectory(prefix="roofline-seeds-") as folder:
        out = Path(folder)
        for row in wanted:
            if row.sample not in outputs:
                began = time.monotonic()
                outputs[row.sample] = run(row.sample, out)
                loads.append(os.getloadavg()[0])
                print(
                    f"{time.monotonic() - began:.0f} s, status {outputs[row.sample][0]}: {row.sample}",
                    flush=True,
                )
        # Every run that was saved has the same machine.
        header = read_run(max((out / "runs").glob("*.jsonl"))).header
    device = header.environment.device
    return {
        "device": device.product,
        "type": device.type,
        "cores": header.environment.host.usable_cores,
        "torch": header.environment.software["torch"],
        "stamp": stamp(),
        "loads": [round(min(loads), 1), round(max(loads), 1)],
        "rows": {row.name: asdict(told(row, *outputs[row.sample])) for row in wanted},
    }


def untried(every: Sequence[Row], tried: dict[str, Tried]) -> Iterator[str]:
    """What rows say that nobody has seen."""
    for row in every:
        one = tried.get(row.name)
        if not row.commands:
            yield f"{row.name}: it has no command"
        elif one is None or one.command != row.sample:
            yield f"{row.name}: `{row.sample}` was not tried; call this program with --try"
        elif one.status != 0 or not one.shown:
            yield f"{row.name}: `{row.sample}` ended with status {one.status}, and showed {len(one.shown)} lines"


def missing(every: Sequence[Row]) -> Iterator[str]:
    """What has no command that runs, and the figures that no test of their row shows."""
    commands = [(one, row.gpus) for row in every for one in (*row.commands, row.sample)]
    selected = collected(one for one in commands if one[0].startswith("pytest "))
    yield from (
        f"`{one}` selects no test" for (one, _), found in selected.items() if not found.tests
    )
    with tempfile.TemporaryDirectory(prefix="roofline-seeds-") as folder:
        samples = json.loads(SAMPLES.read_text(encoding="utf-8"))
        for one in sorted({one for one, _ in commands if one.startswith("roofline ")}):
            status, shown = run(samples.get(one, one), Path(folder))
            # A comparison that cannot tell ends with 2, and prints its table all the same.
            cannot_tell = one.startswith("roofline compare ") and status == 2 and shown
            if status != 0 and not cannot_tell:
                yield f"`{one}` ended with status {status} on its sample; expected 0"
    yield from unmet(every, selected)


def unmet(every: Sequence[Row], selected: dict[tuple[str, int], Collected]) -> Iterator[str]:
    """Figures that stand in no row, or that none of the tests of their row's commands would be compared with."""
    figures, seeds = published("figures").told(), published("seeds")
    account = published("entries").account(published=(), told=figures)
    apart = {one.record for one in account.left_out}
    for one in figures:
        title = seeds.table_of(one).title
        own = [row for row in every if row.document == one.document and title in row.tables]
        commands = [selected.get((command, row.gpus)) for row in own for command in row.commands]
        planned = [test for found in commands if found for test in found.planned]
        # As if a person had written them: those of a program are never unused.
        mine = [
            replace(each.entry, provenance={}) for each in account.entries if each.record == one.id
        ]
        benchmarks = {test.benchmark for test in planned}
        rest = {entry.identity for entry, _ in unused_entries(mine, planned)}
        rest |= {each.identity for each in mine if each.benchmark not in benchmarks}
        if not own:
            yield f"{one.id}, {title} of {one.document}: it stands in no row"
        elif one.id not in apart and len(rest) == len({each.identity for each in mine}):
            yield f"{one.id}, {one.metric} {one.value} in {title} of {one.document}: no test of its row shows it"


def figures_of(every: Sequence[Row]) -> dict[str, int]:
    """How many figures each row's tables have, by its name."""
    seeds = published("seeds")
    tables = [(one.document, seeds.table_of(one).title) for one in published("figures").told()]
    return {
        row.name: sum(tables.count((row.document, title)) for title in row.tables) for row in every
    }


def tried_rows(made: dict[str, Any]) -> dict[str, Tried]:
    """What was tried, by the name of its row."""
    return {
        name: Tried(one["command"], one["status"], tuple(one["shown"]))
        for name, one in made["rows"].items()
    }


def page(every: Sequence[Row], made: dict[str, Any]) -> str:
    """All of it."""
    tried = tried_rows(made)
    low, high = made["loads"]
    spoiled = sum(any("INVALID" in line for line in one.shown) for one in tried.values())
    load = (
        f"Its load average was {low} when it was least and {high} when it was most. Of {count(len(tried), 'row')} "
        f"{spoiled} show a time that is INVALID, and say so."
    )
    number = figures_of(every)
    head = HEAD.format(**made, load=load, budget=BUDGET_S, figures=sum(number.values()))
    titles = {
        one["id"]: one["title"]
        for one in json.loads((PUBLISHED / "documents.json").read_text(encoding="utf-8"))
    }
    heads = {
        one: f"## {no}: {titles[one]}\n\nIts hash begins with `{sha}`."
        for one, (no, sha) in DOCUMENTS.items()
    }
    parts = [filled(head)]
    for document, title in (
        heads | {PROMISED: "## What the project promised itself beside them"}
    ).items():
        cells = [
            _cells(row, tried.get(row.name), number[row.name])
            for row in every
            if row.document == document
        ]
        parts += [title, table(("lines", "what", "figures", "command", "here"), cells)]
    return "\n\n".join(parts) + "\n"


def _cells(row: Row, one: Tried | None, figures: int) -> tuple[str, ...]:
    commands = [_code(command) for command in row.commands]
    commands += [f"tried as {_code(row.tried.replace('{out}', 'DIR'))}"] if row.tried else []
    what = f"{row.what} ({row.note})" if row.note else row.what
    here = [_code(line) for line in one.shown] if one else ["not tried"]
    return row.lines, what, str(figures or ""), "<br>".join(commands), "<br>".join(here)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page, or check the rows: exit status 1 where something is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--try", action="store_true", dest="attempt", help="run each row's smallest command first"
    )
    parser.add_argument("--check", action="store_true", help="write nothing; say what is missing")
    options = parser.parse_args(arguments)
    every = rows()
    if options.attempt:
        TRIED.write_text(
            json.dumps(attempt(every), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
    made = json.loads(TRIED.read_text(encoding="utf-8"))
    text = page(every, made)
    lost = list(untried(every, tried_rows(made)))
    if options.check:
        lost += missing(every)
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            lost.append(
                f"{PAGE.relative_to(ROOT)} is not what its rows say; call this program without --check"
            )
    else:
        PAGE.write_text(text, encoding="utf-8")
    for one in lost:
        print(f"missing: {one}")
    print(
        f"{count(len(every), 'row')}, {count(sum(figures_of(every).values()), 'figure')}, {len(lost)} missing"
    )
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
