"""The observations of a test besides its times: memory that ran out, and profiles.

Out of memory is a result where a test is marked `oom="record"`: the run goes on.
"""

import contextlib
import gc
import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..baselines.exhausted import lost_times
from ..core.errors import RooflineError, causes_of
from ..core.features import require
from ..core.keys import Key
from ..core.memory import (
    FailedAllocation,
    LostResults,
    OutOfMemory,
    Phase,
    out_of_memory,
    parse_sizes,
)
from ..core.profiles import Profile
from ..core.records import Measurement
from ..core.samples import PROFILED
from ..core.units import encodable, printable, slug
from ..core.work import Work
from ..core.writing import make_ignored_folder
from ..engine.host import attached_profiler, limit_memory
from .planned import uses_ranks

if TYPE_CHECKING:
    from ..engine.devices import AllocatedBytes, Device
    from .session import RooflineSession

# The attribute of an error that keeps the state of the memory; the error outlives the frames that used the memory.
_STATE_ATTRIBUTE = "_roofline_seen"
MOST_TEXT = 300


@dataclass(frozen=True, slots=True)
class MemoryPhase:
    """The place of an error: a measurement, or a call whose memory was followed.

    Args:
        device: that was used.
        name: that the test gave it.
        phase: what it was doing.
        measured: the measurement with its work, for which a baseline may have a time.
    """

    device: "Device"
    name: str
    phase: Phase
    measured: tuple[Key, Work] | None = None


@dataclass(frozen=True, slots=True)
class _MemoryState:
    """The memory state of a device, and the measurement where it was read."""

    free_bytes: int | None
    allocated: "AllocatedBytes | None"
    place: MemoryPhase | None = None


# The state where an exception with slots could not keep it.
_UNKNOWN_STATE = _MemoryState(None, None)


@contextlib.contextmanager
def watch_memory(session: "RooflineSession", item: pytest.Item) -> Iterator[None]:
    """Limit memory, and keep its state if it runs out.

    This context is around the body of a test.
    """
    with _limit(session, item):
        try:
            yield
        except Exception as error:
            _keep_memory_state(error, session.under_test.device)
            raise


def _limit(
    session: "RooflineSession", item: pytest.Item
) -> contextlib.AbstractContextManager[object]:
    """Return a limit of the memory of a CPU test.

    It is for a test with `oom="record"`. Without a limit the kernel would kill the whole run. Other tests have no
    limit: an accelerator refuses an allocation by itself, and ranks are processes of their own.
    """
    has_mark = session.planned[item.nodeid].marks.oom is not None
    on_cpu = session.under_test.environment.device.type == "cpu"
    if not (has_mark and on_cpu) or uses_ranks(item):
        return contextlib.nullcontext()
    return limit_memory()


def notice(error: BaseException, place: MemoryPhase) -> None:
    """Keep the state of a device's memory with an out-of-memory error."""
    _keep_memory_state(error, place.device, place)


def _keep_memory_state(
    error: BaseException, device: "Device", place: MemoryPhase | None = None
) -> None:
    """Keep a device's memory state with an error.

    Nothing is kept unless memory ran out. The first state that was kept stays.
    """
    cause = out_of_memory(error)
    if cause is None or hasattr(cause, _STATE_ATTRIBUTE):
        return
    # An exception with slots takes no further attribute.
    with contextlib.suppress(AttributeError):
        setattr(
            cause,
            _STATE_ATTRIBUTE,
            _MemoryState(_ask(device.free_bytes), _ask(device.allocated), place),
        )


def _ask(read_memory: Callable[[], Any]) -> Any:
    """Return the answer of a device; None if it raises.

    The error of a broken device is reported elsewhere.
    """
    with contextlib.suppress(Exception):
        return read_memory()
    return None


