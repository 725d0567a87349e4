"""Reading a Chrome trace as torch.profiler writes it: what the host did, what the device did, and who launched what.

Times are in seconds on the trace's own clock. The format has no specification; what is read here is what Kineto writes
(`libkineto/src/output_json.cpp`): complete events (`ph` X) with `cat`, `ts` and `dur` in microseconds, and `args`.
"""

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.errors import BadFile

# The name under which the capture brackets every profiled call on the host.
CALL = "roofline call"
OPERATOR, ANNOTATION = "cpu_op", "user_annotation"
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
# Calls of the vendor's library that put work on the device; Kineto calls those of HIP cuda_runtime too.
LAUNCHES = ("cuda_runtime", "cuda_driver", "xpu_runtime", "xpu_driver")
# Autograd's number of a node that has none.
NO_SEQUENCE = 2**63


@dataclass(slots=True)
class HostEvent:
    """An operator or an annotated range on a thread of the host.

    Args:
        sequence: autograd's number, shared by a forward operator and the backward node that it made.
        of_backward: whether it is such a backward node.
        dims: the shapes of its inputs, as recorded.
    """

    name: str
    is_operator: bool
    thread: object
    start_s: float
    end_s: float
    sequence: int | None = None
    of_backward: bool = False
    dims: list[Any] = field(default_factory=list)
    external: int | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """A call of the vendor's library on a thread of the host."""

    thread: object
    start_s: float
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """A kernel, a copy or a fill on a stream of a device."""

    name: str
    category: str
    stream: tuple[object, object]
    start_s: float
    end_s: float
    correlation: int | None
    external: int | None
    grid: tuple[int, ...]
    block: tuple[int, ...]


@dataclass(slots=True)
class Trace:
    """The events of a trace that tell where time goes."""

    host: list[HostEvent] = field(default_factory=list)
    device: list[DeviceEvent] = field(default_factory=list)
    launches: dict[int, Launch] = field(default_factory=dict)

    @property
    def calls(self) -> list[HostEvent]:
        """The profiled calls, in order."""
        return sorted((event for event in self.host if event.name == CALL), key=lambda event: event.start_s)


def load_trace(path: Path) -> Trace:
    """A trace from a file, compressed or not.

    Raises:
        BadFile: it cannot be read, or is no Chrome trace.
    """
    try:
        data = path.read_bytes()
        raw = gzip.decompress(data) if path.suffix == ".gz" else data
        # Names of kernels and files may hold anything.
        content = json.loads(raw.decode(errors="replace"), strict=False)
    except (OSError, EOFError, ValueError) as error:
        raise BadFile(f"trace {path} cannot be read: {error}") from None
    events = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list):
        raise BadFile(f"trace {path} has no list of traceEvents; expected a Chrome trace")
    return read_events(events)


def read_events(events: Iterable[Mapping[str, Any]]) -> Trace:
    """The parts of a trace that are looked at; all else in it, and all that is incomplete, is passed over."""
    trace = Trace()
    # The clock may count from long ago: seen from the first event, no digit of a nanosecond is lost.
    origin: float | None = None
    for event in events:
        if event.get("ph") != "X" or "ts" not in event:
            continue
        category = event.get("cat")
        if origin is None:
            origin = float(event["ts"])
        start_s = (float(event["ts"]) - origin) * 1e-6
        end_s = start_s + max(0.0, float(event.get("dur", 0.0))) * 1e-6
        args = event.get("args") or {}
        if category in (OPERATOR, ANNOTATION):
            trace.host.append(_host_event(event, args, start_s, end_s))
        elif category in DEVICE:
            trace.device.append(_device_event(event, args, start_s, end_s))
        elif category in LAUNCHES and _number(args.get("correlation")) is not None:
            trace.launches[args["correlation"]] = Launch(
                event.get("tid"), start_s, _extent(args.get("grid")), _extent(args.get("block"))
            )
    return trace


def _host_event(event: Mapping[str, Any], args: Mapping[str, Any], start_s: float, end_s: float) -> HostEvent:
    sequence = _number(args.get("Sequence number"))
    dims = args.get("Input Dims")
    return HostEvent(
        name=str(event.get("name", "")),
        is_operator=event["cat"] == OPERATOR,
        thread=event.get("tid"),
        start_s=start_s,
        end_s=end_s,
        sequence=sequence if sequence is not None and 0 <= sequence < NO_SEQUENCE else None,
        of_backward=bool(_number(args.get("Fwd thread id"))),
        dims=dims if isinstance(dims, list) else [],
        external=_number(args.get("External id")),
    )


def _device_event(event: Mapping[str, Any], args: Mapping[str, Any], start_s: float, end_s: float) -> DeviceEvent:
    return DeviceEvent(
        name=str(event.get("name", "")),
        category=str(event["cat"]),
        stream=(args.get("device", event.get("pid")), args.get("stream", event.get("tid"))),
        start_s=start_s,
        end_s=end_s,
        correlation=_number(args.get("correlation")),
        external=_number(args.get("External id")),
        grid=_extent(args.get("grid")),
        block=_extent(args.get("block")),
    )


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _extent(value: object) -> tuple[int, ...]:
    return tuple(value) if isinstance(value, list) and all(isinstance(part, int) for part in value) else ()
