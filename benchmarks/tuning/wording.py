"""What was found, in words."""

from collections.abc import Sequence

from pytest_roofline.core.units import format_flops, format_percent, format_tolerance
from roofline_kernels.attention.configurations import Configuration
from tuning.candidates import name_of
from tuning.choosing import NEAR, Choice
from tuning.log import Peer, Tried
from tuning.problems import Problem

MARK = f"  <-- more than {format_tolerance(NEAR)} off"


def line(choice: Choice) -> str:
    """`forward d64 causal 1x16x16384: shipped 128×128 w8 s3: 371 TFLOP/s, best 128×64 w8 s4: 380 TFLOP/s (+2.4 %)`."""
    problem = choice.problem
    text = f"{problem.label}: shipped {name_of(choice.shipped)}: {_rate(problem.flops, choice.shipped_s)}"
    if choice.best is None:
        return f"{text}; no candidate has a sound time"
    if choice.best == choice.shipped:
        return f"{text}, the best"
    text += f", best {name_of(choice.best)}: {_rate(problem.flops, choice.best_s)}"
    text += "" if choice.distance is None else f" ({format_percent(choice.distance)})"
    return text + MARK * choice.far


def _rate(flops: int, seconds: float | None) -> str:
    return "no sound time" if seconds is None else format_flops(flops / seconds)


def tally(tried: Sequence[Tried], problem: Problem) -> str:
    """How many candidates there were and what became of them, with the first reason of each kind."""
    own = [one for one in tried if one.problem == problem]
    heard = [one for one in own if one.step == "compile"]
    timed = [one for one in own if one.step == "sweep"]
    parts = [
        f"{len(heard)} candidates",
        *_failed(heard, "left out"),
        f"{len(timed)} timed",
        *_failed(timed, "failed"),
    ]
    unsteady = sum(bool({"noisy", "drifting", "host_bound"} & set(one.labels)) for one in timed)
    return (
        "  "
        + ", ".join(parts)
        + (f", {unsteady} of them noisy, drifting or paced by the host" if unsteady else "")
    )


def _failed(tried: Sequence[Tried], how: str) -> list[str]:
    failed = [one for one in tried if one.trouble]
    return (
        [f"{len(failed)} {how} ({name_of(failed[0].configuration)}: {failed[0].trouble})"]
        if failed
        else []
    )


def peer_lines(peers: Sequence[Peer]) -> list[str]:
    """A table of whole passes: a line for each attention at each setting, rates as the field counts them."""
    lines = []
    for setting in dict.fromkeys(peer.setting for peer in peers):
        lines.append(f"{setting.label}: whole passes")
        own = [peer for peer in peers if peer.setting == setting]
        for name in dict.fromkeys(peer.name for peer in own):
            passes = [f"{one.passes} {_of(one)}" for one in own if one.name == name]
            lines.append(f"  {name:<16} {', '.join(passes)}")
    return lines


def _of(peer: Peer) -> str:
    if peer.seconds is None or peer.trouble:
        return f"has no time ({peer.trouble})"
    return format_flops(peer.setting.flops(peer.passes) / peer.seconds)


def group_line(
    kernel: str, head_dim: int, shipped: Configuration, best: Configuration | None
) -> str:
    """What goes into the table for a kernel and head dimension, over all its problems."""
    if best is None:
        return f"{kernel} d{head_dim}: no candidate has a sound time at every shape"
    same = " (as shipped)" if best == shipped else f", shipped {name_of(shipped)}"
    return f"{kernel} d{head_dim}: over all shapes {name_of(best)}{same}"
