"""The causal mask: the keys that a query sees.

Where queries and keys differ in number there are two causal masks. PyTorch's `is_causal` is top-left: query 0 sees
key 0. FlashAttention's (since 2.1) is bottom-right: the last query sees the last key, as in decoding with a cache.
"""

from typing import Literal, get_args

import torch

Alignment = Literal["top-left", "bottom-right"]


def causal_shift(seq_q: int, seq_k: int, causal: bool, alignment: Alignment | None) -> int:
    """Return the shift of the diagonal: key j is visible to query i if j <= i + shift.

    Args:
        seq_q: queries.
        seq_k: keys.
        causal: False lets every query see every key, as a shift by `seq_k` does.
        alignment: which corner of the mask holds the diagonal; may be None where `seq_q` is `seq_k`.

    Raises:
        ValueError: the alignment is unknown, or it is needed and not named.
    """
    if alignment is not None and alignment not in get_args(Alignment):
        raise ValueError(f"alignment {alignment!r}; expected 'top-left' or 'bottom-right'")
    if not causal:
        return seq_k
    if alignment is None and seq_q != seq_k:
        raise ValueError(
            f"causal with {seq_q} queries and {seq_k} keys, and no alignment; expected alignment='top-left' "
            "(PyTorch's is_causal) or 'bottom-right' (FlashAttention's)"
        )
    return seq_k - seq_q if alignment == "bottom-right" else 0


def visible_keys(queries: torch.Tensor, keys: torch.Tensor, shift: int) -> torch.Tensor:
    """Return for each query which keys it sees.

    Args:
        queries: [S_q], integers: their positions.
        keys: [S_k], integers: their positions.
        shift: see `causal_shift`.

    Returns:
        [S_q, S_k], bool.
    """
    return keys[None, :] <= queries[:, None] + shift
