"""The JSON of pytest-benchmark (`--benchmark-json`, `--benchmark-save`), with or without the data of every round."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from ..core.errors import BadFile
from ..core.keys import Scalar
from ..core.work import Work
from .records import Given, Imported, Reading
from .scanning import from_json, looks_like_json

CONVENTION = (
    "seconds per call, of each round the mean of its calls, by the host's clock; no bytes are counted, so that there "
    "is no rate"
)
# Clocks that go on while a process waits; others stand in the key.
WALL = ("perf_counter", "time", "monotonic", "default_timer", "perf_counter_ns", "monotonic_ns")
Seconds = Annotated[float, Meta(ge=0)]


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


def sniff(text: str) -> bool:
    """Whether a text looks like such a file."""
    return looks_like_json(text) and '"benchmarks"' in text and '"machine_info"' in text


def read(text: str, source: str, _: Given) -> tuple[Imported, ...]:
    """The one session in a file.

    Raises:
        BadFile: something that is not understood, with the path of the value.
    """
    file = from_json(text, source, _BenchmarkFile)
    names = [one.fullname for one in file.benchmarks]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise BadFile(f"{source} holds {twice} twice; expected it once")
    timed = {one.fullname: one.stats.data or (one.stats.median,) for one in file.benchmarks}
    machine = file.machine_info
    cpu = machine["cpu"] if isinstance(machine.get("cpu"), dict) else {}
    return (
        Imported(
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
            left_out=tuple(f"{name}: a round that took no time at all" for name in names if min(timed[name]) <= 0),
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
    told = {
        "pytest-benchmark": file.version if isinstance(file.version, str) else None,
        "python": _text(file.machine_info, "python_version"),
        "python implementation": _text(file.machine_info, "python_implementation"),
        "commit": _text(file.commit_info or {}, "id"),
    }
    return {name: value for name, value in told.items() if value}


def _text(told: dict[str, Any], *names: str) -> str | None:
    """The first of some names under which there is text."""
    return next((told[name] for name in names if isinstance(told.get(name), str) and told[name]), None)
