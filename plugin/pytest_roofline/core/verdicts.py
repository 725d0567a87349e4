"""The verdict on a time with all that it rests on: statistics fill it, a run file keeps it, every door shows it."""

import enum


class Kind(enum.StrEnum):
    """What can be said of a measurement, in the order in which one finding hides another."""

    INVALID = "INVALID"
    NO_BASELINE = "NO BASELINE"
    REGRESSED = "REGRESSED"
    SHIFTED = "SHIFTED"
    IMPROVED = "IMPROVED"
    PASSED = "PASSED"
    INCONCLUSIVE = "INCONCLUSIVE"
