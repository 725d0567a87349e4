"""Every error that a user can meet, each saying what was observed, what was expected and what to do."""


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
