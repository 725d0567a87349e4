"""What `roofline history` and `roofline fleet` share: thousands of run files named, read and chosen from."""

import fnmatch
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .core.errors import BadInput
from .core.units import printable

if TYPE_CHECKING:
    from .judging.many import Many

# Reading that takes less is not worth a word; then a word every so often where no terminal shows one line anew.
QUIET_S, WORD_S = 1.0, 10.0
# Files that cannot be used are named up to so many.
MOST_NAMED = 5

runs_argument = click.argument("runs", nargs=-1, required=True, metavar="RUNS...")
tests_option = click.option(
    "--tests",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Only tests whose name matches: 'memcpy_*'. Repeatable.",
)
since_option = click.option("--since", metavar="DATE", help="Only runs from this date on (ISO 8601).")
cache_option = click.option(
    "--cache/--no-cache", default=True, show_default=True, help="Keep what was read in DIR/cache, for the next time."
)


def read_runs(runs: Sequence[str], folder: Path, *, cache: bool, since: str | None, patterns: Sequence[str]) -> "Many":
    """The runs that a user names, with what had to be left out said on stderr.

    Raises:
        BadInput: none can be used, or none is left.
    """
    from .judging.many import expand, read_many

    listed = sys.stdin if "-" in runs else ()
    paths = expand(runs, folder, listed)
    many = read_many(paths, folder / "cache" if cache else None, _progress())
    _tell(many)
    return _matching(_since(many, since), patterns)


def _progress() -> Callable[[int, int], None]:
    """Says how far reading is, on stderr, once it takes a while."""
    begun = last = time.monotonic()
    terminal = sys.stderr.isatty()
    spoken = False

    def tell(done: int, of: int) -> None:
        nonlocal last, spoken
        now = time.monotonic()
        if now - begun < QUIET_S or (not terminal and now - last < WORD_S):
            return
        last, spoken = now, True
        text = f"reading {done:,} of {of:,} run files"
        click.echo(f"\r{text}" if terminal else text, err=True, nl=not terminal or done == of)

    return tell


def _tell(many: "Many") -> None:
    for note in many.notes[:MOST_NAMED]:
        click.echo(f"note: {printable(note)}", err=True)
    if many.left_out:
        click.echo(f"note: {len(many.left_out)} of {many.files} files are left out:", err=True)
        for why in many.left_out[:MOST_NAMED]:
            click.echo(f"  {printable(why)}", err=True)
        if len(many.left_out) > MOST_NAMED:
            click.echo(f"  … and {len(many.left_out) - MOST_NAMED} more", err=True)


def _since(many: "Many", since: str | None) -> "Many":
    if since is None:
        return many
    from .judging.picking import parse_moment

    taken = many.runs["started"] >= parse_moment(since, "--since")
    if not taken.any():
        raise BadInput(f"no run began on {since} or later; the last one began {many.runs['started'].max()}")
    return replace(many, rows=many.rows[many.rows["run"].map(taken)])


def _matching(many: "Many", patterns: Sequence[str]) -> "Many":
    if not patterns:
        return many
    taken = [
        number
        for number, test in enumerate(many.tests)
        if any(fnmatch.fnmatchcase(name, pattern) for name in (test.label, test.key.benchmark) for pattern in patterns)
    ]
    if not taken:
        known = ", ".join(list(dict.fromkeys(test.key.benchmark for test in many.tests))[:8])
        raise BadInput(f"no test matches --tests {', '.join(patterns)}; there are {printable(known)}")
    return replace(many, rows=many.rows[many.rows["test"].isin(taken)])
