"""The node of an imported log, and a run for each node."""

import re
from collections.abc import Sequence
from dataclasses import replace

from ..core.errors import BadFile
from ..core.groups import group_by
from ..core.units import count, listed
from .records import ImportedLog

# The placeholder in `--host` for the name of the node in a path.
NODE = "{node}"
# The number of nodes that a message names.
MOST_NAMED = 3


def with_node(log: ImportedLog, path: str, host: str) -> ImportedLog:
    """Return an imported log with the node (the host) that it was measured on.

    Args:
        path: of the file.
        host: the node, or a pattern for the end of the path: `nvbw-{node}-*.json`, `{node}/all_reduce.log`. Empty: the
            node that the file names, if any.

    Raises:
        BadFile: the path does not match, or the file names another node.
    """
    node = _node_of(path, host) if NODE in host else host
    names = {log.machine.host or "", *log.machine.hosts}
    # A path may leave out the domain of a node, and so may a log.
    short_names = {name.partition(".")[0] for name in names}
    is_same = node in names | short_names or node.partition(".")[0] in names
    if node and log.machine.host is not None and not is_same:
        raise BadFile(
            f"{log.source} was measured on {log.machine.host}, but --host={host} says {node}; expected the same"
        )
    host = log.machine.host or node
    # The name with its domain tells machines of several sites apart.
    if node.startswith(f"{host}."):
        host = node
    return replace(log, machine=replace(log.machine, host=host or None))


def _node_of(path: str, pattern: str) -> str:
    """Return the node that a pattern finds in a path. Raise BadFile if they do not match.

    In the pattern, `{node}` stands for the name of the node, and `*` for any text within a folder's name.
    """
    # A pattern that has the node twice means one node.
    expression = re.escape(pattern).replace(re.escape(NODE), r"(?P<node>[^/\\]+)", 1)
    expression = expression.replace(re.escape(NODE), "(?P=node)").replace(r"\*", r"[^/\\]*")
    match = re.fullmatch(rf"(?:.*[/\\])?{expression}", path)
    if match is None:
        raise BadFile(
            f"{path} does not match --host={pattern}; expected the name of the node in place of {NODE}"
        )
    return match["node"]


def by_node(logs: Sequence[ImportedLog]) -> dict[str, list[ImportedLog]]:
    """Return the logs of each node, by its name.

    Raise BadFile where nothing names the node of a file.
    """
    for log in logs:
        if log.machine.host is None:
            raise BadFile(
                f"{log.source} names no node; give a pattern that shows where the path names the node: --host "
                f"'{NODE}/*' for the folder, --host '*-{NODE}.log' for the file name"
            )
    return group_by(logs, key=lambda log: log.machine.host or "")


def refuse_several(logs: Sequence[ImportedLog]) -> None:
    """Raise BadFile for logs of several nodes or drivers.

    A run is of one node and one driver. Logs without readings do not count.
    """
    logs = [log for log in logs if log.readings]
    nodes = list(dict.fromkeys(log.machine.host for log in logs if log.machine.host is not None))
    if len(nodes) > 1:
        raise BadFile(
            f"the files are of {count(len(nodes), 'node')} ({listed(nodes, MOST_NAMED)}); "
            "`roofline import FILES… --by node -o DIR` writes a run for each node"
        )
    drivers = {log.machine.driver: log.source for log in logs if log.machine.driver is not None}
    if len(drivers) > 1:
        sources = ", ".join(f"{source} under driver {driver}" for driver, source in drivers.items())
        raise BadFile(
            f"the files are of different drivers: {sources}; expected one driver in a run; "
            "import each driver separately"
        )
