"""The ways in which callers lay out heads and sequences, as views [B, H, S, D] and back; nothing is ever copied."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch

Layout = Literal["BHSD", "BSHD", "HSD", "BS(HD)"]


@dataclass(frozen=True, slots=True)
class Heads:
    """The numbers of heads of queries and keys, for a layout with heads in the last dimension."""

    queries: int
    keys: int


def heads_of(heads: int | tuple[int, int] | None, layout: Layout) -> Heads | None:
    """Return the caller's `heads`, checked against the layout; None for a layout that has them itself.

    Raises:
        ValueError: the layout is unknown, it needs heads and has none, or has some and needs none.
    """
    if layout not in get_args(Layout):
        raise ValueError(f"layout is {layout!r}; expected one of {', '.join(get_args(Layout))}")
    if layout != "BS(HD)":
        if heads is not None:
            raise ValueError(
                f"heads is {heads!r} with layout {layout!r}, whose tensors tell it; expected None"
            )
        return None
    found = (heads, heads) if isinstance(heads, int) else heads
    whole = (
        isinstance(found, tuple)
        and len(found) == 2
        and all(isinstance(n, int) and n > 0 for n in found)
    )
    if not whole or found is None:
        raise ValueError(
            f"heads is {heads!r} with layout 'BS(HD)'; expected the number of heads, or (of queries, of keys)"
        )
    return Heads(*found)


def as_bhsd(name: str, tensor: torch.Tensor, layout: Layout, heads: int | None) -> torch.Tensor:
    """Return a view [B, H, S, D] of a tensor in `layout`.

    Args:
        name: of the argument, for the error.
        tensor: q, k or v.
        layout: "HSD" has heads and batch as one, so that the view has one batch.
        heads: of this tensor, where the layout folds them.

    Raises:
        ValueError: its shape is not of this layout.
    """
    rank = 3 if layout in ("HSD", "BS(HD)") else 4
    if tensor.ndim != rank:
        raise ValueError(
            f"{name} is {list(tensor.shape)}; expected {rank} dimensions for layout {layout!r}"
        )
    if layout == "BSHD":
        return tensor.transpose(1, 2)
    if layout == "HSD":
        return tensor.unsqueeze(0)
    if layout == "BS(HD)":
        assert heads is not None
        if tensor.shape[2] % heads:
            raise ValueError(
                f"{name} is {list(tensor.shape)}; expected a last dimension that {heads} heads divide"
            )
        return tensor.view(*tensor.shape[:2], heads, tensor.shape[2] // heads).transpose(1, 2)
    return tensor


def from_bhsd(tensor: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return a result [B, H, S, D] as a view in the caller's layout."""
    if layout == "BSHD":
        return tensor.transpose(1, 2)
    if layout == "HSD":
        return tensor.squeeze(0)
    if layout == "BS(HD)":
        return tensor.transpose(1, 2).flatten(2)
    return tensor


def lse_from_bhs(lse: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Return the log-sum-exp [B, H, S] for the caller, without the batch for layout "HSD"."""
    return lse.squeeze(0) if layout == "HSD" else lse
