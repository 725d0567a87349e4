"""Inside attention: the softmax against the matrix products, in time and in FLOPs, forward and backward apart.

FLOPs are counted from the shapes that the profiler recorded: 2·b·m·n·k of a product of [b, m, k] and [b, k, n]. Of a
softmax 5 a score are counted forward (maximum, subtraction, exponential, sum, division) and 4 backward (product, sum,
subtraction, product): a convention, since an exponential is many instructions and a maximum is none that counts.
"""

import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ...core.profiles import AttentionTime, Phase
from .activities import Activity
from .classes import in_attention, parts_of
from .nesting import Node

SOFTMAX_FLOPS: dict[Phase, int] = {"forward": 5, "backward": 4}
# Which inputs of an operator are the two matrices.
_PRODUCTS = {
    "aten::mm": (0, 1), "aten::bmm": (0, 1), "aten::addmm": (1, 2), "aten::baddbmm": (1, 2), "aten::mv": (0, 1),
    "aten::addmv": (1, 2), "aten::_scaled_mm": (0, 1), "aten::_int_mm": (0, 1), "aten::_addmm_activation": (1, 2),
}  # fmt: skip
# Products of activations with each other; those with weights have no batch of matrices.
_BATCHED = ("aten::bmm", "aten::baddbmm")
# Parts of attention that hold no weights, as models call them.
_CORE = re.compile(r"(?i)core|scores?|values?_?product|values|probs|attend|core_attention|scaled_dot_product\w*|sdpa")


def attention_times(activities: Sequence[Activity]) -> list[AttentionTime]:
    """Forward and backward, each where it was seen; empty where no range is attention."""
    inside = [activity for activity in activities if activity.ranges and in_attention(activity.ranges)]
    forward = _phase("forward", [activity for activity in inside if not activity.in_backward], None)
    scores = forward[1] if forward is not None else None
    backward = _phase("backward", [activity for activity in inside if activity.in_backward], scores)
    return [found[0] for found in (forward, backward) if found is not None]


def _phase(
    phase: Phase, activities: Sequence[Activity], scores_before: int | None
) -> tuple[AttentionTime, int | None] | None:
    """The times of one pass with its number of scores."""
    if not activities:
        return None
    softmax = [activity for activity in activities if activity.kind == "attention softmax"]
    products = [activity for activity in activities if activity.kind == "matrix product"]
    core = [activity for activity in products if _is_core(activity)]
    weights = [activity for activity in products if not _is_core(activity)]
    fused_s = _seconds(activity for activity in activities if activity.kind == "attention fused")
    scores = _scores(softmax) if softmax else None
    if softmax and scores is None:
        # A softmax written out has as many scores backward as forward, whatever it is made of.
        scores = scores_before
    time = AttentionTime(
        phase=phase,
        softmax_s=_seconds(softmax),
        products_s=_seconds(core),
        projections_s=_seconds(weights),
        fused_s=fused_s,
        other_s=max(0.0, _seconds(activities) - _seconds(softmax) - _seconds(products) - fused_s),
        softmax_flops=None if scores is None else SOFTMAX_FLOPS[phase] * scores,
        products_flops=product_flops(core),
        projections_flops=product_flops(weights),
    )
    return time, scores


def _seconds(activities: Iterable[Activity]) -> float:
    return sum(activity.seconds for activity in activities)


def _is_core(activity: Activity) -> bool:
    """Whether a product inside attention is one of queries with keys, or of probabilities with values."""
    parts = parts_of(activity.ranges[-1])
    if _CORE.fullmatch(parts[-1]):
        return True
    return in_attention((parts[-1],)) and any(node.event.name in _BATCHED for node in _upward(activity.node))


def _upward(node: Node | None) -> Iterable[Node]:
    while node is not None:
        yield node
        node = node.parent


def _scores(softmax: Sequence[Activity]) -> int | None:
    """How many scores went through the softmax: those of the operator, or of the exponential of one written out."""
    nodes = {id(node): node for activity in softmax for node in _upward(activity.node) if node.event.is_operator}
    for names in (("aten::_softmax", "aten::_softmax_backward_data"), ("aten::exp", "aten::exp_")):
        counts = [_size(node.event.dims, 0) for node in nodes.values() if node.event.name in names]
        known = [count for count in counts if count is not None]
        if known:
            return sum(known) if len(known) == len(counts) else None
    return None


def product_flops(activities: Iterable[Activity]) -> int | None:
    """FLOPs of the matrix products behind activities, each operator once; None where no shape tells."""
    counted: dict[int, int] = {}
    inside: set[int] = set()
    linear: dict[int, int] = {}
    for activity in activities:
        # The outermost that has a formula: a product may be made of products.
        chain = [node for node in _upward(activity.node) if node.event.is_operator]
        for index, node in enumerate(chain):
            flops = flops_of(node)
            if flops is None:
                continue
            if node.event.name == "aten::linear":
                linear[id(node)] = flops
            else:
                counted[id(node)] = flops
                inside |= {id(above) for above in chain[index + 1 :]}
            break
    counted |= {key: flops for key, flops in linear.items() if key not in inside}
    return sum(counted.values()) if counted else None


def flops_of(node: Node) -> int | None:
    """2·b·m·n·k of an operator that multiplies matrices; None of any other, and where its shapes are not recorded."""
    name, dims = node.event.name, node.event.dims
    if name == "aten::linear":
        rows, weight = _size(dims, 0), _shape(dims, 1)
        return 2 * rows * weight[0] if rows is not None and weight is not None and len(weight) == 2 else None
    if name not in _PRODUCTS:
        return None
    left, right = (_shape(dims, index) for index in _PRODUCTS[name])
    if not left or not right or left[-1] != right[-2 if len(right) > 1 else -1]:
        return None
    return 2 * math.prod(left) * (right[-1] if len(right) > 1 else 1)


def _shape(dims: Sequence[Any], index: int) -> list[int] | None:
    shape = dims[index] if index < len(dims) else None
    whole = isinstance(shape, list) and bool(shape) and all(isinstance(size, int) for size in shape)
    return shape if whole else None


def _size(dims: Sequence[Any], index: int) -> int | None:
    shape = _shape(dims, index)
    return None if shape is None else math.prod(shape)
