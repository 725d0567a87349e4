"""Which tests will measure, and under which names: the benchmark and the parameters that make up a key."""

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from .core.keys import canonical
from .settings import Marks


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
    """The scalars of a test's parameters; the id text for those that are none."""
    spec = getattr(item, "callspec", None)
    if spec is None:
        return {}
    parameters: dict[str, object] = {}
    by_id = False
    for name, value in spec.params.items():
        if type(value) is int and abs(value) >= 2**63:
            parameters[name] = str(value)
        elif type(value) in (int, bool, type(None)) or (type(value) is float and value - value == 0):
            parameters[name] = value
        elif type(value) is str:
            parameters[name] = encodable(value)
        else:
            by_id = True
    if by_id:
        # Beside a parameter that is called so itself, the id text takes the next free name.
        parameters["id" if "id" not in spec.params else "id text"] = encodable(spec.id)
    return parameters


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
