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
# The names of aggregates in versions before 1.5.
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
    # `json_reporter.cc` writes the first only for a run that failed, the second only for a skipped one.
    error_message: str | None = None
    skip_message: str | None = None

    @property
    def failed(self) -> bool:
        """True if the run ended with an error, without a time."""
        return self.error_message is not None

    @property
    def skipped(self) -> bool:
        """True if the run was skipped on purpose, without a time."""
        return self.skip_message is not None


class _GoogleFile(Struct):
    context: _BenchContext
    benchmarks: tuple[_Bench, ...]


sniff = json_with('"time_unit"', '"context"')


def read(text: str, source: str, _user_facts: UserFacts) -> tuple[ImportedLog, ...]:
    """Return the log of a file, which holds one process."""
    file = from_json(_FIELD.sub(_replace_nonfinite, text), source, _GoogleFile)
    names = {run.name for run in file.benchmarks}
    aggregates = [
        run
        for run in file.benchmarks
        if run.run_type == "aggregate" or _is_old_aggregate(run, names)
    ]
    runs = [run for run in file.benchmarks if run not in aggregates and not run.failed]
    run_names = {run.run_name or run.name for run in runs}
    # A file may have the aggregates of repetitions without the repetitions themselves.
    used_aggregates = [
        run
        for run in aggregates
        if run.run_name not in run_names and run.aggregate_name in _AGGREGATES
    ]
    software = {
        "Google Benchmark": file.context.library_version,
        "build": file.context.library_build_type,
    }
    unused_count = len(aggregates) - len(used_aggregates)
    return (
        ImportedLog(
            source=source,
            tool=TOOL,
            readings=pool_readings([
                _reading(run, source) for run in [*runs, *used_aggregates] if not run.skipped
            ]),
            machine=MachineFacts(
                device_type="cpu",
                host=file.context.host_name,
                cores=file.context.num_cpus,
                software={name: version for name, version in software.items() if version},
            ),
            started=file.context.date,
            left_out=(*(f"{run.name}: {run.skip_message or 'skipped'}" for run in runs if run.skipped),
                      *(f"{run.name}: bytes_per_second is no finite number"
                        for run in [*runs, *used_aggregates] if run.bytes_per_second is None),
                      *([f"{count(unused_count, 'aggregate')} of runs"] if unused_count else ())),
            failed=tuple((f"google_benchmark.{run.name}", run.error_message or "it failed")
                         for run in file.benchmarks if run.failed),
        ),
    )  # fmt: skip


def _replace_nonfinite(match: re.Match[str]) -> str:
    """Return a field with null in place of NaN or infinity.

    A time keeps its text, so that the reader of JSON refuses it with its line.
    """
    name, colon = match[1], match[2]
    if colon is None or name in _TIMES:
        return match[0]
    return f'"{name}"{colon}null'


def _is_old_aggregate(run: _Bench, names: set[str]) -> bool:
    """Return True for an aggregate in a file of a version before 1.5.

    Only its name shows it: either the runs of that name are in the file, or it is a fit, which has no time.
    """
    match = None if run.run_name else _OLD.fullmatch(run.name)
    return match is not None and (match[1] in names or not run.real_time)


def _reading(run: _Bench, source: str) -> Reading:
    """Return a run or an aggregate as a reading.

    Its rate is that of the bytes that the benchmark counted; without them it is a time.
    """
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
    # Rates are of the time of the CPU, unless the name of the run says otherwise.
    rate_time = (
        run.real_time
        if _BY_WALL.search(run.run_name or run.name) or not run.cpu_time
        else run.cpu_time
    )
    moved_bytes = round(bytes_per_second * rate_time * unit)
    return Reading(
        key=key_of_reading(
            f"google_benchmark.{run.run_name or run.name}",
            {},
            "payload_GBps" if moved_bytes else "time_s",
            run.aggregate_name or "mean",
        ),
        work=Work(payload_bytes=moved_bytes) if moved_bytes else Work(calls=1),
        seconds=(run.real_time * unit,),
        where=run.name,
        iterations=1 if run.aggregate_name else max(1, run.iterations),
    )
