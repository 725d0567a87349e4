"""Nodes of a fleet that are judged less than their peers."""

from collections import Counter
from dataclasses import dataclass
from statistics import median_high

from pandas import DataFrame

from .levels import FEWEST, GPU, LINK, case_of
from .reading import RunTables

# What is counted on a node. A measurement is a test on one part: only their number shows that one part lacks one test.
TEST, MEASUREMENT = "test", "measurement"
UNITS = (TEST, GPU, LINK, MEASUREMENT)
NOTHING = dict.fromkeys(UNITS, 0)


@dataclass(frozen=True, slots=True)
class IncompleteNode:
    """A node of which less is judged than of its peers.

    Args:
        judged: how many tests, GPUs, links and measurements of it are judged, by unit.
        expected: the numbers that at least half of the nodes of its hardware reach, by unit. Only units in which
            the node has fewer. Empty where no other node has its hardware.
        reason: the commonest reason in its runs why measurements do not count; empty where there is none.
    """

    node: str
    hardware: str
    judged: dict[str, int]
    expected: dict[str, int]
    reason: str

    @property
    def unjudged(self) -> bool:
        """True if nothing of it is judged."""
        return not self.judged[TEST]


def incomplete_nodes(tables: RunTables, cells: dict[str, DataFrame]) -> tuple[IncompleteNode, ...]:
    """Return the nodes of which less is judged than of their peers.

    That is fewer tests, GPUs, links or measurements. Nodes of which nothing is judged come first.

    Args:
        tables: the selected runs.
        cells: the judged cells by hardware, as `cells_of` returns them.
    """
    counts = {name: _counts(tables, rows) for name, rows in cells.items() if len(rows)}
    if not counts:
        return ()
    nodes = set().union(*counts.values())
    selected_runs = tables.runs[tables.runs["chosen"]]
    entries = []
    pairs = selected_runs[["node", "hardware"]].drop_duplicates()
    for node, hardware in pairs.itertuples(index=False):
        if hardware in counts:
            counts[hardware].setdefault(node, NOTHING)
        # No node of this hardware is judged, nor this node on other hardware.
        elif node not in nodes:
            entries.append(_incomplete(tables, node, hardware, NOTHING, {}))
    for hardware, counts_by_node in counts.items():
        # Nodes of which nothing is judged would pull down what is expected.
        judged_nodes = [judged for judged in counts_by_node.values() if judged[TEST]]
        expected = {unit: median_high(judged[unit] for judged in judged_nodes) for unit in UNITS}
        for node, judged in counts_by_node.items():
            shortfalls = {unit: expected[unit] for unit in UNITS if judged[unit] < expected[unit]}
            if shortfalls:
                entries.append(_incomplete(tables, node, hardware, judged, shortfalls))
    return tuple(sorted(entries, key=lambda entry: (not entry.unjudged, entry.node)))


def _counts(tables: RunTables, cells: DataFrame) -> dict[str, dict[str, int]]:
    """Return how much of each node is judged, by unit."""
    cases = {number: case_of(test) for number, test in enumerate(tables.tests)}
    # Runs repeat the same measurements: of each test on each part one cell is enough.
    table = cells.drop_duplicates(["node", "test", "part", "sort"])
    table = table.assign(case=table["test"].map(cases))
    by_unit = {
        TEST: table.drop_duplicates(["node", "case"]),
        GPU: table[table["sort"] == GPU].drop_duplicates(["node", "part"]),
        LINK: table[table["sort"] == LINK].drop_duplicates(["node", "part"]),
        MEASUREMENT: table.drop_duplicates(["node", "test", "part"]),
    }
    counts_by_unit = {unit: Counter(rows["node"]) for unit, rows in by_unit.items()}
    return {
        str(node): {unit: counts[node] for unit, counts in counts_by_unit.items()}
        for node in sorted(counts_by_unit[TEST])
    }


def _incomplete(
    tables: RunTables, node: str, hardware: str, judged: dict[str, int], expected: dict[str, int]
) -> IncompleteNode:
    """Return a node that is judged less than its peers, with the reason."""
    return IncompleteNode(node, hardware, judged, expected, _reason(tables, node, hardware, judged))


def _reason(tables: RunTables, node: str, hardware: str, judged: dict[str, int]) -> str:
    """Return why less is judged of a node.

    It is the commonest reason for which its measurements do not count. Where all count, it is empty if anything is
    judged, else it says why nothing is.
    """
    on_node = (tables.runs["node"] == node) & (tables.runs["hardware"] == hardware)
    runs = tables.runs[on_node & tables.runs["chosen"]]
    rows = tables.rows[tables.rows["run"].isin(runs.index)]
    reasons = Counter(reason for reason in [*runs["unmeasured"], *rows["unfit"]] if reason)
    if reasons:
        ((commonest, _),) = reasons.most_common(1)
        return str(commonest)
    if judged[TEST]:
        return ""
    if not len(rows):
        return "the runs of this node hold no measurement"
    return (
        f"fewer than {FEWEST} nodes or devices ran the tests of this node, or each test ran over "
        "several nodes"
    )
