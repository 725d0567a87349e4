"""Where the time of a call goes: what an untimed pass under a profiler found."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profiler saw of one measurement's calls. Its times are the profiler's: never judged, never a baseline."""

    test_id: str
    label: str
    process: str
    device: str
    calls: int
