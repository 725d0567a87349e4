"""Which tests will measure, and under which names: the benchmark and the parameters that make up a key."""

import enum
import math
import numbers
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import pytest

from ..core.keys import BY_POSITION, canonical
from .settings import Marks

# What has no name that would stay when the parameters of its test change places.
NAMELESS = object()
# Types, devices and layouts of libraries, which their text tells apart: `torch.float16`, `cuda:1`, `int8`.
NAMED_BY_TEXT = (
    "torch.dtype", "torch.device", "torch.layout", "torch.memory_format", "numpy.dtype", "triton.language.core.dtype",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Planned:
    """A selected test that will measure."""

    item: pytest.Item
    benchmark: str
    parameters: dict[str, object]
    marks: Marks


def benchmark_name(item: pytest.Item) -> str:
    """The benchmark that a test is: its function's name without `test_`, with the class in front if it has one."""
    function = getattr(item, "originalname", None) or item.name
    name = str(function).removeprefix("test_")
    owner = getattr(item, "cls", None)
    return f"{owner.__qualname__}.{name}" if owner is not None else name


def parameters_of(item: pytest.Item) -> dict[str, object]:
    """A test's parameters as its key holds them, whatever their order in the source.

    Scalars as they are; types, devices, functions, enumerations and collections of these by name; other objects by the
    id text that the test gives them. An object without any is told by its position alone, and the key says so.
    """
    spec = getattr(item, "callspec", None)
    if spec is None:
        return {}
    parameters: dict[str, object] = {}
    text, by_id = spec.id, False
    for name, value in spec.params.items():
        told = scalar_of(value)
        # What pytest makes up for an object that it cannot name, alone or beside others.
        made_up = rf"(?:(?<=-)|^){re.escape(name)}\d+(?=-|$)"
        if told is not NAMELESS:
            parameters[name] = told
            text = re.sub(made_up, str(told).replace("\\", r"\\"), text)
        elif place := re.search(made_up + "|<lambda>[^-]*", text):
            parameters[name + BY_POSITION] = place[0]
        else:
            by_id = True
    if by_id:
        # Beside a parameter that is called so itself, the id text takes the next free name.
        parameters["id" if "id" not in spec.params else "id text"] = encodable(text)
    return parameters


def scalar_of(value: object) -> object:
    """A parameter as a scalar: itself, or the name under which everybody knows it; `NAMELESS` where it has none."""
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
    of = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(value, numbers.Complex | bytes | range) or of.startswith(NAMED_BY_TEXT):
        return encodable(str(value).removeprefix("torch."))
    if isinstance(value, Mapping):
        return _together("{", [(scalar_of(key), scalar_of(inner)) for key, inner in value.items()], "}")
    if isinstance(value, list | tuple):
        return _together("(", [(scalar_of(inner),) for inner in value], ")")
    name = getattr(value, "__qualname__", None) or (value.__name__ if isinstance(value, ModuleType) else None)
    name = name.rpartition("<locals>.")[2] if isinstance(name, str) else "<"
    return NAMELESS if "<" in name else encodable(name)


def _together(opening: str, parts: Iterable[tuple[object, ...]], closing: str) -> object:
    """Several scalars as one text; `NAMELESS` where one of them is."""
    rows = list(parts)
    if any(one is NAMELESS for row in rows for one in row):
        return NAMELESS
    return opening + ", ".join(": ".join(str(one) for one in row) for row in rows) + closing


def encodable(text: str) -> str:
    """Text that UTF-8 can hold: lone surrogates become escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def refuse_collisions(planned: Sequence[Planned]) -> None:
    """Two tests must not share a benchmark name and parameters, or their baselines would mix.

    Raises:
        pytest.UsageError: naming both.
    """
    seen: dict[tuple[str, str], Planned] = {}
    for plan in planned:
        other = seen.setdefault((plan.benchmark, canonical(plan.parameters)), plan)
        if other is not plan and other.item.nodeid != plan.item.nodeid:
            raise pytest.UsageError(
                f"{other.item.nodeid} and {plan.item.nodeid} are both the benchmark {plan.benchmark!r} with parameters "
                f"{plan.parameters}; files are no part of the name, so that they can move: rename one of the tests"
            )
