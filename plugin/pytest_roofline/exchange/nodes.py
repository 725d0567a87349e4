"""On which node an imported log was measured, and the logs of several nodes as a run of each."""

import re
from collections.abc import Sequence
from dataclasses import replace

from ..core.errors import BadFile
from ..core.groups import grouped
from ..core.units import count, listed
from .records import ImportedLog

# Stands in `--host` where a path has the name of its node.
NODE = "{node}"
# Nodes that are named of many.
MOST_NAMED = 3


def with_node(imported: ImportedLog, path: str, host: str) -> ImportedLog:
    """Return what was read of a file with its node.

    Args:
        path: of the file; a pattern for its end tells the node.
        host: the node that the user tells, or a pattern as `nvbw-{node}-*.json` or `{node}/all_reduce.log`.

    Raises:
        BadFile: the path does not match, or the file names another node.
    """
    node = _node_of(path, host) if NODE in host else host
    if node and imported.host is not None and node not in (imported.host, *imported.hosts):
        raise BadFile(
            f"{imported.source} was measured on {imported.host}, but --host={host} says {node}; expected the same"
        )
    return replace(imported, host=imported.host or node or None)


def _node_of(path: str, pattern: str) -> str:
    # A pattern that has the node twice means one node.
    expression = re.escape(pattern).replace(re.escape(NODE), r"(?P<node>[^/\\]+)", 1)
    expression = expression.replace(re.escape(NODE), "(?P=node)").replace(r"\*", r"[^/\\]*")
    match = re.fullmatch(rf"(?:.*[/\\])?{expression}", path)
    if match is None:
        raise BadFile(
            f"{path} does not end as --host={pattern} says; expected {NODE} where its node stands"
        )
    return match["node"]


def by_node(imported: Sequence[ImportedLog]) -> dict[str, list[ImportedLog]]:
    """Return what is of each node, by its name; raise BadFile where nothing names the node of a file."""
    for entry in imported:
        if entry.host is None:
            raise BadFile(
                f"{entry.source} names no node; tell where its path does: --host '{NODE}/*' for the folder, "
                f"--host '*-{NODE}.log' for the name"
            )
    return grouped(imported, key=lambda entry: entry.host or "")


def refuse_several(imported: Sequence[ImportedLog]) -> None:
    """Raise BadFile where the files of one run are of several nodes, or were measured under several drivers."""
    imported = [entry for entry in imported if entry.readings]
    nodes = list(dict.fromkeys(entry.host for entry in imported if entry.host is not None))
    if len(nodes) > 1:
        raise BadFile(
            f"the files are of {count(len(nodes), 'node')} ({listed(nodes, MOST_NAMED)}); "
            "`roofline import FILES… --by node -o DIR` writes a run of each"
        )
    drivers = {entry.driver: entry.source for entry in imported if entry.driver is not None}
    if len(drivers) > 1:
        measured = ", ".join(
            f"{source} under driver {driver}" for driver, source in drivers.items()
        )
        raise BadFile(f"{measured}; expected one driver in a run: import them apart")
