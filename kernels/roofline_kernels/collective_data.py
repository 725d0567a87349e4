"""Data for collectives: they differ by position, rank and iteration, and their sums are exact in the data's own type.

Rank r's data of iteration s are an endless sequence: a tile of random values of prime length, begun at a place that
depends on r and s. So the sum over ranks is a sequence of the same kind, whose tile is worked out once.
"""

import functools

import torch

# Prime, so that no two rows of memory are alike, and blocks that change places are seen whatever their size.
TILE = 2_097_169
# By how many elements the data of neighbouring ranks, and of neighbouring iterations, are shifted: far apart, and no
# multiples of a block's size.
_RANK_SHIFT = 900_001
_ITERATION_SHIFT = 350_377
# A byte of the poison, before an operation, and of what no rank may touch: NaN in every floating-point type.
_POISON = 0xFF

# Integers up to 2 to this power are exact in a type.
_EXACT_BITS = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def most_ranks(dtype: torch.dtype) -> int:
    """Over how many ranks a sum of whole numbers other than zero is exact in a type."""
    return int(2 ** _EXACT_BITS[dtype])


class Data:
    """What every rank of a group contributes, and what their sum is.

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
        """Whether a contiguous buffer holds elements `first` … of a rank's data, bit by bit."""
        pieces = _pieces(bits(buffer), bits(self._tile), _shift(rank, iteration) + first)
        return all(torch.equal(piece, values) for piece, values in pieces)

    def holds_sum(self, buffer: torch.Tensor, iteration: int, first: int = 0) -> bool:
        """Whether a contiguous buffer holds elements `first` … of the sum over all ranks."""
        assert self._sum is not None
        pieces = _pieces(buffer, self._sum, _shift(0, iteration) + first)
        return all(torch.equal(piece, values) for piece, values in pieces)


def bits(buffer: torch.Tensor) -> torch.Tensor:
    """The same memory as integers, which compare equal only where every bit is."""
    return buffer.view(_BITS[buffer.element_size()])


def poison(buffer: torch.Tensor) -> None:
    """Fill a contiguous buffer with what no operation leaves: NaN throughout."""
    buffer.view(torch.uint8).fill_(_POISON)


def _shift(rank: int, iteration: int) -> int:
    return rank * _RANK_SHIFT + iteration * _ITERATION_SHIFT


def _pieces(
    buffer: torch.Tensor, tile: torch.Tensor, start: int
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """A buffer cut where the tile ends, each piece with the part of the tile that belongs to it."""
    pieces = []
    position, offset = 0, start % TILE
    while position < buffer.numel():
        count = min(TILE - offset, buffer.numel() - position)
        pieces.append((buffer[position : position + count], tile[offset : offset + count]))
        position, offset = position + count, 0
    return pieces


@functools.lru_cache(maxsize=8)
def _tile(dtype: torch.dtype, device: str, most: int) -> torch.Tensor:
    """Random elements with a fixed seed: [TILE]. Whole numbers from -most to most, or any bits where most is 0."""
    generator = torch.Generator().manual_seed(20_240_613)
    if most:
        values = torch.randint(-most, most + 1, (TILE,), generator=generator, dtype=torch.int32)
        return values.to(device).to(dtype)
    noise = torch.randint(0, 256, (TILE * dtype.itemsize,), generator=generator, dtype=torch.uint8)
    return noise.to(device).view(dtype)


@functools.lru_cache(maxsize=8)
def _sum(dtype: torch.dtype, device: str, most: int, ranks: int) -> torch.Tensor:
    """The sum over ranks of the tile as each of them begins it: [TILE]."""
    tile = _tile(dtype, device, most)
    total = torch.zeros_like(tile)
    for rank in range(ranks):
        total += tile.roll(-_shift(rank, 0))
    return total
