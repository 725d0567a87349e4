"""The reasons of a verdict: a code with its numbers and texts.

A reason holds only numbers that the verdict does not hold itself. `baselines.reasons` makes the sentences.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from .errors import BadInput


class ReasonCode(enum.StrEnum):
    """A cause of a verdict, or what would decide an open one."""

    # A fact in words of its source: why a measurement is invalid, or why there is no baseline. Where that is so of some
    # processes, `spoiled` is how many of how many `processes`.
    TEXT = "text"
    # Timed in another mode than the baseline: `mode` holds the labels of that mode, with commas between. `spoiled` and
    # `processes` as above.
    OTHER_MODE = "other_mode"
    # A baseline that is too fast or too slow for any machine.
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
class _Requirements:
    """The numbers, texts and fields that a sentence needs."""

    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()


# Of a time that is held against a limit: the spread between its processes in log seconds and where that comes from, how
# many devices there are and miss the limit, and the UUID of the worst; empty where it is unknown.
_BEHIND = _Requirements(
    ("spread", "devices", "missed"), ("device", "origin"), ("limit", "estimate")
)
_NEEDS = {
    ReasonCode.TEXT: _Requirements(texts=("text",)),
    ReasonCode.OTHER_MODE: _Requirements(texts=("mode",), fields=("reference",)),
    ReasonCode.ABSURD_BASELINE: _Requirements(
        texts=("label", "observed", "expected", "remedy"), fields=("reference",)
    ),
    ReasonCode.MAY_BE: _Requirements(fields=("interval", "difference")),
    ReasonCode.HOT_ROUNDS: _Requirements(fields=("estimate",)),
    ReasonCode.RED_NEEDS_ROUNDS: _Requirements(("processes",), fields=("estimate", "reference")),
    ReasonCode.RED_NEEDS_LOGS: _Requirements(("processes",), fields=("estimate", "reference")),
    ReasonCode.NEEDS_ROUNDS: _Requirements(("processes",)),
    ReasonCode.NEEDS_LOGS: _Requirements(("processes",)),
    ReasonCode.OTHER_DEVICES: _Requirements(("spread",)),
    ReasonCode.FEW_DAYS: _Requirements(("days",), fields=("reference",)),
    ReasonCode.FEW_PROCESSES: _Requirements(fields=("reference",)),
    ReasonCode.FEW_SESSIONS: _Requirements(fields=("reference",)),
    ReasonCode.BEYOND_LIMIT: _BEHIND,
    ReasonCode.WITHIN_LIMIT: _Requirements(("devices",), fields=("limit",)),
    ReasonCode.MAY_MISS_LIMIT: _BEHIND,
    ReasonCode.LIMIT_NEEDS_PROCESSES: replace(_BEHIND, numbers=(*_BEHIND.numbers, "least")),
    ReasonCode.LIMIT_UNSURE: _BEHIND,
    ReasonCode.FEW_NEAR_LIMIT: _Requirements(("sessions",)),
    ReasonCode.MOVED_TOGETHER: _Requirements(("tests", "together", "left")),
    ReasonCode.AMONG_SIBLINGS: _Requirements(
        ("value", "siblings_value", "spread"), ("device", "metric"), ("estimate",)
    ),
    ReasonCode.FEW_SIBLINGS: _Requirements(("siblings", "expected"), ("device",)),
    ReasonCode.SHARED_LINK: _Requirements(texts=("text",)),
    ReasonCode.NO_WHOLE_BLOCK: _Requirements(),
    ReasonCode.SIDES_NEED_PROCESSES: _Requirements(fields=("estimate",)),
    ReasonCode.SIDES_MAY_BE: _Requirements(fields=("interval",)),
    ReasonCode.SIDES_NEED_ABOUT: _Requirements(("processes",)),
    ReasonCode.SIDES_TOO_FEW: _Requirements(("processes",)),
    ReasonCode.SIDE_ENDED: _Requirements(texts=("side", "text")),
    ReasonCode.SIDES_TIMED: _Requirements(texts=("A", "B")),
    ReasonCode.OTHER_WORK: _Requirements(),
    ReasonCode.UNTIMED: _Requirements(),
}


@dataclass(frozen=True, slots=True)
class Reason:
    """One clause of a verdict's explanation.

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
        """Raise BadInput unless the reason has every number and text that its code needs."""
        needs = _NEEDS[self.code]
        missing = [name for name in needs.numbers if name not in self.numbers]
        missing += [name for name in needs.texts if name not in self.texts]
        if missing:
            first_missing_name = missing[0]
            raise BadInput(
                f"reason {self.code} has no {first_missing_name}; every reason of this code needs this value"
            )

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the verdict that the sentence needs."""
        return _NEEDS[self.code].fields


def text_reasons(*texts: str) -> tuple[Reason, ...]:
    """Return each text as a reason in its own words. Empty texts are left out."""
    return tuple(Reason(ReasonCode.TEXT, texts={"text": text}) for text in texts if text)


def of_processes(reason: Reason, spoiled: int, processes: int) -> Reason:
    """Return a reason that holds for the number `spoiled` of all processes."""
    return replace(reason, numbers=reason.numbers | {"spoiled": spoiled, "processes": processes})


def first_missing(reasons: Iterable[Reason], verdict: object) -> str:
    """Return `reason CODE has no FIELD` for a field that is missing.

    It is the first that a reason needs and a verdict lacks. Empty if no field is missing.
    """
    for reason in reasons:
        for name in reason.fields:
            if getattr(verdict, name) is None:
                return f"reason {reason.code} has no {name}"
    return ""
