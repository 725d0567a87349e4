"""Nodes of a fleet of which less is judged than of their peers, or nothing, and why."""

from collections import Counter
from dataclasses import dataclass
from statistics import median_high

from pandas import DataFrame

from .levels import FEWEST, GPU, LINK, case_of
from .reading import Many

# What is counted of a node. Measurements are a test on a part each, and tell of a hole that no other count shows.
TEST, MEASUREMENT = "test", "measurement"
UNITS = (TEST, GPU, LINK, MEASUREMENT)
NOTHING = dict.fromkeys(UNITS, 0)


@dataclass(frozen=True, slots=True)
class IncompleteNode:
    """A node of which less is judged than of its peers.

    Args:
        judged: how much is judged of it, by unit: test, gpu, link, measurement.
        expected: what at least half of the nodes of its hardware reach, by unit; only units that the node falls
            short of. Empty where no other node has its hardware.
        reason: the commonest reason that its runs tell; empty where they tell none.
    """

    node: str
    hardware: str
    judged: dict[str, int]
    expected: dict[str, int]
    reason: str

    @property
    def unjudged(self) -> bool:
        """Whether nothing of it is judged."""
        return not self.judged[TEST]


def incomplete_nodes(many: Many, cells: dict[str, DataFrame]) -> tuple[IncompleteNode, ...]:
    """Return the nodes that fall short, those of which nothing is judged first.

    Args:
        many: the runs that were chosen.
        cells: what is judged, by hardware, as `cells_of` gives it.
    """
    counts = {name: _counts(many, rows) for name, rows in cells.items() if len(rows)}
    if not counts:
        return ()
    nodes = set().union(*counts.values())
    chosen = many.runs[many.runs["chosen"]]
    entries = []
    for node, hardware in chosen[["node", "hardware"]].drop_duplicates().itertuples(index=False):
        if hardware in counts:
            counts[hardware].setdefault(node, NOTHING)
        elif node not in nodes:
            entries.append(_incomplete(many, node, hardware, NOTHING, {}))
    for hardware, of_nodes in counts.items():
        judged_nodes = [judged for judged in of_nodes.values() if judged[TEST]]
        usual = {unit: median_high(judged[unit] for judged in judged_nodes) for unit in UNITS}
        for node, judged in of_nodes.items():
            short = {unit: usual[unit] for unit in UNITS if judged[unit] < usual[unit]}
            if short:
                entries.append(_incomplete(many, node, hardware, judged, short))
    return tuple(sorted(entries, key=lambda entry: (not entry.unjudged, entry.node)))


def _counts(many: Many, cells: DataFrame) -> dict[str, dict[str, int]]:
    """Return how much of each node of one hardware is judged, by unit."""
    cases = {number: case_of(test) for number, test in enumerate(many.tests)}
    table = cells.assign(case=cells["test"].map(cases))
    return {
        str(node): {
            TEST: rows["case"].nunique(),
            GPU: rows["part"][rows["sort"] == GPU].nunique(),
            LINK: rows["part"][rows["sort"] == LINK].nunique(),
            MEASUREMENT: len(rows[["test", "part"]].drop_duplicates()),
        }
        for node, rows in table.groupby("node")
    }


def _incomplete(
    many: Many, node: str, hardware: str, judged: dict[str, int], expected: dict[str, int]
) -> IncompleteNode:
    return IncompleteNode(node, hardware, judged, expected, _reason(many, node, hardware, judged))


def _reason(many: Many, node: str, hardware: str, judged: dict[str, int]) -> str:
    """Return the commonest reason for which a node's measurements are missing or do not count."""
    mine = (many.runs["node"] == node) & (many.runs["hardware"] == hardware)
    runs = many.runs[mine & many.runs["chosen"]]
    rows = many.rows[many.rows["run"].isin(runs.index)]
    reasons = Counter(reason for reason in [*runs["unmeasured"], *rows["unfit"]] if reason)
    if reasons:
        return str(reasons.most_common(1)[0][0])
    if judged[TEST]:
        return ""
    if not len(rows):
        return "its runs hold no measurement"
    return f"fewer than {FEWEST} nodes or devices ran its tests, or they are over several nodes"
