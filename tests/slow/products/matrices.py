"""Matrices too large to be there: what is looked at of them is computed when it is looked at.

A matrix of normal numbers has rows of a seeded pool; a product knows its operands, and gives the elements of some rows
and columns by multiplying these alone. What nobody multiplied keeps the value that it was filled with.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from roofline_kernels import gemm

# Of numbers; a prime more than a power of two, so that rows begin anywhere.
_POOL = 2**21 + 17
_STEP = 1_000_003
# Numbers of a matrix that an operator may have whole, with those it is made of: what looks for results that were
# remembered is content without, and would take minutes.
MOST_SETTLED = 2**24


@functools.cache
def _pool() -> torch.Tensor:
    return torch.randn(_POOL, generator=torch.Generator().manual_seed(7))


class Source(Protocol):
    """What a matrix holds."""

    @property
    def reads(self) -> int:
        """Numbers of other matrices that all of it is made of."""

    def rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Whole rows."""

    def elements(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        """Where these rows and columns cross."""


@dataclass(frozen=True)
class Normal:
    """Normal random numbers of a type: each row a stretch of the pool, from a place of its own."""

    columns: int
    dtype: torch.dtype
    seed: int

    reads = 0

    def rows(self, rows: torch.Tensor) -> torch.Tensor:
        starts = (rows * _STEP + self.seed * 7919) % (_POOL - self.columns)
        taken = torch.stack([_pool()[start : start + self.columns] for start in starts.tolist()])
        return (taken * (1.0 if self.dtype.itemsize > 1 else gemm.fp8_deviation(self.dtype))).to(self.dtype)

    def elements(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        return self.rows(rows)[:, columns]


@dataclass(frozen=True)
class Filled:
    """One value everywhere."""

    columns: int
    dtype: torch.dtype
    value: float

    reads = 0

    def rows(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.full((len(rows), self.columns), self.value, dtype=self.dtype)

    def elements(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        return self.rows(rows)[:, columns]


@dataclass(frozen=True)
class Product:
    """left [m, k] times weight [n, k], transposed; with the scales of either, [1] or one a row."""

    left: Callable[[torch.Tensor], torch.Tensor]
    weight: Callable[[torch.Tensor], torch.Tensor]
    scales: tuple[torch.Tensor, torch.Tensor] | None
    columns: int
    dtype: torch.dtype
    reads: int

    def rows(self, rows: torch.Tensor) -> torch.Tensor:
        return self.elements(rows, torch.arange(self.columns))

    def elements(self, rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
        # In single precision: the half of the memory, and of no library's rounding but its own.
        found = self.left(rows).float() @ self.weight(columns).float().t()
        if self.scales is not None:
            of_left, of_weight = (scale.reshape(-1) for scale in self.scales)
            found *= (of_left[rows] if len(of_left) > 1 else of_left)[:, None]
            found *= of_weight[columns] if len(of_weight) > 1 else of_weight
        return found.to(self.dtype)


class Matrices:
    """Those of one test, by the address of their memory, which they keep until it ends."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[torch.Tensor, Source]] = {}

    def __contains__(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage().data_ptr() in self._held

    def hold(self, matrix: torch.Tensor, source: Source) -> torch.Tensor:
        """Let a matrix hold what is not there; what it held before is forgotten."""
        self._held[matrix.untyped_storage().data_ptr()] = matrix, source
        return matrix

    def source(self, matrix: torch.Tensor) -> Source:
        """What a matrix, or a view of all of it, holds."""
        return self._held[matrix.untyped_storage().data_ptr()][1]

    def multiply(self, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor, scales: Any) -> None:
        """Let `out` hold a product of which nothing is computed yet: `right` is [k, n], a transposed weight."""
        reads = left.numel() + right.numel()
        self.hold(out, Product(self._rows_of(left), self._rows_of(right.t()), scales, out.shape[1], out.dtype, reads))

    def _rows_of(self, matrix: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
        if matrix not in self:
            return lambda rows: matrix[rows]
        if not matrix.is_contiguous():
            raise NotImplementedError(
                "a large matrix is multiplied by its columns; expected a weight that is transposed"
            )
        return self.source(matrix).rows

    def settle(self, tensor: torch.Tensor) -> None:
        """Put into a matrix what it holds, for an operator that needs it whole.

        Raises:
            NotImplementedError: it would take long.
        """
        matrix, source = self._held[tensor.untyped_storage().data_ptr()]
        if (numbers := matrix.numel() + source.reads) > MOST_SETTLED:
            raise NotImplementedError(f"a matrix of and from {numbers} numbers is not there whole")
        del self._held[tensor.untyped_storage().data_ptr()]
        step = max(1, 2**24 // matrix.shape[1])
        for start in range(0, matrix.shape[0], step):
            rows = torch.arange(start, min(start + step, matrix.shape[0]))
            matrix[rows[0] : rows[-1] + 1] = source.rows(rows)
