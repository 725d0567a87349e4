"""The report on a task that failed: the first bad rank, its host and the cause.

Causes are in the order of certainty: first a rank that was lost, or the process that forks all ranks; then ranks that
raised, the earliest first; then ranks that are stuck. Of these, ranks that wait in a collective are the victims of
ranks that do not.
"""

import re
import sysconfig
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from ..core.groups import group_by
from ..processes.system import FORKER

How = Literal["ok", "raised", "skipped", "lost", "stuck", "closing"]
_RANK = {"lost": 0, "raised": 1, "skipped": 2, "stuck": 3, "closing": 4}
# Words in the errors of Gloo, NCCL and MPI where another rank has failed.
_PEER_GONE = re.compile(
    r"by peer|remote (process|worker)|broken pipe|connection (closed|reset|refused)", re.IGNORECASE
)
# The beginning of a rank's error where other ranks are at the end of another task.
OUT_OF_STEP = "the ranks are out of step"
_SAME_ORDER = "every rank must call the same collectives, in the same order"
# Lines of a traceback or a stack, and ranks in a sentence, that are shown.
_MOST_LINES, _MOST_NAMED = 40, 3
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]*)", line (?P<line>\d+) in (?P<name>.+)$')
_OURS = str(Path(__file__).resolve().parent)
_STDLIB = sysconfig.get_paths()["stdlib"] + "/"
_PACKAGES = ("/site-packages/", "/dist-packages/")
# Where torch's collectives are defined, and the wrapper that each of them is called through.
_COLLECTIVES = "distributed_c10d.py"
_WRAPPERS = ("wrapper", "_wrapper", "inner")


@dataclass(frozen=True, slots=True)
class RankEnd:
    """The end of a task on one rank.

    Args:
        how: how the task ended. A rank that is `stuck` did not answer; one that is `closing` has returned from the
            function, and waits for the others.
        order: the position of its last message among those of all ranks.
        text: the error, the reason of a skip, or how the process ended.
        details: a traceback, or the stacks of a stuck rank.
        stopped: whether a signal has stopped its process.
        collectives: the number of operations that it had submitted; None where its back end does not count.
    """

    rank: int
    host: str
    pid: int
    how: How
    order: int = 0
    text: str = ""
    details: str = ""
    stopped: bool = False
    collectives: int | None = None

    @property
    def name(self) -> str:
        """Return `rank 1 (pid 4711 on node7)`."""
        return f"rank {self.rank} (pid {self.pid} on {self.host})"

    @property
    def position(self) -> "Position":
        """Return the place where the rank is stuck."""
        return position(self.details)

    @property
    def is_victim(self) -> bool:
        """Return whether the rank was lost with the process that forked it."""
        return self.how == "lost" and self.text.startswith(FORKER)

    @property
    def lost_its_peer(self) -> bool:
        """Return whether the rank raised, perhaps because another was gone."""
        return self.how == "raised" and _PEER_GONE.search(self.text) is not None


def report(ends: Sequence[RankEnd], timeout_s: float, tails: Mapping[int, str]) -> str:
    """Return the failure report for a person. The first line names the first bad rank; the other
    lines tell what is known of each rank.

    Args:
        ends: how the task ended on each rank.
        timeout_s: the seconds that ranks had to answer.
        tails: the last lines in the log of each lost or stuck rank.
    """
    counts = Counter(str(end.position) for end in ends if end.how == "stuck")
    # The likeliest culprit comes first.
    bad = sorted((end for end in ends if end.how != "ok"), key=lambda end: _suspicion(end, counts))
    lines = [_first_line(bad, timeout_s)]
    # Ranks that raised the same error are described together.
    for group in group_by(bad, key=_likeness).values():
        lines += _describe(group, bad, tails)
    return "\n".join(lines)


def _likeness(end: RankEnd) -> tuple[str, str, int | None]:
    """Return a key that is equal for ends to describe together."""
    return end.how, end.text, None if end.how in ("raised", "skipped") else end.rank


def _suspicion(end: RankEnd, counts: Mapping[str, int]) -> tuple[int, float, int]:
    """Return a sort key; that of the first bad rank is the least.

    The key is the certainty of the cause, a place among ranks with the same kind of end, and the
    number of the rank. `counts` has the number of stuck ranks at each position.
    """
    if end.how != "stuck":
        # A rank that lost its peer may be the victim of a rank that reported its error later, so it comes after all.
        after_all = 1e6 if end.lost_its_peer else 0
        place = end.order + after_all
    elif end.stopped:
        place = 0
    elif not end.position.collective:
        place = 1
    else:
        # Of ranks that wait in collectives, the one at the rarest position is suspect.
        place = 2 + counts[str(end.position)]
    return _RANK[end.how], place, end.rank


