"""Naive attention over model widths and sequences, forward and backward, until memory runs out, which is a result too.

`held` is what the forward pass leaves for the backward pass, the output and what autograd saved: with the inputs,
12·8·S·D bytes, the memory before the backward pass. `peak` is the most that one call holds above what was there before.
"""

from itertools import product

import pytest

from pytest_roofline import Work
from roofline_kernels.attention import compiling, sweep
from roofline_kernels.work import attention_flops

IMPLEMENTATIONS = ("eager", "compiled")
# On a CPU a test of the default tier takes seconds; one at 16384 takes minutes where it finds its memory.
QUICK = {("eager", 64, 256), ("eager", 64, 1024)}
LONGEST_NIGHTLY = 4096


def _cases():
    for implementation, d_model, sequence in product(
        IMPLEMENTATIONS, sweep.D_MODELS, sweep.SEQUENCES
    ):
        quick = (implementation, d_model, sequence) in QUICK
        tier = "quick" if quick else "nightly" if sequence <= LONGEST_NIGHTLY else "full"
        for passes in ("forward", "backward"):
            yield pytest.param(
                implementation,
                passes,
                d_model,
                sequence,
                id=f"{implementation}-{passes}-d{d_model}-s{sequence}",
                marks=pytest.mark.roofline(tier=tier, gate=quick, oom="record"),
            )


# Every combination, in the order of the sweep, with its tier; the quick ones are the gate.
CASES = list(_cases())


@pytest.fixture
def forward(device, implementation):
    """The forward pass, as it is or compiled anew for this test's shape."""
    if implementation == "eager":
        yield sweep.forward
        return
    reason = compiling.why_not_compiled(device)
    if reason:
        pytest.skip(reason)
    with sweep.compiled() as forward:
        yield forward


@pytest.mark.parametrize(("implementation", "passes", "d_model", "sequence"), CASES)
def test_attention(roofline, device, forward, passes, d_model, sequence):
    """One pass of causal attention, batch 8, one head, float32, by the formula."""
    counted = attention_flops(
        sweep.BATCH, 1, sequence, sequence, d_model, causal=True, passes=passes
    )
    measure = measure_forward if passes == "forward" else measure_backward
    measure(roofline, forward, lambda: sweep.inputs(sequence, d_model, device), Work(**counted))


def measure_forward(roofline, forward, make_inputs, work):
    """The forward pass with all that it saves for the backward pass."""

    def verify(q, k, v):
        sweep.check_output(forward(q, k, v), q, k, v)

    roofline.measure(
        forward,
        make_args=make_inputs,
        work=work,
        metric="fp32_TFLOPS",
        verify=verify,
        peak_bytes=True,
        held_bytes=True,
    )


def measure_backward(roofline, forward, make_inputs, work):
    """The backward pass of a forward pass that is done."""

    def make_args():
        q, k, v = make_inputs()
        output = forward(q, k, v)
        return output, sweep.output_gradient(output), q, k, v

    def verify(output, grad, q, k, v):
        sweep.check_gradients(sweep.backward(output, grad, q, k, v), grad, q, k, v)

    roofline.measure(
        sweep.backward,
        make_args=make_args,
        work=work,
        metric="fp32_TFLOPS",
        verify=verify,
        peak_bytes=True,
    )
