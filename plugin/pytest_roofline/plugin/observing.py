"""What is looked at after a measurement, where that was asked for: memory snapshots, and where the time goes."""

import contextlib
import gc
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import RooflineError
from ..core.memory import out_of_memory
from ..core.profiles import Profile
from ..core.records import Measurement
from ..core.samples import PROFILED
from ..core.units import printable, slug
from .memory import forget_locals
from .planned import encodable
from .session import RooflineSession

if TYPE_CHECKING:
    from ..engine.devices import Device

# So much of an error stands in a sentence.
LONGEST_WORDS = 300
# A file name may have 255 bytes, and a number and an ending come beside this.
MOST_NAME = 200
TRACE = ".trace.json.gz"
NO_PROFILES = "--roofline-profile: ranks are not profiled, only what `measure` times in this process is"
NO_SNAPSHOTS = (
    "--roofline-memory-snapshot: of ranks there are no snapshots, only of what `measure` times in this process"
)
NOT_TOLD = (
    "no profile: an external profiler is told what to look at through CUDA or ROCm, and this is {device}; "
    "use --roofline-profile=torch"
)
# What of the measurement this pass does not repeat.
GRAPH = "a graph's replay: the measurement replayed one, and this pass calls the function itself, launch by launch"
FLUSHED = "cold caches: the measurement flushed them before every call, and this pass does not"
REPLACED = "the function of the test: a drill or pytest_roofline_function had replaced it, and this is what ran instead"


def take_snapshot(session: RooflineSession, device: "Device", label: str, call: Callable[[], object]) -> None:
    """Write the memory snapshot of a call, if that was asked for; a failure is told at the end and changes nothing."""
    folder = _snapshots(session)
    if folder is None:
        return
    from ..observe.memory_use import snapshot, why_no_snapshot

    why = why_no_snapshot(device)
    if why:
        session.noted.warn(f"no memory snapshot: {why}")
        return
    try:
        path = snapshot(device, call, folder, slug(label)[:MOST_NAME])
    except Exception as error:
        told = encodable(f"{type(error).__name__}: {error}".splitlines()[0])[:LONGEST_WORDS]
        session.noted.warn(f"no memory snapshot of {label}: {told}")
    else:
        session.noted.snapshots.append((label, path))


def take_snapshot_of_failure(
    session: RooflineSession, device: "Device", label: str, error: BaseException, call: Callable[[], object]
) -> None:
    """The same of a measurement that ran out of memory, which the call is to do once more under the history.

    Recorded from the start, the history of every allocation would have slowed what was measured.
    """
    if _snapshots(session) is None or out_of_memory(error) is None:
        return
    # What the failed call holds would make the next one end before it comes to where this one did.
    forget_locals(error)
    gc.collect()
    with contextlib.suppress(Exception):
        device.release()
    take_snapshot(session, device, label, call)


def _snapshots(session: RooflineSession) -> Path | None:
    """Where snapshots go; None where none are wanted. A further round only repeats a test."""
    return session.options.memory_snapshot if session.round is None else None


def profiled_labels(session: RooflineSession) -> set[str]:
    """The label of what is measured from now on, where a profiler is attached or has watched the device here.

    Kineto leaves CUPTI attached behind a profile, which slows launches down by 10 to 20 % (pytorch#146604). Taking it
    away (`TEARDOWN_CUPTI`) breaks the graphs that measurements replay, so what it watches over is no result instead.
    """
    from ..observe.external import attached

    return {PROFILED} if session.noted.watched or attached(os.environ) else set()


def take_profile(
    session: RooflineSession,
    device: "Device",
    measurement: Measurement,
    fn: Callable[..., object],
    sets: Sequence[tuple[object, ...]],
    model: Any,
) -> None:
    """Profile what was measured, where that was asked for; what goes wrong is a warning, and the measurement stands."""
    wanted = session.options.profile
    # A further round only repeats a test.
    if wanted is None or session.round is not None:
        return
    from ..observe.capture import Calls, take, watches
    from ..observe.external import is_bracketed, tool_for

    tool, word = tool_for(wanted, os.environ, device.name)
    if tool == "external" and not is_bracketed(device.name):
        session.noted.warn(NOT_TOLD.format(device=device.name))
        return
    if word:
        session.noted.warn(word)
    session.noted.watched |= tool == "torch" and watches(device)
    try:
        trace, trouble = _trace_path(session, measurement.label) if tool == "torch" else (None, [])
        found = take(device, tool, Calls(fn, sets, model, measurement.median_s), _empty(measurement, device), trace)
        session.note(replace(found, missing=(*not_as_measured(measurement), *found.missing, *trouble)))
    except Exception as error:
        words = str(error) if isinstance(error, RooflineError) else f"{type(error).__name__}: {error}"
        session.noted.warn(printable(f"no profile of {measurement.label}: {encodable(words)[:LONGEST_WORDS]}"))


def _empty(measurement: Measurement, device: "Device") -> Profile:
    return Profile(
        test_id=measurement.test_id,
        label=measurement.label,
        process=measurement.process,
        device=device.name,
        calls=1,
        name=measurement.key.name,
        measured_s=measurement.median_s,
    )


def not_as_measured(measurement: Measurement) -> list[str]:
    """What sets the profiled calls apart from the measured ones, a sentence each."""
    samples = measurement.samples
    known = {
        GRAPH: samples.mode == "graph",
        FLUSHED: measurement.key.cache == "flush",
        REPLACED: "replaced" in samples.labels,
    }
    return [sentence for sentence, holds in known.items() if holds]


def _trace_path(session: RooflineSession, label: str) -> tuple[Path | None, list[str]]:
    """A file for a trace beside the run files, in a folder of this run that git does not see; None with a sentence."""
    usual, written = session.options.folder, session.writer.path
    # Where the run had to go elsewhere, there.
    elsewhere = written is not None and written.parent != usual / "runs"
    profiles = (written.parent if elsewhere and written is not None else usual) / "profiles"
    folder = profiles / session.run_name
    name = slug(label)[:MOST_NAME]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (profiles / ".gitignore").write_text("*\n", encoding="utf-8")
        # Names of tests may differ in signs alone, or behind what a file name has room for.
        taken = sum(1 for path in folder.glob(f"*{TRACE}") if path.name.split("~")[0].split(".")[0] == name)
    except OSError as error:
        return None, [f"the trace: not written, since {encodable(str(error))[:LONGEST_WORDS]}"]
    return folder / f"{name}{f'~{taken + 1}' if taken else ''}{TRACE}", []


def warn_of_ranks(session: RooflineSession) -> None:
    """Say of what was asked for that it is not done of ranks."""
    if _snapshots(session) is not None:
        session.noted.warn(NO_SNAPSHOTS)
    if session.options.profile is not None and session.round is None:
        session.noted.warn(NO_PROFILES)