def _first_line(bad: Sequence[RankEnd], timeout_s: float) -> str:
    """Return the sentence on the first bad rank.

    If no single rank is to blame, since the calls do not match, it names all that differ.
    """
    first_bad = bad[0]
    # The process that forks all ranks has ended, and its text says so.
    if first_bad.is_victim:
        return first_bad.text
    if first_bad.how == "lost":
        return f"{first_bad.name} was lost: {first_bad.text or 'the connection ended'}"
    if first_bad.how == "raised":
        return f"{first_bad.name} raised {first_bad.text}"
    if first_bad.how == "skipped":
        return f"{first_bad.name} skipped the test, but the other ranks did not: {first_bad.text}"
    if first_bad.how == "closing":
        return _last_step(bad)
    cause = "was stopped by a signal (SIGSTOP)" if first_bad.stopped else f"is {first_bad.position}"
    line = f"{first_bad.name} did not answer within {timeout_s:g} s: the rank {cause}"
    stuck = [end for end in bad if end.how == "stuck"]
    returned = [end for end in bad if end.how == "closing"]
    other_stuck = stuck[1:]
    waits_for_others = not first_bad.stopped and first_bad.position.collective
    if not waits_for_others or not (returned or other_stuck):
        return line
    if returned:
        return _left_waiting(returned, stuck, timeout_s)
    # All ranks wait in collectives, each for the others, so their calls do not match.
    positions_differ = len({(end.position.place, end.position.collective) for end in stuck}) > 1
    return f"{line}; {_where(other_stuck)}" + (
        ": the ranks are in different operations" if positions_differ else ""
    )


def _left_waiting(returned: Sequence[RankEnd], stuck: Sequence[RankEnd], timeout_s: float) -> str:
    """Describe ranks that returned while others wait in a collective.

    The smaller group comes first, since it is the likelier cause.
    """
    return_text = (
        f"{' and '.join(end.name for end in returned[:_MOST_NAMED])} returned from the function"
    )
    wait_text = _where(stuck)
    sentence = (
        f"{wait_text}, while {return_text}"
        if len(stuck) < len(returned)
        else f"{return_text}, while other ranks wait: {wait_text}"
    )
    return f"{sentence}: no answer within {timeout_s:g} s; {_SAME_ORDER}"


def _where(ends: Sequence[RankEnd]) -> str:
    """Return the places of the first stuck ranks."""
    return "; ".join(f"{end.name} is {end.position}" for end in ends[:_MOST_NAMED])


def _last_step(bad: Sequence[RankEnd]) -> str:
    """Describe a failure after every rank had returned from the function.

    In the last step of a task, ranks check that all have submitted the same operations.
    """
    # Ranks that only lost a peer come last.
    raisers = sorted(
        (end for end in bad if end.text),
        key=lambda end: (bool(_PEER_GONE.search(end.text)), end.order),
    )
    counts_differ = len({end.collectives for end in bad}) > 1
    if not raisers or OUT_OF_STEP in raisers[0].text or counts_differ:
        return _out_of_step(bad)
    first_raiser = raisers[0]
    return (
        f"{first_raiser.name} raised {first_raiser.text}, after the function had returned, in the final step of the "
        "task"
    )


def _out_of_step(bad: Sequence[RankEnd]) -> str:
    """Return the sentence that names the ranks with another number of submitted operations than most.

    All ranks are named where no number has a majority.
    """
    [(usual_number, rank_count)] = Counter(end.collectives for end in bad).most_common(1)
    has_majority = 2 * rank_count > len(bad)
    odd = [end for end in bad if end.collectives != usual_number] if has_majority else list(bad)
    counts = ", ".join(
        f"rank {end.rank}: {end.collectives}" for end in sorted(bad, key=lambda end: end.rank)
    )
    # If all submitted equally many, the numbers do not tell which rank is wrong, so all are named.
    names = " and ".join(end.name for end in odd or bad)
    return f"{names} left the function out of step (operations submitted: {counts}); {_SAME_ORDER}"


def _describe(
    group: Sequence[RankEnd], bad: Sequence[RankEnd], tails: Mapping[int, str]
) -> list[str]:
    """Return the lines on ranks that ended alike, below the first line.

    Args:
        group: the ranks that ended alike.
        bad: all bad ranks; the first line of the report is about the first of them.
        tails: the last words in the log of each rank.
    """
    first = group[0]
    names = first.name if len(group) == 1 else "ranks " + ", ".join(str(end.rank) for end in group)
    if first.how == "stuck":
        state = "stopped" if first.stopped else "stuck"
        if any(end.how in ("lost", "raised", "skipped") for end in bad):
            state = "blocked on a peer"
        lines = [f"  {names}: {state}, {first.position}", *_cut(main_text(first.details))]
    elif first.how == "closing":
        end_text = f"then raised {first.text}" if first.text else "waits for the other ranks"
        lines = [f"  {names}: has returned from the function, and {end_text}", *_cut(first.details)]
    else:
        # The traceback of a rank that only lost its peer does not show the cause.
        details = [] if first.lost_its_peer and first is not bad[0] else _cut(first.details)
        is_in_first_line = bad[0] in group or first.is_victim
        text = f": {first.text}" if first.text and not details and not is_in_first_line else ""
        lines = [f"  {names}: {first.how}{text}", *details]
    if first.how in ("lost", "stuck") and tails.get(first.rank):
        lines += [
            "    the last lines of the rank's log:",
            *(f"    | {line}" for line in tails[first.rank].splitlines()),
        ]
    return lines


