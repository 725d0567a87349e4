"""Times as a kind of result: the texts of the verdicts of `timed`."""

from collections.abc import Sequence

from ..core.rows import Row
from ..report.conditions import waiting_lines
from ..report.tables import results_table
from ..report.verdicts import failure_message, status_words
from ..report.words import properties
from .kinds import Table
from .timed import TimedResults


class Times(TimedResults):
    """The times of a run, with their texts and table."""

    @property
    def table(self) -> Table:
        """The table of times."""
        return results_table

    def words(self, test_id: str) -> list[str]:
        """Return the times of a test as rates, behind PASSED."""
        return status_words(self.of(test_id))

    def message(self, row: Row, where: str, causes: Sequence[str]) -> str:
        """Return why a time turns its test red."""
        return failure_message(row, where, causes)

    def properties(self, test_id: str) -> list[tuple[str, str]]:
        """Return the times of a test as name and text."""
        return properties(self.of(test_id))

    def notes(self) -> list[str]:
        """Return the functions that wait for the device inside."""
        return waiting_lines(self.rows)
