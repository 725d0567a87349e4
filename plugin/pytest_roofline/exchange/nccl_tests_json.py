"""The JSON of nccl-tests (`-J FILE.json`), versions 1 to 3 of its own count: `src/util.cu` of nccl-tests."""

from dataclasses import replace

from ..core.keys import Scalar
from .collectives import Operation, Row, Setting, Times, operation_of, reading
from .json_text import Node, looks_like_json, root
from .nccl_tests import CONVENTION
from .records import Given, Imported, Reading, pooled
from .refusing import Printed

VERSIONS = (1, 2, 3)
# The file has six decimals.
_HALF = 5e-7
_TOP = frozenset(
    (
        "version",
        "start_time",
        "args",
        "env",
        "nccl_version",
        "config",
        "results",
        "out_of_bounds",
        "average_bus_bandwidth",
        "average_bus_bandwidith",
        "errors",
        "end_time",
    )
)
_RESULT = frozenset(
    (
        "size",
        "count",
        "type",
        "redop",
        "root",
        "out_of_place",
        "in_place",
        "out_of_place_per_iter",
        "in_place_per_iter",
        "actual_iterations",
        "experiment_name",
    )
)
_BODY = frozenset(("time", "cpu_time", "alg_bw", "bus_bw", "nwrong"))
_OVER_RANKS = {"0": "rank0", "1": "", "2": "min", "3": "max"}


def sniff(text: str) -> bool:
    """Whether a text looks like such a file."""
    return looks_like_json(text) and '"nccl_version"' in text and '"results"' in text


def read(text: str, source: str, given: Given) -> tuple[Imported, ...]:
    """The one run in a file.

    Raises:
        BadFile: something that is not understood or contradicts itself, with its line.
    """
    top = root(text, source).object(_TOP)
    if top["version"].whole() not in VERSIONS:
        top["version"].refuse(f"is {top['version'].value}; this importer knows {', '.join(map(str, VERSIONS))}")
    operation = _operation(top, given)
    devices = list(top["config"].object()["devices"].items())
    products = {node.object()["device_info"].string().strip(): node for node in devices}
    if len(products) > 1:
        list(products.values())[1].refuse(f"is another product than the first; expected one of {', '.join(products)}")
    setting = _setting(top, devices)
    readings: list[Reading] = []
    left_out: list[str] = []
    rates: list[float] = []
    for node in top["results"].items():
        _take(node.object(_RESULT), operation, setting, readings, left_out, rates)
    _check_average(top, rates)
    return (
        Imported(
            source=source,
            tool="nccl-tests",
            convention=CONVENTION,
            readings=pooled([_spoiled(one, top) for one in readings]),
            product=next(iter(products), None) or None,
            host=devices[0]["hostname"].string() if devices else None,
            software={"NCCL": str(top["nccl_version"].whole())},
            started=_moment(top, "start_time"),
            finished=_moment(top, "end_time"),
            left_out=tuple(left_out),
        ),
    )


def _operation(top: Node, given: Given) -> Operation:
    arguments = [node.string() for node in top["args"].items()]
    told = operation_of(arguments[0]) if arguments else None
    asked = operation_of(given.operation) if given.operation else None
    if told and asked and told != asked:
        top["args"].refuse(f"name {told.name}, but --operation={asked.name}; expected the same")
    found = told or asked
    if found is None:
        top["args"].refuse("name no test that this importer knows; tell with --operation")
    return found


def _setting(top: Node, devices: list[Node]) -> Setting:
    config = top["config"]
    if not devices:
        config["devices"].refuse("is empty; expected a device a rank")
    groups = [node["group"].whole() for node in devices]
    hosts = {node["hostname"].string() for node in devices}
    together, graph = config["aggregated_iterations"].whole(1), config["graph"].whole()
    blocking = config["blocking_collectives"].string() == "true"
    several: dict[str, Scalar] = {
        "nodes": len(hosts) if len(hosts) > 1 else 0,
        "groups": len(set(groups)) if len(set(groups)) > 1 else 0,
        "agg_iters": together if together > 1 else 0,
        "graph": graph,
        "blocking": blocking,
        "over_ranks": _over_ranks(top["args"]),
    }
    return Setting(
        ranks=groups.count(groups[0]),
        devices=len(devices),
        iterations=config["iterations"].whole(1) * together * max(1, graph),
        warmup_iterations=config["warmup_iters"].whole(),
        timing="isolated" if blocking else "pipelined",
        extra={name: value for name, value in several.items() if value},
    )


