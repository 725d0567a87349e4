"""Data for collectives, whose sums are exact in the data's own type.

The data differ by position, rank and iteration. The data of a rank in an iteration are a tile of random values,
repeated without end and begun at a place that depends on rank and iteration. So the sum over ranks is also a repeated
tile, which is computed once.
"""

import functools

import torch

# The length of the tile. It is prime, so that no two rows of memory are equal, and exchanged blocks of any size show.
TILE = 2_097_169
# Elements by which the data of neighbouring ranks, and of neighbouring iterations, are shifted. Both are large, and no
# multiple of a block's size.
_RANK_SHIFT = 900_001
_ITERATION_SHIFT = 350_377
# The byte that fills a receive buffer before an operation. It makes NaN in every floating-point type.
_POISON = 0xFF

# Integers up to 2 to this power are exact in a type.
_EXACT_BITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def most_ranks(dtype: torch.dtype) -> int:
    """Return over how many ranks a sum of whole numbers from -1 to 1 is exact in a type."""
    return int(2 ** _EXACT_BITS[dtype])


class Data:
    """The data that every rank of a group contributes, and their sum.

    Args:
        dtype: of the elements.
        device: where the data are made and compared.
        ranks: ranks in the group.
        summed: whether sums over the ranks must be exact: then values are whole numbers, small enough for any order of
            summation, otherwise random bits.

    Raises:
        ValueError: sums over so many ranks are not exact in this type.
    """

    def __init__(
        self, dtype: torch.dtype, device: torch.device, ranks: int, *, summed: bool
    ) -> None:
        if summed and ranks > most_ranks(dtype):
            raise ValueError(
                f"a sum over {ranks} ranks is not exact in {dtype}; expected at most {most_ranks(dtype)}"
            )
        self.dtype = dtype
        most = most_ranks(dtype) // ranks if summed else 0
        self._tile = _tile(dtype, str(device), most)
        self._sum = _sum(dtype, str(device), most, ranks) if summed else None

    def fill(self, buffer: torch.Tensor, rank: int, iteration: int, first: int = 0) -> None:
        """Write elements `first` … of a rank's data into a contiguous buffer."""
        for piece, values in _pieces(buffer, self._tile, _shift(rank, iteration) + first):
            piece.copy_(values)

    def holds(self, buffer: torch.Tensor, rank: int, iteration: int, first: int = 0) -> bool:
        """Return whether a contiguous buffer holds elements `first` … of a rank's data, bit by bit."""
        pieces = _pieces(bits(buffer), bits(self._tile), _shift(rank, iteration) + first)
        return all(torch.equal(piece, values) for piece, values in pieces)

    def holds_sum(self, buffer: torch.Tensor, iteration: int, first: int = 0) -> bool:
        """Return whether a contiguous buffer holds elements `first` … of the sum over all ranks."""
        assert self._sum is not None
        pieces = _pieces(buffer, self._sum, _shift(0, iteration) + first)
        return all(torch.equal(piece, values) for piece, values in pieces)


def bits(buffer: torch.Tensor) -> torch.Tensor:
    """Return a view of the same memory as integers, which are equal only if every bit is."""
    return buffer.view(_BITS[buffer.element_size()])


def poison(buffer: torch.Tensor) -> None:
    """Fill a contiguous buffer with NaN, which no operation leaves in it."""
    buffer.view(torch.uint8).fill_(_POISON)


def _shift(rank: int, iteration: int) -> int:
    """Return the element of the tile with which a rank's data of an iteration begin."""
    return rank * _RANK_SHIFT + iteration * _ITERATION_SHIFT


def _pieces(
    buffer: torch.Tensor, tile: torch.Tensor, start: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return pieces of a buffer, each with the equally long part of the tile that belongs there.

    `start` is the element of the repeated tile with which the buffer begins.
    """
    pieces = []
    position, offset = 0, start % TILE
    while position < buffer.numel():
        count = min(TILE - offset, buffer.numel() - position)
        pieces.append((buffer[position : position + count], tile[offset : offset + count]))
        position, offset = position + count, 0
    return pieces


@functools.lru_cache(maxsize=8)
def _tile(dtype: torch.dtype, device: str, most: int) -> torch.Tensor:
    """Return random elements with a fixed seed: [TILE].

    They are whole numbers from -most to most, or random bits if `most` is 0.
    """
    generator = torch.Generator().manual_seed(20_240_613)
    if most:
        values = torch.randint(-most, most + 1, (TILE,), generator=generator, dtype=torch.int32)
        return values.to(device).to(dtype)
    noise = torch.randint(0, 256, (TILE * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return noise.to(device).view(dtype)


@functools.lru_cache(maxsize=8)
def _sum(dtype: torch.dtype, device: str, most: int, ranks: int) -> torch.Tensor:
    """Return the sum of all ranks' tiles, each begun at its rank's place: [TILE]."""
    tile = _tile(dtype, device, most)
    total = torch.zeros_like(tile)
    for rank in range(ranks):
        total += tile.roll(-_shift(rank, 0))
    return total
