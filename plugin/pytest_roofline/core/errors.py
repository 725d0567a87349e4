"""Errors that pytest-roofline raises on purpose, with checks and texts."""

import contextlib
import itertools
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

# What to type where a command or a test measures without torch.
NO_TORCH = (
    "torch is not installed, but measuring needs torch; install a vendor's build, "
    "or the build of PyPI: pip install 'pytest-roofline[torch]'"
)
# What to type if a baseline is missing, and if a slowdown is intended; `…` are the tests.
RECORD = "record a baseline with `pytest … --roofline-record`"
ACCEPT = "accept the change with `pytest … --roofline-record --roofline-accept-slower=REASON`"


class RooflineError(Exception):
    """Base of everything that pytest-roofline raises on purpose."""


class BadInput(RooflineError, ValueError):
    """An argument, option or name that cannot be used as given."""


class BadFile(RooflineError):
    """A file that is missing, damaged, or of another schema."""


class OtherHardware(RooflineError):
    """A comparison across hardware keys, which would mean nothing."""


class WrongData(RooflineError, AssertionError):
    """The timed buffers do not hold the function's expected result."""


class CompileFailed(BadInput):
    """A kernel did not compile, or its output could not be read."""


class DoesNotFit(RooflineError, AssertionError):
    """A compiled kernel uses more than its target has. No launch of it can succeed."""


class DeviceError(RooflineError):
    """The device is not there, or stopped answering."""


class NoRoom(RooflineError):
    """A measurement needs more memory than is free now."""


class CannotStore(RooflineError):
    """A file could not be written."""


class ProgramFailed(RooflineError):
    """A program gave no figures.

    `status` is that of its process, where it ended with another than 0.
    """

    def __init__(self, reason: str, status: int | None = None) -> None:
        super().__init__(reason)
        self.status = status


class RanksFailed(RooflineError):
    """A rank raised, was lost or did not answer in time.

    The text names the first bad rank first, with host and cause.
    """


class RanksSkipped(RooflineError):
    """A rank cannot run its test here. The text says which rank, and why."""


@dataclass(frozen=True, slots=True)
class Flaw:
    """A fault of a baseline or of hardware. A `hint` is no error; `entry` says what has the fault."""

    observed: str
    expected: str
    remedy: str
    hint: bool = False
    entry: str = ""


# No time in seconds and no published figure lies outside of these; beyond them, ratios overflow.
SMALLEST, LARGEST = 1e-18, 1e18
# The most characters of an unexpected value in a message: enough to recognize it, and few enough for one line.
MOST_CHARACTERS = 120


def short_repr(value: object) -> str:
    """Return a short text of an unexpected value. Of a tensor or an array it is the shape."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"a {type(value).__name__} of shape {tuple(shape)}"
    text = repr(value)
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 1]}…"


def require_positive(values: tuple[float, ...], name: str) -> None:
    """Raise BadInput unless every value is finite and above zero.

    The sentence names the first bad value.
    """
    for index, value in enumerate(values):
        if not (math.isfinite(value) and value > 0):
            raise BadInput(f"{name}[{index}] is {value!r}; expected a finite number above zero")
        if not SMALLEST <= value <= LARGEST:
            raise BadInput(
                f"{name}[{index}] is {value!r}; expected a number between {SMALLEST:g} and {LARGEST:g}"
            )


# Nobody means a wider tolerance by accident; wider than `MOST_TOLERANCE` no test gates at all.
WIDE_TOLERANCE, MOST_TOLERANCE = 0.5, 2.0


def refuse_wide(tolerance: float | None, is_deliberate: bool, remedy: str) -> None:
    r"""Raise BadInput for a tolerance that lets nearly everything pass.

    Args:
        tolerance: a share; None is the default.
        is_deliberate: true if the user gave a reason for it, or marked it as deliberate.
        remedy: the text that marks it, `give its \`reason\``.

    Raises:
        BadInput: above 200 %; or above 50 %, and not deliberate.
    """
    if tolerance is None or tolerance <= WIDE_TOLERANCE:
        return
    if tolerance > MOST_TOLERANCE:
        raise BadInput(
            f"tolerance is {tolerance * 100:.6g} %, which lets a test take {1 + tolerance:.6g} times as long; expected "
            f"at most {MOST_TOLERANCE:.0%}; a gate on a test that varies more is useless; leave the test out, or make "
            "the test steadier"
        )
    if not is_deliberate:
        raise BadInput(
            f"tolerance is {tolerance * 100:.6g} %, which lets a test take {1 + tolerance:.6g} times as long; expected "
            f"at most {WIDE_TOLERANCE:.0%}; to allow this tolerance, {remedy}"
        )


# The folder of this package.
_OURS = str(Path(__file__).parents[1]) + os.sep


def causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception, its causes, and the members of groups among them, each once."""
    visited: set[int] = set()
    pending = [error]
    while pending:
        error = pending.pop()
        if error is None or id(error) in visited:
            continue
        visited.add(id(error))
        yield error
        pending.append(error.__cause__ or error.__context__)
        pending += error.exceptions if isinstance(error, BaseExceptionGroup) else ()


@contextlib.contextmanager
def without_our_frames(error: BaseException | None) -> Iterator[None]:
    """Take the frames of this package out of tracebacks, and put them back at the end.

    A traceback stays whole if it has no frame of the user's own code.
    """
    original_frames = []
    for cause in causes_of(error):
        frames = list(_frames(cause.__traceback__))
        original_frames += [(cause, frames)]
        user_frames = [frame for frame in frames if not _is_ours(frame)]
        # Frames of pytest alone do not show the user where the error is.
        if any(_package(frame) not in ("_pytest", "pluggy") for frame in user_frames):
            _link(cause, user_frames)
    try:
        yield
    finally:
        for cause, frames in original_frames:
            _link(cause, frames)


def _frames(frame: TracebackType | None) -> Iterator[TracebackType]:
    """Yield the frames of a traceback, the outermost first."""
    while frame is not None:
        yield frame
        frame = frame.tb_next


def _link(error: BaseException, frames: list[TracebackType]) -> None:
    """Make these frames the traceback of an error.

    A traceback is a chain: each frame holds the next inner frame, and the error holds the outermost.
    """
    for frame, following in itertools.pairwise([*frames, None]):
        assert frame is not None
        frame.tb_next = following
    error.__traceback__ = next(iter(frames), None)


def _is_ours(frame: TracebackType) -> bool:
    """Return whether a frame runs code of this package, by its module or its file."""
    # The code that dataclasses generate has no file, and a module that is run as a program has another name.
    return _package(frame) == "pytest_roofline" or frame.tb_frame.f_code.co_filename.startswith(
        _OURS
    )


def _package(frame: TracebackType) -> str:
    """Return the name of the top package whose code a frame runs."""
    return str(frame.tb_frame.f_globals.get("__name__")).partition(".")[0]
