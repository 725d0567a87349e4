"""The JSON of pytest-benchmark (`--benchmark-json`, `--benchmark-save`), with or without the data of every round."""

from statistics import median

from ..core.keys import Scalar
from ..core.work import Work
from .json_text import Node, looks_like_json, root
from .records import Given, Imported, Reading

CONVENTION = (
    "seconds per call, of each round the mean of its calls, by the host's clock; no bytes are counted, so that there "
    "is no rate"
)
# Clocks that go on while a process waits; others stand in the key.
WALL = ("perf_counter", "time", "monotonic", "default_timer", "perf_counter_ns", "monotonic_ns")
# What is left of a number that went through JSON.
_SLACK = 1e-9


def sniff(text: str) -> bool:
    """Whether a text looks like such a file."""
    return looks_like_json(text) and '"benchmarks"' in text and '"machine_info"' in text


def read(text: str, source: str, _: Given) -> tuple[Imported, ...]:
    """The one session in a file.

    Raises:
        BadFile: something that is not understood or contradicts itself, with its line.
    """
    top = root(text, source).object()
    readings: list[Reading] = []
    left_out: list[str] = []
    seen: set[str] = set()
    for node in top["benchmarks"].items():
        name = node.object()["fullname"]
        if name.string() in seen:
            name.refuse("stands in this file twice; expected it once")
        seen.add(name.string())
        found = _reading(node)
        if found is None:
            left_out.append(f"line {name.line}, {name.value}: a round that took no time at all")
        else:
            readings.append(found)
    if not seen:
        top["benchmarks"].refuse("is empty; expected at least one")
    machine = top["machine_info"].object()
    cpu = machine.get("cpu")
    return (
        Imported(
            source=source,
            tool="pytest-benchmark",
            convention=CONVENTION,
            readings=tuple(readings),
            device_type="cpu",
            host=_text(machine, "node"),
            cpu_model=(_text(cpu.object(), "brand_raw", "brand") if cpu else None) or _text(machine, "processor"),
            cores=_count(cpu),
            kernel=_text(machine, "release"),
            software=_software(top, machine),
            started=_text(top, "datetime") or "",
            left_out=tuple(left_out),
        ),
    )


def _reading(node: Node) -> Reading | None:
    fullname = node["fullname"].string()
    stats = node["stats"].object()
    test, _, rest = fullname.partition("[")
    parameters: dict[str, Scalar] = {"id": rest.removesuffix("]")} if rest else {}
    options = node.get("options")
    timer = _text(options.object(), "timer") if options else None
    if timer is not None and timer not in WALL:
        parameters["timer"] = timer
    seconds = _seconds(stats)
    if min(seconds) <= 0:
        return None
    return Reading(
        benchmark=f"pytest_benchmark.{test}",
        parameters=parameters,
        metric="time_s",
        statistic="median",
        work=Work(calls=1),
        seconds=seconds,
        line=node["fullname"].line,
        iterations=stats["iterations"].whole(1),
    )


def _seconds(stats: Node) -> tuple[float, ...]:
    """Every round where the file has them, else their median; held against what the file says of all together."""
    middle = stats["median"].number()
    least, most = stats["min"].number(), stats["max"].number()
    data = stats.get("data")
    if data is None:
        _check_order(stats, least, middle, most)
        return (middle,)
    rounds = tuple(node.number() for node in data.items())
    told = {"rounds": len(rounds), "median": median(rounds or (0.0,)), "min": min(rounds, default=0.0)}
    told["max"] = max(rounds, default=0.0)
    for name, expected in told.items():
        if not _same(stats[name].number(), expected):
            stats[name].refuse(f"is {stats.value[name]!r}, but the data make {expected!r}; some are missing or changed")
    return rounds


def _check_order(stats: Node, least: float, middle: float, most: float) -> None:
    """The figures of a file without data can only be held against each other."""
    quartiles = [stats[name].number() for name in ("q1", "q3") if name in stats.value]
    low, high = (quartiles[0], quartiles[1]) if len(quartiles) == 2 else (least, most)
    mean, rounds = stats["mean"].number(), stats["rounds"].whole(1)
    if not (least <= low * (1 + _SLACK) and low <= middle * (1 + _SLACK) and middle <= high * (1 + _SLACK)):
        stats["median"].refuse("lies outside of its quartiles")
    if not (high <= most * (1 + _SLACK) and least <= mean * (1 + _SLACK) and mean <= most * (1 + _SLACK)):
        stats["mean"].refuse("or the quartiles lie outside of the smallest and the largest")
    ops, total = stats.get("ops"), stats.get("total")
    if ops is not None and mean and not _same(ops.number() * mean, 1.0):
        ops.refuse("is not one by the mean")
    if total is not None and not _same(total.number(), mean * rounds):
        total.refuse("is not the mean times the rounds")


def _same(one: float, other: float) -> bool:
    return abs(one - other) <= _SLACK * max(abs(one), abs(other))


def _software(top: Node, machine: Node) -> dict[str, str]:
    """Versions of the tool and of Python, and the commit."""
    found = {"pytest-benchmark": _text(top, "version"), "python": _text(machine, "python_version")}
    found["python implementation"] = _text(machine, "python_implementation")
    commit = top.get("commit_info")
    found["commit"] = _text(commit.object(), "id") if commit else None
    return {name: value for name, value in found.items() if value}


def _text(node: Node, *names: str) -> str | None:
    """The first of some names that the file has; hooks of users may have put anything there."""
    return next(
        (node.value[name] for name in names if isinstance(node.value.get(name), str) and node.value[name]), None
    )


def _count(cpu: Node | None) -> int | None:
    count = cpu.object().value.get("count") if cpu else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else None
