"""What the FlashAttention kernels ask of each architecture: shared memory, registers, spills, matrix instructions.

Every configuration that is shipped is compiled ahead of time for the architecture that it is for, without any GPU, and
held against `baselines/resources.json` exactly. The launches are those that attention would make at 16 heads of 16,384
tokens; `general` has tails in both sequences and four query heads for each key head, `unaligned` also rows that no
descriptor takes, and `sum` the gradient that comes from a sum. `gluon` is the forward pass for Hopper in Gluon, offered
beside the shipped one.
"""

from itertools import product

import pytest
import torch

from roofline_kernels.attention.architectures import REFUSED, NoSuchArchitecture
from roofline_kernels.attention.configurations import GLUON, chosen

KERNELS = ("forward", "gluon", "d_keys", "d_queries", "delta")
ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "gfx90a", "gfx942", "gfx950")
HEAD_DIMS = (64, 128, 256)
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# Two bytes, at most 128 columns, whole tiles, a key head for each query head: here nothing may spill.
CLEAN_HEAD_DIM = 128
# Rows of 222 bytes.
UNALIGNED_HEAD_DIM = 111


def _tier(architecture, kernel, dtype, head_dim, variant):
    """Seconds for what is used most, minutes for every 16-bit configuration, all else on demand; None: never."""
    clean = head_dim <= CLEAN_HEAD_DIM
    if (kernel == "delta") != (variant == "sum") or (head_dim == UNALIGNED_HEAD_DIM) != (
        variant == "unaligned"
    ):
        return None
    if kernel == "gluon" and (architecture != "sm_90" or head_dim not in GLUON or dtype == "fp32"):
        return None
    if variant == "causal":
        if dtype == "bf16":
            return "quick" if clean else "nightly"
        # float16 shares bfloat16's configurations, and float32 is for checking more than for speed.
        return {"fp32": "nightly" if head_dim == 64 else "full", "fp16": "full" if clean else None}[
            dtype
        ]
    if dtype != "bf16":
        return None
    if variant == "full":
        return "nightly" if kernel in ("forward", "gluon") else None
    if variant == "unaligned":
        return "nightly" if architecture == "sm_90" else "full"
    if head_dim != CLEAN_HEAD_DIM:
        return None
    return "nightly" if architecture in ("sm_90", "gfx942") else "full"


def _cases():
    variants = ("causal", "full", "general", "unaligned", "sum")
    for case in product(ARCHITECTURES, KERNELS, DTYPES, (*HEAD_DIMS, UNALIGNED_HEAD_DIM), variants):
        architecture, kernel, dtype, head_dim, variant = case
        tier = _tier(*case)
        if tier is not None:
            name = f"{kernel}-{architecture}-{dtype}-d{head_dim}-{variant}"
            yield pytest.param(*case, id=name, marks=pytest.mark.roofline(tier=tier, gate=True))


@pytest.mark.parametrize(("architecture", "kernel", "dtype", "head_dim", "variant"), list(_cases()))
def test_flash_resources(roofline, architecture, kernel, dtype, head_dim, variant):
    """One kernel in the configuration that it is shipped with."""
    pytest.importorskip("triton", reason="needs Triton, found none")
    from roofline_kernels.attention.ahead import Shape, launch_ahead

    configurations = {}
    if kernel == "gluon":
        pytest.importorskip(
            "triton.experimental.gluon", reason="needs Triton with Gluon, found none"
        )
        kernel, configurations = "forward", {"forward": GLUON[head_dim]}
    general = (
        {"seq_q": 1000, "seq_k": 2000, "heads_k": 4} if variant in ("general", "unaligned") else {}
    )
    shape = Shape(head_dim, DTYPES[dtype], **general)
    with chosen(**configurations):
        launch = launch_ahead(architecture, kernel, shape, causal=variant != "full")
    found = roofline.resources(
        launch.kernel,
        target=architecture,
        arguments=launch.arguments,
        options=launch.tiles.options(),
    )
    if dtype != "fp32" and head_dim <= CLEAN_HEAD_DIM and variant in ("causal", "full"):
        assert found.spills == 0, f"{found.spills} spills with {launch.tiles}"
        assert found.matrix_instructions > 0, f"no matrix instruction with {launch.tiles}"


@pytest.mark.parametrize("architecture", REFUSED)
def test_flash_attention_refused(architecture):
    """Where Triton has no matrix instructions attention says so, and is not run on the scalar units."""
    pytest.importorskip("triton", reason="needs Triton, found none")
    from roofline_kernels.attention.ahead import Shape, launch_ahead

    with pytest.raises(NoSuchArchitecture, match="no matrix instructions"):
        launch_ahead(architecture, "forward", Shape(64))
