"""FlashAttention: our Triton kernels beside PyTorch's back ends and the plain formula, forward and backward.

`gluon` is our kernels with the forward pass for Hopper in Gluon.

The shapes are those of FlashAttention-2's benchmark: 16,384 tokens in all and 2,048 columns over all heads, bfloat16.
Beside them is one small shape in float32, which a CPU can do too. On a CPU the Triton kernels are checked, not timed:
the time of an interpreter says nothing of a GPU.
"""

from itertools import product

import pytest
import torch

from pytest_roofline import Work
from roofline_kernels.attention import compiling, flash_attention
from roofline_kernels.attention.checking import FACTOR, float32_factor, right
from roofline_kernels.attention.configurations import GLUON, TILES
from roofline_kernels.attention.implementations import (
    IMPLEMENTATIONS,
    PASSES,
    Unavailable,
    implementation,
    make_case,
    once,
    pass_of,
    plain,
)
from roofline_kernels.work import attention_flops

TOKENS, COLUMNS = 16384, 2048
SEQUENCES = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
LONGEST_NIGHTLY = 16384
HEAD_DIMS = (64, 128, 256)
# The two shapes by which the kernels are known, of the two implementations that anybody would choose between.
GATED = {
    ("triton", 4096, 128),
    ("triton", 16384, 64),
    ("sdpa_flash", 4096, 128),
    ("sdpa_flash", 16384, 64),
}
# Float32, batch 1, 8 heads: a second or less on two cores.
SMALL_SEQUENCES, SMALL_HEADS, SMALL_HEAD_DIM = (512, 1024), 8, 64

MASKS = {True: "causal", False: "full"}
on_accelerator = pytest.mark.roofline(needs="accelerator")


def _large():
    combinations = product(IMPLEMENTATIONS, PASSES, MASKS, SEQUENCES, HEAD_DIMS)
    for name, passes, causal, sequence, head_dim in combinations:
        # Its backward pass is that of `triton`, and it is made for no other head dimension.
        if name == "gluon" and (passes != "forward" or head_dim not in GLUON):
            continue
        gated = (name, sequence, head_dim) in GATED and causal and passes != "backward"
        # Nobody would choose these here, and each takes its time to compile or to run.
        aside = name in ("compiled", "sdpa_math", "eager") and (
            head_dim == 256 or passes == "backward"
        )
        tier = "quick" if gated else "full" if aside or sequence > LONGEST_NIGHTLY else "nightly"
        yield pytest.param(
            name, passes, causal, sequence, head_dim,
            id=f"{name}-{passes}-{MASKS[causal]}-s{sequence}-d{head_dim}",
            marks=pytest.mark.roofline(needs="accelerator", tier=tier, gate=gated, oom="record"),
        )  # fmt: skip


def _small():
    names = [name for name in IMPLEMENTATIONS if name != "gluon"]
    for name, passes, causal, sequence in product(names, PASSES, MASKS, SMALL_SEQUENCES):
        quick = name in ("sdpa_flash", "eager") and causal and passes != "backward"
        # An interpreter's time is no result.
        needs = {"needs": "accelerator"} if name == "triton" else {}
        yield pytest.param(
            name, passes, causal, sequence,
            id=f"{name}-{passes}-{MASKS[causal]}-s{sequence}",
            marks=pytest.mark.roofline(tier="quick" if quick else "nightly", gate=quick, oom="record", **needs),
        )  # fmt: skip


@pytest.fixture
def run(device, name):
    """The implementation; the compiled one is compiled anew, for this test's shape and before it is timed."""
    if name != "compiled":
        yield implementation(name)
        return
    reason = compiling.why_not_compiled(device)
    if reason:
        pytest.skip(reason)
    with compiling.compiled(plain) as compiled:
        yield compiled


def _measure(roofline, run, case, passes, flops, metric, factor=FACTOR, **more):
    try:
        call = pass_of(passes, run, case)
    except Unavailable as error:
        pytest.skip(str(error))
    return roofline.measure(
        call,
        case,
        work=Work(**flops),
        metric=metric,
        verify=lambda case: right(case, passes=passes, factor=factor),
        **more,
    )


