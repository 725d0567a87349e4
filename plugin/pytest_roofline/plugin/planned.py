"""The tests that measure and their names: the marker's values, and the parameters of a key."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ..baselines.files import Entries, all_entries
from ..core.errors import BadInput, RooflineError, refuse_wide
from ..core.keys import BY_POSITION, CACHES, NAMELESS, Cache, canonical, scalar_of
from ..core.units import count, encodable, listed, parse_fraction
from ..settings.options import (
    FIXTURE,
    MARKER,
    MARKER_KEYWORDS,
    NEEDS,
    OOM,
    RANKS_FIXTURE,
    TIERS,
    tier_key,
)
from ..settings.parsing import parse_options


@dataclass(frozen=True, slots=True)
class Marks:
    """The values of `@pytest.mark.roofline(...)` for a test. The marker nearest to the test wins."""

    tolerance: float | None = None
    tolerance_reason: str | None = None
    cache: Cache | None = None
    budget: float | None = None
    ranks: int | None = None
    gate: bool = False
    tier: str = "quick"
    needs: str | None = None
    mpi: bool = False
    oom: str | None = None
    measures: bool = True


# How a test says that a wide tolerance is meant.
WIDE_MARK = "give a reason: @pytest.mark.roofline(tolerance_reason=…)"


def read_marks(item: pytest.Item) -> Marks:
    """Return the checked values of a test's markers.

    The nearest marker wins.
    """
    merged: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers(MARKER))):
        unknown = sorted(set(mark.kwargs) - set(MARKER_KEYWORDS))
        if unknown or mark.args:
            names = ", ".join(unknown) if unknown else "a positional argument"
            raise pytest.UsageError(
                f"{item.nodeid}: @pytest.mark.roofline does not know {names}; expected {', '.join(MARKER_KEYWORDS)}"
            )
        merged |= mark.kwargs
    try:
        if isinstance(merged.get("tolerance"), str):
            # `80%` is parsed as an option would be; a wide tolerance still needs a reason, which is checked below.
            merged["tolerance"] = parse_fraction(merged["tolerance"], "tolerance")
        return _checked_marks(item, merged)
    except BadInput as error:
        raise pytest.UsageError(f"{item.nodeid}: @pytest.mark.roofline: {error}") from None


def _checked_marks(item: pytest.Item, merged: Mapping[str, Any]) -> Marks:
    """Return the values of a test's markers.

    Raises:
        pytest.UsageError: a value is none that its keyword takes.
        BadInput: the tolerance is wide, and no reason stands beside it.
    """
    for name, value in merged.items():
        # The condition that a value must meet, and a text on it for the message.
        fits, expected = _RULES[name]
        # None is the default of the other keywords, so it may be written there.
        may_be_none = name not in ("gate", "tier", "mpi", "measures")
        if not fits(value) and not (value is None and may_be_none):
            raise pytest.UsageError(
                f"{item.nodeid}: @pytest.mark.roofline has {name}={value!r}; expected {expected}"
            )
    marks = Marks(**merged)
    has_reason = marks.tolerance_reason is not None
    refuse_wide(marks.tolerance, is_deliberate=has_reason, remedy=WIDE_MARK)
    return marks


def _is_positive(value: object) -> bool:
    """Return whether a value is a finite positive number."""
    return (
        isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")
    )


def _is_bool(value: object) -> bool:
    return isinstance(value, bool)


# For each keyword of the marker: the condition on its value, and what a message says that it expects.
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "tolerance": (_is_positive, "a share above zero, such as 0.05"),
    "tolerance_reason": (
        lambda value: isinstance(value, str) and bool(value.strip()),
        "a sentence",
    ),
    "budget": (_is_positive, "seconds above zero"),
    "cache": (lambda value: value in CACHES, f"one of {', '.join(CACHES)}"),
    "ranks": (
        lambda value: _is_positive(value) and isinstance(value, int),
        "a whole number above zero",
    ),
    "gate": (_is_bool, "True or False"),
    "mpi": (_is_bool, "True or False"),
    "measures": (_is_bool, "True, or False for a test that only asserts facts"),
    "tier": (lambda value: value in TIERS, f"one of {', '.join(TIERS)}"),
    "needs": (lambda value: value in NEEDS, f"one of {', '.join(NEEDS)}"),
    "oom": (
        lambda value: value in OOM,
        f"{OOM[0]!r}, which records that memory ran out, where the test would fail otherwise",
    ),
}


@dataclass(frozen=True, slots=True)
class Planned:
    """A selected test that will measure."""

    item: pytest.Item
    benchmark: str
    parameters: dict[str, object]
    marks: Marks

    @classmethod
    def of(cls, item: pytest.Item) -> "Planned":
        """Return the plan of a test, with its marker."""
        return cls(item, benchmark_name(item), parameters_of(item), read_marks(item))

    @property
    def label(self) -> str:
        """The benchmark with the test's own id text."""
        spec = getattr(self.item, "callspec", None)
        return self.benchmark + (f"[{encodable(spec.id)}]" if spec is not None else "")


