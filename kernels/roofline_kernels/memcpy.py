"""Memory copies: the sizes of the sweep, buffers that cannot be cheated on, and a Triton copy kernel.

Buffers hold incompressible data, and every byte of a target differs from its source before the first copy, so a copy
that does nothing, or leaves a byte out, is seen.
"""

import functools
import mmap
from collections.abc import Callable

import torch

MIB = 2**20

# The embedding table of Llama 3 8B: 4096 · 128256 · 4. It is no power of two, so a list of powers never runs it.
LAST_SIZE_BYTES = 2_101_346_304
POWERS_BYTES = tuple(2**exponent for exponent in range(12, 31))
# Odd sizes, copied from and to odd addresses.
ODD_SIZES_BYTES = (65_537, 1_000_003, 16_777_259)
SIZES_BYTES = (*POWERS_BYTES, LAST_SIZE_BYTES)
# The powers of two nearest to 4096 · 10^k, and the last size.
DECADE_SIZES_BYTES = (2**12, 2**15, 2**19, 2**22, 2**25, 2**29, LAST_SIZE_BYTES)

# A tile of random bytes whose length is prime, so that no two rows of memory are alike.
_TILE_BYTES = 8 * MIB + 9
_SLAB_BYTES = 64 * MIB
_CHUNK_BYTES = 64 * MIB
# Buffers start on this boundary, as an allocator's would; odd sizes then move off it by one.
_ALIGNMENT = 256
# Fresh memory comes page by page; from here up huge pages make the first touch ten times faster.
_HUGE_FROM_BYTES = 4 * MIB


@functools.cache
def random_tile(device: str) -> torch.Tensor:
    """Random bytes with a fixed seed: [8 MiB + 9], uint8. Memory compression cannot shorten them."""
    generator = torch.Generator().manual_seed(20_240_612)
    tile = torch.randint(0, 256, (_TILE_BYTES,), dtype=torch.uint8, generator=generator)
    return tile.to(device)


def fill_random(buffer: torch.Tensor, start: int = 0) -> torch.Tensor:
    """Fill a uint8 buffer with the random tile, beginning at `start` of it; returns the buffer."""
    tile = random_tile(str(buffer.device))
    position, offset = 0, start % _TILE_BYTES
    while position < buffer.numel():
        count = min(_TILE_BYTES - offset, buffer.numel() - position)
        buffer[position : position + count].copy_(tile[offset : offset + count])
        position, offset = position + count, 0
    return buffer


def allocate(size_bytes: int, device: torch.device, pinned: bool = False) -> torch.Tensor:
    """Uninitialised bytes: [size_bytes], uint8. Pageable host memory comes in huge pages where Linux has them."""
    if device.type != "cpu":
        return torch.empty(size_bytes, dtype=torch.uint8, device=device)
    if pinned:
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
    if size_bytes < _HUGE_FROM_BYTES or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.empty(size_bytes, dtype=torch.uint8)
    pages = mmap.mmap(-1, size_bytes)
    pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.uint8)


class CopyBuffers:
    """Fresh (source, target) pairs, carved from slabs, so that ten thousand small pairs cost little to make.

    Args:
        size_bytes: bytes of each buffer.
        source: device of the sources.
        target: device of the targets; the same as `source` for a local copy.
        pinned: whether host memory is page-locked.
        odd_address: whether buffers start one byte off their alignment.
    """

    def __init__(
        self,
        size_bytes: int,
        source: torch.device,
        target: torch.device,
        *,
        pinned: bool = False,
        odd_address: bool = False,
    ) -> None:
        self.size_bytes = size_bytes
        self._source, self._target = source, target
        self._pinned = pinned
        self._shift = 1 if odd_address else 0
        self._stride = -(-(size_bytes + self._shift) // _ALIGNMENT) * _ALIGNMENT
        self._left: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._slabs = 0

    def pair(self) -> tuple[torch.Tensor, torch.Tensor]:
        """One pair, each [size_bytes], uint8, contiguous; every byte of the target differs from the source's."""
        if not self._left:
            self._left = self._new_slab()
        return self._left.pop()

    def _new_slab(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        count = max(1, _SLAB_BYTES // (2 * self._stride))
        sources = allocate(count * self._stride, self._source, self._pinned)
        targets = allocate(count * self._stride, self._target, self._pinned)
        self._slabs += 1
        fill_random(sources, start=self._slabs * 1_000_003)
        if self._source == self._target:
            torch.bitwise_not(sources, out=targets)
        else:
            targets.copy_(sources)
            targets.bitwise_not_()
        starts = range(self._shift, count * self._stride, self._stride)
        return [(sources[at : at + self.size_bytes], targets[at : at + self.size_bytes]) for at in starts]


def memory_needed(size_bytes: int) -> int:
    """Bytes that a pair takes, with the slab's rounding and the working memory of making and checking it."""
    return 2 * (size_bytes + _ALIGNMENT) + 2 * _CHUNK_BYTES + _TILE_BYTES


def copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """PyTorch's own copy; asynchronous where source or target is on an accelerator."""
    target.copy_(source, non_blocking=True)


def same(source: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether every byte arrived, whichever devices the two are on; compared in pieces, which takes little memory."""
    if source.numel() != target.numel():
        return False
    pieces = zip(source.split(_CHUNK_BYTES), target.split(_CHUNK_BYTES), strict=True)
    return all(torch.equal(left, right.to(left.device)) for left, right in pieces)


def triton_copy(block: int = 16_384) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """A copy by the multiprocessors, as a Triton kernel, for contiguous uint8 buffers on one accelerator.

    Args:
        block: bytes that one program copies.

    Raises:
        ImportError: Triton is not installed.
    """
    from .memcpy_triton import launch

    return functools.partial(launch, block=block)
