"""The JSON of pytest-benchmark: read with or without the data of every round, and written with them."""

import statistics
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from ..core.errors import BadFile
from ..core.facts import Environment
from ..core.keys import Scalar
from ..core.samples import Samples
from ..core.units import moment
from ..core.work import Work
from .exportable import Exportable, facts, origin
from .records import ImportedLog, Reading, UserFacts, from_json, json_with

CONVENTION = (
    "seconds per call, of each round the mean of its calls, by the host's clock; no bytes are counted, so that there "
    "is no rate"
)
# Clocks that go on while a process waits; others stand in the key.
WALL = ("perf_counter", "time", "monotonic", "default_timer", "perf_counter_ns", "monotonic_ns")
Seconds = Annotated[float, Meta(ge=0)]
# The version of pytest-benchmark whose layout this is; a file of its own names there who wrote it.
LAYOUT = "5.3.1"
# What the option `timer` says of the clocks that we read; those of a device are none that Python knows.
_TIMERS = {"host": "perf_counter_ns", "events": "device_events", "graph": "device_events"}
# What such a file says of a machine, and a run does not.
_UNKNOWN_FACTS = (
    "processor", "machine", "python_compiler", "python_implementation_version", "python_build", "system",
)  # fmt: skip
# Beyond so many interquartile ranges from the quartiles a round is an outlier, as Tukey's box plots have it.
_FENCE = 1.5


class _Stats(Struct):
    median: Seconds
    iterations: Annotated[int, Meta(ge=1)]
    data: Annotated[tuple[Seconds, ...], Meta(min_length=1)] | None = None


class _Benchmark(Struct):
    fullname: str
    stats: _Stats
    options: dict[str, Any] | None = None


class _BenchmarkFile(Struct):
    benchmarks: Annotated[tuple[_Benchmark, ...], Meta(min_length=1)]
    # Hooks of users may have put anything into these.
    machine_info: dict[str, Any]
    commit_info: dict[str, Any] | None = None
    version: Any = None
    datetime: Any = None


sniff = json_with('"benchmarks"', '"machine_info"')


def read(text: str, source: str, _: UserFacts) -> tuple[ImportedLog, ...]:
    """The one session in a file."""
    file = from_json(text, source, _BenchmarkFile)
    names = [one.fullname for one in file.benchmarks]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadFile(f"{source} holds {twice} twice; expected it once")
    timed = {one.fullname: one.stats.data or (one.stats.median,) for one in file.benchmarks}
    machine = file.machine_info
    cpu = machine["cpu"] if isinstance(machine.get("cpu"), dict) else {}
    return (
        ImportedLog(
            source=source,
            tool="pytest-benchmark",
            convention=CONVENTION,
            readings=tuple(
                _reading(one, timed[one.fullname], f"benchmarks[{index}]")
                for index, one in enumerate(file.benchmarks)
                if min(timed[one.fullname]) > 0
            ),
            device_type="cpu",
            host=_text(machine, "node"),
            cpu_model=_text(cpu, "brand_raw", "brand") or _text(machine, "processor"),
            cores=count if isinstance(count := cpu.get("count"), int) and count > 0 else None,
            kernel=_text(machine, "release"),
            software=_software(file),
            started=file.datetime if isinstance(file.datetime, str) else "",
            left_out=tuple(
                f"{name}: a round that took no time at all"
                for name in names
                if min(timed[name]) <= 0
            ),
        ),
    )


def _reading(one: _Benchmark, seconds: tuple[float, ...], where: str) -> Reading:
    test, _, rest = one.fullname.partition("[")
    parameters: dict[str, Scalar] = {"id": rest.removesuffix("]")} if rest else {}
    timer = _text(one.options or {}, "timer")
    if timer is not None and timer not in WALL:
        parameters["timer"] = timer
    return Reading(
        benchmark=f"pytest_benchmark.{test}",
        parameters=parameters,
        metric="time_s",
        statistic="median",
        work=Work(calls=1),
        seconds=seconds,
        where=where,
        iterations=one.stats.iterations,
    )


def _software(file: _BenchmarkFile) -> dict[str, str]:
    """Versions of the tool and of Python, and the commit."""
    values = {
        "pytest-benchmark": file.version if isinstance(file.version, str) else None,
        "python": _text(file.machine_info, "python_version"),
        "python implementation": _text(file.machine_info, "python_implementation"),
        "commit": _text(file.commit_info or {}, "id"),
    }
    return {name: value for name, value in values.items() if value}


def _text(told: dict[str, Any], *names: str) -> str | None:
    """The first of some names under which there is text."""
    return next(
        (told[name] for name in names if isinstance(told.get(name), str) and told[name]), None
    )