def benchmark_name(item: pytest.Item) -> str:
    """Return the function's name without `test_`, behind its class if any.

    `originalname` is the name without the parameters in brackets.
    """
    function = getattr(item, "originalname", None) or item.name
    name = str(function).removeprefix("test_")
    owner = getattr(item, "cls", None)
    return f"{owner.__qualname__}.{name}" if owner is not None else name


def parameters_of(item: pytest.Item) -> dict[str, object]:
    """Return a test's parameters for its key, by name, as scalars.

    Scalars stand as they are. Types, devices, functions, enumerations and collections of these stand by name, other
    objects by the id text that the test gives them. An object without an id text stands by its position, and its name
    in the key says so.
    """
    spec = getattr(item, "callspec", None)
    if spec is None:
        return {}
    parameters: dict[str, object] = {}
    # Parts of the id that pytest generated are replaced by values below, as far as these are scalars.
    id_text, needs_id = spec.id, False
    for name, value in spec.params.items():
        scalar = scalar_of(value)
        # pytest makes an id such as `model0` for an object that it cannot name. It is a part of the whole id text.
        generated_id = rf"(?:(?<=-)|^){re.escape(name)}\d+(?=-|$)"
        if scalar is not NAMELESS:
            parameters[name] = scalar
            # `re.sub` reads a backslash in a replacement as an escape, so each is doubled.
            id_text = re.sub(generated_id, str(scalar).replace("\\", r"\\"), id_text)
        elif id_match := re.search(generated_id + "|<lambda>[^-]*", id_text):
            parameters[name + BY_POSITION] = id_match[0]
        else:
            needs_id = True
    if needs_id:
        # A test may have a parameter `id` of its own.
        parameters["id" if "id" not in spec.params else "id text"] = encodable(id_text)
    return parameters


# The sentence with which a test fails that shares its name and parameters with another.
clash_key: pytest.StashKey[str] = pytest.StashKey()


def mark_clashes(planned: Sequence[Planned]) -> None:
    """Mark tests with the same benchmark and parameters.

    They will fail, since their baselines would mix; the other tests of the session run.
    """
    # The first test of each benchmark and parameters.
    firsts: dict[tuple[str, str], Planned] = {}
    for plan in planned:
        first = firsts.setdefault((plan.benchmark, canonical(plan.parameters)), plan)
        if first is plan or first.item.nodeid == plan.item.nodeid:
            continue
        function, path = getattr(plan.item, "originalname", plan.item.name), plan.item.path
        # The proposed name ends with the name of the file, or of its folder where the files lie apart.
        place = path.stem if path.parent == first.item.path.parent else path.parent.name
        sentence = (
            f"{first.item.nodeid} and {plan.item.nodeid} have the same name: benchmark {plan.benchmark!r} with "
            f"parameters {plan.parameters}. The file is not a part of the name. Rename one of the functions, "
            f"for example to {function}_{place}"
        )
        for clashing in (first, plan):
            clashing.item.stash.setdefault(clash_key, sentence)


def measures(item: pytest.Item) -> bool:
    """Return whether a test uses the fixture `roofline`."""
    return FIXTURE in getattr(item, "fixturenames", ())


def uses_ranks(item: pytest.Item) -> bool:
    """Return whether a test uses the fixture `distributed`."""
    return RANKS_FIXTURE in getattr(item, "fixturenames", ())


def world_size_of(item: pytest.Item, marks: Marks) -> int | None:
    """Return the number of ranks a test needs.

    It is its marker's, or its parameter `world_size`; None without either.
    """
    if marks.ranks is not None:
        return marks.ranks
    spec = getattr(item, "callspec", None)
    size = spec.params.get("world_size") if spec is not None else None
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


