"""JSON as `pytest --benchmark-json` writes it, with the data of every round, for whatever reads such files."""

from collections.abc import Sequence
from typing import Any, Literal

from ...core.facts import DeviceFacts, Environment
from ...core.samples import Samples
from ...core.units import moment
from .choosing import Exportable
from .facts import facts, header_of, origin
from .round_stats import round_stats

# The version of pytest-benchmark whose layout this is; a file of its own names there who wrote it.
LAYOUT = "5.3.1"
# What the option `timer` says of the clocks that we read; those of a device are none that Python knows.
_TIMERS = {"host": "perf_counter_ns", "events": "device_events", "graph": "device_events"}


def name_of(one: Exportable) -> str:
    """What pytest-benchmark calls it: the node id, which is how it finds the same test in another file."""
    return one.name


def why_not(_: Exportable) -> str:
    """Every time can be written."""
    return ""


def write(found: Sequence[Exportable]) -> dict[str, Any]:
    """One session of pytest-benchmark: a benchmark each measurement, a round each sample of its processes."""
    header = header_of(found[0].row)
    time = moment(header.started)
    hosts = dict.fromkeys(header_of(one.row).environment.host.name for one in found)
    return {
        "machine_info": _machine_info(header.environment, ", ".join(hosts)),
        "commit_info": _commit_info(header.environment.software.get("commit")),
        "benchmarks": [_benchmark(one) for one in found],
        "datetime": time.isoformat() if time else header.started,
        "version": LAYOUT,
    }


def clock_of(samples: Samples) -> str | None:
    """What pytest-benchmark is told of the clock behind samples; None where it is not known."""
    return _TIMERS.get(samples.mode)


def warmed_up(samples: Samples) -> int | Literal[False]:
    """Calls before the first sample, as the option `warmup` in its files has it."""
    return samples.warmup_iterations or False


def _benchmark(one: Exportable) -> dict[str, Any]:
    rounds, key = one.rounds_s, one.measurement.key
    return {
        "group": key.benchmark,
        "name": _within(one.name),
        "fullname": one.name,
        "params": dict(key.parameters) or None,
        "param": _param(one),
        "extra_info": facts(one.row, one.processes) | origin(header_of(one.row)),
        "options": _options(one),
        "stats": round_stats(rounds) | {"data": list(rounds), "iterations": one.processes[0].samples.iterations},
    }


def _within(test_id: str) -> str:
    """The test without its file and class; what stands in brackets may hold anything."""
    function, bracket, inside = (test_id.partition("::")[2] or test_id).partition("[")
    return function.rpartition("::")[2] + bracket + inside


def _param(one: Exportable) -> str | None:
    """What stands in the brackets of the test, not in those that the name of a measurement may have."""
    plain = one.name if one.imported else one.row.test
    _, bracket, inside = _within(plain).partition("[")
    return inside.rpartition("]")[0] if bracket else None


def _options(one: Exportable) -> dict[str, Any]:
    """Those of pytest-benchmark that say something of how we measure; the others are not asked for, and None."""
    samples, elsewhere = one.measurement.samples, one.imported
    return {
        "disable_gc": None if elsewhere else True,
        "timer": clock_of(samples),
        "min_rounds": None,
        "max_time": None,
        "min_time": None,
        "warmup": None if elsewhere else warmed_up(samples),
    }


def _machine_info(environment: Environment, node: str) -> dict[str, Any]:
    """What the run tells of its machine, None where it does not: the machine that exports may be another."""
    host, software = environment.host, environment.software
    return {
        "node": node,
        "processor": None,
        "machine": None,
        "python_compiler": None,
        "python_implementation": software.get("python implementation"),
        "python_implementation_version": None,
        "python_version": software.get("python"),
        "python_build": None,
        "release": host.kernel,
        "system": None,
        "cpu": {"brand_raw": host.cpu_model, "count": host.cores},
        "device": _device(environment.device),
    }


def _device(device: DeviceFacts) -> dict[str, Any]:
    return {
        "type": device.type,
        "product": device.product,
        "driver": device.driver,
        "memory_bytes": device.memory_bytes,
    }


def _commit_info(commit: str | None) -> dict[str, Any]:
    """As pytest-benchmark writes it outside of a repository: a run does not know what was checked out."""
    return {
        "id": commit or "unversioned",
        "time": None,
        "author_time": None,
        "dirty": False,
        "project": None,
        "branch": "(unknown)",
    }
