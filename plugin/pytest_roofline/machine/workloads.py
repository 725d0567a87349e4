"""Known work for the self test: copies of so many bytes, and matrix products that draw all the power there is."""

from collections.abc import Callable
from typing import Protocol

import torch

from ..engine.devices import Device

MATMUL_SIZE = 8192


class Workloads(Protocol):
    """What the self test runs."""

    def copy(self, size_bytes: int) -> Callable[[], object]:
        """Copies a buffer of so many bytes into another."""

    def read(self, size_bytes: int) -> Callable[[], object]:
        """Reads a buffer of so many bytes, and writes next to nothing."""

    def matmul(self) -> Callable[[], object] | None:
        """One large bf16 matrix product; None where no power cap could matter."""


class TorchWorkloads:
    """The same on any device of torch's."""

    def __init__(self, device: Device) -> None:
        self._where = torch.device(device.name)

    def copy(self, size_bytes: int) -> Callable[[], object]:
        """`target.copy_(source)` of 8-byte integers, so that nothing can be compressed away."""
        source = torch.randint(-(2**62), 2**62, (max(1, size_bytes // 8),), device=self._where)
        target = torch.zeros_like(source)
        return lambda: target.copy_(source)

    def read(self, size_bytes: int) -> Callable[[], object]:
        """The largest of so many bytes as 8-byte integers, which no sum of theirs could overflow."""
        source = torch.randint(-(2**62), 2**62, (max(1, size_bytes // 8),), device=self._where)
        out = torch.empty((), dtype=source.dtype, device=self._where)
        return lambda: torch.amax(source, dim=(), out=out)

    def matmul(self) -> Callable[[], object] | None:
        """Products of [8192, 8192] matrices; none on a CPU."""
        if self._where.type == "cpu":
            return None
        left, right = (
            torch.randn((MATMUL_SIZE, MATMUL_SIZE), dtype=torch.bfloat16, device=self._where) for _ in range(2)
        )
        out = torch.empty_like(left)
        return lambda: torch.mm(left, right, out=out)
