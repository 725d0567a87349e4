"""The command `roofline profiler`.

It shows the totals of a vendor's profiler beside measured times.
"""

import glob
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from ..baselines.run_files import resolve_run
from ..baselines.run_rows import rows_of_run
from ..baselines.runs import Run, read_run
from ..cli.options import command, folder_option, note_cuts, print_json, say, width
from ..core.errors import BadInput
from ..core.rows import TIME
from ..core.storage import read_bytes
from ..core.units import count, format_amount, format_seconds, format_share, listed, printable
from ..report.tables import TextTable, render
from .vendor import Totals, read_tables, totals

# The number of kernels that are named of each test.
MOST_KERNELS = 3


@dataclass(frozen=True, slots=True)
class Pair:
    """One test's measured time, and the profiler's totals."""

    label: str
    test: str
    measured_s: float
    totals: Totals
    calls: int

    @property
    def profiler_s(self) -> float:
        """Seconds of kernels and copies in one call."""
        return self.totals.seconds / self.calls


@command(folder_option)
@click.argument("run")
@click.argument("files", nargs=-1, required=True, metavar="TEST=FILE...")
@click.option(
    "--calls",
    type=click.IntRange(min=1),
    help="Calls in each FILE, if the run has no external profile.",
)
def profiler(
    run: str, files: tuple[str, ...], calls: int | None, as_json: bool, folder: Path
) -> None:
    """Show what nsys or rocprofv3 saw of tests of RUN beside the times that RUN measured, a row a test.

    TEST is part of its name or id, FILE the CSV of `nsys stats --format csv` or of rocprofv3, or a pattern; name a test
    again for its other files. With a marker_api_trace of rocprofv3 only what began in our calls counts.

    Example: roofline profiler steps "small=small_*.csv" "large=large_*.csv"

    Exit status: 0 shown, 2 the input cannot be used.
    """
    measured_run = read_run(resolve_run(run, folder))
    note_cuts([measured_run])
    paths_by_test: dict[str, list[str]] = {}
    for word in files:
        test, equals, pattern = word.rpartition("=")
        if not equals or not pattern:
            raise BadInput(
                f"{word!r} names no test; expected TEST=FILE, such as small=small_cuda_gpu_kern_sum.csv"
            )
        paths_by_test.setdefault(test, []).extend(sorted(glob.glob(pattern)) or [pattern])  # noqa: PTH207
    pairs = [_pair(measured_run, test, paths, calls) for test, paths in paths_by_test.items()]
    if as_json:
        print_json([_pair_as_json(pair) for pair in pairs])
    else:
        say(_text(pairs))


def _pair(run: Run, test: str, paths: Sequence[str], calls: int | None) -> Pair:
    """Return a test's time beside the totals of its files.

    Args:
        run: the run that measured the test.
        test: the label or id of the test, or a part of it that fits one test only.
        paths: of the profiler's files.
        calls: the user's number of calls in the files; None if the files or the run have it.

    Raises:
        BadInput: the text does not fit exactly one test, or the number of calls is unknown.
    """
    timed_rows = [row for row in rows_of_run(run) if row.metric == TIME and row.time_s]
    exact_matches = [row for row in timed_rows if test in (row.label, row.test)]
    matches = exact_matches or [row for row in timed_rows if test in row.label or test in row.test]
    if len(matches) != 1:
        names = listed([row.label for row in matches or timed_rows], 4)
        raise BadInput(
            f"{run.path} measured {count(len(matches), 'test')} of {test!r}; name one of: {names or 'none'}"
        )
    (row,) = matches
    contents = {path: read_bytes(Path(path), "profiler's file", "a CSV table") for path in paths}
    texts = {path: content.decode(errors="replace") for path, content in contents.items()}
    totals_of_files = totals(
        [table for path, text in texts.items() for table in read_tables(text, path)], row.label
    )
    profiles = [
        profile
        for profile in run.profiles
        if (profile.test_id, profile.name) == (row.test, row.name) and profile.tool == "external"
    ]
    # The ranges in the files tell the number of calls best, then the user, then the last profile of the run.
    profiled_count = profiles[-1].calls if profiles else None
    call_count = totals_of_files.calls or calls or profiled_count
    if call_count is None:
        raise BadInput(f"the number of calls of {row.label} in {paths[0]} is unknown. Pass --calls=N, or profile with "
                       "--roofline-profile=external, so that the run file has the number")  # fmt: skip
    assert row.time_s is not None
    return Pair(row.label, row.test, row.time_s, totals_of_files, call_count)


def _text(pairs: Sequence[Pair]) -> str:
    """Return the table of tests, with their longest kernels."""
    # A column without any text, such as that of copied bytes, is not shown.
    headings = (
        "measured",
        "profiler",
        "of measured",
        "kernels",
        "copies",
        "copied",
        "launches",
    )
    table = TextTable(("test", "left"), *((name, "right") for name in headings))
    lines = []
    for pair in pairs:
        totals, copied_bytes = pair.totals, pair.totals.copied_bytes
        cells = [
            format_seconds(pair.measured_s),
            format_seconds(pair.profiler_s),
            format_share(pair.profiler_s / pair.measured_s),
            format_seconds(totals.kernels_s / pair.calls),
            format_seconds(totals.copies_s / pair.calls),
            "" if copied_bytes is None else format_amount(copied_bytes / pair.calls),
        ]
        table.add_row(printable(pair.label), *cells, f"{totals.launches / pair.calls:,.10g}")
        longest_kernels = list(totals.kernels.items())[:MOST_KERNELS]
        kernels = [
            f"{name} {format_share(seconds / totals.seconds)} ({count(launches, 'launch', 'es')})"
            for name, (seconds, launches) in longest_kernels
        ]
        lines.append(printable(f"{pair.label}, {count(pair.calls, 'call')}: {'; '.join(kernels)}"))
    return "\n".join([render(table, width(), sys.stdout.isatty()), "All times are of one call. Kernels and copies that "
                      "overlap each count in full. Only `measured` has the device's idle time.", *lines])  # fmt: skip


def _pair_as_json(pair: Pair) -> dict[str, object]:
    """Return a test's time and totals as JSON.

    They are of one call; kernels have the totals of all calls.
    """
    totals = pair.totals
    return {
        "label": pair.label,
        "test": pair.test,
        "calls": pair.calls,
        "time_s": pair.measured_s,
        "profiler_s": pair.profiler_s,
        "kernels_s": totals.kernels_s / pair.calls,
        "copies_s": totals.copies_s / pair.calls,
        "copied_bytes": None if totals.copied_bytes is None else totals.copied_bytes / pair.calls,
        "launches": totals.launches / pair.calls,
        "kernels": [
            {"name": name, "total_s": seconds, "launches": launches}
            for name, (seconds, launches) in totals.kernels.items()
        ],
    }