def ran_out(session: "RooflineSession", item: pytest.Item, error: BaseException) -> bool:
    """Record memory that ran out.

    Return whether that is a result, as of a test with `oom="record"`. A result releases everything that the test still
    has.
    """
    cause = out_of_memory(error)
    if cause is None:
        return False
    memory_state: _MemoryState = getattr(cause, _STATE_ATTRIBUTE, _UNKNOWN_STATE)
    record = _record(session, item, cause, memory_state)
    # A round does not judge, so only its parent looks for what the baseline has.
    if record.recorded and session.round is None:
        record = _with_lost_results(session, record, memory_state.place)
    session.record(record)
    if not record.recorded:
        return False
    forget_locals(error)
    gc.collect()
    with contextlib.suppress(Exception):
        session.under_test.device.release()
    return True


def _record(
    session: "RooflineSession", item: pytest.Item, cause: BaseException, memory_state: _MemoryState
) -> OutOfMemory:
    """Return the record of memory that ran out.

    The error's message goes before the state for the free bytes, since it is of the very moment.
    """
    planned = session.planned[item.nodeid]
    place, allocated = memory_state.place, memory_state.allocated
    message = encodable(str(cause)) or type(cause).__name__
    first_line = message.splitlines()[0]
    call_name = place.name if place is not None else ""
    asked_bytes, free_bytes = parse_sizes(message)
    return OutOfMemory(
        test_id=encodable(item.nodeid),
        benchmark=planned.benchmark,
        parameters=planned.parameters,  # type: ignore[arg-type]
        label=planned.label + (f".{call_name}" if call_name else ""),
        device=place.device.name if place is not None else session.under_test.device.name,
        allocation=FailedAllocation(
            message=first_line[:MOST_TEXT],
            asked_bytes=asked_bytes,
            free_bytes=memory_state.free_bytes if free_bytes is None else free_bytes,
            allocated_bytes=allocated.now_bytes if allocated is not None else None,
            peak_bytes=allocated.most_bytes if allocated is not None else None,
        ),
        recorded=planned.marks.oom == "record",
        name=call_name if place is not None and place.measured is not None else None,
        phase=place.phase if place is not None else None,
    )


def _with_lost_results(
    session: "RooflineSession", record: OutOfMemory, place: MemoryPhase | None
) -> OutOfMemory:
    """Return a record with what the test now lacks.

    These are the baseline's results. Times that it measured before memory ran out are not among them.
    """
    under_test = session.under_test
    # The call that ran out of memory may have a partial measurement, which does not count.
    times = lost_times(
        under_test.comparator,
        record.benchmark,
        record.parameters,
        under_test.hardware,
        measured=session.timed.measured_names(record.test_id)
        - ({record.name} if record.name is not None else set()),
        ran_out=place.measured if place is not None else None,
    )
    labels = (
        label
        for kind in session.kinds
        for label in kind.missed(record.test_id, record.benchmark, record.parameters)
    )
    return replace(record, lost=LostResults(times, tuple(labels)))


def forget_locals(error: BaseException | None) -> None:
    """Clear the local variables of every frame behind an exception.

    These are the frames of the exception, of those of its group, and of those that led to it.
    """
    for exception in causes_of(error):
        traceback.clear_frames(exception.__traceback__)
        for frame, _ in traceback.walk_tb(exception.__traceback__):
            # Up to Python 3.12 a frame caches the dictionary of its variables. Reading it again empties the cache.
            _ = frame.f_locals


# The most characters of an error's text in a sentence.
LONGEST_WORDS = 300
# The most characters of a label in a file name, which may have 255 bytes with its number and ending.
MOST_NAME = 200
TRACE = ".trace.json.gz"
NO_PROFILES = "--roofline-profile does not profile ranks; only calls of `measure` in this process are profiled"
NO_EXTERNAL_PROFILE = (
    "no profile: an external profiler needs CUDA or ROCm to mark the calls, and this device is {device}. "
    "Pass --roofline-profile=torch"
)
# Sentences on how the calls under a profiler differ from the measured ones.
GRAPH = "the replay of the graph: the measurement replayed a graph, but the profiled pass calls the function directly"
FLUSHED = "cold caches: the measurement flushed the caches before every call, but the profiled pass does not"
REPLACED = (
    "the function of the test: a drill or the hook pytest_roofline_function replaced it, so the profile shows the "
    "replacement"
)