def write(found: Sequence[Exportable]) -> dict[str, object]:
    """One session of pytest-benchmark: a benchmark each measurement, a round each sample of its processes."""
    header = found[0].header
    time = moment(header.started)
    hosts = dict.fromkeys(entry.header.environment.host.name for entry in found)
    return {
        "machine_info": _machine_info(header.environment, ", ".join(hosts)),
        "commit_info": _commit_info(header.environment),
        "benchmarks": [_benchmark(one) for one in found],
        "datetime": time.isoformat() if time else header.started,
        "version": LAYOUT,
    }


def clock_of(samples: Samples) -> str:
    """The name that pytest-benchmark has for the clock behind samples."""
    return _TIMERS[samples.mode]


def warmup_calls(samples: Samples) -> int | Literal[False]:
    """Calls before the first sample, as the option `warmup` in its files has it."""
    return samples.warmup_iterations or False


def _benchmark(one: Exportable) -> dict[str, object]:
    rounds, key = one.rounds_s, one.measurement.key
    return {
        "group": key.benchmark,
        "name": _test_name(one.name),
        "fullname": one.name,
        "params": dict(key.parameters) or None,
        "param": _param(one),
        "extra_info": facts(one.row, one.processes) | origin(one.header),
        "options": _options(one),
        "stats": round_stats(rounds)
        | {"data": list(rounds), "iterations": one.processes[0].samples.iterations},
    }


def _test_name(test_id: str) -> str:
    """The test without its file and class; what stands in brackets may hold anything."""
    function, bracket, inside = (test_id.partition("::")[2] or test_id).partition("[")
    return function.rpartition("::")[2] + bracket + inside


def _param(one: Exportable) -> str | None:
    """What stands in the brackets of the test, not in those that the name of a measurement may have."""
    _, bracket, inside = _test_name(one.name if one.imported else one.row.test).partition("[")
    return inside.rpartition("]")[0] if bracket else None


def _options(one: Exportable) -> dict[str, object]:
    """Those of pytest-benchmark that say something of how we measure; the others are not asked for, and None."""
    samples, imported = one.measurement.samples, one.imported
    return {
        "disable_gc": None if imported else True,
        "timer": clock_of(samples),
        **dict.fromkeys(("min_rounds", "max_time", "min_time")),
        "warmup": None if imported else warmup_calls(samples),
    }


def _machine_info(environment: Environment, node: str) -> dict[str, object]:
    """What the run tells of its machine, None where it does not: the machine that exports may be another."""
    host, software, device = environment.host, environment.software, environment.device
    return dict.fromkeys(_UNKNOWN_FACTS) | {
        "node": node,
        "python_implementation": software.get("python implementation"),
        "python_version": software.get("python"),
        "release": host.kernel,
        "cpu": {"brand_raw": host.cpu_model, "count": host.cores},
        "device": {
            name: getattr(device, name) for name in ("type", "product", "driver", "memory_bytes")
        },
    }


def _commit_info(environment: Environment) -> dict[str, object]:
    """What was checked out, as pytest-benchmark writes it also outside of a repository."""
    own = next((code for code in environment.code if code.name == "."), None)
    return {
        "id": own.commit if own else environment.software.get("commit", "unversioned"),
        "time": None,
        "author_time": None,
        "dirty": bool(own and own.changes),
        "project": None,
        "branch": (own.branch if own else "") or "(unknown)",
    }


def round_stats(seconds: Sequence[float]) -> dict[str, object]:
    """Every figure that such a file holds of the rounds of a test, but the rounds themselves."""
    ordered = sorted(seconds)
    mean, total = statistics.mean(ordered), sum(seconds)
    several = len(ordered) > 1
    stddev = statistics.stdev(ordered) if several else 0.0
    q1, median, q3 = statistics.quantiles(ordered, method="inclusive") if several else ordered * 3
    low, high = q1 - _FENCE * (q3 - q1), q3 + _FENCE * (q3 - q1)
    far, outside = _beyond(ordered, mean - stddev, mean + stddev), _beyond(ordered, low, high)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": stddev,
        "rounds": len(ordered),
        "median": median,
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": outside,
        "stddev_outliers": far,
        "outliers": f"{far};{outside}",
        "ld15iqr": min(value for value in ordered if value >= min(low, ordered[-1])),
        "hd15iqr": max(value for value in ordered if value <= max(high, ordered[0])),
        "ops": len(ordered) / total,
        "total": total,
    }


def _beyond(values: Sequence[float], low: float, high: float) -> int:
    return sum(value < low or value > high for value in values)
