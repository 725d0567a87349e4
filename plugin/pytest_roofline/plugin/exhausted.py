"""Memory that ran out as a kind of result: a time that a test lacks, and the baseline may have."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..baselines.rows import memory_row
from ..core.memory import OutOfMemory
from ..core.rows import MEMORY, Row
from ..report.inside import (
    failure_message,
    out_of_memory_lines,
    out_of_memory_properties,
    status_word,
)
from ..report.tables import results_table
from .kinds import ResultKind, Table

if TYPE_CHECKING:
    from .timed import TimedResults


class ExhaustedMemory(ResultKind):
    """The results that ran out of memory; `not_measured` counts why tests gave no number."""

    metric = MEMORY
    record_type = OutOfMemory

    def __init__(self, times: "TimedResults", not_measured: Counter[str]) -> None:
        super().__init__()
        self._times = times
        self._not_measured = not_measured

    @property
    def table(self) -> Table:
        """The table of times, which shows these rows without a time."""
        return results_table

    def add(self, record: OutOfMemory) -> None:
        """Add a record, and remove the partial measurement of its call."""
        is_new = self._note(record)
        if not record.recorded or record.round > 1:
            # Memory that ran out fails this test, or ran out in a later round only, so the first round has measured it.
            return
        if is_new:
            self._not_measured["out of memory"] += 1
        self._times.forget_partial(record.test_id, record.name)

    def _note(self, record: OutOfMemory) -> bool:
        """Keep a record of memory that ran out as a row.

        Return whether its call had none before. It replaces an earlier record of the same call, unless that one is red.
        """
        row = memory_row(record, verdict=record.word)
        for index, earlier in enumerate(self.rows):
            if (earlier.test, _record_of(earlier).name) == (row.test, record.name):
                self.rows[index] = earlier if self.fails(earlier) else row
                return False
        self.rows.append(row)
        return True

    def start(self, test_id: str) -> None:
        """Forget the records of an earlier attempt that merely failed."""
        self.rows = [row for row in self.rows if row.test != test_id or _record_of(row).recorded]

    def name_end(self, test_id: str, word: str) -> None:
        """Do nothing: the word stays that of memory, however the test ended."""

    def fails(self, row: Row) -> bool:
        """Return whether the baseline has a result that is missing now."""
        return _record_of(row).red

    def verdicts(self, test_id: str) -> list[str]:
        """Return the words of a test's records and their meaning."""
        return [word for record in self._records(test_id) for word in record.words]

    def words(self, test_id: str) -> list[str]:
        """Return the bytes that a test asked for, behind PASSED."""
        return [status_word(record) for record in self._records(test_id)]

    def message(self, row: Row, where: str, causes: Sequence[str]) -> str:  # noqa: ARG002
        """Return the results of the baseline that are missing now."""
        return failure_message(_record_of(row), where)

    def properties(self, test_id: str) -> list[tuple[str, str]]:
        """Return a test's word and sizes as name and text."""
        return out_of_memory_properties(self._records(test_id))

    def notes(self) -> list[str]:
        """Return a line for each record: figures, place, and baseline results."""
        return out_of_memory_lines([_record_of(row) for row in self.rows])

    def _records(self, test_id: str) -> list[OutOfMemory]:
        return [_record_of(row) for row in self.of(test_id)]


def _record_of(row: Row) -> OutOfMemory:
    assert row.lost is not None
    return row.lost
