"""A bundle from a run: names are taken out first, and all that is in the archive is made of what is left."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.errors import BadInput
from ...judging.report_rows import ReportRow, report_rows
from ...judging.runs import Run
from .archive import unportable
from .choosing import chosen
from .contents import as_json, environment, explain_text, samples_csv, verdicts
from .readme import readme
from .redacting import Redactor
from .reproducer import FOLDER, Reproducer, reproducer
from .run_lines import RUN_FILE, Plain, learn, plain_lines, redacted_run

# Copied from the installed package: nobody's names.
LIBRARY = f"{FOLDER}/lib/"


@dataclass(frozen=True, slots=True)
class Bundle:
    """What goes into an archive, by path, and what is to be said of it; names are replaced throughout."""

    files: dict[str, bytes]
    rows: tuple[ReportRow, ...]
    made: Reproducer
    summary: dict[str, tuple[int, int]]


def make_bundle(run: Run, tests: Sequence[str], redactor: Redactor, root: Path) -> Bundle:
    """The bundle of some tests of a run.

    Args:
        run: as it was read.
        tests: parts of labels or ids; without any, the worst test that failed.
        redactor: that may know names already.
        root: of the checkout that the tests are copied from: pytest's root of the run.

    Raises:
        BadInput: nothing failed and no test is named, a name fits nothing, or two tests cannot be told apart.
        BadFile: the run cannot be read any more.
    """
    before = report_rows(run)
    about = chosen(before, tests, str(run.path))
    lines = plain_lines(run)
    learn(redactor, run, lines)
    clean, text, after = _without_names(redactor, run, lines, len(before))
    rows = [after[index] for index in about]
    made = _unpackable(reproducer(redactor, clean, rows, [before[index].test_id for index in about], root))
    files = {
        "verdicts.json": as_json(verdicts(after, about)),
        "samples.csv": samples_csv(rows),
        "environment.json": as_json(environment(clean)),
        "explain.txt": explain_text(clean, rows),
        str(RUN_FILE): text,
    }
    own = [data.decode() for name, data in made.files.items() if not name.startswith(LIBRARY)]
    summary = redactor.summary([*files.values(), *own])
    files["README.txt"] = readme(clean, rows, made, summary, redactor.keep)
    return Bundle({name: text.encode() for name, text in files.items()} | made.files, tuple(rows), made, summary)


def _without_names(
    redactor: Redactor, run: Run, lines: list[Plain], count: int
) -> tuple[Run, str, Sequence[ReportRow]]:
    """The run without names, its text and its rows, of which there are as many as before.

    Two tests may differ in how they spell one name (`test[node1]`, `test[node1.corp.internal]`); then each spelling
    is a name of its own.
    """
    for apart in (False, True):
        if apart:
            redactor.tell_apart()
        clean, text = redacted_run(redactor, run, lines)
        rows = report_rows(clean)
        if len(rows) == count:
            return clean, text, rows
    raise BadInput(
        f"{run.path} has {count} tests, and {len(rows)} without names: some are called by a placeholder already; "
        "--keep the category of the names that tell them apart"
    )


def _unpackable(made: Reproducer) -> Reproducer:
    """A reproducer with files that every system can unpack, or none."""
    made.notes = list(dict.fromkeys(made.notes))
    why = unportable(made.files)
    return Reproducer(left_out=[*made.left_out, why], notes=made.notes) if why else made
