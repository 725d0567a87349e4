"""What the memory of a call goes into, at its peak."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The peak of one call and what it is made of, in bytes."""

    test_id: str
    label: str
    process: str
    device: str
    name: str
    peak_bytes: int
