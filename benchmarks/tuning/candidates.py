"""The configurations that are tried, without those that cannot be any good by arithmetic alone."""

from collections.abc import Iterator
from itertools import product

from roofline_kernels.attention.configurations import Configuration, Pass

BLOCKS = (32, 64, 128, 256)
WARPS = (4, 8)
STAGES = (1, 2, 3, 4)
WAVES = (1, 2)
NONKDIMS = (16, 32)
# Tensor descriptors (TMA) are there from this compute capability on.
DESCRIPTORS_FROM = 90
# Accumulators lie in tensor memory on these, and take no registers.
TENSOR_MEMORY = ("sm_100", "sm_103")
# 32-bit registers that a thread (NVIDIA) or a lane (CDNA, accumulation registers among them) can have.
NVIDIA_REGISTERS, AMD_REGISTERS = 255, 512


def candidates(architecture: str, kernel: Pass, head_dim: int, shipped: Configuration) -> list[Configuration]:
    """The shipped configuration first, then the grid, each once."""
    fitting = (one for one in grid(architecture) if registers_left(architecture, kernel, head_dim, one) >= 0)
    return list(dict.fromkeys([shipped, *fitting]))


def grid(architecture: str) -> Iterator[Configuration]:
    """Every combination of what an architecture knows."""
    for block_m, block_n, warps, stages in product(BLOCKS, BLOCKS, WARPS, STAGES):
        for more in _more(architecture):
            yield Configuration(block_m, block_n, warps, stages, **more)


def _more(architecture: str) -> list[dict[str, int]]:
    if is_amd(architecture):
        return [{"waves_per_eu": waves, "matrix_instr_nonkdim": rows} for waves, rows in product(WAVES, NONKDIMS)]
    if int(architecture.removeprefix("sm_")) >= DESCRIPTORS_FROM:
        return [{"descriptors": False}, {"descriptors": True}]
    return [{}]


def is_amd(architecture: str) -> bool:
    """Whether it is one of AMD's, `gfx…`."""
    return architecture.startswith("gfx")


def registers_left(architecture: str, kernel: Pass, head_dim: int, tiles: Configuration) -> float:
    """Registers of a thread beside what must be in them all at once: accumulators and one tile of scores, in float32.

    Below zero a kernel is sure to spill, and to take minutes to compile. Infinite where accumulators lie elsewhere.
    """
    if architecture in TENSOR_MEMORY:
        return float("inf")
    columns = 1 << max(4, (head_dim - 1).bit_length())
    rows = {"forward": tiles.block_m, "d_queries": tiles.block_m, "d_keys": 2 * tiles.block_n}[kernel]
    held = rows * columns + tiles.block_m * tiles.block_n
    if is_amd(architecture):
        return AMD_REGISTERS / (tiles.waves_per_eu or 1) - held / (64 * tiles.num_warps)
    return NVIDIA_REGISTERS - held / (32 * tiles.num_warps)


def name_of(tiles: Configuration) -> str:
    """As people say it: `128×64 w8 s3 tma`, `128×64 w4 s1 wpe2 k16`."""
    parts = [f"{tiles.block_m}×{tiles.block_n}", f"w{tiles.num_warps}", f"s{tiles.num_stages}"]
    parts += ["tma"] * tiles.descriptors + ["ws"] * tiles.warp_specialize
    parts += [f"wpe{tiles.waves_per_eu}"] if tiles.waves_per_eu is not None else []
    parts += [f"k{tiles.matrix_instr_nonkdim}"] if tiles.matrix_instr_nonkdim is not None else []
    return " ".join(parts)