def _over_ranks(arguments: Node) -> str:
    """What `-a` made of the ranks' times; empty for their mean, the default."""
    words = [word for node in arguments.items() for word in node.string().split("=")]
    at = next((index for index, word in enumerate(words) if word in ("-a", "--average")), None)
    if at is None:
        return ""
    value = words[at + 1] if at + 1 < len(words) else ""
    if value not in _OVER_RANKS:
        arguments.refuse(f"have {words[at]} {value!r}; expected one of {', '.join(_OVER_RANKS)}")
    return _OVER_RANKS[value]


def _take(
    node: Node, operation: Operation, setting: Setting, readings: list[Reading], left_out: list[str], rates: list[float]
) -> None:
    text = node["root"].string().strip()
    if not text.removeprefix("-").isdecimal():
        node["root"].refuse(f"is {text!r}; expected a rank, or -1")
    row = Row(node["size"].whole(), node["count"].whole(), node["type"].string(), node["redop"].string(), int(text))
    if why := row.trouble(operation, setting.ranks):
        node["size"].refuse(f"does not fit: {why}")
    for place in ("out_of_place", "in_place"):
        body = node.get(place)
        if body is None:
            continue
        times = _times(body, place)
        rates.append(times.busbw.value)
        if why := times.trouble(row.work(operation, setting.ranks)):
            body.refuse(f"contradicts itself: {why}")
        if not row.size_bytes or not times.time_us.value:
            left_out.append(f"line {body.line}, {place}: {'no time at all' if row.size_bytes else 'moves nothing'}")
            continue
        checked = None if times.wrong is None else not times.wrong
        readings.append(reading("nccl_tests", operation, row, times, setting, body.line, checked))
        if node.get(f"{place}_per_iter") is not None:
            left_out.append(f"line {body.line}, {place}: times of single iterations, which events of the device took")


def _times(body: Node, place: str) -> Times:
    body.object(_BODY)
    if "cpu_time" in body.value:
        body["cpu_time"].refuse("is time of the CPU (-C 1), which says nothing of the operation; run it without")
    time_us, algbw, busbw = (Printed(body[name].number(), _HALF) for name in ("time", "alg_bw", "bus_bw"))
    wrong = body.get("nwrong")
    return Times(place, time_us, algbw, busbw, None if wrong is None else wrong.number())


def _check_average(top: Node, rates: list[float]) -> None:
    """The mean of all bus bandwidths; two versions spell it otherwise."""
    name = "average_bus_bandwidith" if "average_bus_bandwidith" in top.value else "average_bus_bandwidth"
    node = top[name].object()
    inner = node["bandwidith" if "bandwidith" in node.value else "bandwidth"]
    if not rates:
        top["results"].refuse("holds no row; expected at least one")
    mean = sum(rates) / len(rates)
    if abs(inner.number() - mean) > 2 * _HALF + 1e-9 * mean:
        inner.refuse(
            f"is {inner.value:g}, but the {len(rates)} rows have a mean of {mean:.9g}; some are missing or changed"
        )


def _spoiled(one: Reading, top: Node) -> Reading:
    """A reading with what the file says of the run as a whole."""
    errors = [node.string() for node in errors_of.items()] if (errors_of := top.get("errors")) is not None else []
    told = next((text for text in errors if text), "")
    return replace(one, invalid=f"the test ended with the error {told!r}") if told and not one.invalid else one


def _moment(top: Node, name: str) -> str:
    """A local time of an unknown zone, in ISO 8601; empty where the file has none."""
    node = top.get(name)
    return node.string().replace(" ", "T") if node is not None else ""
