"""Nodes that were measured before and after a change: those that got it, and those that did not."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..baselines.test_texts import RunFile, environment_of
from ..core.errors import BadInput
from ..core.groups import group_by
from ..core.keys import positional_names_note
from ..hardware import identity_of
from ..stats.verdicts import changes_between
from .files import is_over_several, parse_test

# A node and one of its devices. What no log tells apart has the name of its node twice.
Place = tuple[str, str]
# Log seconds, or their change, by node.
NodeValues = dict[str, float]
# By place, the mean log seconds of each test. Tests are as `files.text_of_test` writes them.
_Times = dict[Place, dict[str, float]]


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """The nodes that got a change, or the controls.

    Args:
        nodes: those that were measured before and after.
        gone: the places that were measured only before; `new` only after.
        changes: by test, the change of each node in log seconds; positive is slower.
        levels: by test, the log seconds of each node after the change.
        lost: by test, the places without a time after the change.
        environment: on how many nodes each fact of the environment changed.
    """

    nodes: tuple[str, ...]
    gone: tuple[Place, ...]
    new: tuple[Place, ...]
    changes: Mapping[str, NodeValues]
    levels: Mapping[str, NodeValues]
    lost: Mapping[str, Sequence[Place]]
    environment: Counter[str]


def group_of(
    before: Sequence[RunFile], after: Sequence[RunFile], belongs: Callable[[str], bool]
) -> NodeGroup:
    """Return one group of nodes, from the runs before and after a change.

    `belongs` tells which nodes are in it. Each place (a node and its device) is compared with itself; the value of a
    node is the mean over its devices.
    """
    sides = [[file for file in side if belongs(file.node)] for side in (before, after)]
    old, new = map(_times, sides)
    # By test and node, a value for each device.
    changes: dict[str, dict[str, list[float]]] = {}
    levels: dict[str, dict[str, list[float]]] = {}
    lost: dict[str, list[Place]] = {}
    for place in old.keys() & new.keys():
        node, _ = place
        for test, old_log_s in old[place].items():
            new_log_s = new[place].get(test)
            if new_log_s is not None:
                changes.setdefault(test, {}).setdefault(node, []).append(new_log_s - old_log_s)
                levels.setdefault(test, {}).setdefault(node, []).append(new_log_s)
            else:
                lost.setdefault(test, []).append(place)
    nodes = {node for by_node in changes.values() for node in by_node}
    return NodeGroup(
        nodes=tuple(sorted(nodes)),
        gone=tuple(sorted(old.keys() - new.keys())),
        new=tuple(sorted(new.keys() - old.keys())),
        changes=_means(changes),
        levels=_means(levels),
        lost={test: sorted(places) for test, places in sorted(lost.items())},
        environment=_environment_changes(*sides),
    )


def refuse_same_runs(before: Iterable[RunFile], after: Iterable[RunFile]) -> None:
    """Raise BadInput where a run is on both sides.

    Its files may have different names.
    """
    paths = {(file.run_id, file.started, file.node): file.path for file in before}
    for file in after:
        path = paths.get((file.run_id, file.started, file.node))
        if path is not None:
            names = path if path == file.path else f"the run in {path} and {file.path}"
            raise BadInput(
                f"{names} is on both sides; name a run from before the change and another run from "
                "after the change"
            )


def _times(files: Sequence[RunFile]) -> _Times:
    """Return the mean log seconds of each test by place. Only fit measurements on one node count."""
    logs: dict[Place, dict[str, list[float]]] = {}
    for file in files:
        node = file.node
        device_of_run = "" if file.imported else identity_of(environment_of(file.environment))
        for test, unfit, hosts, device, seconds in file.rows:
            # Parameters that are named by their position may mean another thing in another run.
            is_named_by_position = positional_names_note(parse_test(test).key.parameters)
            if not (unfit or is_named_by_position or is_over_several(hosts)):
                # The device that the measurement names, else that of its run. A CPU has none, nor has an imported log.
                place = node, device or device_of_run or node
                logs.setdefault(place, {}).setdefault(test, []).append(math.log(seconds))
    return {
        place: {test: fmean(values) for test, values in tests.items()}
        for place, tests in logs.items()
    }


def _means(values: Mapping[str, Mapping[str, Sequence[float]]]) -> dict[str, NodeValues]:
    """Return the mean over the devices of each node, by test.

    Tests and nodes are sorted.
    """
    return {
        test: {node: fmean(by_node[node]) for node in sorted(by_node)}
        for test, by_node in sorted(values.items())
    }


def _environment_changes(before: Iterable[RunFile], after: Iterable[RunFile]) -> Counter[str]:
    """Return on how many nodes each fact of the environment changed."""
    old, new = (group_by(side, lambda file: file.node) for side in (before, after))
    return Counter(
        change
        for node in sorted(old.keys() & new.keys())
        for change in changes_between(
            [environment_of(file.environment).everything() for file in new[node]],
            [environment_of(file.environment).everything() for file in old[node]],
        )
    )
