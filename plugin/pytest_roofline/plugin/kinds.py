"""Kinds of result: how each is judged and shown. The session holds them in one list.

Times, peak memory, compiled kernels and memory that ran out are kinds. A conftest.py adds one of its own by the hook
`pytest_roofline_result_kinds`.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..baselines.rows import exact_row
from ..core.errors import BadInput
from ..core.rows import FAILED, Row
from ..core.verdicts import ExactVerdict, Kind
from ..report.exact import failure_message, properties, status_word, values_table

if TYPE_CHECKING:
    from ..baselines.comparators import Comparator
    from ..baselines.run_files import RunWriter
    from ..core.entries import Entry, ExactEntry
    from ..settings.parsing import Options
    from .device_under_test import DeviceUnderTest

# Rows, the width of the terminal and whether it has colours, as the text of a table.
Table = Callable[[Sequence[Row], int, bool], str]
# By verdict, its word in `--roofline-fail-on`.
FAIL_ON_WORDS: dict[str, str] = {
    Kind.REGRESSED: "regressed",
    Kind.INVALID: "invalid",
    Kind.NO_BASELINE: "no-baseline",
    Kind.INCONCLUSIVE: "inconclusive",
}


class ResultKind:
    """A kind of result with a row for each result of a run. A later verdict or a rerun replaces a row.

    As it stands, a result is one figure with an exact verdict: a subclass names its `metric`, the test gives `add` an
    `ExactVerdict`, and terminal, JUnit XML, run file, CSV and page show it. What is special about a kind overrides a
    method.

    `metric` is the key in rows and in JSON. `counted` names the results in the line of counts, as `12 measured`; empty
    where they are not counted. `record_type` is the record of a run file that it takes in, and `family` the baseline
    file of its entries, where that is not the hardware family's.
    """

    metric = ""
    counted = ""
    record_type: type = ExactVerdict
    family = ""

    def __init__(self) -> None:
        """Prepare a kind of result without any result."""
        self.rows: list[Row] = []
        # The index of each row in `rows`, by the identity of its key. To compare keys would take longer.
        self._places: dict[object, int] = {}
        # By test, the records that wait for the end of its body.
        self._pending: dict[str, list[Any]] = {}
        # The words of `--roofline-fail-on`.
        self._fail_on: Collection[str] = ()

    @property
    def table(self) -> Table:
        """The table of its rows; kinds with the same table share one."""
        return values_table

    def open(self, under_test: "DeviceUnderTest", options: "Options") -> None:  # noqa: ARG002
        """Read what to compare with, once the device is open."""
        # A recording fails for no verdict. Its last lines say what becomes of an earlier entry.
        self._fail_on = () if options.record else options.fail_on

    def start(self, test_id: str) -> None:
        """Forget the results of an earlier attempt that say nothing of this one."""

    def add(self, record: Any) -> None:
        """Add a result of a test.

        Its row follows when the test's body has ended.

        Raises:
            BadInput: the record is an exact verdict with the metric of another kind of result.
        """
        if isinstance(record, ExactVerdict) and record.metric != self.metric:
            raise BadInput(
                f"the record has metric {record.metric!r}; expected {self.metric!r}, the metric of "
                f"{type(self).__name__}"
            )
        self._pending.setdefault(record.test_id, []).append(record)

    def judge(self, test_id: str) -> None:
        """Make the rows of a test whose body has ended well."""
        for record in self._pending.pop(test_id, []):
            self._put(exact_row(record))

    def abandon(self, test_id: str | None = None, word: str = FAILED) -> None:
        """Keep the results of a failed test without a verdict.

        Without a name these are the results of all tests.
        """
        for name in [test_id] if test_id is not None else list(self._pending):
            for record in self._pending.pop(name, []):
                self._keep_unjudged(record, word)

    def _keep_unjudged(self, record: Any, word: str) -> None:
        """Show a record of a failed test without its verdict.

        `word` stands in place of the verdict.
        """
        self._put(replace(exact_row(record, verdict=word), exact=None))

    def name_end(self, test_id: str, word: str) -> None:
        """Name how a test without verdicts ended: SKIPPED, XFAIL."""
        for index, row in enumerate(self.rows):
            if row.test == test_id and _verdict_of(row) is None:
                self.rows[index] = replace(row, verdict=word)

    def retract(self, test_id: str) -> None:
        """Take back the verdicts of a test that failed for itself."""
        for row in self.of(test_id):
            if row.exact is not None:
                self._put(replace(row, verdict=FAILED, reason="", exact=None))

    def settle(self, open_ids: set[str]) -> None:
        """Compare all verdicts of the run.

        Only those of `open_ids` may change.
        """

    def write_verdicts(self, writer: "RunWriter") -> None:
        """Put the verdicts into the run file."""
        for verdict in filter(None, map(_verdict_of, self.rows)):
            writer.write(verdict)

    def of(self, test_id: str) -> list[Row]:
        """Return the rows of a test so far."""
        return [row for row in self.rows if row.test == test_id]

    def fails(self, row: Row) -> bool:
        """Return whether the verdict of a row turns its test red."""
        return row.exact is not None and FAIL_ON_WORDS.get(row.exact.verdict) in self._fail_on

    def reds(self, test_id: str) -> list[Row]:
        """Return the rows that turn a test red."""
        return [row for row in self.of(test_id) if self.fails(row)]

    def may_change(self, test_id: str) -> bool:  # noqa: ARG002
        """Return whether a further round, or another test, may change a verdict."""
        return False

    def is_final(self, row: Row) -> bool:  # noqa: ARG002
        """Return whether a red row stays red, whatever a further round finds."""
        return True

    def verdicts(self, test_id: str) -> list[str]:
        """Return the verdicts of a test for its outcome in the run file."""
        return [row.verdict for row in self.of(test_id)]

    def words(self, test_id: str) -> list[str]:
        """Return the texts behind PASSED in a verbose run."""
        return [status_word(row) for row in self.of(test_id)]

    def message(self, row: Row, where: str, causes: Sequence[str]) -> str:  # noqa: ARG002
        """Return why a row turns its test red, the difference first.

        Args:
            row: one of `reds`.
            where: the run file; empty where it could not be saved.
            causes: those for which the device is DEGRADED.
        """
        return failure_message(row, where)

    def properties(self, test_id: str) -> list[tuple[str, str]]:
        """Return a test's figures as name and text, for JUnit XML and others."""
        return properties(self.of(test_id))

    def notes(self) -> list[str]:
        """Return the lines below the tables that explain the results."""
        return []

    def against(self, comparator: "Comparator", benchmarks: Collection[str]) -> str:  # noqa: ARG002
        """Return a text on the kind's own baseline: `kernels against a.json`.

        It is empty where the kind is compared with what times are compared with.
        """
        return ""

    def missed(self, test_id: str, benchmark: str, parameters: Mapping[str, object]) -> list[str]:  # noqa: ARG002
        """Return the labels that a test lacks of those in a baseline."""
        return []

    def missing(self, elsewhere: Collection[tuple[str, str]]) -> "list[Entry | ExactEntry]":  # noqa: ARG002
        """Return the entries of the baseline that the run has no result for.

        Args:
            elsewhere: tests, by benchmark and canonical parameters, that need another machine.
        """
        return []

    def _put(self, row: Row) -> None:
        """Append a row, or replace the row of the same key."""
        place = self._places.setdefault(_identity(row), len(self.rows))
        self.rows[place : place + 1] = [row]


def _verdict_of(row: Row) -> Any:
    """Return the verdict of a row; None without.

    It is on a time, or an exact one.
    """
    return row.time_verdict or row.exact


def _identity(row: Row) -> object:
    """Return what identifies a row.

    It is its key, else its test and name.
    """
    key = row.resources.key if row.resources is not None else row.key
    return key.identity if key is not None else (row.test, row.name)
