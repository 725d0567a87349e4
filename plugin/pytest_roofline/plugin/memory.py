"""Out of memory as a result: what a test marked `oom="record"` does where its memory runs out, and the run goes on."""

import contextlib
import gc
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from ..baselines.comparators import BaselineComparator
from ..baselines.exhausted import also_out_of_memory, lost_times
from ..core.keys import Key
from ..core.memory import OutOfMemory, Phase, asked_bytes, out_of_memory, told_free_bytes
from ..core.work import Work
from .launcher import uses_ranks
from .planned import encodable
from .session import RooflineSession

if TYPE_CHECKING:
    from ..engine.devices import Allocated, Device

# Where an error keeps what was seen when it was raised: it outlives the frames that held the memory.
_SEEN = "_roofline_seen"
MOST_TEXT = 300


@dataclass(frozen=True, slots=True)
class MemoryPhase:
    """Where something went wrong: in a measurement, or in a call whose memory was followed, which is none.

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
class _Seen:
    """How full the device was, and in which measurement."""

    free_bytes: int | None
    allocated: "Allocated"
    place: MemoryPhase | None = None


@contextlib.contextmanager
def watched(session: RooflineSession, item: pytest.Item) -> Iterator[None]:
    """Around a test's body: a limit on memory where one is needed, and a note of how full it was when it ran out."""
    with _limit(session, item):
        try:
            yield
        except Exception as error:
            cause = out_of_memory(error)
            if cause is not None:
                _keep(cause, session.under_test.device)
            raise


def _limit(session: RooflineSession, item: pytest.Item) -> contextlib.AbstractContextManager[object]:
    """A limit on this process's memory, where a test that records running out of it measures a CPU.

    Without, the kernel would end the whole run. A device refuses by itself, and ranks are processes of their own.
    """
    planned = session.planned.get(item.nodeid)
    on_cpu = session.under_test.environment.device.type == "cpu"
    if planned is None or planned.marks.oom is None or not on_cpu or uses_ranks(item):
        return contextlib.nullcontext()
    from ..engine.host import limited

    return limited()


def notice(error: BaseException, place: MemoryPhase) -> None:
    """Keep with an error how full the device was in a measurement, if it tells of memory running out."""
    cause = out_of_memory(error)
    if cause is not None:
        _keep(cause, place.device, place)


def _keep(cause: BaseException, device: "Device", place: MemoryPhase | None = None) -> None:
    if hasattr(cause, _SEEN):
        return
    free_bytes, allocated = None, None
    # A device that cannot even say how full it is has other troubles, which others report.
    with contextlib.suppress(Exception):
        free_bytes = device.free_bytes()
    with contextlib.suppress(Exception):
        allocated = device.allocated()
    if allocated is None:
        from ..engine.devices import Allocated

        allocated = Allocated()
    with contextlib.suppress(AttributeError):
        setattr(cause, _SEEN, _Seen(free_bytes, allocated, place))


def ran_out(session: RooflineSession, item: pytest.Item, error: BaseException) -> bool:
    """Write down that a test's body ended because its memory ran out; whether that is a result, and no failure.

    Everything that the test still held is let go of, if so.
    """
    cause = out_of_memory(error)
    if cause is None or item.nodeid not in session.planned:
        return False
    seen: _Seen | None = getattr(cause, _SEEN, None)
    record = _record(session, item, cause, seen)
    if record.recorded and session.round is None:
        record = _held_against(session, record, seen.place if seen is not None else None)
    session.ran_out(record)
    if not record.recorded:
        return False
    forget_locals(error)
    gc.collect()
    with contextlib.suppress(Exception):
        session.under_test.device.release()
    return True


def _record(session: RooflineSession, item: pytest.Item, cause: BaseException, seen: _Seen | None) -> OutOfMemory:
    planned, place = session.planned[item.nodeid], seen.place if seen is not None else None
    message = encodable(str(cause)) or type(cause).__name__
    called = place.name if place is not None else ""
    free_bytes = told_free_bytes(message)
    if free_bytes is None and seen is not None:
        free_bytes = seen.free_bytes
    return OutOfMemory(
        test_id=encodable(item.nodeid),
        benchmark=planned.benchmark,
        parameters=planned.parameters,  # type: ignore[arg-type]
        label=planned.label + (f".{called}" if called else ""),
        process=session.process,
        device=place.device.name if place is not None else session.under_test.device.name,
        message=message.splitlines()[0][:MOST_TEXT],
        recorded=planned.marks.oom == "record",
        name=called if place is not None and place.measured is not None else None,
        phase=place.phase if place is not None else None,
        asked_bytes=asked_bytes(message),
        free_bytes=free_bytes,
        allocated_bytes=seen.allocated.now_bytes if seen is not None else None,
        peak_bytes=seen.allocated.most_bytes if seen is not None else None,
    )


def _held_against(session: RooflineSession, record: OutOfMemory, place: MemoryPhase | None) -> OutOfMemory:
    """With what the baseline and others know of the same test."""
    under_test = session.under_test
    lost = lost_times(
        under_test.comparator,
        record.benchmark,
        record.parameters,
        under_test.hardware,
        measured=session.timed.measured_names(record.test_id) - ({record.name} if record.name is not None else set()),
        ran_out=place.measured if place is not None else None,
    )
    entries = {entry.identity: entry for entry in under_test.entries}
    if isinstance(under_test.comparator, BaselineComparator):
        entries |= {entry.identity: entry for entry in under_test.comparator.entries}
    published = also_out_of_memory(entries.values(), record.benchmark, record.parameters, under_test.hardware)
    kernels = session.compiled.missed(record.test_id, record.benchmark, record.parameters)
    return replace(
        record,
        baseline_s=next(iter(lost.values()), None),
        lost=lost,
        lost_kernels=tuple(key.label for key in kernels),
        published=tuple(f"{entry.source} ({entry.convention})" for entry in published),
    )


def forget_locals(error: BaseException | None) -> None:
    """Empty the local variables of every frame that an exception, one of its group or one that led to it passed."""
    seen: set[int] = set()
    left = [error]
    while left:
        error = left.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        for frame, _ in traceback.walk_tb(error.__traceback__):
            # Up to Python 3.12 a frame keeps the dictionary once made of its variables; asking again renews it.
            _ = frame.f_locals
        left.append(error.__cause__ or error.__context__)
        left += error.exceptions if isinstance(error, BaseExceptionGroup) else ()
