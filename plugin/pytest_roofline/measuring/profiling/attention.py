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
    "aten::dot": (0, 1), "aten::vdot": (0, 1),
}  # fmt: skip
# Products of activations with each other; those with weights have no batch of matrices, save in a linear layer.
_BATCHED = ("aten::bmm", "aten::baddbmm")
_LINEAR = ("aten::linear", "aten::linear_backward")
_WITH_WEIGHTS = re.compile(
    r"aten::(mkldnn_linear|addmm|_addmm_activation|mm|addmv|mv|_?(scaled|int)_mm|(_scaled)?_grouped_mm|"
    r"\w*convolution\w*|conv\dd)|mkldnn::_?linear\w*|mkl::_mkl_linear"
)
# Parts of attention that hold no weights, as models call them; they decide where no operator tells, as under einsum.
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
    core, weights = _apart(products)
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


def _apart(products: Sequence[Activity]) -> tuple[list[Activity], list[Activity]]:
    """Products inside attention: of queries with keys and probabilities with values, and those with weights."""
    known: dict[int, bool] = {}
    for activity in products:
        told = _of_core(activity.node)
        if told is not None:
            for node in _upward(activity.node):
                # What a matmul does by itself goes with the product in it.
                known.setdefault(id(node), told)
    core: list[Activity] = []
    weights: list[Activity] = []
    for activity in products:
        told = known.get(id(activity.node))
        named = _CORE.fullmatch(parts_of(activity.ranges[-1])[-1]) is not None
        (core if (named if told is None else told) else weights).append(activity)
    return core, weights


def _of_core(node: Node | None) -> bool | None:
    """Whether the operators around a product say that no weights are in it; None where they do not tell."""
    found = [one for one in _upward(node) if one.event.is_operator]
    found += [one for above in found[:1] for one in _upward(above.forward) if one.event.is_operator]
    names = [one.event.name for one in found]
    if any(name in _LINEAR for name in names):
        return False
    batched = next((one for one in found if one.event.name in _BATCHED), None)
    if batched is not None:
        # einsum makes every product a batched one, if of a single matrix.
        shape = _shape(batched.event.dims, 0)
        alone = "aten::einsum" in names and (shape is None or shape[0] == 1)
        return None if alone else True
    return False if any(_WITH_WEIGHTS.fullmatch(name) for name in names) else None


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
    """FLOPs of matrix products, each operator once; None where they are not known of every one, and there is none.

    Args:
        activities: of the class of matrix products alone.
    """
    counted: dict[int, int] = {}
    inside: set[int] = set()
    linear: dict[int, int] = {}
    untold: set[int] = set()
    for activity in activities:
        # The innermost that has a formula: a product may be made of products.
        chain = [node for node in _upward(activity.node) if node.event.is_operator]
        at = next((index for index, node in enumerate(chain) if flops_of(node) is not None), None)
        if at is None:
            if activity.is_known:
                # An operator may have one inside it that tells; a kernel has nothing.
                untold.add(id(chain[0]) if activity.is_operator else 0)
            continue
        node, flops = chain[at], flops_of(chain[at])
        assert flops is not None
        (linear if node.event.name == "aten::linear" else counted)[id(node)] = flops
        if node.event.name != "aten::linear":
            inside |= {id(above) for above in chain[at + 1 :]}
    counted |= {key: flops for key, flops in linear.items() if key not in inside}
    return sum(counted.values()) if counted and untold <= inside else None


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
