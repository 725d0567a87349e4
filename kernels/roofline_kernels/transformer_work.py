"""FLOPs and bytes of a transformer's step. Import them from `work`, like all others."""

# In units of the forward pass: for each of its products the backward pass has two, the gradients of both factors.
_TRANSFORMER_PASSES = {"forward": 1, "backward": 2, "forward_backward": 3, "step": 3}


def transformer_flops(
    d_model: int,
    d_ff: int,
    layers: int,
    vocab: int,
    batch: int,
    context: int,
    *,
    passes: str = "forward",
) -> dict[str, int]:
    """Return the model FLOPs of a decoder-only transformer with SwiGLU and a head.

    They are those of its matrix products, as MFU counts them.

    Forward, for each token: 2 for each element of the matrices (4·d_model² and 3·d_model·d_ff a layer, vocab·d_model
    the head; looking up an embedding is no product), and 4·context·d_model a layer for Q Kᵀ and P V. Attention counts
    in full, not halved for the causal mask as in `attention_flops`. Backward is twice forward. Not counted: norms,
    rotary positions, softmax, the loss, the optimizer's arithmetic, and whatever is computed again.

    Source: Chowdhery et al., "PaLM" (2022), appendix B: 6·N + 12·L·H·Q·T for each token, forward and backward, where
    L·H·Q·T is layers·d_model·context. It takes all parameters for N; here N is those that a product multiplies by, so
    that the count is exactly what `torch.utils.flop_counter` finds with naive attention. Fused attention that does not
    know the counter, as PyTorch's on CPUs and Triton kernels, is missing there, and a fused backward pass counts five
    products there for four here.

    Args:
        d_model: width of the residual stream, and of all heads together.
        d_ff: width inside the feed-forward part.
        layers: blocks.
        vocab: tokens that the head tells apart.
        batch: sequences.
        context: tokens of a sequence.
        passes: `forward`, `backward`, `forward_backward`, or `step`, which counts as the latter.

    Raises:
        ValueError: a negative size or unknown passes.
    """
    sizes = (d_model, d_ff, layers, vocab, batch, context)
    if min(sizes) < 0:
        raise ValueError(
            f"the sizes d_model, d_ff, layers, vocab, batch and context are {sizes}; expected zero or more"
        )
    if passes not in _TRANSFORMER_PASSES:
        raise ValueError(f"passes is {passes!r}; expected one of {', '.join(_TRANSFORMER_PASSES)}")
    multiplied = layers * (4 * d_model**2 + 3 * d_model * d_ff) + vocab * d_model
    forward = batch * context * (2 * multiplied + 4 * layers * context * d_model)
    return {"flops": _TRANSFORMER_PASSES[passes] * forward}


def adamw_bytes(parameters: int, element_bytes: int = 4) -> dict[str, int]:
    """Return the bytes of one step of AdamW.

    A step reads parameters, gradients and both moments, and writes all but the gradients. So many bytes are moved in
    one pass over memory, as torch's `fused=True` does; other implementations move more.
    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), algorithm 2.

    Args:
        parameters: how many elements the optimizer has.
        element_bytes: of one element of each of the four; a master copy is not counted.
    """
    return {
        "read_bytes": 4 * parameters * element_bytes,
        "write_bytes": 3 * parameters * element_bytes,
    }
