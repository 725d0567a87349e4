"""Launches on an architecture that this machine does not have, to compile kernels ahead of time.

They are made by `launches` from tensors without memory, so the compiled kernels are those that would run.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch

from . import launches
from .architectures import configured_as
from .configurations import Pass, shipped
from .launches import Problem, Saved
from .launching import Launch
from .masking import causal_shift


@dataclass(frozen=True, slots=True)
class Shape:
    """The tensors of one attention: [batch, heads, seq_q, head_dim], keys with `heads_k` and `seq_k`."""

    head_dim: int
    dtype: torch.dtype = torch.bfloat16
    seq_q: int = 16384
    seq_k: int = 16384
    heads: int = 16
    heads_k: int = 16
    batch: int = 1


def launch_ahead(
    architecture: str,
    kernel: Pass | Literal["delta"],
    shape: Shape,
    *,
    causal: bool = True,
    tile: int | None = None,
) -> Launch:
    """Return the launch of one kernel on an architecture, with "meta" tensors in the layout "BHSD".

    The kernel of the row sums, "delta", is launched so that it also writes the gradient of the output contiguously.

    Raises:
        NoSuchArchitecture: there are no configurations for it.
    """

    def rows(heads: int, seq: int) -> torch.Tensor:
        return torch.empty(
            shape.batch, heads, seq, shape.head_dim, dtype=shape.dtype, device="meta"
        )

    queries, keys = rows(shape.heads, shape.seq_q), rows(shape.heads_k, shape.seq_k)
    values = torch.empty(queries.shape[:3], device="meta")
    shift = causal_shift(shape.seq_q, shape.seq_k, causal, "bottom-right")
    problem = Problem(architecture, shift, causal, 1 / math.sqrt(shape.head_dim), tile)
    if kernel == "delta":
        configured_as(architecture)
        return launches.delta(queries, torch.empty((), dtype=shape.dtype, device="meta").expand(queries.shape), None,
                              values, queries)  # fmt: skip
    if kernel == "forward":
        return launches.forward(problem, queries, keys, keys, queries, values)
    saved = Saved(queries, keys, keys, queries, values, values)
    if kernel == "d_keys":
        return launches.d_keys(problem, saved, keys, keys)
    return launches.d_queries(problem, saved, queries)


def architectures() -> tuple[str, ...]:
    """Return the architectures that have configurations of their own."""
    return tuple(name for name in shipped() if name != "interpreter")
