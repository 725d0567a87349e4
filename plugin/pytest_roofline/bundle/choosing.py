"""Which tests of a run a bundle is about: those that were named, or the worst that failed."""

from collections.abc import Sequence

from ..core.errors import BadInput
from ..core.rows import Row, worst_first
from ..core.units import listed

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
    places = {id(row): index for index, row in enumerate(rows)}
    ordered = [(places[id(row)], row) for row in worst_first(rows)]
    names = listed(list(dict.fromkeys(row.label for row in rows)), SHOWN) or "none at all"
    if tests:
        wanted = {index for test in tests for index in _matching(ordered, test)}
        for test in tests:
            if not _matching(ordered, test):
                raise BadInput(f"{run} has no test whose name holds {test!r}; it has {names}")
        return [index for index, _ in ordered if index in wanted]
    red = [row.test for _, row in ordered if row.red]
    if not red:
        raise BadInput(f"no test of {run} failed, so there is nothing to reproduce; name one with --test: {names}")
    return [index for index, row in ordered if row.red and row.test == red[0]]


def _matching(ordered: Sequence[tuple[int, Row]], test: str) -> list[int]:
    exact = [index for index, row in ordered if test in (row.label, row.test)]
    return exact or [index for index, row in ordered if test and (test in row.label or test in row.test)]
