"""What `fleet` and `history` found of the planted faults, and what they invented."""

import datetime
from dataclasses import dataclass
from typing import Any

from .fleets import FIRST_NIGHT, Fault, Plan


@dataclass(frozen=True, slots=True)
class Score:
    """Names of the planted faults that were found, and the findings that nothing was planted for."""

    found: tuple[str, ...]
    invented: tuple[str, ...]


def score_fleet(plan: Plan, report: dict[str, Any]) -> Score:
    """Held against `roofline fleet --json`: the right part, at the right level, in the right classes."""
    found, invented = [], []
    wanted = {fault.name: _part(fault) for fault in plan.faults if fault.name.startswith("slow")}
    struck = {part for _, part in wanted.values()} | {
        _part(fault)[1] for fault in plan.faults if fault.name == "drift"
    }
    for finding in report["findings"]:
        part, kinds = (finding["level"], finding["part"]), {one["kind"] for one in finding["slow"]}
        name = next((name for name, place in wanted.items() if place == part), None)
        fault = next((fault for fault in plan.faults if fault.name == name), None)
        if (
            fault is not None
            and set(fault.kinds) <= kinds
            and not kinds - {*fault.kinds, "latency"}
        ):
            found.append(fault.name)
        # A GPU that drifts is slow in its last runs, and may be told so.
        elif finding["part"] not in struck:
            invented.append(f"{finding['level']} {finding['part']}")
    return Score(tuple(found), tuple(invented))


def score_history(plan: Plan, report: dict[str, Any]) -> Score:
    """Held against `roofline history --json`: the right devices, the right tests, and of a step the right night."""
    found, invented = [], []
    for change in report["changes"]:
        fault = next((fault for fault in plan.faults if fault.name == change["kind"]), None)
        right = fault is not None and change["slower"] and _matches(plan, fault, change)
        if right and fault is not None:
            found.append(fault.name)
        else:
            invented.append(
                f"{change['kind']} of {change['found'][0]['label']} on {', '.join(change['units'][:3])}"
            )
    return Score(tuple(found), tuple(invented))


def _part(fault: Fault) -> tuple[str, str]:
    if fault.pair is not None:
        return "link", f"node{fault.node:03d} GPU {fault.pair[0]} – GPU {fault.pair[1]}"
    if fault.gpu is not None:
        return "gpu", f"GPU-{fault.node:08x}-{fault.gpu:04x}"
    return "node", f"node{fault.node:03d}"


def _matches(plan: Plan, fault: Fault, change: dict[str, Any]) -> bool:
    if fault.name == "drift":
        return change["units"] == [_part(fault)[1]]
    night = (FIRST_NIGHT + datetime.timedelta(days=fault.from_night)).date()
    first = datetime.datetime.fromisoformat(change["after"]["started"]).date()
    return len(change["units"]) == plan.nodes * plan.gpus and first == night


def names(plan: Plan, report: str) -> list[str]:
    """The planted faults that a report should tell of."""
    slow = report == "fleet"
    return [fault.name for fault in plan.faults if fault.name.startswith("slow") == slow]
