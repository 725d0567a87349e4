"""The tiles, warps and stages of each kernel on each architecture, from configurations.json."""

import contextlib
import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal, get_args

from .architectures import configured_as

Pass = Literal["forward", "d_keys", "d_queries"]
PASSES: tuple[Pass, ...] = get_args(Pass)
TILES = (16, 32, 64, 128, 256)
# The number of warps that issue a matrix instruction of Hopper together.
WARPGROUP = 4


@dataclass(frozen=True, slots=True)
class Configuration:
    """The parameters with which one kernel is compiled.

    Args:
        block_m: queries of a tile.
        block_n: keys of a tile.
        num_warps: warps (wavefronts on AMD) of a program.
        num_stages: loads that are under way at once.
        descriptors: whether tiles come by tensor descriptors (TMA), where strides and addresses allow them.
        warp_specialize: whether some warps only load and others only compute.
        waves_per_eu: AMD: how many waves a SIMD is to hold, which bounds the registers.
        matrix_instr_nonkdim: AMD: rows of one matrix instruction, 16 or 32.
        overlap: forward: whether the scores of the next tile are under way under the softmax of this one.
        threshold: forward: the running output is rescaled only where a score exceeds its row's base by more than this,
            in powers of two; 0 rescales it at every tile.
        persistent: forward: whether as many programs as there are multiprocessors take one block after the other.
        gluon: forward: whether it is the kernel in Gluon, see `triton_gluon_forward`; `num_warps` are those that
            compute.
    """

    block_m: int
    block_n: int
    num_warps: int
    num_stages: int
    descriptors: bool = False
    warp_specialize: bool = False
    waves_per_eu: int | None = None
    matrix_instr_nonkdim: int | None = None
    overlap: bool = False
    threshold: float = 0.0
    persistent: bool = False
    gluon: bool = False

    def options(self) -> dict[str, Any]:
        """Return the options for the compiler."""
        options: dict[str, Any] = {
            # Those with which a program begins; a kernel in Gluon names its others itself.
            "num_warps": WARPGROUP if self.gluon else self.num_warps,
            "num_stages": self.num_stages,
            # The default is announced to turn off; without it every scaling of a score costs one instruction more.
            # Under an overlap that one must come first: fused, it reads the scores while the next ones are written over
            # them, and ptxas then lets each matrix instruction wait for the one before (C7514).
            "enable_fp_fusion": not self.overlap,
        }
        for name in ("waves_per_eu", "matrix_instr_nonkdim"):
            if getattr(self, name) is not None:
                options[name] = getattr(self, name)
        return options


# The forward pass in Gluon by head dimension, two-byte types and Hopper only: as many stages as fit. It is no default
# until a card has shown that it is faster.
GLUON = {
    head_dim: Configuration(128, 128, 8, stages, descriptors=True, persistent=True, gluon=True)
    for head_dim, stages in ((64, 4), (128, 2))
}
# Accumulators lie in tensor memory on these, and take no registers.
TENSOR_MEMORY = ("sm_100", "sm_103")
# 32-bit registers that a thread (NVIDIA) or a lane (CDNA, accumulation registers among them) can have.
NVIDIA_REGISTERS, AMD_REGISTERS = 255, 512


