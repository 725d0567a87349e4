"""What is tuned: one kernel of attention at one shape. bfloat16, whole tiles, a key head for each query head."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from pytest_roofline.core.errors import BadInput
from roofline_kernels.attention.configurations import Pass
from roofline_kernels.work import attention_flops

# Matrix products of a tile: scores and output; scores, dP, dV and dK; scores, dP and dQ.
PRODUCTS: dict[Pass, int] = {"forward": 2, "d_keys": 4, "d_queries": 3}


@dataclass(frozen=True, slots=True)
class Setting:
    """Self-attention of [batch, heads, sequence, head_dim]."""

    head_dim: int
    causal: bool
    batch: int
    heads: int
    sequence: int

    @property
    def label(self) -> str:
        """`d64 causal 1x16x16384`."""
        return f"d{self.head_dim} {'causal' if self.causal else 'full'} {self.batch}x{self.heads}x{self.sequence}"

    def flops(self, passes: str) -> int:
        """FLOPs of `forward` or `backward`, as the field counts them."""
        sizes = (self.batch, self.heads, self.sequence, self.sequence, self.head_dim)
        return attention_flops(*sizes, causal=self.causal, passes=passes)["flops"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One kernel at one setting."""

    kernel: Pass
    setting: Setting

    @property
    def label(self) -> str:
        """`forward d64 causal 1x16x16384`."""
        return f"{self.kernel} {self.setting.label}"

    @property
    def flops(self) -> int:
        """FLOPs of the products that this kernel does: both backward kernels work the scores and dP out."""
        return self.setting.flops("forward") * PRODUCTS[self.kernel] // PRODUCTS["forward"]


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape as the command line has it; heads are given, or columns of all heads together."""

    batch: int
    sequence: int
    heads: int = 0
    columns: int = 0

    def setting(self, head_dim: int, causal: bool) -> Setting:
        """The shape at a head dimension.

        Raises:
            BadInput: the columns are not a multiple of it.
        """
        if self.columns % head_dim:
            raise BadInput(
                f"--shape has {self.columns} columns; expected a multiple of the head dimension {head_dim}"
            )
        return Setting(
            head_dim, causal, self.batch, self.heads or self.columns // head_dim, self.sequence
        )


def parse_shape(text: str) -> Shape:
    """A shape from `1x16x16384` (batch, heads, sequence) or `4x2048/Dx4096` (heads of 2048 columns in all).

    Raises:
        BadInput: it is neither.
    """
    found = re.fullmatch(r"([1-9][0-9]*)x([1-9][0-9]*)(/D)?x([1-9][0-9]*)", text)
    if not found:
        raise BadInput(
            f"--shape is {text!r}; expected BATCHxHEADSxSEQUENCE, as 1x16x16384 or 4x2048/Dx4096"
        )
    batch, count, sequence = (int(found[group]) for group in (1, 2, 4))
    return (
        Shape(batch, sequence, columns=count) if found[3] else Shape(batch, sequence, heads=count)
    )


def settings(
    shapes: Sequence[Shape], head_dims: Sequence[int], masks: Sequence[bool]
) -> list[Setting]:
    """Every shape at every head dimension, with and without a mask."""
    return [
        shape.setting(head_dim, causal)
        for head_dim, causal, shape in product(head_dims, masks, shapes)
    ]


def problems(settings: Sequence[Setting], kernels: Sequence[Pass]) -> Iterator[Problem]:
    """Setting by setting, since its kernels share their tensors."""
    return (Problem(kernel, setting) for setting, kernel in product(settings, kernels))
