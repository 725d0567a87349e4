"""The key that must agree before two times are compared."""

import enum
import json
import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Literal

from .facts import HardwareKey
from .units import encodable, size_label

Scalar = str | int | float | bool | None
Cache = Literal["warm", "rotate", "flush"]
Timing = Literal["device", "wall", "isolated", "pipelined"]
CACHES: tuple[Cache, ...] = ("warm", "rotate", "flush")
TIMINGS: tuple[Timing, ...] = ("device", "wall")
# The metric of whole programs: seconds, and no rate.
JOB_METRIC = "job_wall_s"
# Over ranks: one call at a time behind a barrier, or many calls in a row.
RANK_TIMINGS: tuple[Timing, ...] = ("isolated", "pipelined")
# The benchmark and the names of the canaries. No test of a user has these names.
CANARY_BENCHMARK, CANARIES = "canary", ("copy", "gemm", "launch")
# The end of the name of a parameter that is known only by its place in the list. No argument of Python holds a space.
BY_POSITION = " by position"
# Stands for an object that could be named only by its place among the parameters.
NAMELESS = object()
# Types, devices and layouts of libraries, whose text is their name: `torch.float16`, `cuda:1`, `int8`.
NAMED_BY_TEXT = (
    "torch.dtype", "torch.device", "torch.layout", "torch.memory_format", "numpy.dtype", "triton.language.core.dtype",
)  # fmt: skip


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

    Two of them are equal only if all types and values agree: 1, 1.0 and True differ.
    """
    return json.dumps(parameters, sort_keys=True, separators=(",", ":"), default=str)


def positional_names_note(parameters: Mapping[str, object]) -> str:
    """Return a warning, with the remedy, about parameters that are named by their place.

    If the list of parameters changes, their key would mean another test. Empty without such parameters.
    """
    names = [name.removesuffix(BY_POSITION) for name in parameters if name.endswith(BY_POSITION)]
    if not names:
        return ""
    return (
        f"only positions in the list identify the values of {', '.join(names)}, and positions may change; pass ids=[…] "
        "to parametrize, with a name for each value"
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


def scalar_of(value: object) -> object:
    """Return a parameter as a scalar: itself, or its common name.

    `NAMELESS` stands for an object without a name. An integer beyond 64 bits, an infinity or a NaN becomes a text, as
    not every reader of JSON takes such a number.
    """
    kind = type(value)
    if value is None or kind is bool:
        return value
    if isinstance(value, enum.Enum):
        return f"{kind.__qualname__}.{value.name}"
    if isinstance(value, numbers.Integral):
        return int(value) if abs(int(value)) < 2**63 else str(int(value))
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else str(float(value))
    if isinstance(value, str):
        return encodable(value)
    type_name = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, numbers.Complex | bytes | range) or type_name.startswith(NAMED_BY_TEXT):
        return encodable(str(value).removeprefix("torch."))
    if isinstance(value, Mapping):
        return _join_scalars(
            "{", [(scalar_of(key), scalar_of(inner)) for key, inner in value.items()], "}"
        )
    if isinstance(value, list | tuple):
        return _join_scalars("(", [(scalar_of(inner),) for inner in value], ")")
    return _own_name(value)


def _own_name(value: object) -> object:
    """Return the name of a function, class or module; `NAMELESS` for any other object."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__qualname__", None)
    if not isinstance(name, str):
        return NAMELESS
    # `outer.<locals>.inner` is the name of a function inside another one.
    own_name = name.rpartition("<locals>.")[2]
    is_lambda = "<" in own_name
    return NAMELESS if is_lambda else encodable(own_name)


def _join_scalars(opening: str, parts: Iterable[tuple[object, ...]], closing: str) -> object:
    """Return rows of scalars as one text: `(1, 2)`, `{a: 1}`.

    A row is a value, or a key and its value. The result is `NAMELESS` if any scalar is.
    """
    rows = list(parts)
    if any(scalar is NAMELESS for row in rows for scalar in row):
        return NAMELESS
    return opening + ", ".join(": ".join(map(str, row)) for row in rows) + closing
