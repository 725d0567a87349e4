"""The JSON of Google Benchmark (`--benchmark_format=json`): `src/json_reporter.cc`."""

import re

from msgspec import Struct

from ..core.errors import BadFile
from ..core.units import count
from ..core.work import Work
from .records import (
    ImportedLog,
    MachineFacts,
    Reading,
    Tool,
    UserFacts,
    from_json,
    json_with,
    key_of_reading,
    pool_readings,
)

TOOL = Tool(
    "Google Benchmark",
    "seconds of an iteration by the wall clock, the mean of each run; repetitions are samples; bytes are those that "
    "the benchmark counted as processed",
)
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_AGGREGATES = ("mean", "median")
# What versions before 1.5 call aggregates.
_OLD = re.compile(r"(.+)_(?:mean|median|stddev|BigO|RMS)")
_BY_WALL = re.compile(r"/(?:real|manual)_time(?:/threads:\d+)?$")
# A string, and behind the name of a field NaN or an infinity, which `json_reporter.cc` writes of counters.
_FIELD = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"(?:(\s*:\s*)(?:NaN|-?Infinity)\b)?')
_TIMES = ("real_time", "cpu_time")


class _BenchContext(Struct, kw_only=True):
    date: str = ""
    host_name: str | None = None
    num_cpus: int | None = None
    library_version: str | None = None
    library_build_type: str | None = None


class _Bench(Struct, kw_only=True):
    name: str
    run_name: str = ""
    run_type: str = "iteration"
    aggregate_name: str = ""
    iterations: int = 1
    real_time: float = 0.0
    cpu_time: float = 0.0
    time_unit: str = "ns"
    # None where it is no finite number.
    bytes_per_second: float | None = 0.0
    # `json_reporter.cc` writes it of a run that failed alone, and the other of one that was skipped.
    error_message: str | None = None
    skip_message: str | None = None

    @property
    def failed(self) -> bool:
        """True if the run left no time for an error."""
        return self.error_message is not None

    @property
    def skipped(self) -> bool:
        """True if the run left no time on purpose."""
        return self.skip_message is not None


class _GoogleFile(Struct):
    context: _BenchContext
    benchmarks: tuple[_Bench, ...]


sniff = json_with('"time_unit"', '"context"')


def read(text: str, source: str, _: UserFacts) -> tuple[ImportedLog, ...]:
    """Return the one process in a file."""
    file = from_json(_FIELD.sub(_finite, text), source, _GoogleFile)
    names = {run.name for run in file.benchmarks}
    aggregates = [
        run for run in file.benchmarks if run.run_type == "aggregate" or _is_old(run, names)
    ]
    runs = [run for run in file.benchmarks if run not in aggregates and not run.failed]
    measured = {run.run_name or run.name for run in runs}
    # Of repetitions there may be nothing but what they come to.
    alone = [
        run
        for run in aggregates
        if run.run_name not in measured and run.aggregate_name in _AGGREGATES
    ]
    software = {
        "Google Benchmark": file.context.library_version,
        "build": file.context.library_build_type,
    }
    left_out = len(aggregates) - len(alone)
    return (
        ImportedLog(
            source=source,
            tool=TOOL,
            readings=pool_readings([_reading(run, source) for run in [*runs, *alone] if not run.skipped]),
            machine=MachineFacts(
                device_type="cpu",
                host=file.context.host_name,
                cores=file.context.num_cpus,
                software={name: version for name, version in software.items() if version},
            ),
            started=file.context.date,
            left_out=(*(f"{run.name}: {run.skip_message or 'skipped'}" for run in runs if run.skipped),
                      *(f"{run.name}: bytes_per_second is no finite number"
                        for run in [*runs, *alone] if run.bytes_per_second is None),
                      *([f"{count(left_out, 'aggregate')} of runs"] if left_out else ())),
            failed=tuple((f"google_benchmark.{run.name}", run.error_message or "it failed")
                         for run in file.benchmarks if run.failed),
        ),
    )  # fmt: skip


def _finite(match: re.Match[str]) -> str:
    """Return a field with null for what is no finite number; of a time it stays, and is refused with its line."""
    if match[2] is None or match[1] in _TIMES:
        return match[0]
    return f'"{match[1]}"{match[2]}null'


def _is_old(run: _Bench, names: set[str]) -> bool:
    """Return True for an aggregate of runs that are there, or a fit over them that has no time, by its name alone."""
    match = None if run.run_name else _OLD.fullmatch(run.name)
    return match is not None and (match[1] in names or not run.real_time)


def _reading(run: _Bench, source: str) -> Reading:
    unit = _UNITS.get(run.time_unit)
    if unit is None:
        raise BadFile(
            f"{source}: {run.name} has unit {run.time_unit!r}; expected one of {', '.join(_UNITS)}"
        )
    bytes_per_second = run.bytes_per_second or 0.0
    if run.real_time <= 0 or bytes_per_second < 0:
        raise BadFile(
            f"{source}: {run.name} has time {run.real_time:g} {run.time_unit}; expected more than 0"
        )
    # Rates are by the time of the CPU, unless the name says otherwise.
    by = (
        run.real_time
        if _BY_WALL.search(run.run_name or run.name) or not run.cpu_time
        else run.cpu_time
    )
    moved = round(bytes_per_second * by * unit)
    return Reading(
        key=key_of_reading(
            f"google_benchmark.{run.run_name or run.name}",
            {},
            "payload_GBps" if moved else "time_s",
            run.aggregate_name or "mean",
        ),
        work=Work(payload_bytes=moved) if moved else Work(calls=1),
        seconds=(run.real_time * unit,),
        where=run.name,
        iterations=1 if run.aggregate_name else max(1, run.iterations),
    )
