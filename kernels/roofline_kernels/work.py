"""Bytes and FLOPs of the measured functions, as plain integers, with the source of each formula."""

from collections.abc import Callable
from fractions import Fraction

from .attention.masking import Alignment, causal_shift
from .transformer_work import adamw_bytes as adamw_bytes
from .transformer_work import transformer_flops as transformer_flops


def copy_bytes(size_bytes: int) -> dict[str, int]:
    """Return the work of a copy within one memory: every byte is read once and written once."""
    return {"read_bytes": size_bytes, "write_bytes": size_bytes, "payload_bytes": size_bytes}


def link_copy_bytes(size_bytes: int) -> dict[str, int]:
    """Return the work of a copy across a link: every byte crosses once and arrives once."""
    return {"payload_bytes": size_bytes, "wire_bytes": size_bytes}


# Arrays read, arrays written, FLOPs per element. Source: BabelStream (Deakin et al., "GPU-STREAM v2.0", 2016), after
# McCalpin's STREAM: copy and scale move two arrays, add and triad three, dot reads two and writes none.
STREAM = {
    "copy": (1, 1, 0),
    "scale": (1, 1, 1),
    "add": (2, 1, 1),
    "triad": (2, 1, 2),
    "dot": (2, 0, 2),
}


def stream_work(operation: str, elements: int, element_bytes: int) -> dict[str, int]:
    """Return the work of one STREAM operation over arrays of `elements` elements.

    Args:
        operation: one of `STREAM`.
        elements: elements of one array.
        element_bytes: bytes of one element.
    """
    read, written, flops = STREAM[operation]
    array_bytes = elements * element_bytes
    return {
        "read_bytes": read * array_bytes,
        "write_bytes": written * array_bytes,
        "payload_bytes": array_bytes,
        "flops": flops * elements,
    }


def gemm_work(m: int, n: int, k: int, operand_bytes: int, result_bytes: int) -> dict[str, int]:
    """Return the work of a matrix product [m, k] · [k, n].

    It has 2·m·n·k FLOPs. Each operand is read once, and the result written once.

    A kernel whose tiles do not stay in a cache reads more, which is not counted; nor are the scales of fp8.

    Source: NVIDIA, "Matrix Multiplication Background User's Guide", section 2 (FLOPs and arithmetic intensity).

    Args:
        m: rows of the result.
        n: its columns.
        k: terms of each sum.
        operand_bytes: of one element of an operand.
        result_bytes: of one element of the result.
    """
    return {
        "flops": 2 * m * n * k,
        "read_bytes": (m + n) * k * operand_bytes,
        "write_bytes": m * n * result_bytes,
    }


# The bus bandwidth divided by the algorithm bandwidth, for n ranks. Source: nccl-tests,
# doc/PERFORMANCE.md, and GetBw in the source of each test, which has gather, scatter and sendrecv as well.
_BUS: dict[str, Callable[[int], Fraction]] = {
    "all_reduce": lambda n: Fraction(2 * (n - 1), n),
    "all_gather": lambda n: Fraction(n - 1, n),
    "reduce_scatter": lambda n: Fraction(n - 1, n),
    "all_to_all": lambda n: Fraction(n - 1, n),
    "all_to_all_v": lambda n: Fraction(n - 1, n),
    "broadcast": lambda _: Fraction(1),
    "reduce": lambda _: Fraction(1),
    "gather": lambda n: Fraction(n - 1, n),
    "scatter": lambda n: Fraction(n - 1, n),
    "send_recv": lambda _: Fraction(1),
}
COLLECTIVES = tuple(_BUS)


def bus_factor(operation: str, ranks: int) -> Fraction:
    """Return the factor from the algorithm bandwidth to the bus bandwidth; 0 or 1 for one rank.

    Args:
        operation: one of `COLLECTIVES`.
        ranks: ranks in the group, one or more.
    """
    if ranks < 1:
        raise ValueError(f"a group has {ranks} ranks; expected one or more")
    return _BUS[operation](ranks)


