"""What a reader of another tool's file hands on: readings in SI units, and what the file tells of its surroundings."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ..core.keys import Scalar, Timing, label_of
from ..core.samples import Mode
from ..core.work import Work


@dataclass(frozen=True, slots=True)
class Given:
    """What the user tells because a file does not.

    Args:
        product: as the driver prints it: `NVIDIA H100 80GB HBM3`.
        devices: how many devices took part.
        link: class of the link among them.
        operation: the collective, where a log does not name it.
    """

    product: str | None = None
    devices: int | None = None
    link: str | None = None
    operation: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """One number of another tool, converted.

    Args:
        benchmark: the tool and what it measured: `nccl_tests.all_reduce`.
        statistic: what the seconds are of all calls: mean, best, median; it is part of the key.
        work: of one call, counted as ours is.
        seconds: per call; several where the file has several.
        iterations: calls behind each of `seconds`.
        devices: how many took part.
        verified: whether the tool found the data right; None where it did not look, or does not tell.
        invalid: why the number stands for nothing.
        where: in the file: `line 12`, or `results[0].in_place` of JSON.
    """

    benchmark: str
    parameters: dict[str, Scalar]
    metric: str
    statistic: str
    work: Work
    seconds: tuple[float, ...]
    where: str
    iterations: int = 1
    warmup_iterations: int = 0
    mode: Mode = "host"
    timing: Timing = "wall"
    devices: int = 1
    verified: bool | None = None
    invalid: str = ""

    @property
    def test_id(self) -> str:
        """The reading without its statistic, as people call it."""
        return label_of(self.benchmark, self.parameters, "")

    @property
    def label(self) -> str:
        """The reading as people call it: `nccl_tests.all_reduce[8GiB-fp32-sum-in_place].mean`."""
        return label_of(self.benchmark, self.parameters, self.statistic)


@dataclass(frozen=True, slots=True)
class Imported:
    """What one process of another tool left in a file; what it does not tell is None.

    Args:
        source: the file, as the user named it.
        tool: what wrote it: `nccl-tests`.
        convention: how the tool counts and times, in a sentence, and what was converted.
        product: of the devices, as the driver prints it.
        host: name of the machine; of several the first.
        software: versions and settings worth naming when they differ, by name.
        started: in ISO 8601, as far as the file tells; empty where it does not.
        left_out: of what was read but not taken, a line each that says why.
        failed: tests that left no number, with the reason.
        notes: what a reader should know.
    """

    source: str
    tool: str
    convention: str
    readings: tuple[Reading, ...]
    product: str | None = None
    device_type: str = "accelerator"
    host: str | None = None
    driver: str | None = None
    cpu_model: str | None = None
    cores: int | None = None
    kernel: str | None = None
    software: dict[str, str] = field(default_factory=dict)
    started: str = ""
    finished: str = ""
    left_out: tuple[str, ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


def pooled(readings: Sequence[Reading]) -> tuple[Reading, ...]:
    """Readings with those of one key in one: a tool that goes through its sizes again took another sample of each."""
    found: dict[tuple[object, ...], Reading] = {}
    for reading in readings:
        key = (reading.label, reading.metric, reading.timing, reading.work, reading.invalid)
        known = found.get(key)
        if known is None:
            found[key] = reading
        else:
            verified = known.verified if known.verified == reading.verified else None
            found[key] = replace(known, seconds=known.seconds + reading.seconds, verified=verified)
    return tuple(found.values())
