"""A bundle from a run: names are taken out first, and all that is in the archive is made of what is left."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...judging.report_rows import ReportRow, report_rows
from ...judging.runs import Run
from .choosing import chosen
from .contents import as_json, environment, explain_text, samples_csv, verdicts
from .readme import readme
from .redacting import Redactor
from .reproducer import Reproducer, reproducer
from .run_lines import RUN_FILE, learn, plain_lines, redacted_run


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
        BadInput: nothing failed and no test is named, or a name fits nothing.
        BadFile: the run cannot be read any more.
    """
    before = report_rows(run)
    about = chosen(before, tests, str(run.path))
    lines = plain_lines(run)
    learn(redactor, run, lines)
    clean, text = redacted_run(redactor, run, lines)
    after = report_rows(clean)
    assert len(after) == len(before), "two names became one"
    rows = [after[index] for index in about]
    made = reproducer(redactor, clean, rows, [before[index].test_id for index in about], root)
    summary = redactor.summary()
    files = {
        "README.txt": readme(clean, rows, made, summary, redactor.keep),
        "verdicts.json": as_json(verdicts(after, about)),
        "samples.csv": samples_csv(rows),
        "environment.json": as_json(environment(clean)),
        "explain.txt": explain_text(clean, rows),
        str(RUN_FILE): text,
    }
    return Bundle({name: text.encode() for name, text in files.items()} | made.files, tuple(rows), made, summary)
