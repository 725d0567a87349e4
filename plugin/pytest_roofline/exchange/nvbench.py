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


def read(text: str, source: str, user_facts: UserFacts) -> tuple[ImportedLog, ...]:
    """Return the log of one product in a file.

    Where the file has several, the user names one, and the others are left out.
    """
    file = from_json(text, source, _NvbenchFile)
    measured_ids = {state.device for bench in file.benchmarks for state in bench.states}
    product_by_id = {gpu.id: gpu.name for gpu in file.devices if gpu.id in measured_ids}
    names = sorted(set(product_by_id.values()))
    product = (
        user_facts.product if user_facts.product in names else names[0] if len(names) == 1 else None
    )
    if product is None:
        raise BadFile(
            f"{source} was measured on {' and '.join(names)}; choose one of them with --product"
        )
    readings: list[Reading] = []
    left_out: list[str] = []
    states = ((bench, state) for bench in file.benchmarks for state in bench.states)
    for bench, state in states:
        if product_by_id.get(state.device) != product:
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
            MachineFacts(product, software={"NVBench": str(version)} if version else {}),
            left_out=tuple(left_out),
        ),
    )


def _readings(name: str, state: _BenchState, source: str) -> Iterator[Reading]:
    """Yield the cold time and the batch time of a state.

    A time that the state lacks is left out.
    """
    number_by_tag = {
        summary.tag: _number(summary, state, source)
        for summary in state.summaries or ()
        if summary.tag.startswith("nv/")
    }
    parameters: dict[str, Scalar] = {axis.name: _scalar(axis) for axis in state.axis_values or ()}
    moved_bytes = round(number_by_tag.get(_RATE, 0.0) * number_by_tag.get(_COLD, 0.0))
    methods: tuple[tuple[str, str, Timing], ...] = (
        (_COLD, "cold", "device"),
        (_BATCH, "batch", "pipelined"),
    )
    for tag, method, timing in methods:
        if tag in number_by_tag:
            yield Reading(
                key=key_of_reading(
                    f"nvbench.{name}",
                    parameters | {"gpu": state.device, "way": method},
                    "traffic_GBps" if moved_bytes else "time_s",
                    "mean",
                    timing,
                    "flush" if method == "cold" else "warm",
                ),
                work=Work(read_bytes=moved_bytes) if moved_bytes else Work(calls=1),
                seconds=(number_by_tag[tag],),
                where=state.name,
                iterations=max(1, int(number_by_tag.get(_SAMPLES[tag], 1))),
                mode="events",
            )


def _number(summary: _Summed, state: _BenchState, source: str) -> float:
    """Return the number of a summary, which the file holds as text.

    A summary without a number is 0. Raise BadFile if a time or the rate is one.
    """
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
    """Return the value of an axis, as a number where its type is int64."""
    text = str(axis.value)
    return int(text) if axis.type == "int64" and text.lstrip("-").isdigit() else text
