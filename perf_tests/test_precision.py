"""What mixed precision does to numbers, as exact expectations: sums in few digits, and the types under autocast.

Nothing is timed. Each is a fact about the installed torch; when a release changes one, the test says which, and where
the expectation stands.

Under autocast to FP16 or BF16 (`lower`), with parameters in FP32:

    part         CUDA, XPU, MPS   CPU
    parameters   FP32             FP32
    fc1          lower            lower
    LayerNorm    FP32             lower
    logits       lower            lower
    loss         FP32             FP32
    gradients    FP32             FP32

An accelerator's list of operations that run in FP32 has `layer_norm`, the CPU's has not: there LayerNorm takes and
gives the type of its input. Gradients have the type of their parameters, whatever type the activations have.
"""

from dataclasses import replace

import pytest
import torch

from roofline_kernels.precision import LABELS, accumulate, autocast_dtypes, dtype_table
from roofline_kernels.training.precisions import precision_named, why_not

# Facts, of which none is a time: a gate must not miss a measurement.
pytestmark = pytest.mark.roofline(measures=False)

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16
# The torch release whose answers the expectations are: the CPU's were found by running it, the accelerators' stand in
# its lists of operations (ATen/autocast_mode.h and .cpp).
KNOWN_TORCH = "2.13"
REMEDY = (
    "If its release notes or its list of operations mean this, change the expectation and KNOWN_TORCH in "
    "perf_tests/test_precision.py; if not, it is a defect of this torch or of this device"
)
# 1000 times 0.01: as torch prints it, and exactly. FP16 holds 0.01 as 0.0100021362..., and from 8 on is 1/128 wide.
SUMS = {
    "fp32": (FP32, FP32, False, "10.0001", 10.000133514404297),
    "fp16": (FP16, FP16, False, "9.9531", 9.953125),
    "fp16_into_fp32": (FP32, FP16, False, "10.0021", 10.00213623046875),
    "fp16_converted_into_fp32": (FP32, FP16, True, "10.0021", 10.00213623046875),
}


def _expected(lower, layer_norm):
    """The types by part; `lower` is the one that autocast was asked for."""
    return {
        "parameters": FP32,
        "fc1": lower,
        "LayerNorm": layer_norm,
        "logits": lower,
        "loss": FP32,
        "gradients": FP32,
    }


def _changed(what, told):
    return (
        f"torch {torch.__version__} {what}; expected as torch {KNOWN_TORCH} does:\n{told}\n{REMEDY}"
    )


@pytest.mark.parametrize("combination", SUMS)
def test_accumulation(roofline, combination):
    """A thousand times 0.01: only an FP32 sum is near 10, and it cannot mend what its FP16 terms have lost."""
    sum_dtype, term_dtype, converted, printed, exact = SUMS[combination]
    found = accumulate(sum_dtype, term_dtype, converted=converted, device=roofline.device)
    assert (f"{found.item():.4f}", found.item()) == (printed, exact), _changed(
        f"sums 1000 times 0.01 ({LABELS[term_dtype]}) into {LABELS[sum_dtype]} on {roofline.device}",
        f"found {found.item()!r}, expected {exact!r}",
    )


def _check_autocast(device, dtype, layer_norm):
    # A device that cannot scale a loss may have autocast all the same.
    if reason := why_not(replace(precision_named(f"{dtype}_autocast"), scaled=False), device):
        pytest.skip(reason)
    lower = DTYPES[dtype]
    found, expected = autocast_dtypes(device, lower), _expected(lower, layer_norm)
    assert found == expected, _changed(
        f"gives other types under autocast to {LABELS[lower]} on {device}",
        dtype_table(found, expected),
    )


lower_types = pytest.mark.parametrize("dtype", ["fp16", "bf16"])
DTYPES = {"fp16": FP16, "bf16": BF16}


@pytest.mark.roofline(needs="accelerator")
@lower_types
def test_autocast(roofline, dtype):
    """An accelerator's autocast: matrix products in the lower type; LayerNorm, loss and gradients in FP32."""
    _check_autocast(roofline.device, dtype, FP32)


@pytest.mark.roofline(needs="cpu")
@lower_types
def test_autocast_cpu(roofline, dtype):
    """The CPU's autocast has its own table: LayerNorm too is in the lower type; loss and gradients are FP32."""
    _check_autocast(roofline.device, dtype, DTYPES[dtype])
