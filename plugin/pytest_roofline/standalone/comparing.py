"""What processes measured here beside what was recorded: two lines for people, and an exit status."""

from collections.abc import Sequence
from statistics import median

from ..core.cases import Recorded
from ..core.units import format_flops, format_rate, format_seconds, format_tolerance, printable
from ..core.work import rate_suffix
from .results import Found, Told

FAST, SLOW, UNKNOWN = 0, 1, 2


def together(found: Sequence[int | None]) -> int:
    """The status of several: slow where one is, unknown where one is or none counts, else fast."""
    counting = [status for status in found if status is not None]
    return SLOW if SLOW in counting else max(counting, default=UNKNOWN)


def compare(recorded: Recorded, taken: Sequence[Told]) -> int | None:
    """Print one measurement beside its records; whether it is slow here, None where nothing is known to tell."""
    here = [one for told in taken for one in told.found if one.name == recorded.name]
    if not here:
        names = ", ".join(repr(one.name) for one in taken[0].found)
        print(f"  {printable(recorded.label)}: measured nothing under the name {recorded.name!r}; there is {names}")
        return UNKNOWN
    sound = [one for one in here if not one.trouble]
    seconds = median(one.median_s for one in sound or here)
    print(f"  {printable(recorded.label)}")
    lines = [("here", seconds, len(sound or here)), ("recorded", median(recorded.seconds), len(recorded.seconds))]
    for called, value, count in lines:
        print(f"    {called:<9} {time_and_rate(recorded, value)}, {count} process{'es' * (count != 1)}")
    for called, known in (("baseline", recorded.baseline_s), ("limit", recorded.limit_s)):
        if known is not None:
            print(f"    {called:<9} {time_and_rate(recorded, known)}")
    _warn(recorded, here)
    status, sentence = judge(recorded, seconds)
    if len(sound) * 2 < len(here):
        print(f"    cannot tell: the time cannot be trusted in {len(here) - len(sound)} of {len(here)} processes")
        return UNKNOWN
    print(f"    {sentence}")
    return status


def _warn(recorded: Recorded, here: Sequence[Found]) -> None:
    if recorded.invalid:
        print(f"    the recorded time was not to be trusted: {printable(recorded.invalid)}")
    for trouble in sorted({one.trouble for one in here if one.trouble}):
        print(f"    do not trust the time here: {printable(trouble)}")
    for keyword in sorted({keyword for one in here for keyword in one.unused}):
        print(f"    measure({printable(keyword)}=…) is not known here and was left out")


def judge(recorded: Recorded, seconds: float) -> tuple[int | None, str]:
    """Whether a time is slow, and why, in a sentence.

    With a baseline it is where it takes longer than that by more than the tolerance, with a limit where it takes longer
    than that. Without either nobody knows: that it takes as long as it did is no fault.
    """
    tolerance = f"tolerance {format_tolerance(recorded.tolerance)}"
    if recorded.baseline_s is not None:
        ratio = seconds / recorded.baseline_s
        return _told(f"here / baseline: {ratio:.3f}, {tolerance}", ratio > 1 + recorded.tolerance)
    if recorded.limit_s is not None:
        ratio = seconds / recorded.limit_s
        return _told(f"here / limit: {ratio:.3f}", ratio > 1)
    ratio = seconds / median(recorded.seconds)
    found = "slower than" if ratio > 1 + recorded.tolerance else "as"
    found = "faster than" if ratio * (1 + recorded.tolerance) < 1 else found
    return None, f"here / recorded: {ratio:.3f}, {tolerance}: {found} recorded; whether that is slow, nothing tells"


def _told(figures: str, slow: bool) -> tuple[int, str]:
    outcome = "SLOW, it reproduces" if slow else "fast, it does not reproduce"
    return SLOW if slow else FAST, f"{figures}: {outcome}"


def time_and_rate(recorded: Recorded, seconds: float) -> str:
    """`12.3 µs, 683 GB/s`; the time alone where it has no rate."""
    amount, kind = recorded.work.amount(recorded.metric), rate_suffix(recorded.metric)
    if amount is None or kind is None:
        return format_seconds(seconds)
    shown = format_flops if kind == "TFLOPS" else format_rate
    return f"{format_seconds(seconds)}, {shown(amount / seconds)}"
