"""Where the time of a measurement goes: the untimed pass behind it under `--roofline-profile`, and its record."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .core.errors import BadFile
from .core.profiles import Profile, Timers, Tool
from .core.records import Measurement
from .core.units import printable, slug
from .judging.storage import write_atomically
from .planned import encodable
from .reporting.profiles import markdown
from .session import RooflineSession

if TYPE_CHECKING:
    from .measuring.devices import Device
    from .measuring.profiling.capture import Subject

RANKS = "--roofline-profile: ranks are not profiled, only what `measure` times in this process is"
# So much of an error stands in a warning.
LONGEST_WORDS = 300


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
    from .measuring.profiling.capture import Subject

    tool, word = tool_for(wanted, os.environ, device.name)
    if word:
        session.noted.warn(word)
    subject = Subject(fn, sets, model, measurement.median_s)
    try:
        if tool == "external":
            session.note(_external(device, measurement, subject))
        else:
            session.note(_torch(session, device, measurement, subject))
    except Exception as error:
        words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        session.noted.warn(printable(f"no profile of {measurement.label}: {encodable(words)[:LONGEST_WORDS]}"))


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
    from .measuring.profiling.capture import capture_torch

    path = _trace_path(session, measurement.label)
    captured = capture_torch(device, subject, path)
    found = analyse_file(path)
    if not found.kernels:
        raise BadFile(f"trace {path} holds no activity; expected kernels or operators")
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
        trace=str(path),
        missing=(*captured.missing, *found.missing),
    )
    write_atomically(_table_path(path), markdown(profile))
    return profile


def _external(device: "Device", measurement: Measurement, subject: "Subject") -> Profile:
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


def _trace_path(session: RooflineSession, label: str) -> Path:
    """Where a trace goes, in a folder of this run that is made and that git does not see."""
    profiles = session.options.folder / "profiles"
    folder = profiles / session.run_name
    folder.mkdir(parents=True, exist_ok=True)
    ignore = profiles / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")
    name = slug(label) or "profile"
    # Names of tests may differ in signs alone.
    taken = sum(1 for path in folder.glob("*.trace.json.gz") if path.name.split("~")[0].split(".")[0] == name)
    return folder / f"{name}{f'~{taken + 1}' if taken else ''}.trace.json.gz"


def _table_path(trace: Path) -> Path:
    return trace.with_name(trace.name.removesuffix(".trace.json.gz") + ".md")