def registers(
    architecture: str, kernel: Pass, block_d: int, tiles: Configuration
) -> tuple[int, int]:
    """Return the registers that a thread needs at least, and how many it can have.

    It needs them for accumulators and a tile of scores in float32, all at once. A kernel with fewer registers would
    spill, and take minutes to compile.

    Args:
        architecture: `sm_90`, `gfx942`, …, or `interpreter`, which has as many as it likes.
        kernel: one of `PASSES`.
        block_d: columns of a tile, a power of two.
        tiles: how it is compiled.
    """
    rows = {"forward": tiles.block_m, "d_queries": tiles.block_m, "d_keys": 2 * tiles.block_n}[
        kernel
    ]
    numbers = rows * block_d + tiles.block_m * tiles.block_n
    if architecture.startswith("gfx"):
        return -(-numbers // (64 * tiles.num_warps)), AMD_REGISTERS // (tiles.waves_per_eu or 1)
    if architecture == "interpreter" or architecture in TENSOR_MEMORY:
        return 0, NVIDIA_REGISTERS
    return -(-numbers // (32 * tiles.num_warps)), NVIDIA_REGISTERS


def loaded_bytes(kernel: Pass, block_d: int, element_bytes: int, tiles: Configuration) -> int:
    """Return the shared memory that loads by descriptors need at least.

    Every stage of the loop has a tile of each of two tensors: keys and values, or for `d_keys` queries and the gradient
    of the output. With one stage, both may use the same memory. For loads by pointers there is no such bound, since the
    compiler gives some of them fewer stages.

    Args:
        kernel: one of `PASSES`.
        block_d: columns of a tile.
        element_bytes: 2 or 4.
        tiles: how it is compiled.
    """
    rows = tiles.block_m if kernel == "d_keys" else tiles.block_n
    return (2 * tiles.num_stages if tiles.num_stages > 1 else 1) * rows * block_d * element_bytes


# It holds for all threads of the process, since autograd runs the backward pass of a GPU in another thread.
_chosen: dict[str, Configuration] = {}


@contextlib.contextmanager
def chosen(**configurations: Configuration) -> Iterator[None]:
    """Launch kernels under other configurations for a while, for tuning: `chosen(forward=Configuration(...))`.

    Raises:
        ValueError: there is no such kernel.
    """
    unknown = sorted(set(configurations) - set(PASSES))
    if unknown:
        raise ValueError(
            f"configurations are chosen for {', '.join(unknown)}; expected some of {', '.join(PASSES)}"
        )
    before = dict(_chosen)
    _chosen.update(configurations)
    try:
        yield
    finally:
        _chosen.clear()
        _chosen.update(before)


def configuration(
    architecture: str, kernel: Pass, head_dim: int, element_bytes: int, tile: int | None = None
) -> Configuration:
    """Return the configuration of a kernel on an architecture.

    Args:
        architecture: `sm_90`, `gfx942`, …, or `interpreter`.
        kernel: one of `PASSES`.
        head_dim: D; the next size from there up has the entry.
        element_bytes: 2 or 4.
        tile: queries and keys of a tile in place of the entry's own; one of `TILES`.

    Raises:
        NoSuchArchitecture: there is none for this architecture.
        ValueError: the tile is none of `TILES`.
    """
    if tile is not None and tile not in TILES:
        raise ValueError(
            f"tile is {tile!r}; expected one of {', '.join(map(str, TILES))}, or None for the default"
        )
    override = _chosen.get(kernel)
    if override is not None:
        return override
    return _configuration(architecture, kernel, head_dim, element_bytes, tile)


@functools.cache
def _configuration(
    architecture: str, kernel: Pass, head_dim: int, element_bytes: int, tile: int | None
) -> Configuration:
    entries = shipped()[configured_as(architecture)][kernel][f"{8 * element_bytes}-bit"]
    entry = entries[min(size for size in entries if size >= head_dim)]
    if tile is None:
        return entry
    # Four warps have a row of 16 each in a tile of 64; from 128 rows or columns on eight keep the registers in bounds.
    return Configuration(
        block_m=tile,
        block_n=tile,
        num_warps=8 if tile >= 128 or head_dim > 128 else 4,
        num_stages=entry.num_stages,
        descriptors=entry.descriptors,
        waves_per_eu=entry.waves_per_eu,
        matrix_instr_nonkdim=entry.matrix_instr_nonkdim,
    )


@functools.cache
def shipped() -> dict[str, dict[str, dict[str, dict[int, Configuration]]]]:
    """Return all configurations, by architecture, kernel, element width (`16-bit`) and head dimension."""
    text = resources.files(__package__).joinpath("configurations.json").read_text(encoding="utf-8")
    return {
        architecture: {
            kernel: {
                width: {int(size): Configuration(**entry) for size, entry in sizes.items()}
                for width, sizes in widths.items()
            }
            for kernel, widths in kernels.items()
        }
        for architecture, kernels in json.loads(text).items()
    }
