"""The configurations that are tried, without those that cannot be any good by arithmetic alone."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from roofline_kernels.attention.architectures import SHARED_BYTES
from roofline_kernels.attention.configurations import (
    GLUON,
    Configuration,
    Pass,
    loaded_bytes,
    registers,
)

# Tuned is bfloat16.
ELEMENT_BYTES = 2
BLOCKS = (32, 64, 128, 256)
WARPS = (4, 8)
STAGES = (1, 2, 3, 4)
WAVES = (1, 2)
NONKDIMS = (16, 32)
# Tensor descriptors (TMA) are there from this compute capability on.
DESCRIPTORS_FROM = 90
# A share may grow to 2^8 before the output is rescaled, as in FlashAttention-4: far below what float16 holds.
THRESHOLD = 8.0
# Keys of a tile, by head dimension, of which two more fit into Hopper's shared memory; at 256 none do.
OVERLAPPING = {64: (64, 128), 128: (64,)}


def candidates(
    architecture: str, kernel: Pass, head_dim: int, shipped: Configuration
) -> list[Configuration]:
    """The shipped configuration first, then its variants, then the grid, each once; none that is sure not to fit."""
    columns = 1 << max(4, (head_dim - 1).bit_length())

    def fits(one: Configuration) -> bool:
        needed, limit = registers(architecture, kernel, columns, one)
        ahead = loaded_bytes(kernel, columns, ELEMENT_BYTES, one) if one.descriptors else 0
        return needed <= limit and ahead <= SHARED_BYTES[architecture]

    found = [*variants(architecture, kernel, head_dim, shipped), *grid(architecture)]
    return list(dict.fromkeys([shipped, *filter(fits, found)]))


def variants(
    architecture: str, kernel: Pass, head_dim: int, shipped: Configuration
) -> list[Configuration]:
    """Other ways through the forward pass than the shipped one, in tiles in which they fit: Hopper's, and MI300's."""
    if (architecture, kernel, head_dim) == ("gfx942", "forward", 128):
        # Eight warps transpose V through LDS two bytes at a time. Four do not, and spill where two waves are asked for.
        # Compiled by Triton 3.9, causal: 272 registers and one wave, or 209 and two with half of the keys, no spill.
        four = replace(shipped, num_warps=4, waves_per_eu=1, matrix_instr_nonkdim=16)
        return [four, replace(four, block_n=32, waves_per_eu=2)]
    if (architecture, kernel) != ("sm_90", "forward"):
        return []
    overlapping = [
        replace(shipped, overlap=True, block_n=columns, num_stages=stages)
        for columns in OVERLAPPING.get(head_dim, ())
        for stages in (2, 3)
    ]
    return [
        *overlapping,
        replace(shipped, threshold=THRESHOLD),
        replace(shipped, persistent=True),
        *(replace(one, persistent=True) for one in overlapping[:1]),
        replace(shipped, warp_specialize=True, block_m=64, num_warps=4),
        *([GLUON[head_dim]] if head_dim in GLUON else []),
    ]


def grid(architecture: str) -> Iterator[Configuration]:
    """Every combination of what an architecture knows."""
    for block_m, block_n, warps, stages in product(BLOCKS, BLOCKS, WARPS, STAGES):
        for more in _more(architecture):
            yield Configuration(block_m, block_n, warps, stages, **more)


def _more(architecture: str) -> list[dict[str, int]]:
    if is_amd(architecture):
        return [
            {"waves_per_eu": waves, "matrix_instr_nonkdim": rows}
            for waves, rows in product(WAVES, NONKDIMS)
        ]
    if int(architecture.removeprefix("sm_")) >= DESCRIPTORS_FROM:
        return [{"descriptors": False}, {"descriptors": True}]
    return [{}]


def is_amd(architecture: str) -> bool:
    """Whether it is one of AMD's, `gfx…`."""
    return architecture.startswith("gfx")


def name_of(tiles: Configuration) -> str:
    """As people say it: `128×64 w8 s3 tma`, `128×64 w4 s1 wpe2 k16`."""
    parts = [f"{tiles.block_m}×{tiles.block_n}", f"w{tiles.num_warps}", f"s{tiles.num_stages}"]
    parts += (
        ["tma"] * tiles.descriptors + ["ws"] * tiles.warp_specialize + ["overlap"] * tiles.overlap
    )
    parts += [f"threshold{tiles.threshold:g}"] * bool(tiles.threshold) + [
        "persistent"
    ] * tiles.persistent
    parts += ["gluon"] * tiles.gluon
    parts += [f"wpe{tiles.waves_per_eu}"] if tiles.waves_per_eu is not None else []
    parts += [f"k{tiles.matrix_instr_nonkdim}"] if tiles.matrix_instr_nonkdim is not None else []
    return " ".join(parts)
