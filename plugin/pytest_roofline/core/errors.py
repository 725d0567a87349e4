"""What pytest-roofline raises on purpose, the checks of amounts that raise it, and what is printed of an error."""

import contextlib
import itertools
import math
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

# What to type where a command or a test measures without torch.
NO_TORCH = (
    "torch is not installed, and measuring needs it; expected a vendor's build or PyPI's; "
    "for PyPI's type: pip install 'pytest-roofline[torch]'"
)
# What to type where a baseline is missing, and where what became slower is meant; `…` are the tests.
RECORD = "record it with `pytest … --roofline-record`"
ACCEPT = "accept it with `pytest … --roofline-record --roofline-accept-slower=REASON`"


class RooflineError(Exception):
    """Base of everything that pytest-roofline raises on purpose."""


class BadInput(RooflineError, ValueError):
    """An argument, option or name that cannot be used as given."""


class BadFile(RooflineError):
    """A run or baseline file that is missing, damaged, or of another schema."""


class OtherHardware(RooflineError):
    """A comparison across hardware keys, which would mean nothing."""


class WrongData(RooflineError, AssertionError):
    """The buffers that were timed do not hold what the measured function should have left in them."""


class CompileFailed(BadInput):
    """A kernel could not be compiled for a target, or what came out could not be read."""


class DoesNotFit(RooflineError, AssertionError):
    """A compiled kernel asks for more than its target has, so that no launch of it can succeed."""


class DeviceError(RooflineError):
    """The device is not there, or stopped answering."""


class NoRoom(RooflineError):
    """What a measurement needs does not fit into the memory that is free now."""


class CannotStore(RooflineError):
    """A file could not be written."""


class RanksFailed(RooflineError):
    """A rank raised, was lost or did not answer in time. The text names the guilty one first, with host and cause."""


class RanksSkipped(RooflineError):
    """A rank function found that its test cannot run here; the text says which rank, and why."""


# No time in seconds and no published figure lies outside of these; beyond them, ratios overflow.
SMALLEST, LARGEST = 1e-18, 1e18
# Characters of a value that was not expected: enough to know it again, and all of it stays on a line.
MOST_SHOWN = 120


def shown(value: object) -> str:
    """What was given in place of what was expected: a tensor or an array by its shape, anything else shortened."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"a {type(value).__name__} of shape {tuple(shape)}"
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"


def require_positive(values: tuple[float, ...], what: str) -> None:
    """Raise BadInput, naming the first culprit, unless every value is a finite number above zero."""
    for index, value in enumerate(values):
        if not (math.isfinite(value) and value > 0):
            raise BadInput(f"{what}[{index}] is {value!r}; expected a finite number above zero")
        if not SMALLEST <= value <= LARGEST:
            raise BadInput(
                f"{what}[{index}] is {value!r}; expected something between {SMALLEST:g} and {LARGEST:g}"
            )


# Nobody means a wider tolerance by accident; wider than `MOST_TOLERANCE` no test gates at all.
WIDE_TOLERANCE, MOST_TOLERANCE = 0.5, 2.0


def refuse_wide(tolerance: float | None, meant: bool, remedy: str) -> None:
    r"""Refuse a tolerance that lets nearly everything pass.

    Args:
        tolerance: a share; None is the default.
        meant: whether whoever set it said why, or that it is meant.
        remedy: how that is said, `give its \`reason\``.

    Raises:
        BadInput: above 200 %; or above 50 %, and nobody said that it is meant.
    """
    if tolerance is None or tolerance <= WIDE_TOLERANCE:
        return
    if tolerance > MOST_TOLERANCE:
        raise BadInput(
            f"tolerance is {tolerance * 100:.6g} %, which lets a test take {1 + tolerance:.6g} times as long; expected "
            f"at most {MOST_TOLERANCE:.0%}: a test that varies more gates nothing, so leave it out or make it steadier"
        )
    if not meant:
        raise BadInput(
            f"tolerance is {tolerance * 100:.6g} %, which lets a test take {1 + tolerance:.6g} times as long; expected "
            f"at most {WIDE_TOLERANCE:.0%}, or that it is meant: {remedy}"
        )


_OURS = str(Path(__file__).parents[1]) + os.sep


def led_to(error: BaseException | None) -> Iterator[BaseException]:
    """An exception, those of its group, and those that led to it, each once."""
    seen: set[int] = set()
    left = [error]
    while left:
        error = left.pop()
        if error is None or id(error) in seen:
            continue
        seen.add(id(error))
        yield error
        left.append(error.__cause__ or error.__context__)
        left += error.exceptions if isinstance(error, BaseExceptionGroup) else ()


@contextlib.contextmanager
def without_our_frames(error: BaseException | None) -> Iterator[None]:
    """Leave our frames out of tracebacks while they are printed, where a frame of the user's is left."""
    before = []
    for one in led_to(error):
        frames = list(_frames(one.__traceback__))
        before += [(one, frames)]
        others = [frame for frame in frames if not _is_ours(frame)]
        if any(_package(frame) not in ("_pytest", "pluggy") for frame in others):
            _link(one, others)
    try:
        yield
    finally:
        for one, frames in before:
            _link(one, frames)


def _frames(frame: TracebackType | None) -> Iterator[TracebackType]:
    while frame is not None:
        yield frame
        frame = frame.tb_next


def _link(error: BaseException, frames: list[TracebackType]) -> None:
    for frame, following in itertools.pairwise([*frames, None]):
        assert frame is not None
        frame.tb_next = following
    error.__traceback__ = next(iter(frames), None)


def _is_ours(frame: TracebackType) -> bool:
    # What dataclasses generate stands in no file, and a module that is run has another name.
    return _package(frame) == "pytest_roofline" or frame.tb_frame.f_code.co_filename.startswith(
        _OURS
    )


def _package(frame: TracebackType) -> str:
    return str(frame.tb_frame.f_globals.get("__name__")).partition(".")[0]
