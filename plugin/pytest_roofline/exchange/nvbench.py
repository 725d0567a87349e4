"""The JSON of NVBench (`--json`): `nvbench/json_printer.cu`."""

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from ..core.errors import BadFile
from ..core.keys import Scalar, Timing
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
)

TOOL = Tool(
    "NVBench",
    "means of the samples; cold: alone behind a flushed cache, by CUDA events; batch: calls one after the other, by "
    "CUDA events; bytes are the global memory that the benchmark counted, read and written",
)
_COLD, _BATCH, _RATE = (
    "nv/cold/time/gpu/mean",
    "nv/batch/time/gpu/mean",
    "nv/cold/bw/global/bytes_per_second",
)
_SAMPLES = {_COLD: "nv/cold/sample_size", _BATCH: "nv/batch/sample_size"}


class _Value(Struct):
    value: Any


class _Summed(Struct):
    tag: str
    data: tuple[_Value, ...]


class _AxisValue(Struct):
    name: str
    value: Any
    type: str = "string"


class _BenchState(Struct, kw_only=True):
    name: str
    device: int
    axis_values: tuple[_AxisValue, ...] | None = None
    summaries: tuple[_Summed, ...] | None = None
    is_skipped: bool = False
    skip_reason: str = ""


class _Benched(Struct):
    name: str
    states: tuple[_BenchState, ...]


class _Gpu(Struct):
    id: int
    name: str


class _NvbenchFile(Struct, kw_only=True):
    devices: tuple[_Gpu, ...]
    benchmarks: tuple[_Benched, ...]
    meta: dict[str, Any] = {}


sniff = json_with('"nv/cold/')


def read(text: str, source: str, given: UserFacts) -> tuple[ImportedLog, ...]:
    """What was measured on one product; another in the file is left out where the user names one."""
    file = from_json(text, source, _NvbenchFile)
    used = {state.device for bench in file.benchmarks for state in bench.states}
    products = {gpu.id: gpu.name for gpu in file.devices if gpu.id in used}
    names = sorted(set(products.values()))
    chosen = given.product if given.product in names else names[0] if len(names) == 1 else None
    if chosen is None:
        raise BadFile(
            f"{source} was measured on {' and '.join(names)}; choose one of them with --product"
        )
    readings: list[Reading] = []
    left_out: list[str] = []
    for bench, state in ((one, state) for one in file.benchmarks for state in one.states):
        if products.get(state.device) != chosen:
            continue
        if state.is_skipped:
            left_out.append(f"{bench.name}[{state.name}]: {state.skip_reason or 'skipped'}")
        else:
            readings += _readings(bench.name, state, source)
    version = file.meta.get("version", {}).get("nvbench", {}).get("string")
    return (
        ImportedLog(
            source,
            TOOL,
            tuple(readings),
            MachineFacts(chosen, software={"NVBench": str(version)} if version else {}),
            left_out=tuple(left_out),
        ),
    )


def _readings(name: str, state: _BenchState, source: str) -> Iterator[Reading]:
    """The cold and the batch time of a state."""
    told = {
        one.tag: _number(one, state, source)
        for one in state.summaries or ()
        if one.tag.startswith("nv/")
    }
    parameters: dict[str, Scalar] = {axis.name: _scalar(axis) for axis in state.axis_values or ()}
    moved = round(told.get(_RATE, 0.0) * told.get(_COLD, 0.0))
    ways: tuple[tuple[str, str, Timing], ...] = (
        (_COLD, "cold", "device"),
        (_BATCH, "batch", "pipelined"),
    )
    for tag, way, timing in ways:
        if tag in told:
            yield Reading(
                key_of_reading(
                    f"nvbench.{name}",
                    parameters | {"gpu": state.device, "way": way},
                    "traffic_GBps" if moved else "time_s",
                    "mean",
                    timing,
                    "flush" if way == "cold" else "warm",
                ),
                Work(read_bytes=moved) if moved else Work(calls=1),
                (told[tag],),
                state.name,
                max(1, int(told.get(_SAMPLES[tag], 1))),
                mode="events",
            )


def _number(summary: _Summed, state: _BenchState, source: str) -> float:
    """The number of a summary, which is written as text; 0 of one that has none."""
    value = summary.data[0].value if summary.data else 0
    try:
        return float(value)
    except (TypeError, ValueError):
        if summary.tag in (_COLD, _BATCH, _RATE):
            raise BadFile(
                f"{source}: {summary.tag} of {state.name} is {value!r}; expected a number"
            ) from None
        return 0.0


def _scalar(axis: _AxisValue) -> Scalar:
    """The value of an axis in its type."""
    text = str(axis.value)
    return int(text) if axis.type == "int64" and text.lstrip("-").isdigit() else text
