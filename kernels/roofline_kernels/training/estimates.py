"""The memory that a pass needs at least, so that a pass that cannot fit is not tried.

It is a lower bound: it counts what must be in memory at the same moment, and leaves out what an implementation may not
need (copies, padding, a library's workspace). So a refused case would have failed. Letters: B sequences of S tokens,
T = B·S tokens, D the model's width, F that of the feed-forward part, V the vocabulary, H heads, P parameters.
"""

import torch

from ..transformer import Config
from .precisions import Precision
from .steps import PASSES

# Logits in the loss: what the softmax gave, which is saved, its gradient, and the gradient of what went in.
LOSS_COPIES = 3
FLOAT32 = 4


def bytes_at_least(
    config: Config,
    *,
    batch: int,
    context: int,
    passes: str,
    precision: Precision,
    attention: str = "sdpa",
    execution: str = "eager",
) -> int:
    """Return the bytes that a pass needs at least, including the model.

    With p bytes of a parameter and e of a matrix product's element:

        forward            P·p + casts + T·V·e
        forward_backward   P·p + the larger of: saved + 3·T·V·4, gradients P·p
        step               P·p + moments 2·P·p + the same
        backward           P·p + saved + T·V·4 + gradients P·p
        optimizer          4·P·p

    saved is `saved_bytes`, casts are `cast_bytes`. A compiler may save less, and compute it again; of its own choice no
    more than the logits are counted, once.

    Args:
        config: the model's shape.
        batch: B.
        context: S.
        passes: one of `PASSES`.
        precision: of the pass.
        attention: `naive` keeps its probabilities.
        execution: one of `executing.EXECUTIONS`.

    Raises:
        ValueError: there is no such pass.
    """
    if passes not in PASSES:
        raise ValueError(f"passes is {passes!r}; expected one of {', '.join(PASSES)}")
    weights = config.parameters * precision.parameters.itemsize
    if passes == "optimizer":
        return 4 * weights
    logits = batch * context * config.vocab
    if passes == "forward" or execution == "compile":
        beside = logits * precision.products.itemsize
        casts = cast_bytes(config, precision) if execution != "compile" and precision.cached else 0
        gradients = weights if passes != "forward" else 0
        return _moments(passes, weights) + weights + max(casts + beside, gradients)
    saved = saved_bytes(
        config, batch=batch, context=context, precision=precision, attention=attention
    )
    if passes == "backward":
        return weights + saved + logits * FLOAT32 + weights
    return (
        _moments(passes, weights) + weights + max(saved + LOSS_COPIES * logits * FLOAT32, weights)
    )


def saved_bytes(
    config: Config, *, batch: int, context: int, precision: Precision, attention: str
) -> int:
    """Return the bytes that autograd saves at least, without those of the loss.

    For each block, with r bytes of an element of the residual stream, which is in the parameters' type:

        2·T·D·r   what goes into both norms
        2·T·D·e   what comes out of them, for the matrices behind
        4·T·D·e   queries, keys, values, and the output of the attention
        4·T·F·e   gate, its activation, up, and their product
        B·H·S²·e  of naive attention: the probabilities

    and T·D·(r + e) for the last norm, and the parameters that autocast has cast.
    """
    element, residual = precision.products.itemsize, precision.parameters.itemsize
    tokens = batch * context
    block = tokens * (config.d_model * (2 * residual + 6 * element) + 4 * config.d_ff * element)
    if attention == "naive":
        block += batch * config.heads * context**2 * element
    last = tokens * config.d_model * (residual + element)
    return config.layers * block + last + cast_bytes(config, precision)


def cast_bytes(config: Config, precision: Precision) -> int:
    """Return the bytes of the matrices that autocast casts; 0 without autocast.

    Its cache keeps them until the forward pass ends, and autograd until the backward pass.
    """
    if precision.autocast is None:
        return 0
    norms = (2 * config.layers + 1) * config.d_model
    return (config.parameters - norms) * precision.autocast.itemsize


def activation_bytes(config: Config, batch: int, context: int, dtype: torch.dtype) -> int:
    """Return the bytes of one activation of the residual stream: T·D elements."""
    return batch * context * config.d_model * dtype.itemsize


def _moments(passes: str, weights: int) -> int:
    """Return the bytes of AdamW's two moments; 0 for a pass without the optimizer."""
    return 2 * weights if passes == "step" else 0
