"""The JSON of rccl-tests: one record for each half of a row, in a list or one a line."""

from ..core.errors import BadFile
from ..core.keys import Scalar
from .collectives import Row, Setting, Times, operation_of, reading
from .json_text import Node, looks_like_json, root
from .nccl_tests import CONVENTION
from .records import Given, Imported, Reading, pooled
from .refusing import Printed, whole

# The file has six decimals.
_HALF = 5e-7
_NAMES = frozenset(
    (
        "numCycle",
        "name",
        "nodes",
        "ranks",
        "ranksPerNode",
        "gpusPerRank",
        "size",
        "type",
        "redop",
        "inPlace",
        "time",
        "algBw",
        "busBw",
        "wrong",
    )
)
_PLACES = ("out_of_place", "in_place")


def sniff(text: str) -> bool:
    """Whether a text looks like such a file."""
    return looks_like_json(text) and '"numCycle"' in text and '"ranksPerNode"' in text


def read(text: str, source: str, given: Given) -> tuple[Imported, ...]:
    """The records of a file, which names neither product nor versions, nor the calls behind a time.

    Raises:
        BadFile: something that is not understood or contradicts itself, with its line.
    """
    # One record a line becomes a list without moving a line.
    lines = [line for line in text.splitlines(keepends=True) if line.strip()]
    listed = text if text.lstrip().startswith("[") else f"[{','.join(lines)}]"
    readings: list[Reading] = []
    left_out: list[str] = []
    for node in root(listed, source).items():
        found = _reading(node.object(_NAMES))
        if found is None:
            left_out.append(f"line {node.line}: moves nothing, or took no time at all")
        else:
            readings.append(found)
    if not readings:
        raise BadFile(f"{source} holds no record that moves anything; expected at least one")
    if given.devices not in (None, readings[0].devices):
        raise BadFile(f"{source}: {readings[0].devices} ranks, but --devices={given.devices}; expected the same")
    convention = f"{CONVENTION}; how many calls stand behind a time is not told"
    return (Imported(source, "rccl-tests", convention, pooled(readings), left_out=tuple(left_out)),)


def _reading(node: Node) -> Reading | None:
    operation = operation_of(node["name"].string())
    if operation is None:
        node["name"].refuse(f"is {node.value['name']!r}; expected a collective")
    setting = _setting(node)
    row = Row(node["size"].whole(), None, node["type"].string(), node["redop"].string(), None)
    if why := row.trouble(operation, setting.ranks):
        node["size"].refuse(f"does not fit: {why}")
    times = _times(node)
    if why := times.trouble(row.work(operation, setting.ranks)):
        node["time"].refuse(f"contradicts the rest: {why}")
    if not row.size_bytes or not times.time_us.value:
        return None
    checked = None if times.wrong is None else not times.wrong
    return reading("rccl_tests", operation, row, times, setting, node.line, checked)


def _setting(node: Node) -> Setting:
    nodes, ranks = node["nodes"].whole(1), node["ranks"].whole(1)
    if node["gpusPerRank"].whole(1) != 1:
        node["gpusPerRank"].refuse(f"is {node.value['gpusPerRank']}; this importer knows one GPU a rank")
    if nodes * node["ranksPerNode"].whole(1) != ranks:
        node["ranks"].refuse(f"is {ranks}; expected nodes times ranksPerNode")
    extra: dict[str, Scalar] = {"nodes": nodes} if nodes > 1 else {}
    node["numCycle"].whole()
    return Setting(ranks, ranks, 1, 0, "pipelined", extra)


def _times(node: Node) -> Times:
    place = node["inPlace"].whole()
    if place not in (0, 1):
        node["inPlace"].refuse(f"is {place}; expected 0 or 1")
    text = node["wrong"].string()
    wrong = None if text == "N/A" else whole(text)
    if wrong is None and text != "N/A":
        node["wrong"].refuse(f"is {text!r}; expected a count, or N/A")
    time_us, algbw, busbw = (Printed(node[name].number(), _HALF) for name in ("time", "algBw", "busBw"))
    return Times(_PLACES[place], time_us, algbw, busbw, wrong)