@pytest.mark.parametrize(("name", "passes", "causal", "sequence", "head_dim"), list(_large()))
def test_flash_attention(roofline, device, run, passes, causal, sequence, head_dim):
    """Self-attention in bfloat16 at FlashAttention-2's shapes."""
    batch, heads = max(1, TOKENS // sequence), COLUMNS // head_dim
    case = make_case(batch, heads, sequence, head_dim, torch.bfloat16, device, causal=causal)
    flops = attention_flops(
        batch, heads, sequence, sequence, head_dim, causal=causal, passes=passes
    )
    _measure(roofline, run, case, passes, flops, "bf16_TFLOPS")


@pytest.mark.parametrize(("name", "passes", "causal", "sequence"), list(_small()))
def test_flash_attention_fp32(roofline, device, run, name, passes, causal, sequence):
    """Self-attention in float32, eight heads of 64."""
    case = make_case(1, SMALL_HEADS, sequence, SMALL_HEAD_DIM, torch.float32, device, causal=causal)
    flops = attention_flops(
        1, SMALL_HEADS, sequence, sequence, SMALL_HEAD_DIM, causal=causal, passes=passes
    )
    _measure(roofline, run, case, passes, flops, "fp32_TFLOPS", float32_factor(name, device))


@on_accelerator
@pytest.mark.roofline(tier="nightly", oom="record")
@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("passes", ["forward", "both"])
def test_flash_attention_tile(roofline, device, passes, head_dim, tile):
    """Our kernels with as many queries as keys in a tile; one that does not fit is refused with the bytes."""
    from roofline_kernels.attention.launching import TileTooLarge

    heads = COLUMNS // head_dim
    case = make_case(1, heads, TOKENS, head_dim, torch.bfloat16, device, causal=True)
    run = implementation("triton", tile=tile)
    flops = attention_flops(1, heads, TOKENS, TOKENS, head_dim, causal=True, passes=passes)
    try:
        _measure(roofline, run, case, passes, flops, "bf16_TFLOPS")
    except TileTooLarge as error:
        pytest.skip(str(error))


class Leaderboard:
    """One problem of the FlashAttention-2 leaderboard: batch and heads as one dimension, gradients that add up.

    Source: Stanford CS336, assignment 2, "FlashAttention-2 leaderboard": batch 1, 16 heads, 16,384 tokens, head
    dimension 64, causal, bfloat16; `flash(q, k, v, True).sum().backward()` under Triton's do_bench.
    """

    HEADS, SEQUENCE, HEAD_DIM = 16, 16384, 64

    def __init__(self, name, device):
        self.run = implementation(name)
        if name == "triton":
            self.run = torch.compile(self._folded, fullgraph=True, dynamic=False)
        self.folded = name == "triton"
        self.case = make_case(
            1, self.HEADS, self.SEQUENCE, self.HEAD_DIM, torch.bfloat16, device, causal=True
        )
        # As the leaderboard gives them: three dimensions, and leaves whose gradients accumulate.
        self.inputs = [tensor.detach()[0].requires_grad_() for tensor in self.case.inputs]
        self.case.d_out.fill_(1.0)

    @staticmethod
    def _folded(q, k, v, causal):
        return flash_attention(q, k, v, causal=causal, layout="HSD")

    def step(self):
        """Forward, and backward into the gradients that are there."""
        q, k, v = self.inputs if self.folded else (tensor[None] for tensor in self.inputs)
        self.out = self.run(q, k, v, True)
        self.out.sum().backward()

    def right(self):
        """Whether one step from nothing leaves the right output and gradients."""
        for tensor in self.inputs:
            tensor.grad = None
        self.step()
        self.case.out = self.out.detach().reshape(self.case.q.shape)
        self.case.gradients = tuple(tensor.grad[None] for tensor in self.inputs)
        return right(self.case, passes="both")


@on_accelerator
@pytest.mark.roofline(tier="nightly", oom="record")
@pytest.mark.parametrize("name", [name for name in IMPLEMENTATIONS if name != "compiled"])
def test_flash_attention_leaderboard(roofline, device, name):
    """The leaderboard's step, as do_bench calls it (the cache flushed before every call), and one after the other."""
    board = Leaderboard(name, device)
    flops = attention_flops(
        1, board.HEADS, board.SEQUENCE, board.SEQUENCE, board.HEAD_DIM, causal=True, passes="both"
    )
    try:
        once(implementation(name), board.case, "both")
    except Unavailable as error:
        pytest.skip(str(error))
    for cache, called in (("flush", "like do_bench"), ("warm", "steady")):
        roofline.measure(
            board.step,
            work=Work(**flops),
            metric="bf16_TFLOPS",
            name=called,
            cache=cache,
            # do_bench warms up for a second and measures for ten.
            budget=11.0,
            verify=board.right,
        )


@pytest.mark.roofline(needs="cpu")
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_flash_attention_interpreted(dtype, head_dim):
    """Our kernels in Triton's interpreter: right or wrong, and no time, since an interpreter's says nothing."""
    pytest.importorskip("triton", reason="needs Triton, found none")
    case = make_case(1, 1, 160, head_dim, dtype, torch.device("cpu"), causal=True)
    once(implementation("triton"), case, "both")
    assert right(case, passes="both")