def collective_bytes(operation: str, size_bytes: int, ranks: int) -> dict[str, int]:
    """Return the bytes of one collective, as the nccl-tests count them.

    Args:
        operation: one of `COLLECTIVES`.
        size_bytes: S. For all_reduce, broadcast, reduce and send_recv the bytes of one rank's buffer; for all_gather,
            reduce_scatter, all_to_all, gather and scatter those of all n parts together; for all_to_all_v the most that
            a rank sends or receives.
        ranks: ranks in the group. Among one, nothing crosses a bus: where the factor is 0 there are no bus bytes, and
            the operation is shown by its algorithm bandwidth.
    """
    return {
        "algbw_bytes": size_bytes,
        "busbw_bytes": _whole(size_bytes * bus_factor(operation, ranks)),
    }


def _whole(amount: Fraction) -> int:
    """Return the nearest whole number. A half is rounded up, so that half a byte counts as one."""
    return int(amount + Fraction(1, 2))


# Matrix products in units of half the forward pass, which has two, Q Kᵀ and P V: so a backward pass has five (the
# scores again, dP, dV, dQ, dK), 2.5 times the forward pass.
_PRODUCTS = {"forward": 2, "backward": 5, "both": 7}


def attention_flops(
    batch: int,
    heads: int,
    seq_q: int,
    seq_k: int,
    head_dim: int,
    *,
    causal: bool = False,
    alignment: Alignment | None = None,
    passes: str = "forward",
) -> dict[str, int]:
    """Return the FLOPs of attention: those of matrix products over the keys that a query sees.

    Forward 4·B·H_q·S_q·S_k·D, half of it where causal; backward 2.5 times as much, both 3.5 times. What a kernel does
    beyond it (masked parts of tiles, the softmax, scores computed twice) is not counted, so its rate is a lower bound.

    Source: `flops` in benchmarks/benchmark_flash_attention.py of Dao-AILab/flash-attention (the halving, 2.5 and 3.5),
    and the end of Triton's tutorial 06-fused-attention. For as many or more keys than queries, bottom-right, `flops`
    in hopper/benchmark_attn.py of the former: a mean of (S_k - S_q + S_k) / 2 keys, half a key less than there are.
    That is the area below the mask's diagonal, and so it is worked out here for the other three cases. With more
    queries than keys, bottom-right, that script's mean is over the rows that see a key, and it is multiplied by all;
    here rows that see none count nothing, since a kernel that skips them would otherwise seem to beat its device.

    Args:
        batch: B.
        heads: H_q, of queries; how many share a key head changes nothing.
        seq_q: S_q.
        seq_k: S_k.
        head_dim: D, of queries, keys and values.
        causal: whether later keys are hidden.
        alignment: of the causal mask; needed where S_q is not S_k.
        passes: `forward`, `backward` or `both`.

    Raises:
        ValueError: a negative size, unknown passes, or an alignment that is unknown or missing.
    """
    sizes = (batch, heads, seq_q, seq_k, head_dim)
    if min(sizes) < 0:
        raise ValueError(
            f"the sizes batch, heads, seq_q, seq_k and head_dim are {sizes}; expected zero or more"
        )
    if passes not in _PRODUCTS:
        raise ValueError(f"passes is {passes!r}; expected one of {', '.join(_PRODUCTS)}")
    seen_twice = _twice_seen(seq_q, seq_k, causal_shift(seq_q, seq_k, causal, alignment))
    return {"flops": _PRODUCTS[passes] * batch * heads * head_dim * seen_twice}


def _twice_seen(seq_q: int, seq_k: int, shift: int) -> int:
    """Return twice the area of a [S_q, S_k] matrix below the line j = i + shift.

    The area may end in a half, twice the area is a whole number.
    """

    def up_to(position: int) -> int:
        """Return twice the integral of the number of visible keys, up to a shifted position."""
        return min(max(position, 0), seq_k) ** 2 + 2 * seq_k * max(position - seq_k, 0)

    return up_to(seq_q + shift) - up_to(shift)