def profiled_labels(session: "RooflineSession") -> set[str]:
    """Return the label of profiled measurements, if any.

    Those after a profile have it too. Kineto leaves CUPTI attached after a profile, which slows launches down by 10 to
    20 % (pytorch#146604). To detach it (`TEARDOWN_CUPTI`) breaks the graphs that measurements replay. So all later
    measurements have the label, and are no results.
    """
    return {PROFILED} if session.run_notes.watched or attached_profiler(os.environ) else set()


def take_profile(
    session: "RooflineSession",
    device: "Device",
    measurement: Measurement,
    fn: Callable[..., object],
    sets: Sequence[tuple[object, ...]],
    model: Any,
) -> None:
    """Profile a measured function under `--roofline-profile`; failures are warnings.

    Args:
        session: of the run.
        device: that was measured.
        measurement: of the function.
        fn: the function.
        sets: the sets of arguments that it was timed with.
        model: whose parts become ranges; None without.
    """
    profiler = session.options.profile
    # A further round repeats the test, so it would repeat the profile.
    if profiler is None or session.round is not None:
        return
    require("observe")
    from ..observe.capture import Calls, is_bracketed, take, tool_for, watches

    tool, warning = tool_for(profiler, os.environ, device.name)
    if tool == "external" and not is_bracketed(device.name):
        session.run_notes.warn(NO_EXTERNAL_PROFILE.format(device=device.name))
        return
    if warning:
        session.run_notes.warn(warning)
    # torch's profiler stays attached to a device that it watches, so later measurements are labelled.
    session.run_notes.watched |= tool == "torch" and watches(device)
    empty = Profile(
        test_id=measurement.test_id,
        label=measurement.label,
        process=measurement.process,
        device=device.name,
        calls=1,
        name=measurement.key.name,
        measured_s=measurement.median_s,
    )
    try:
        # Only torch's profiler writes a trace. Without one, `trouble` may say why.
        trace, trouble = _trace_path(session, measurement.label) if tool == "torch" else (None, [])
        profile = take(device, tool, Calls(fn, sets, model, measurement.median_s), empty, trace)
        session.note(
            replace(profile, missing=(*not_as_measured(measurement), *profile.missing, *trouble))
        )
    except Exception as error:
        _warn_without_profile(session, measurement, error)


def _warn_without_profile(
    session: "RooflineSession", measurement: Measurement, error: Exception
) -> None:
    """Warn that a profile failed.

    A foreign error is named by its type.
    """
    reason = str(error) if isinstance(error, RooflineError) else f"{type(error).__name__}: {error}"
    session.run_notes.warn(
        printable(f"no profile of {measurement.label}: {encodable(reason)[:LONGEST_WORDS]}")
    )


def not_as_measured(measurement: Measurement) -> list[str]:
    """Return how the profiled calls differ from the measured ones."""
    samples = measurement.samples
    differences = {
        GRAPH: samples.mode == "graph",
        FLUSHED: measurement.key.cache == "flush",
        REPLACED: "replaced" in samples.labels,
    }
    return [sentence for sentence, holds in differences.items() if holds]


def _trace_path(session: "RooflineSession", label: str) -> tuple[Path | None, list[str]]:
    """Return a new file for a trace.

    It is None, with a sentence, after an error. It lies beside the run files, in a folder of this run that git ignores.
    """
    profiles = session.options.folder / "profiles"
    folder = profiles / session.run_name
    name = slug(label)[:MOST_NAME]
    try:
        make_ignored_folder(profiles)
        folder.mkdir(exist_ok=True)
        # Several labels may give one file name, which is shorter and has no special characters; they are numbered.
        trace_count = sum(
            1 for path in folder.glob(f"*{TRACE}") if path.name.split("~")[0].split(".")[0] == name
        )
    except OSError as error:
        return None, [f"a trace, since its file failed: {encodable(str(error))[:LONGEST_WORDS]}"]
    return folder / f"{name}{f'~{trace_count + 1}' if trace_count else ''}{TRACE}", []


def warn_of_ranks(session: "RooflineSession") -> None:
    """Warn that `--roofline-profile` profiles no ranks."""
    if session.options.profile is not None and session.round is None:
        session.run_notes.warn(NO_PROFILES)
