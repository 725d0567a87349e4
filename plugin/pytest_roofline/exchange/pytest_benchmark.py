"""The JSON of pytest-benchmark.

It is read with or without the data of every round, and written with them.
"""

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
from .records import (
    ImportedLog,
    MachineFacts,
    Reading,
    Tool,
    UserFacts,
    from_json,
    json_with,
    key_of_reading,
)

TOOL = Tool(
    "pytest-benchmark",
    "seconds per call by the host's clock; each round gives the mean of its calls; no bytes are counted, so there "
    "is no rate",
)
# Clocks that go on while a process waits. Any other clock is in the key.
WALL = ("perf_counter", "time", "monotonic", "default_timer", "perf_counter_ns", "monotonic_ns")
Seconds = Annotated[float, Meta(ge=0)]
# The version of pytest-benchmark whose layout we write. Its own files name the version that wrote them.
LAYOUT = "5.3.1"
# Values of the option `timer` for our clocks; Python has no name for those of a device.
_TIMERS = {"host": "perf_counter_ns", "events": "device_events", "graph": "device_events"}
# Facts of a machine in such a file that a run does not hold.
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


def read(text: str, source: str, _user_facts: UserFacts) -> tuple[ImportedLog, ...]:
    """Return the log of a file, which holds one session."""
    file = from_json(text, source, _BenchmarkFile)
    names = [benchmark.fullname for benchmark in file.benchmarks]
    if len(set(names)) < len(names):
        duplicate = next(name for name in names if names.count(name) > 1)
        raise BadFile(f"{source} holds {duplicate} twice; expected it once")
    seconds_by_name = {
        benchmark.fullname: benchmark.stats.data or (benchmark.stats.median,)
        for benchmark in file.benchmarks
    }
    machine = file.machine_info
    cpu = machine["cpu"] if isinstance(machine.get("cpu"), dict) else {}
    return (
        ImportedLog(
            source=source,
            tool=TOOL,
            readings=tuple(
                _reading(benchmark, seconds_by_name[benchmark.fullname], f"benchmarks[{index}]")
                for index, benchmark in enumerate(file.benchmarks)
                if min(seconds_by_name[benchmark.fullname]) > 0
            ),
            machine=MachineFacts(
                device_type="cpu",
                host=_text(machine, "node"),
                cpu_model=_text(cpu, "brand_raw", "brand") or _text(machine, "processor"),
                cores=count if isinstance(count := cpu.get("count"), int) and count > 0 else None,
                kernel=_text(machine, "release"),
                software=_software(file),
            ),
            started=file.datetime if isinstance(file.datetime, str) else "",
            left_out=tuple(
                f"{name}: a round of 0 s" for name in names if min(seconds_by_name[name]) <= 0
            ),
        ),
    )


def _reading(benchmark: _Benchmark, seconds: tuple[float, ...], where: str) -> Reading:
    """Return a benchmark as a reading. A clock that is not a wall clock is in its key.

    `seconds` are those of each round, or their median alone; `where` is the benchmark's place in the file.
    """
    test, _, parameter_id = benchmark.fullname.partition("[")
    parameters: dict[str, Scalar] = {"id": parameter_id.removesuffix("]")} if parameter_id else {}
    timer = _text(benchmark.options or {}, "timer")
    if timer is not None and timer not in WALL:
        parameters["timer"] = timer
    return Reading(
        key=key_of_reading(f"pytest_benchmark.{test}", parameters, "time_s", "median"),
        work=Work(calls=1),
        seconds=seconds,
        where=where,
        iterations=benchmark.stats.iterations,
    )


def _software(file: _BenchmarkFile) -> dict[str, str]:
    """Return versions of the tool and of Python, and the commit."""
    values = {
        "pytest-benchmark": file.version if isinstance(file.version, str) else None,
        "python": _text(file.machine_info, "python_version"),
        "python implementation": _text(file.machine_info, "python_implementation"),
        "commit": _text(file.commit_info or {}, "id"),
    }
    return {name: value for name, value in values.items() if value}


def _text(document: dict[str, Any], *names: str) -> str | None:
    """Return the first text that a document has under one of the names."""
    return next(
        (
            document[name]
            for name in names
            if isinstance(document.get(name), str) and document[name]
        ),
        None,
    )


def write(entries: Sequence[Exportable]) -> dict[str, object]:
    """Return one session of pytest-benchmark.

    Each measurement is a benchmark, each sample of its processes a round.
    """
    header = entries[0].header
    time = moment(header.started)
    hosts = dict.fromkeys(entry.header.environment.host.name for entry in entries)
    return {
        "machine_info": _machine_info(header.environment, ", ".join(hosts)),
        "commit_info": _commit_info(header.environment),
        "benchmarks": [_benchmark(entry) for entry in entries],
        "datetime": time.isoformat() if time else header.started,
        "version": LAYOUT,
    }


