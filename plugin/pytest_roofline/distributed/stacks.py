"""Python stacks of stuck ranks, as `faulthandler` writes them: where the rank is, and in which collective it waits."""

import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<name>.+)$')
_OURS = str(Path(__file__).resolve().parent)
_STDLIB = sysconfig.get_paths()["stdlib"] + "/"
_PACKAGES = ("/site-packages/", "/dist-packages/")
# Where torch's collectives are defined, and the wrapper that each of them is called through.
_COLLECTIVES = "distributed_c10d.py"
_WRAPPERS = ("wrapper", "_wrapper", "inner")


class Frame(NamedTuple):
    """One line of a stack."""

    file: str
    line: str
    name: str


@dataclass(frozen=True, slots=True)
class Position:
    """Where a rank is.

    Args:
        place: the innermost line of the user's own code: `f.py:12 in step`.
        collective: the operation of torch.distributed that it waits in; empty where it is in none.
        inside: the innermost function, where that is not the user's own.
    """

    place: str = ""
    collective: str = ""
    inside: str = ""

    def __str__(self) -> str:
        if not self.place:
            inside = self.collective or self.inside
            return f"in {inside}" if inside else "at a place that no stack tells"
        if self.collective:
            return f"in {self.collective} at {self.place}"
        return f"at {self.place}" + (f", in {self.inside}" if self.inside else "")


def position(text: str) -> Position:
    """Where the main thread of a rank is, by the text of all its stacks."""
    frames = main_frames(text)
    own = next((frame for frame in frames if _is_users(frame)), None)
    outside = frames[: frames.index(own)] if own is not None else frames
    called = [frame for frame in outside if frame.file.endswith(_COLLECTIVES) and frame.name not in _WRAPPERS]
    inner = next((frame for frame in outside if frame.name not in _WRAPPERS), None)
    return Position(
        place=f"{Path(own.file).name}:{own.line} in {own.name}" if own is not None else "",
        # The outermost is what the user called; those inside it are how torch does it.
        collective=called[-1].name if called else "",
        inside=inner.name if inner is not None and not called else "",
    )


def main_frames(text: str) -> list[Frame]:
    """The frames of the thread that runs rank functions, innermost first; of the first thread where none does."""
    threads: list[list[Frame]] = []
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            threads.append([])
        elif (match := _FRAME.match(line)) is not None and threads:
            threads[-1].append(Frame(match["file"], match["line"], match["name"]))
    serving = [frames for frames in threads if _in_ours(frames, "serve")]
    # A stack of more than a hundred frames is cut off before it comes to that.
    others = [frames for frames in threads if not _in_ours(frames, "_listen")]
    return (serving or others[::-1] or [[]])[0]


def main_text(text: str) -> str:
    """The stack of that thread as `faulthandler` writes it, without what leads to the rank function."""
    frames = main_frames(text)
    kept = [frame for frame in frames if not frame.file.startswith(_OURS) and "runpy" not in frame.file] or frames
    return "\n".join(f'  File "{frame.file}", line {frame.line} in {frame.name}' for frame in kept)


def _in_ours(frames: list[Frame], name: str) -> bool:
    return any(frame.name == name and frame.file.startswith(_OURS) for frame in frames)


def _is_users(frame: Frame) -> bool:
    """Whether a line is of a rank function or what it calls, perhaps in a package: not Python's, torch's or ours."""
    if any(place in frame.file for place in _PACKAGES):
        return not any(f"{place}torch/" in frame.file for place in _PACKAGES)
    return not frame.file.startswith((_OURS, "<", _STDLIB))