def _cut(text: str) -> list[str]:
    """Return indented lines; the middle of a long text is left out."""
    lines = text.rstrip().splitlines()
    if len(lines) > _MOST_LINES:
        half = _MOST_LINES // 2
        lines = [*lines[:half], f"  … {len(lines) - 2 * half} lines …", *lines[-half:]]
    return [f"    {line}" for line in lines]


# Python stacks of stuck ranks, as `faulthandler` writes them.


class Frame(NamedTuple):
    """One line of a stack."""

    file: str
    line: str
    name: str

    @property
    def is_user_code(self) -> bool:
        """Return whether a rank function, or code that it calls, runs here.

        That code may be in a package, but not in Python's library, torch or this package.
        """
        if self.file.startswith((_OURS, "<")):
            return False
        if any(place in self.file for place in _PACKAGES):
            return not any(f"{place}torch/" in self.file for place in _PACKAGES)
        return not self.file.startswith(_STDLIB)


class Position(NamedTuple):
    """The place where a rank is.

    Args:
        place: the innermost line of the user's code.
        collective: the collective that the rank waits in.
        inside: the innermost function, where the rank waits in no collective.
    """

    place: str = ""
    collective: str = ""
    inside: str = ""

    def __str__(self) -> str:
        """Return `in all_reduce at train.py:7 in step`, as far as it is known."""
        if not self.place:
            inside = self.collective or self.inside
            return f"in {inside}" if inside else "at an unknown place"
        if self.collective:
            return f"in {self.collective} at {self.place}"
        return f"at {self.place}" + (f", in {self.inside}" if self.inside else "")


def position(text: str) -> Position:
    """Return where a rank's main thread is.

    That is its line of user code, and the operation that this line is in. `text` has the stacks of all its threads, as
    `faulthandler` writes them.
    """
    frames = main_frames(text)
    user_frame = next((frame for frame in frames if frame.is_user_code), None)
    # The frames that the user's line has called, innermost first.
    called_frames = frames[: frames.index(user_frame)] if user_frame is not None else frames
    collectives = [
        frame
        for frame in called_frames
        if frame.file.endswith(_COLLECTIVES) and frame.name not in _WRAPPERS
    ]
    innermost = next((frame for frame in called_frames if frame.name not in _WRAPPERS), None)
    place = (
        f"{Path(user_frame.file).name}:{user_frame.line} in {user_frame.name}"
        if user_frame is not None
        else ""
    )
    return Position(
        place=place,
        # The outermost collective is the one that the user called; torch calls those inside it.
        collective=collectives[-1].name if collectives else "",
        inside=innermost.name if innermost is not None and not collectives else "",
    )


def main_frames(text: str) -> list[Frame]:
    """Return the frames of the thread that runs rank functions.

    The innermost frame is first. If no thread does, it is the thread that is listed last, the oldest.
    `text` has the stacks of all threads, as `faulthandler` writes them.
    """
    threads: list[list[Frame]] = []
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ")):
            threads.append([])
        elif (match := _FRAME.match(line)) is not None and threads:
            threads[-1].append(Frame(match["file"], match["line"], match["name"]))
    serving = [frames for frames in threads if _runs_ours(frames, "serve")]
    # `faulthandler` cuts a stack after a hundred frames, so `serve` may be missing from it.
    remaining = [frames for frames in threads if not _runs_ours(frames, "_listen")]
    if serving:
        return serving[0]
    return remaining[-1] if remaining else []


def main_text(text: str) -> str:
    """Return the stack of the thread that runs rank functions.

    It is formatted as by `faulthandler`, without the frames that lead to the rank function.
    """
    frames = main_frames(text)
    user_frames = [
        frame for frame in frames if not frame.file.startswith(_OURS) and "runpy" not in frame.file
    ]
    # A rank that is not in a rank function has no frames of the user.
    shown_frames = user_frames or frames
    return "\n".join(
        f'  File "{frame.file}", line {frame.line} in {frame.name}' for frame in shown_frames
    )


def _runs_ours(frames: list[Frame], name: str) -> bool:
    """Return whether a function of this package runs in a stack."""
    return any(frame.name == name and frame.file.startswith(_OURS) for frame in frames)