def by_world(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Group tests by world.

    Those without ranks come first, those with MPI last. Otherwise tests and worlds keep the order in which they were
    collected.
    """
    groups: dict[tuple[bool, int | None] | None, list[pytest.Item]] = {None: []}
    for item in items:
        marks = read_marks(item)
        group = (marks.mpi, world_size_of(item, marks)) if uses_ranks(item) else None
        groups.setdefault(group, []).append(item)

    def needs_mpi(group: tuple[bool, int | None] | None) -> bool:
        """Return whether the tests of a group use MPI."""
        return group is not None and group[0]

    # Tests with and without MPI may have different launchers, so each launcher starts once.
    return [item for group in sorted(groups, key=needs_mpi) for item in groups[group]]


def unmet(needs: str | None, kind: str) -> str | None:
    """Return why a kind of device does not suit a test.

    It is None if it does.
    """
    if needs == "accelerator" and kind == "cpu":
        return "needs an accelerator, found only the CPU"
    if needs == "cpu" and kind != "cpu":
        return f"needs --roofline-device=cpu, found {kind}"
    return None


def plan(items: Sequence[pytest.Item]) -> dict[str, Planned]:
    """Return the measuring tests by node id."""
    return {item.nodeid: Planned.of(item) for item in items}


class PlanWriter:
    """The list of all tests that measure, deselected ones included, a JSON line each.

    `baseline check --prune` reads it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Write the tests that measure into the plan's file."""
        plans = plan([item for item in items if measures(item)])
        lines = [
            json.dumps(
                {
                    "benchmark": planned.benchmark,
                    "parameters": planned.parameters,
                    "id": encodable(test_id),
                }
            )
            for test_id, planned in plans.items()
        ]
        self._path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def select(config: pytest.Config, items: list[pytest.Item], marked: Mapping[str, Marks]) -> None:
    """Mark clashes, and remove tests of higher tiers.

    A test that a threshold names is kept, and so is one that the command line names by its node id.
    """
    measuring = plan([item for item in items if measures(item)])
    mark_clashes(list(measuring.values()))
    options = parse_options(config)
    higher_tiers = TIERS[TIERS.index(options.tier) + 1 :]
    candidates = [
        item for item in items if item.nodeid in marked and marked[item.nodeid].tier in higher_tiers
    ]
    if not candidates:
        return
    entries = _entries(options.baselines)
    left_out = [
        item
        for item in candidates
        if not _is_named(config, item) and not _has_threshold(measuring.get(item.nodeid), entries)
    ]
    if left_out:
        # The items themselves are compared, since a node id may occur twice.
        left_out_ids = set(map(id, left_out))
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if id(item) not in left_out_ids]
        if not any(map(measures, items)):
            tiers = {marked[item.nodeid].tier for item in left_out}
            config.stash[tier_key] = _tier_sentence(options.tier, len(left_out), tiers)


def _tier_sentence(tier: str, left_out_count: int, tiers: Collection[str]) -> str:
    """Return why a run measures nothing.

    All selected tests are of higher tiers.
    """
    lowest_tier = min(tiers, key=TIERS.index)
    return (
        f"this run measures tier {tier}, but the command selects {count(left_out_count, 'test')} of tier "
        f"{listed(sorted(tiers), 2)}. Pass --roofline-tier={lowest_tier}"
    )


def _entries(folders: Sequence[Path]) -> Entries:
    """Return all entries of the baselines.

    A bad file is a usage error.
    """
    try:
        return all_entries(folders)
    except RooflineError as error:
        raise pytest.UsageError(str(error)) from None


def _is_named(config: pytest.Config, item: pytest.Item) -> bool:
    """Return whether the command names this very test."""
    _, _, function = item.nodeid.partition("::")
    named_functions = {str(argument).partition("::")[2] for argument in config.args}
    return "[" in function and function in named_functions


def _has_threshold(planned: Planned | None, entries: Entries) -> bool:
    """Return whether a gating threshold names a test.

    One without parameters holds for all tests of a benchmark, and keeps none of them.
    """
    if planned is None:
        return False
    return any(
        entry.gates
        and entry.kind == "threshold"
        and entry.parameters
        and entry.agrees_with(planned.parameters)
        for name in entries.names(planned.benchmark)
        for entry in entries.of(planned.benchmark, name)
    )


def by_benchmark(plans: Iterable[Planned]) -> dict[str, set[str]]:
    """Return the parameters of every benchmark, each as a text."""
    parameters: dict[str, set[str]] = {}
    for plan in plans:
        parameters.setdefault(plan.benchmark, set()).add(canonical(plan.parameters))
    return parameters
