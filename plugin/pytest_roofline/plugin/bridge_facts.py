"""What pytest-benchmark is told of a measurement beside its times: what an exported file says of it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.records import Measurement
    from ..core.rows import Row
    from .session import RooflineSession


def facts(state: "RooflineSession", measurement: "Measurement", rows: "Sequence[Row]") -> dict[str, Any]:
    """By name, units in the names; what is not known is not there.

    Args:
        state: the run.
        measurement: the one that is replayed, of the first process.
        rows: all that was said of its test in the end, of this measurement first.
    """
    from ..exchange.export.facts import facts as told_of
    from ..exchange.export.facts import origin

    others = [told_of(row, [row.measurement]) for row in rows[1:] if row.measurement is not None]
    return told_of(rows[0], [measurement]) | origin(state.header) | ({"others": others} if others else {})
