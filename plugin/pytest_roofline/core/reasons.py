"""Why a verdict is what it is: a code, with the numbers and facts that the verdict does not hold already.

The sentences are `baselines.reasons`', for every door.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from .errors import BadInput


class ReasonCode(enum.StrEnum):
    """What a verdict rests on, or what would decide it."""

    # A fact in words of its source: why a measurement is invalid, or why there is no baseline. Where that is so of some
    # processes, `spoiled` is how many of how many `processes`.
    TEXT = "text"
    # Timed in another mode than the baseline: `mode` holds the labels of the way, with commas between. `spoiled` and
    # `processes` as above.
    OTHER_MODE = "other_mode"
    # A baseline that no machine can reach, or none can be so slow as.
    ABSURD_BASELINE = "absurd_baseline"
    # A comparison with a baseline that is open, and what would decide it.
    MAY_BE = "may_be"
    HOT_ROUNDS = "hot_rounds"
    RED_NEEDS_ROUNDS = "red_needs_rounds"
    RED_NEEDS_LOGS = "red_needs_logs"
    NEEDS_ROUNDS = "needs_rounds"
    NEEDS_LOGS = "needs_logs"
    OTHER_DEVICES = "other_devices"
    FEW_DAYS = "few_days"
    FEW_PROCESSES = "few_processes"
    FEW_SESSIONS = "few_sessions"
    # A limit, with what stands behind the time that is held against it.
    BEYOND_LIMIT = "beyond_limit"
    WITHIN_LIMIT = "within_limit"
    MAY_MISS_LIMIT = "may_miss_limit"
    LIMIT_NEEDS_PROCESSES = "limit_needs_processes"
    LIMIT_UNSURE = "limit_unsure"
    FEW_NEAR_LIMIT = "few_near_limit"
    # All tests of a run.
    MOVED_TOGETHER = "moved_together"
    # Cards of one machine.
    AMONG_SIBLINGS = "among_siblings"
    FEW_SIBLINGS = "few_siblings"
    SHARED_LINK = "shared_link"
    # Two sides that ran in turn.
    NO_WHOLE_BLOCK = "no_whole_block"
    SIDES_NEED_PROCESSES = "sides_need_processes"
    SIDES_MAY_BE = "sides_may_be"
    SIDES_NEED_ABOUT = "sides_need_about"
    SIDES_TOO_FEW = "sides_too_few"
    SIDE_ENDED = "side_ended"
    SIDES_TIMED = "sides_timed"
    OTHER_WORK = "other_work"
    UNTIMED = "untimed"


@dataclass(frozen=True, slots=True)
class _Needs:
    """What a sentence needs: numbers and texts of its reason, and fields of the verdict."""

    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


# Of a time that is held against a limit: the spread between its processes in log seconds and where that comes from, how
# many devices there are and miss the limit, and the UUID of the worst; empty where it is not told.
_BEHIND = _Needs(("spread", "devices", "missed"), ("device", "origin"), ("limit", "estimate"))
_NEEDS = {
    ReasonCode.TEXT: _Needs(texts=("text",)),
    ReasonCode.OTHER_MODE: _Needs(texts=("mode",), fields=("reference",)),
    ReasonCode.ABSURD_BASELINE: _Needs(
        texts=("label", "observed", "expected", "remedy"), fields=("reference",)
    ),
    ReasonCode.MAY_BE: _Needs(fields=("interval", "difference")),
    ReasonCode.HOT_ROUNDS: _Needs(fields=("estimate",)),
    ReasonCode.RED_NEEDS_ROUNDS: _Needs(("processes",), fields=("estimate", "reference")),
    ReasonCode.RED_NEEDS_LOGS: _Needs(("processes",), fields=("estimate", "reference")),
    ReasonCode.NEEDS_ROUNDS: _Needs(("processes",)),
    ReasonCode.NEEDS_LOGS: _Needs(("processes",)),
    ReasonCode.OTHER_DEVICES: _Needs(("spread",)),
    ReasonCode.FEW_DAYS: _Needs(("days",), fields=("reference",)),
    ReasonCode.FEW_PROCESSES: _Needs(fields=("reference",)),
    ReasonCode.FEW_SESSIONS: _Needs(fields=("reference",)),
    ReasonCode.BEYOND_LIMIT: _BEHIND,
    ReasonCode.WITHIN_LIMIT: _Needs(("devices",), fields=("limit",)),
    ReasonCode.MAY_MISS_LIMIT: _BEHIND,
    ReasonCode.LIMIT_NEEDS_PROCESSES: replace(_BEHIND, numbers=(*_BEHIND.numbers, "least")),
    ReasonCode.LIMIT_UNSURE: _BEHIND,
    ReasonCode.FEW_NEAR_LIMIT: _Needs(("sessions",)),
    ReasonCode.MOVED_TOGETHER: _Needs(("tests", "together", "left")),
    ReasonCode.AMONG_SIBLINGS: _Needs(
        ("value", "siblings_value", "spread"), ("device", "metric"), ("estimate",)
    ),
    ReasonCode.FEW_SIBLINGS: _Needs(("siblings", "expected"), ("device",)),
    ReasonCode.SHARED_LINK: _Needs(texts=("text",)),
    ReasonCode.NO_WHOLE_BLOCK: _Needs(),
    ReasonCode.SIDES_NEED_PROCESSES: _Needs(fields=("estimate",)),
    ReasonCode.SIDES_MAY_BE: _Needs(fields=("interval",)),
    ReasonCode.SIDES_NEED_ABOUT: _Needs(("processes",)),
    ReasonCode.SIDES_TOO_FEW: _Needs(("processes",)),
    ReasonCode.SIDE_ENDED: _Needs(texts=("side", "text")),
    ReasonCode.SIDES_TIMED: _Needs(texts=("A", "B")),
    ReasonCode.OTHER_WORK: _Needs(),
    ReasonCode.UNTIMED: _Needs(),
}


@dataclass(frozen=True, slots=True)
class Reason:
    """One clause of why a verdict is what it is.

    Args:
        numbers: by name; a change or a spread is in log seconds.
        texts: by name, facts in words of their source, such as the UUID of a device.

    Raises:
        BadInput: a number or a text that the code's sentence needs is missing.
    """

    code: ReasonCode
    numbers: dict[str, int | float] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        needs = _NEEDS[self.code]
        missing = [name for name in needs.numbers if name not in self.numbers]
        missing += [name for name in needs.texts if name not in self.texts]
        if missing:
            raise BadInput(f"reason {self.code} has no {missing[0]}; expected it beside the code")

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the verdict that the sentence needs."""
        return _NEEDS[self.code].fields


def text_reasons(*texts: str) -> tuple[Reason, ...]:
    """Return facts in words of their source as reasons; an empty text is none."""
    return tuple(Reason(ReasonCode.TEXT, texts={"text": text}) for text in texts if text)


def of_processes(reason: Reason, spoiled: int, processes: int) -> Reason:
    """Return a reason as one that holds for `spoiled` of so many processes."""
    return replace(reason, numbers=reason.numbers | {"spoiled": spoiled, "processes": processes})


def first_missing(reasons: Iterable[Reason], verdict: object) -> str:
    """Return `reason CODE has no FIELD` of the first field that a verdict lacks; empty where it has all."""
    for reason in reasons:
        for name in reason.fields:
            if getattr(verdict, name) is None:
                return f"reason {reason.code} has no {name}"
    return ""
