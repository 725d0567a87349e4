"""Peak memory as a kind of result. It is judged with the time beside it, and shares its row.

Elsewhere: `engine/timing.py` asks the device for the peak of a call (`engine/devices/base.py`), `plugin/recording.py`
records it, `stats/key_results.py` judges it, `baselines/renewal.py` renews it, and `report/words.py` says it. What a
peak is made of is another feature: `plugin/findings.py`.
"""

from collections.abc import Sequence

from ..core.rows import PEAK, Row
from ..report.words import peak_properties
from .kinds import FAIL_ON_WORDS, ResultKind
from .timed import TimedResults


class PeakMemory(ResultKind):
    """The peaks of memory of a run, as columns of its times.

    They are red where the peak is worse than the time.
    """

    metric = PEAK

    def __init__(self, times: TimedResults) -> None:
        super().__init__()
        self._times = times

    def fails(self, row: Row) -> bool:
        """Return whether the memory verdict of a row fails its test.

        A row `by_peak` shows the verdict on its memory. The one on its time lies behind it, and counts as well.
        """
        if row.time_verdict is None or not row.by_peak:
            return False
        words = {FAIL_ON_WORDS.get(verdict) for verdict in (row.verdict, row.time_verdict.kind)}
        return not words.isdisjoint(self._fail_on)

    def reds(self, test_id: str) -> list[Row]:
        """Return the rows of a test that are red by memory."""
        return [row for row in self._times.of(test_id) if self.fails(row)]

    def is_final(self, row: Row) -> bool:
        """Return whether the time needs no further process."""
        return self._times.is_final(row)

    def message(self, row: Row, where: str, causes: Sequence[str]) -> str:
        """Return a red peak's excess over the baseline, with its time."""
        return self._times.message(row, where, causes)

    def properties(self, test_id: str) -> list[tuple[str, str]]:
        """Return the peaks of a test as name and text."""
        return peak_properties(self._times.of(test_id))
