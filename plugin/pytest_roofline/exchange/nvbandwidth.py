"""The JSON of nvbandwidth (`-j`), versions 0.5 on: `json_output.cpp` of nvbandwidth."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..core.keys import Scalar
from ..core.units import MIB
from ..core.work import Work
from .json_text import Node, looks_like_json, root
from .records import Given, Imported, Reading
from .refusing import Printed, stripped

CONVENTION = (
    "payload that arrives, one way, also for copies within a device; of bidirectional copies the measured direction; "
    "GB is 1e9 bytes; median of the samples, or their mean under -m, which the file does not tell; seconds are those "
    "of 1 GB, since the file has rates only"
)
# What a rate is kept of: the bytes that take a second at 1 GB/s.
PAYLOAD_BYTES = 10**9
_SETTINGS = ("bufferSize", "testSamples", "useMean")
_TOP = frozenset({
    "CUDA Runtime Version", "CUDA Driver Version", "CUDA Driver API Version", "Driver Version", "GPU Device list",
    "Hostname", "git_version", "version", "testcases", "error", "warning", *_SETTINGS,
})  # fmt: skip
_CASE = frozenset({
    "name", "status", "bandwidth_description", "bandwidth_matrix", "sum", "min", "max", "average", "error", *_SETTINGS,
})  # fmt: skip
_DEVICE = re.compile(
    r"(?:Device )?\d+: (?P<name>\S.*?)(?: \([0-9a-fA-F]+(?::[0-9a-fA-F]+)*\))?(?:: \((?P<host>[^()]*)\))?"
)
_RATE = re.compile(
    r"(?P<how>memcpy CE|memcpy SM|memcpy local|multicast SM) (?:(?P<row>CPU|GPU)\(row\) (?P<way>->|<-|<->) )?"
    r"(?:All Gpus (?:->|<-) )?GPU\(column\)(?: -> All Gpus)?(?: (?P<part>Read1|Read2|Write1|Write2|Total))?"
    r"(?: total)? bandwidth \(GB/s\)"
)
_LATENCY = re.compile(
    r"(?:memory latency|Device to Device Latency) SM (?P<row>CPU|GPU)\(row\) (?P<way><->) GPU\(column\) \(ns\)"
)


@dataclass(frozen=True, slots=True)
class _Case:
    """What the description of a test case tells of its matrix."""

    engine: str
    row: str | None
    way: str
    latency: bool


def sniff(text: str) -> bool:
    """Whether a text looks like such a file."""
    return looks_like_json(text) and '"nvbandwidth"' in text


def read(text: str, source: str, given: Given) -> tuple[Imported, ...]:
    """The one run in a file.

    Raises:
        BadFile: something that is not understood or contradicts itself, with its line.
    """
    top = root(text, source).object(frozenset({"nvbandwidth"}))["nvbandwidth"].object(_TOP)
    if top.get("error") is not None:
        top["error"].refuse("is what the run ended with; expected a run that came to its end")
    readings: list[Reading] = []
    left_out: list[str] = []
    failed: list[tuple[str, str]] = []
    products, hosts, count = _devices(top)
    for node in top["testcases"].items():
        name, status = node.object(_CASE)["name"].string(), node["status"].string()
        if re.fullmatch(r"[a-z][a-z0-9_]{0,99}", name) is None:
            node["name"].refuse("is no name of a test case")
        if status == "Passed":
            found = list(_readings(node, top, name, given.devices or count))
            left_out += [] if found else [f"line {node.line}, {name}: nothing but N/A"]
            readings += found
        elif status.upper() == "ERROR":
            told = node.get("error")
            failed.append((f"nvbandwidth.{name}", told.string() if told is not None else "the test case failed"))
        elif status == "Waived":
            left_out.append(f"line {node.line}, {name}: waived by nvbandwidth, so it was not measured")
        else:
            node["status"].refuse(f"is {status!r}; expected Passed, Waived or Error")
    return (
        Imported(
            source=source,
            tool="nvbandwidth",
            convention=CONVENTION,
            readings=tuple(readings),
            product=products[0] if products else None,
            host=hosts[0] if hosts else None,
            driver=top["Driver Version"].string() if top.get("Driver Version") is not None else None,
            software=_software(top),
            left_out=tuple(left_out),
            failed=tuple(failed),
            notes=(top["warning"].string(),) if top.get("warning") is not None else (),
        ),
    )


def _devices(top: Node) -> tuple[list[str], list[str], int | None]:
    """The one product, its hosts, and how many devices; the list is null in some versions."""
    listed = top.get("GPU Device list")
    products: list[str] = []
    hosts = [top["Hostname"].string()] if top.get("Hostname") is not None else []
    nodes = list(listed.items()) if listed is not None else []
    for node in nodes:
        match = _DEVICE.fullmatch(node.string())
        if match is None:
            node.refuse("is no device as nvbandwidth lists them")
        if products and match["name"] != products[0]:
            node.refuse(f"is another product than {products[0]}; expected one")
        products = [match["name"]]
        hosts += [match["host"]] if match["host"] else []
    return products, hosts, len(nodes) or None


def _software(top: Node) -> dict[str, str]:
    names = {"version": "nvbandwidth", "CUDA Runtime Version": "CUDA runtime", "git_version": "nvbandwidth commit"}
    found = {ours: str(top.value[theirs]) for theirs, ours in names.items() if top.get(theirs) is not None}
    return found | {name: str(top.value[name]) for name in _SETTINGS if top.get(name) is not None}


def _readings(node: Node, top: Node, name: str, devices: int | None) -> Iterator[Reading]:
    text = node["bandwidth_description"].string()
    match = _RATE.fullmatch(text) or _LATENCY.fullmatch(text)
    if match is None:
        node["bandwidth_description"].refuse("is no description that this importer knows")
    groups = match.groupdict()
    engine = {"memcpy CE": "ce", "memcpy local": "ce", "memcpy SM": "sm", "multicast SM": "sm"}.get(
        groups.get("how") or ""
    )
    whole_case = name.startswith(("all_to_one", "one_to_all", "multinode_all", "multinode_broadcast"))
    case = _Case(engine or "sm", None if whole_case else groups["row"], groups["way"] or "", match.re is _LATENCY)
    rows = [list(row.items()) for row in node["bandwidth_matrix"].items()]
    if not rows or len({len(row) for row in rows}) != 1 or not rows[0]:
        node["bandwidth_matrix"].refuse("has rows of several lengths, or none")
    parts = _parts(rows, groups.get("part"), node)
    values = [[_value(cell) for cell in row] for row in rows]
    _check_sums(node, [value for row in values[-len(parts[-1][1]) :] for value in row])
    for part, indices in parts:
        for index, at in enumerate(indices):
            for column, value in enumerate(values[at]):
                if value is not None and value.value:
                    pair = _pair(case, index, column)
                    yield _reading(name, case, part, pair, value, rows[at][column].line, top, node, devices)


def _parts(rows: Sequence[Sequence[Node]], last: str | None, node: Node) -> list[tuple[str, range]]:
    """A matrix, or the three of a bidirectional copy, one below the other: each direction, and both together."""
    if last is None:
        return [("", range(len(rows)))]
    if last != "Total" or len(rows) % 3:
        node["bandwidth_matrix"].refuse("is not the three matrices that this description tells of")
    third = len(rows) // 3
    return [("1", range(third)), ("2", range(third, 2 * third)), ("sum", range(2 * third, 3 * third))]


def _value(cell: Node) -> Printed | None:
    text = cell.string()
    if text == "N/A":
        return None
    value = stripped(text)
    if value is None:
        cell.refuse(f"is {text!r}; expected a number, zero or more, or N/A")
    return value


def _check_sums(node: Node, values: Sequence[Printed | None]) -> None:
    """What the file says of its matrix as a whole shows numbers that are missing or changed."""
    known = [value for value in values if value is not None]
    # The sum is of the numbers before they were rounded.
    slack = math.fsum(value.half for value in known)
    total = math.fsum(value.value for value in known)
    told = {"sum": (total, slack)}
    above = [value.value for value in known if value.value > 0]
    if above:
        most = max(value.half for value in known)
        smallest = min([value.value for value in known] + [0.0] * (len(values) > len(known)))
        told |= {"max": (max(above), most), "min": (smallest, most), "average": (total / len(above), slack)}
    for name, (expected, within) in told.items():
        if name in node.value or name == "sum":
            given = node[name].number()
            if abs(given - expected) > within + 1e-9 * max(given, expected):
                node[name].refuse(
                    f"is {given:g}, but the matrix makes {expected:.9g}; some numbers are missing or changed"
                )


def _pair(case: _Case, row: int, column: int) -> str:
    if case.row is None:
        return f"gpu{column}"
    return f"{case.row.lower()}{row}{case.way}gpu{column}"


def _reading(
    name: str,
    case: _Case,
    part: str,
    pair: str,
    value: Printed,
    line: int,
    top: Node,
    node: Node,
    devices: int | None,
) -> Reading:
    parameters: dict[str, Scalar] = {"pair": pair}
    buffer = node.get("bufferSize") or top.get("bufferSize")
    if buffer is not None:
        parameters["size_bytes"] = buffer.whole(1) * MIB
    if part:
        parameters["direction"] = part
    mean = node.get("useMean") or top.get("useMean")
    return Reading(
        benchmark=f"nvbandwidth.{name}",
        parameters=parameters,
        metric="time_s" if case.latency else f"{_direction(name, part)}{case.engine}_payload_GBps",
        statistic="median_or_mean" if mean is None else "mean" if mean.value is True else "median",
        work=Work(calls=1) if case.latency else Work(payload_bytes=PAYLOAD_BYTES),
        seconds=(value.value * 1e-9 if case.latency else 1 / value.value,),
        line=line,
        mode="events",
        timing="device",
        devices=2 if case.row == "GPU" else 1 if case.row == "CPU" or "local" in name else devices or 1,
    )


def _direction(name: str, part: str) -> str:
    if part == "sum":
        return "bidir_sum_"
    return "bidir_per_dir_" if "bidirectional" in name else ""
