"""The launches of the four kernels for tensors [B, H, S, D]: configuration, grid and arguments.

Nothing here needs a GPU. With tensors of the device "meta", a launch is that on another architecture, for compiling
ahead of time.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch

from .architectures import SHARED_BYTES, NoSuchArchitecture
from .configurations import GLUON, Configuration, Pass, configuration, loaded_bytes, registers
from .describing import describable, described_swizzled, strides, with_descriptors
from .launching import Launch, TileTooLarge
from .triton_d_keys import d_keys_kernel
from .triton_d_queries import d_queries_kernel
from .triton_delta import delta_kernel
from .triton_forward import forward_kernel

LOG2E = 1 / math.log(2.0)
# What four warps of the kernel of row sums hold of two tensors at a time: 64 registers a thread.
DELTA_BYTES = 64 * 128 * 2
# Registers of a thread: 240 for each of 256 that compute and 24 for each of the 128 places of the warp that loads are
# 64,512 of Hopper's 65,536. Source: Shah et al., "FlashAttention-3", hopper/flash_fwd_kernel_sm90.h.
COMPUTING_REGISTERS, LOADING_REGISTERS = 240, 24
GLUON_ARCHITECTURE, WARPGROUPS = "sm_90", 2
# The result of each kernel, for messages.
NAMES: dict[Pass, str] = {"forward": "forward", "d_keys": "dK and dV", "d_queries": "dQ"}


@dataclass(frozen=True, slots=True)
class Problem:
    """The parameters of an attention beside its tensors.

    Args:
        architecture: `sm_90`, `gfx942`, …, or `interpreter`.
        shift: key j is visible to query i where j <= i + shift, if causal.
        causal: whether there is a mask at all.
        scale: of the scores.
        tile: in place of the configuration's own; None leaves it.
    """

    architecture: str
    shift: int
    causal: bool
    scale: float
    tile: int | None = None


def forward(
    problem: Problem,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> Launch:
    """Return the launch that makes output and log-sum-exp: see `forward_kernel`."""
    tiles = _tiles(problem, "forward", q, k, v)
    programs = _programs(q, tiles.block_m)
    if tiles.persistent:
        programs = min(programs, _multiprocessors(q.device))
    if tiles.gluon:
        # Imported here, so that a Triton without Gluon has all other kernels.
        from .triton_gluon_forward import gluon_forward_kernel

        arguments = _gluon_arguments(problem, tiles, q, k, v, out, lse)
        return Launch(gluon_forward_kernel, NAMES["forward"], tiles, programs, arguments)
    arguments = {
        "q": q, "k": k, "v": v, "out": out, "lse": lse,
        **strides("q", q), **strides("k", k), **strides("v", v), **strides("o", out),
        "heads": q.shape[1], "seq_q": q.shape[2], "seq_k": k.shape[2], "shift": problem.shift,
        "scale_log2": abs(problem.scale) * LOG2E, "NEGATIVE": problem.scale < 0,
        "OVERLAP": tiles.overlap, "THRESHOLD": tiles.threshold,
        "PERSISTENT": q.shape[0] * q.shape[1] if tiles.persistent else 0,
        **_constants(problem, q, k, tiles),
    }  # fmt: skip
    arguments = with_descriptors(tiles, arguments, {"q": "BLOCK_M", "k": "BLOCK_N", "v": "BLOCK_N"})
    return Launch(forward_kernel, NAMES["forward"], tiles, programs, arguments)


def _gluon_arguments(
    problem: Problem,
    tiles: Configuration,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
) -> dict[str, Any]:
    """Return the arguments of `gluon_forward_kernel`."""
    rows = tiles.block_m // WARPGROUPS
    queries = {name: described_swizzled(tensor, rows) for name, tensor in (("q", q), ("out", out))}
    keys = {
        name: described_swizzled(tensor, tiles.block_n) for name, tensor in (("k", k), ("v", v))
    }
    return {
        **queries, **keys, "lse": lse,
        "blocks": -(-q.shape[2] // tiles.block_m), "rounds": q.shape[0] * q.shape[1], "heads": q.shape[1],
        "seq_q": q.shape[2], "seq_k": k.shape[2], "shift": problem.shift,
        "scale_log2": abs(problem.scale) * LOG2E, "NEGATIVE": problem.scale < 0,
        "GROUP": q.shape[1] // k.shape[1], "HEAD_DIM": q.shape[3], "ROWS": rows, "WARPGROUPS": WARPGROUPS,
        "BLOCK_N": tiles.block_n, "STAGES": tiles.num_stages, "CAUSAL": problem.causal,
        "EVEN_K": k.shape[2] % tiles.block_n == 0,
        "SHIFTED": problem.causal and problem.shift % tiles.block_n != 0,
        "REGISTERS": COMPUTING_REGISTERS, "LOADING_REGISTERS": LOADING_REGISTERS,
    }  # fmt: skip


def _refuse_gluon(problem: Problem, *loaded: torch.Tensor) -> None:
    """Raise an error unless the forward pass in Gluon supports the problem. `loaded` begins with q.

    Raises:
        NoSuchArchitecture: it is not Hopper.
        ValueError: the tensors do not fit.
    """
    if problem.architecture != GLUON_ARCHITECTURE:
        raise NoSuchArchitecture(
            f"the forward pass in Gluon on {problem.architecture}: its instructions are those of {GLUON_ARCHITECTURE}; "
            "expected a Hopper GPU, or the default configuration here"
        )
    q = loaded[0]
    is_supported = q.shape[3] in GLUON and q.element_size() == 2
    if not is_supported or not all(map(describable, loaded)):
        raise ValueError(
            f"the forward pass in Gluon was given q {list(q.shape)} in {q.dtype}; expected two-byte types, a head "
            f"dimension of {' or '.join(map(str, GLUON))}, and addresses and strides that are multiples of 16 bytes"
        )


def _tiles(problem: Problem, kernel: Pass, *loaded: torch.Tensor) -> Configuration:
    """Return the configuration of a kernel, which loads tiles of `loaded`.

    Raises:
        TileTooLarge: it needs more registers or shared memory than there are; compiling it would take minutes.
        NoSuchArchitecture: it is in Gluon, and this is not Hopper.
    """
    architecture, head_dim, item = (
        problem.architecture,
        loaded[0].shape[3],
        loaded[0].element_size(),
    )
    tiles = configuration(architecture, kernel, head_dim, item, problem.tile)
    if tiles.gluon:
        _refuse_gluon(problem, *loaded)
    block_d = _block_d(head_dim)
    needed, limit = registers(architecture, kernel, block_d, tiles)
    if needed > limit:
        raise TileTooLarge(NAMES[kernel], tiles, architecture, needed, limit, "registers")
    if tiles.descriptors and head_dim == block_d and all(map(describable, loaded)):
        needed, limit = loaded_bytes(kernel, block_d, item, tiles), SHARED_BYTES[architecture]
        if needed > limit:
            raise TileTooLarge(NAMES[kernel], tiles, architecture, needed, limit)
    return tiles


def delta(
    out: torch.Tensor,
    d_out: torch.Tensor,
    d_lse: torch.Tensor | None,
    sums: torch.Tensor,
    dense: torch.Tensor | None,
) -> Launch:
    """Return the launch that makes the row sums for the backward pass.

    With `dense`, the kernel also writes the gradient of the output there contiguously.
    """
    seq_q, head_dim = out.shape[2:]
    tiles = delta_tiles(head_dim, out.element_size())
    arguments = {
        "out": out, "d_out": d_out, "d_lse": sums if d_lse is None else d_lse, "delta": sums,
        "dense": d_out if dense is None else dense, **strides("o", out), **strides("g", d_out),
        "heads": out.shape[1], "seq_q": seq_q, "HEAD_DIM": head_dim, "BLOCK_D": _block_d(head_dim),
        "BLOCK_M": tiles.block_m, "EVEN_Q": seq_q % tiles.block_m == 0,
        "WITH_LSE": d_lse is not None, "WRITE_DENSE": dense is not None,
    }  # fmt: skip
    return Launch(delta_kernel, "delta", tiles, _programs(out, tiles.block_m), arguments)


def delta_tiles(head_dim: int, element_bytes: int) -> Configuration:
    """Return the configuration of the kernel of row sums, the same on every architecture."""
    rows = min(64, DELTA_BYTES // (_block_d(head_dim) * element_bytes))
    return Configuration(block_m=rows, block_n=rows, num_warps=4, num_stages=1)


@dataclass(frozen=True, slots=True)
class Saved:
    """The tensors that the backward pass reads: inputs, output's gradient, log-sum-exp, row sums."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    d_out: torch.Tensor
    lse: torch.Tensor
    delta: torch.Tensor