def clock_of(samples: Samples) -> str:
    """Return pytest-benchmark's name of the clock behind samples."""
    return _TIMERS[samples.mode]


def warmup_calls(samples: Samples) -> int | Literal[False]:
    """Return the number of warm-up calls as the option `warmup` has it.

    False stands for none.
    """
    return samples.warmup_iterations or False


def _benchmark(entry: Exportable) -> dict[str, object]:
    """Return a measurement as pytest-benchmark describes a benchmark."""
    rounds, key = entry.rounds_s, entry.measurement.key
    return {
        "group": key.benchmark,
        "name": _test_name(entry.name),
        "fullname": entry.name,
        "params": dict(key.parameters) or None,
        "param": _param(entry),
        "extra_info": facts(entry.row, entry.processes) | origin(entry.header),
        "options": _options(entry),
        "stats": round_stats(rounds)
        | {"data": list(rounds), "iterations": entry.processes[0].samples.iterations},
    }


def _test_name(test_id: str) -> str:
    """Return a test's id without its file and class.

    The text in brackets may contain `::` itself.
    """
    _file, _, path_in_file = test_id.partition("::")
    path, bracket, parameters = (path_in_file or test_id).partition("[")
    _classes, _, function = path.rpartition("::")
    return function + bracket + parameters


def _param(entry: Exportable) -> str | None:
    """Return the text in the brackets of a test; None without brackets.

    It is taken from the test's id, since the name of a measurement may have brackets of its own.
    """
    # An imported measurement has its label as name, and no test.
    test_id = entry.name if entry.imported else entry.row.test
    _function, bracket, inside = _test_name(test_id).partition("[")
    parameters, _, _ = inside.rpartition("]")
    return parameters if bracket else None


def _options(entry: Exportable) -> dict[str, object]:
    """Return how the measurement was taken, in the words of pytest-benchmark's options.

    Options that do not apply, or that an import does not know, are None.
    """
    samples, is_imported = entry.measurement.samples, entry.imported
    return {
        "disable_gc": None if is_imported else True,
        "timer": clock_of(samples),
        **dict.fromkeys(("min_rounds", "max_time", "min_time")),
        "warmup": None if is_imported else warmup_calls(samples),
    }


def _machine_info(environment: Environment, node: str) -> dict[str, object]:
    """Return the facts of the machine that measured, by pytest-benchmark's names.

    A fact that the run does not hold is None.
    """
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
    """Return the commit of the tests.

    pytest-benchmark writes these fields outside of a repository, too.
    """
    test_code = next((code for code in environment.code if code.name == "."), None)
    return {
        "id": test_code.commit if test_code else environment.software.get("commit", "unversioned"),
        "time": None,
        "author_time": None,
        "dirty": bool(test_code and test_code.changes),
        "project": None,
        "branch": (test_code.branch if test_code else "") or "(unknown)",
    }


def round_stats(seconds: Sequence[float]) -> dict[str, object]:
    """Return pytest-benchmark's statistics of a test, without the rounds themselves.

    `seconds` has the time of each round.
    """
    sorted_seconds = sorted(seconds)
    mean, total = statistics.mean(sorted_seconds), sum(seconds)
    has_spread = len(sorted_seconds) > 1
    stddev = statistics.stdev(sorted_seconds) if has_spread else 0.0
    q1, median, q3 = (
        statistics.quantiles(sorted_seconds, method="inclusive")
        if has_spread
        else sorted_seconds * 3
    )
    # Rounds beyond these fences are outliers (Tukey).
    low, high = q1 - _FENCE * (q3 - q1), q3 + _FENCE * (q3 - q1)
    stddev_outliers, iqr_outliers = (
        _beyond(sorted_seconds, mean - stddev, mean + stddev),
        _beyond(sorted_seconds, low, high),
    )
    return {
        "min": sorted_seconds[0],
        "max": sorted_seconds[-1],
        "mean": mean,
        "stddev": stddev,
        "rounds": len(sorted_seconds),
        "median": median,
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": iqr_outliers,
        "stddev_outliers": stddev_outliers,
        "outliers": f"{stddev_outliers};{iqr_outliers}",
        "ld15iqr": min(value for value in sorted_seconds if value >= min(low, sorted_seconds[-1])),
        "hd15iqr": max(value for value in sorted_seconds if value <= max(high, sorted_seconds[0])),
        "ops": len(sorted_seconds) / total,
        "total": total,
    }


def _beyond(values: Sequence[float], low: float, high: float) -> int:
    """Return the number of values outside of two bounds."""
    return sum(value < low or value > high for value in values)
