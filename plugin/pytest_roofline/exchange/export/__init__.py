"""Runs as files that other tools read: each format is a module that names, refuses and writes what goes out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ...baselines.runs import Run
from ...core.errors import BadInput
from . import bencher, github_action_benchmark, pytest_benchmark
from .choosing import Exportable, LeftOut, exportable, refuse_twice


@dataclass(frozen=True, slots=True)
class ExportFormat:
    """One format.

    Args:
        name: for `--to`.
        name_of: what a measurement is called in it; no two may share a name.
        why_not: why it cannot hold a measurement; empty where it can.
        write: the whole document, as plain data.
    """

    name: str
    name_of: Callable[[Exportable], str]
    why_not: Callable[[Exportable], str]
    write: Callable[[Sequence[Exportable]], Any]


# A further format is a module with these functions, and a line here.
FORMATS = (
    ExportFormat("pytest-benchmark", pytest_benchmark.name_of, pytest_benchmark.why_not, pytest_benchmark.write),
    ExportFormat(
        "github-action-benchmark",
        github_action_benchmark.name_of,
        github_action_benchmark.never,
        github_action_benchmark.write_times,
    ),
    ExportFormat(
        "github-action-benchmark-rates",
        github_action_benchmark.name_of,
        github_action_benchmark.why_no_rate,
        github_action_benchmark.write_rates,
    ),
    ExportFormat("bencher", bencher.name_of, bencher.why_not, bencher.write),
)
NAMES = tuple(one.name for one in FORMATS)


@dataclass(frozen=True, slots=True)
class Exported:
    """A document for another tool; None where nothing is fit for it.

    Args:
        document: plain data.
        names: what is in it, as the format calls it.
        left_out: what is not, and why.
    """

    document: Any
    names: tuple[str, ...]
    left_out: tuple[LeftOut, ...]


def export(runs: Sequence[Run], name: str) -> Exported:
    """What of these runs may go out, as a format writes it.

    Raises:
        BadInput: no format of that name, or two measurements would share a name.
        OtherHardware: the runs are of several.
    """
    chosen = next((one for one in FORMATS if one.name == name), None)
    if chosen is None:
        raise BadInput(f"--to is {name!r}; expected one of {', '.join(NAMES)}")
    fit, left_out = exportable(runs)
    reasons = [(one, chosen.why_not(one)) for one in fit]
    left_out += [LeftOut(one.row.label, why, measured=True) for one, why in reasons if why]
    going = [one for one, why in reasons if not why]
    names = [chosen.name_of(one) for one in going]
    refuse_twice(zip(names, going, strict=True))
    return Exported(chosen.write(going) if going else None, tuple(names), tuple(left_out))
