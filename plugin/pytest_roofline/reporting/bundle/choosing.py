"""Which tests of a run a bundle is about: those that were named, or the worst that failed."""

from collections.abc import Sequence

from ...core.errors import BadInput
from ...core.rows import Row, worst_first
from ...core.units import listed

# Of a run of hundreds, so many names are enough to see how tests are called.
SHOWN = 8


def chosen(rows: Sequence[Row], tests: Sequence[str], run: str) -> list[int]:
    """The places of the rows that are meant, worst first.

    Args:
        rows: of the run.
        tests: parts of labels or test ids; without any, the worst test that failed.
        run: the run, for messages.

    Raises:
        BadInput: nothing failed and no test is named, or a name fits nothing.
    """
    if tests:
        found = [index for test in tests for index in _matching(rows, test, run)]
        wanted = set(found)
        return [index for index in _by_badness(rows) if index in wanted]
    red = [index for index in _by_badness(rows) if rows[index].red]
    if not red:
        raise BadInput(
            f"no test of {run} failed, so there is nothing to reproduce; name one with --test: {_names(rows)}"
        )
    return [index for index in red if rows[index].test == rows[red[0]].test]


def _by_badness(rows: Sequence[Row]) -> list[int]:
    places = {id(row): index for index, row in enumerate(rows)}
    return [places[id(row)] for row in worst_first(rows)]


def _matching(rows: Sequence[Row], test: str, run: str) -> list[int]:
    exact = [index for index, row in enumerate(rows) if test in (row.label, row.test)]
    found = exact or [index for index, row in enumerate(rows) if test in row.label or test in row.test]
    if not found or not test:
        raise BadInput(f"{run} has no test whose name holds {test!r}; it has {_names(rows)}")
    return found


def _names(rows: Sequence[Row]) -> str:
    return listed(list(dict.fromkeys(row.label for row in rows)), SHOWN) or "none at all"