def d_keys(problem: Problem, saved: Saved, d_k: torch.Tensor, d_v: torch.Tensor) -> Launch:
    """Return the launch that makes the gradients of keys and values."""
    q, k = saved.q, saved.k
    tiles = _tiles(problem, "d_keys", q, k, saved.v, saved.d_out)
    own = {
        "d_k": d_k,
        "d_v": d_v,
        **strides("dk", d_k),
        **strides("dv", d_v),
        "heads_k": k.shape[1],
    }
    arguments = _backward_arguments(problem, saved, tiles, own)
    return Launch(d_keys_kernel, NAMES["d_keys"], tiles, _programs(k, tiles.block_n), arguments)


def d_queries(problem: Problem, saved: Saved, d_q: torch.Tensor) -> Launch:
    """Return the launch that makes the gradient of the queries."""
    q = saved.q
    tiles = _tiles(problem, "d_queries", q, saved.k, saved.v, saved.d_out)
    own = {"d_q": d_q, **strides("dq", d_q), "heads": q.shape[1]}
    arguments = _backward_arguments(problem, saved, tiles, own)
    return Launch(
        d_queries_kernel, NAMES["d_queries"], tiles, _programs(q, tiles.block_m), arguments
    )


def _backward_arguments(
    problem: Problem, saved: Saved, tiles: Configuration, own: dict[str, Any]
) -> dict[str, Any]:
    q, k, v, d_out = saved.q, saved.k, saved.v, saved.d_out
    arguments = {
        "q": q, "k": k, "v": v, "d_out": d_out, "lse": saved.lse, "delta": saved.delta,
        **strides("q", q), **strides("k", k), **strides("v", v), **strides("g", d_out),
        "seq_q": q.shape[2], "seq_k": k.shape[2], "shift": problem.shift,
        "scale": problem.scale, "scale_log2": problem.scale * LOG2E,
        **own, **_constants(problem, q, k, tiles),
    }  # fmt: skip
    return with_descriptors(
        tiles, arguments, {"q": "BLOCK_M", "k": "BLOCK_N", "v": "BLOCK_N", "d_out": "BLOCK_M"}
    )


