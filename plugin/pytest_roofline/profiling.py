"""Where the time of a measurement goes: the untimed pass behind it under `--roofline-profile`, and its record."""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .core.errors import BadFile, RooflineError
from .core.profiles import Profile, Timers, Tool
from .core.records import Measurement
from .core.samples import PROFILED
from .core.units import printable
from .planned import encodable
from .profile_files import LONGEST_WORDS, TRACE, kept
from .session import RooflineSession

if TYPE_CHECKING:
    from .measuring.devices import Device
    from .measuring.profiling.clocks import Subject

RANKS = "--roofline-profile: ranks are not profiled, only what `measure` times in this process is"
NOT_TOLD = (
    "no profile: an external profiler is told what to look at through CUDA or ROCm, and this is {device}; "
    "use --roofline-profile=torch"
)
# What of the measurement this pass does not repeat.
GRAPH = "a graph's replay: the measurement replayed one, and this pass calls the function itself, launch by launch"
FLUSHED = "cold caches: the measurement flushed them before every call, and this pass does not"
REPLACED = "the function of the test: a drill or pytest_roofline_function had replaced it, and this is what ran instead"


def profiled_labels(session: RooflineSession) -> set[str]:
    """The label of what is measured from now on, where a profiler is attached or has watched the device here.

    Kineto leaves CUPTI attached behind a profile, which slows launches down by 10 to 20 % (pytorch#146604). Taking it
    away (`TEARDOWN_CUPTI`) breaks the graphs that measurements replay, so what it watches over is no result instead.
    """
    from .measuring.profiling.external import attached

    return {PROFILED} if session.noted.watched or attached(os.environ) else set()


def take_profile(
    session: RooflineSession,
    device: "Device",
    measurement: Measurement,
    fn: Callable[..., object],
    sets: Sequence[tuple[object, ...]],
    model: Any,
) -> None:
    """Profile what was measured, where that was asked for; what goes wrong is a warning, and the measurement stands.

    Args:
        session: the run, which the profile is written down in.
        device: that was measured.
        measurement: which is written down already.
        fn: that was timed, to be called with one of `sets` each time.
        sets: arguments.
        model: whose parts become ranges; None for none.
    """
    wanted = session.options.profile
    # A further round only repeats a test.
    if wanted is None or session.round is not None:
        return
    from .measuring.profiling.clocks import Subject
    from .measuring.profiling.external import is_bracketed

    tool, word = tool_for(wanted, os.environ, device.name)
    if tool == "external" and not is_bracketed(device.name):
        session.noted.warn(NOT_TOLD.format(device=device.name))
        return
    if word:
        session.noted.warn(word)
    subject = Subject(fn, sets, model, measurement.median_s, stamped=measurement.samples.mode in ("events", "graph"))
    try:
        taken = (_external if tool == "external" else _torch)(session, device, measurement, subject)
        session.note(replace(taken, missing=(*not_as_measured(measurement), *taken.missing)))
    except Exception as error:
        words = (
            str(error) if isinstance(error, RooflineError) else f"{type(error).__name__}: {error}".removesuffix(": ")
        )
        session.noted.warn(printable(f"no profile of {measurement.label}: {encodable(words)[:LONGEST_WORDS]}"))


def not_as_measured(measurement: Measurement) -> list[str]:
    """What sets the profiled calls apart from the measured ones, a sentence each."""
    samples = measurement.samples
    known = {
        GRAPH: samples.mode == "graph",
        FLUSHED: measurement.key.cache == "flush",
        REPLACED: "replaced" in samples.labels,
    }
    return [sentence for sentence, holds in known.items() if holds]


def tool_for(wanted: str, environment: Mapping[str, str], device: str) -> tuple[Tool, str]:
    """Which profiler to use, and what to say where it is not the one asked for.

    Two tools cannot both listen to one driver (CUPTI's and ROCprofiler's rule); on the host nobody is in the way.
    """
    from .measuring.profiling.external import attached, is_bracketed

    if wanted == "external":
        return "external", ""
    found = attached(environment) if is_bracketed(device) else ""
    if not found:
        return "torch", ""
    return "external", (
        f"this process runs under {found}, which excludes torch.profiler: its ranges are set for that one "
        "(--roofline-profile=external)"
    )


def warn_of_ranks(session: RooflineSession) -> None:
    """Say that what ranks do is not profiled, where a profile was asked for."""
    if session.options.profile is not None and session.round is None:
        session.noted.warn(RANKS)


def _torch(session: RooflineSession, device: "Device", measurement: Measurement, subject: "Subject") -> Profile:
    from .measuring.profiling.analysis import analyse_file
    from .measuring.profiling.capture import capture_torch, watches

    session.noted.watched |= watches(device)
    with tempfile.TemporaryDirectory(prefix="roofline-profile-") as folder:
        path = Path(folder) / f"profile{TRACE}"
        captured = capture_torch(device, subject, path)
        found = analyse_file(path, has_model=subject.model is not None)
        if not found.kernels:
            raise BadFile("the trace holds no activity; expected kernels or operators")
        profile = replace(
            _empty(device, measurement, subject, captured.timers),
            on_device=found.on_device,
            calls=found.calls,
            timers=replace(captured.timers, span_s=found.span_s / found.calls, busy_s=found.busy_s / found.calls),
            span_s=found.span_s,
            busy_s=found.busy_s,
            overlap_s=found.overlap_s,
            streams=found.streams,
            classes=found.classes,
            kernels=found.kernels,
            distinct=found.distinct,
            parts=found.parts,
            attention=found.attention,
            missing=(*captured.missing, *found.missing),
        )
        return kept(session, profile, path)


def _external(_: RooflineSession, device: "Device", measurement: Measurement, subject: "Subject") -> Profile:
    from .measuring.profiling.capture import capture_external

    captured = capture_external(device, subject)
    empty = _empty(device, measurement, subject, captured.timers)
    return replace(empty, tool="external", missing=captured.missing)


def _empty(device: "Device", measurement: Measurement, subject: "Subject", timers: Timers) -> Profile:
    return Profile(
        test_id=measurement.test_id,
        label=measurement.label,
        process=measurement.process,
        device=device.name,
        calls=subject.calls,
        name=measurement.key.name,
        timers=timers,
    )
