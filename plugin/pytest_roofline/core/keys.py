"""The key that must agree before two times are compared."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from .facts import HardwareKey
from .units import size_label

Scalar = str | int | float | bool | None
Cache = Literal["warm", "rotate", "flush"]
Timing = Literal["device", "wall", "isolated", "pipelined"]
CACHES: tuple[Cache, ...] = ("warm", "rotate", "flush")
TIMINGS: tuple[Timing, ...] = ("device", "wall")
# The metric of whole programs: seconds, and no rate.
JOB_METRIC = "job_wall_s"
# Over ranks: one call at a time behind a barrier, or many calls in a row.
RANK_TIMINGS: tuple[Timing, ...] = ("isolated", "pipelined")
# Measurements of the machine itself, beside the tests of a process; no test of a user has these three names.
CANARY_BENCHMARK, CANARIES = "canary", ("copy", "gemm", "launch")
# Behind the name of a parameter of which only its place in the list is known; no argument of Python holds a space.
BY_POSITION = " by position"


@dataclass(frozen=True, slots=True)
class Key:
    """The identity of a measurement. All of it must be equal before two of them are the same one."""

    benchmark: str
    parameters: dict[str, Scalar]
    metric: str
    hardware: HardwareKey
    cache: Cache
    timing: Timing
    name: str = ""

    @property
    def identity(self) -> str:
        """The key as one string, for dictionaries and duplicates."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @property
    def is_canary(self) -> bool:
        """True for a measurement of the machine, not of a test."""
        return is_canary(self.benchmark, self.name)

    @property
    def label(self) -> str:
        """The key as people call it, without hardware: `memcpy_d2d[64MiB]`."""
        return label_of(self.benchmark, self.parameters, self.name)


def is_canary(benchmark: str, name: str) -> bool:
    """Return True for a measurement of the machine itself. It belongs to no test."""
    return benchmark == CANARY_BENCHMARK and name in CANARIES


def canonical(parameters: Mapping[str, object]) -> str:
    """Return parameters as one string.

    Two are equal only where type and value agree, since 1, 1.0 and True are three ids.
    """
    return json.dumps(parameters, sort_keys=True, separators=(",", ":"), default=str)


def positional_names_note(parameters: Mapping[str, object]) -> str:
    """Return why a key may mean another test tomorrow.

    It adds the remedy, and is empty for stable parameters.

    It is empty for stable parameters.
    """
    names = [name.removesuffix(BY_POSITION) for name in parameters if name.endswith(BY_POSITION)]
    if not names:
        return ""
    return (
        f"{', '.join(names)} is identified only by its position in the list, which may change; give "
        "parametrize ids=[…] "
        "that name each value"
    )


def value_text(parameter: str, value: Scalar) -> str:
    """Return a parameter's value as names of tests show it."""
    return (
        size_label(value) if parameter.endswith("_bytes") and isinstance(value, int) else f"{value}"
    )


def label_of(benchmark: str, parameters: dict[str, Scalar], name: str) -> str:
    """Return a measurement as people call it, without hardware: `memcpy_d2d[64MiB]`."""
    values = "-".join(value_text(parameter, value) for parameter, value in parameters.items())
    return benchmark + (f"[{values}]" if values else "") + (f".{name}" if name else "")
