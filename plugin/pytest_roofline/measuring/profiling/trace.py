"""Reading a Chrome trace as torch.profiler writes it: what the host did, what the device did, and who launched what.

Times are in seconds on the trace's own clock. The format has no specification; what is read here is what Kineto writes
(`libkineto/src/output_json.cpp`): complete events (`ph` X) with `cat`, `ts` and `dur` in microseconds, and `args`.
"""

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...core.errors import BadFile
from .events import DeviceEvent, HostEvent, Launch, Trace

OPERATOR, ANNOTATION = "cpu_op", "user_annotation"
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
# Calls of the vendor's library that put work on the device; Kineto calls those of HIP cuda_runtime too.
LAUNCHES = ("cuda_runtime", "cuda_driver", "xpu_runtime", "xpu_driver")
# Arrows from a forward operator to its backward node.
LINK = "fwdbwd"
# Autograd's number of a node that has none.
NO_SEQUENCE = 2**63


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
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise BadFile(f"trace {path} cannot be read: {error}") from None
    events = content.get("traceEvents") if isinstance(content, dict) else content
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise BadFile(f"trace {path} has no list of traceEvents; expected a Chrome trace")
    try:
        return read_events(events)
    except (TypeError, ValueError, OverflowError, AttributeError) as error:
        raise BadFile(f"trace {path} has an event that is none: {error}; expected a Chrome trace") from None


def read_events(events: Iterable[Mapping[str, Any]]) -> Trace:
    """The parts of a trace that are looked at; all else in it, and all that is incomplete, is passed over."""
    trace = Trace()
    # The clock may count from long ago: seen from the first event, no digit of a nanosecond is lost.
    origin: float | None = None
    for event in events:
        category = event.get("cat")
        if (event.get("ph") != "X" and category != LINK) or "ts" not in event:
            continue
        if origin is None:
            origin = float(event["ts"])
        start_s = (float(event["ts"]) - origin) * 1e-6
        if category == LINK:
            _add_link(trace, event, start_s)
            continue
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


def _add_link(trace: Trace, event: Mapping[str, Any], start_s: float) -> None:
    if event.get("ph") == "s":
        trace.forward_links[event.get("id")] = event.get("tid")
    else:
        trace.backward_links[event.get("id")] = event.get("tid"), start_s


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
        forward_thread=_number(args.get("Fwd thread id")) or 0,
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
