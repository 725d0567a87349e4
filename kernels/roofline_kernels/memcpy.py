"""Memory copies: the sizes of the sweep, buffers that cannot be cheated on, and a Triton copy kernel.

Buffers hold data that cannot be compressed. Every byte of a target differs from its source before the first copy, so
the check finds a copy that does nothing, or leaves out a byte.
"""

import functools
import mmap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

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
    """Return random bytes with a fixed seed: [8 MiB + 9], uint8. They cannot be compressed."""
    generator = torch.Generator().manual_seed(20_240_612)
    tile = torch.randint(0, 256, (_TILE_BYTES,), dtype=torch.uint8, generator=generator)
    return tile.to(device)


def fill_random(buffer: torch.Tensor, start: int = 0) -> torch.Tensor:
    """Fill a uint8 buffer with the repeated random tile, from its byte `start` on; return the buffer."""
    tile = random_tile(str(buffer.device))
    position, offset = 0, start % _TILE_BYTES
    while position < buffer.numel():
        count = min(_TILE_BYTES - offset, buffer.numel() - position)
        buffer[position : position + count].copy_(tile[offset : offset + count])
        position, offset = position + count, 0
    return buffer


def allocate(size_bytes: int, device: torch.device, pinned: bool = False) -> torch.Tensor:
    """Return uninitialised bytes: [size_bytes], uint8.

    Large pageable host memory is in huge pages if the system has them.
    """
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
    """A maker of (source, target) pairs. They are views of slabs, so that many small pairs cost little.

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
        self._unused_pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._slabs = 0

    def pair(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a new pair, each [size_bytes], uint8, contiguous.

        Every byte of the target differs from the source's.
        """
        if not self._unused_pairs:
            self._unused_pairs = self._new_slab()
        return self._unused_pairs.pop()

    def _new_slab(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the pairs of a new slab, the one with the highest address first."""
        count = max(1, _SLAB_BYTES // (2 * self._stride))
        sources = allocate(count * self._stride, self._source, self._pinned)
        targets = allocate(count * self._stride, self._target, self._pinned)
        self._slabs += 1
        fill_random(sources, start=self._slabs * 1_000_003)
        _invert(sources, targets)
        # `pair` takes them from the end of the list, so in the order of their addresses.
        starts = reversed(range(self._shift, count * self._stride, self._stride))
        return [
            (sources[at : at + self.size_bytes], targets[at : at + self.size_bytes])
            for at in starts
        ]


def memory_needed(size_bytes: int, pinned: bool = False) -> int:
    """Return the bytes that a pair takes, with the working memory to make and check it.

    In a copy between two memories, each of them needs half of it.

    Args:
        size_bytes: of each buffer.
        pinned: whether they are page-locked: torch takes the next power of two, twice the size at worst.
    """
    buffer_bytes = size_bytes + _ALIGNMENT
    if pinned:
        slab_bytes = -(-size_bytes // _ALIGNMENT) * _ALIGNMENT
        buffer_bytes = 1 << (slab_bytes - 1).bit_length()
    return 2 * (buffer_bytes + 2 * _CHUNK_BYTES + _TILE_BYTES)


def copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copy by PyTorch. It may return before the copy is done if an accelerator takes part."""
    target.copy_(source, non_blocking=True)


@dataclass(frozen=True, slots=True)
class _Run:
    """Pairs that are evenly spaced in one slab of sources and one of targets.

    Args:
        first: the number of the first pair.
        pair: the first one.
        count: pairs.
        strides: bytes from one source, and from one target, to the next.
    """

    first: int
    pair: tuple[torch.Tensor, torch.Tensor]
    count: int
    strides: tuple[int, int]

    def rows(self, side: int, device: torch.device | None = None) -> torch.Tensor:
        """Return all sources (side 0) or targets (side 1): [count, size_bytes], uint8.

        They are a view, or a copy on another device.
        """
        first, stride = self.pair[side], self.strides[side]
        span = (self.count - 1) * stride + first.numel()
        # The bytes between them are moved too, so that it is one transfer. Otherwise the host would gather the rows.
        whole = first.as_strided((span,), (1,)).to(device or first.device)
        return whole.as_strided((self.count, first.numel()), (stride, 1))


class Same:
    """The check of copies, for one pair or for all timed pairs: a `verify` of `roofline.measure`.

    If one buffer of a pair is on an accelerator, both are compared there, since a host would need seconds for 2 GB.
    Each comparison waits for the device, so all pairs of a slab are compared together.
    """

    def __call__(self, source: torch.Tensor, target: torch.Tensor) -> bool:
        """Return whether both buffers of a pair are equal. Comparing in pieces takes little memory."""
        if source.numel() != target.numel():
            return False
        where = _compared_on(source, target)
        pieces = zip(source.split(_CHUNK_BYTES), target.split(_CHUNK_BYTES), strict=True)
        return all(torch.equal(left.to(where), right.to(where)) for left, right in pieces)

    def spoil(self, sets: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Make every byte of the targets differ from its source again, as in fresh pairs."""
        for run in _runs(sets):
            if run.count == 1:
                _invert(*run.pair)
            else:
                _invert(run.rows(0), run.rows(1))

    def first_wrong(self, sets: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> int | None:
        """Return the index of the first pair whose target differs from its source; None without one."""
        for run in _runs(sets):
            if run.count == 1:
                if not self(*run.pair):
                    return run.first
                continue
            where = _compared_on(*run.pair)
            left, right = run.rows(0, where), run.rows(1, where)
            if not torch.equal(left, right):
                return run.first + int((left != right).any(dim=1).nonzero()[0])
        return None


same = Same()


def _compared_on(source: torch.Tensor, target: torch.Tensor) -> torch.device:
    """Return the device to compare a pair on: an accelerator if one of them is there."""
    return target.device if source.device.type == "cpu" else source.device


def _invert(sources: torch.Tensor, targets: torch.Tensor) -> None:
    """Make every byte of the targets differ from its source, by inverting all bits.

    An accelerator inverts them if there is one, and the host at most moves bytes.
    """
    if sources.device == targets.device:
        torch.bitwise_not(sources, out=targets)
    elif targets.device.type == "cpu":
        pieces = zip(sources.split(_CHUNK_BYTES), targets.split(_CHUNK_BYTES), strict=True)
        for left, right in pieces:
            right.copy_(left.bitwise_not())
    else:
        targets.copy_(sources)
        targets.bitwise_not_()


def _runs(sets: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Iterator[_Run]:
    """Yield all pairs in runs, in order. A run is evenly spaced and spans no more than a chunk."""
    at = 0
    while at < len(sets):
        run = _run_from(sets, at)
        yield run
        at += run.count


def _run_from(sets: Sequence[tuple[torch.Tensor, torch.Tensor]], first: int) -> _Run:
    """Return the longest run that begins with a pair; of this pair alone if the next does not fit."""
    pair = sets[first]
    size_bytes = pair[0].numel()
    alone = _Run(first, pair, 1, (size_bytes, size_bytes))
    if first + 1 == len(sets) or not size_bytes or not all(_like(one, size_bytes) for one in pair):
        return alone
    starts = [one.data_ptr() for one in pair]
    strides = [
        after.data_ptr() - start for after, start in zip(sets[first + 1], starts, strict=True)
    ]
    if min(strides) < size_bytes:
        return alone
    most = _CHUNK_BYTES // max(strides)
    for one, start, stride in zip(pair, starts, strides, strict=True):
        memory = one.untyped_storage()
        # A pair beyond the end of this memory belongs to another allocation, even if it is evenly spaced.
        most = min(most, (memory.data_ptr() + memory.nbytes() - start - size_bytes) // stride + 1)
    count = 1
    for source, target in sets[first + 1 : first + most]:
        if (source.data_ptr(), target.data_ptr()) != (
            starts[0] + count * strides[0],
            starts[1] + count * strides[1],
        ):
            break
        if not (_like(source, size_bytes) and _like(target, size_bytes)):
            break
        count += 1
    return _Run(first, pair, count, (strides[0], strides[1])) if count > 1 else alone


def _like(buffer: torch.Tensor, size_bytes: int) -> bool:
    """Return whether a buffer holds so many contiguous bytes."""
    return buffer.numel() == size_bytes and buffer.dtype == torch.uint8 and buffer.is_contiguous()


def triton_copy(block: int = 16_384) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Return a copy by a Triton kernel, for contiguous uint8 buffers on one accelerator.

    Args:
        block: bytes that one program copies.

    Raises:
        ImportError: Triton is not installed.
    """
    from .memcpy_triton import launch

    return functools.partial(launch, block=block)