def _constants(
    problem: Problem, q: torch.Tensor, k: torch.Tensor, tiles: Configuration
) -> dict[str, Any]:
    return {
        "GROUP": q.shape[1] // k.shape[1],
        "HEAD_DIM": q.shape[3],
        "BLOCK_D": _block_d(q.shape[3]),
        "BLOCK_M": tiles.block_m,
        "BLOCK_N": tiles.block_n,
        "CAUSAL": problem.causal,
        "EVEN_Q": q.shape[2] % tiles.block_m == 0,
        "EVEN_K": k.shape[2] % tiles.block_n == 0,
        # Under a mask blocks differ in length, and the long ones must not come last. AMD deals programs out to its dies
        # in turn: with as many heads as dies, or a multiple, a head's keys stay in one die's cache.
        "HEADS_FIRST": problem.causal or problem.architecture.startswith("gfx"),
        "WARP_SPECIALIZE": tiles.warp_specialize,
    }


def _block_d(head_dim: int) -> int:
    """Return the power of two from D up, at least 16, the smallest side of Triton's products."""
    return max(16, 1 << (head_dim - 1).bit_length())


def _multiprocessors(device: torch.device) -> int:
    """Return the number of multiprocessors; 4 in the interpreter and ahead of time."""
    return (
        torch.cuda.get_device_properties(device).multi_processor_count
        if device.type == "cuda"
        else 4
    )


def _programs(rows: torch.Tensor, block: int) -> int:
    """Return the number of programs: one for each block of rows, head and batch."""
    batch, heads, seq, _ = rows.shape
    return -(-seq // block) * heads * batch
