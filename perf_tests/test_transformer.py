"""What an inference or training step of a transformer costs, whole and in parts, over sizes, contexts and precisions.

Batch 4, five sizes from 121 million to 3.4 billion parameters; FLOPs are the model's matrix products, so that the share
of the device's peak is the MFU. `forward` is inference; `backward` is that of a graph that stays, and `optimizer` is
AdamW alone, shown as the traffic that it needs at least. Every measurement is held against the same weights run plainly
in float32.

What cannot fit is skipped with the bytes that it needs at least; what runs out of memory all the same is recorded.
"""

from itertools import product

import pytest
import torch

from pytest_roofline import Timed, Work
from roofline_kernels.attention.implementations import Unavailable, implementation, make_case, once
from roofline_kernels.training import executing, precisions
from roofline_kernels.training.checking import check
from roofline_kernels.training.estimates import activation_bytes, bytes_at_least
from roofline_kernels.training.precisions import PRECISIONS, precision_named
from roofline_kernels.training.steps import PASSES, Training
from roofline_kernels.transformer import SIZES
from roofline_kernels.work import adamw_bytes, transformer_flops

BATCH = 4
CONTEXTS, LONG_CONTEXTS = (128, 256, 512, 1024), (2048, 4096)
LARGEST = ("xl", "2.7B")
# Steps 0, 1, 2 … that are timed one by one.
FIRST_STEPS = 10
# Of a rank that makes them on two cores: those of the large size take a minute each.
WARM_UP_TIMEOUT_S = 3600.0

ON_ANY = {("small", passes, 128, "fp32", "sdpa", "eager") for passes in PASSES}
ON_CUDA = {
    ("small", passes, 512, precision, "sdpa", "eager")
    for passes, precision in product(("forward", "step"), ("fp32", "bf16_autocast"))
} | {("small", "step", 512, "bf16_autocast", "sdpa", execution) for execution in ("compile", "cuda_graph")}
# On two cores a forward pass of the small size takes a second at a context of 128.
QUICK = ON_ANY | ON_CUDA if torch.cuda.is_available() else ON_ANY


def _combinations():
    """Size, passes, context, precision, attention and execution, each combination once."""
    contexts = CONTEXTS + LONG_CONTEXTS
    for size, context, precision, passes in product(SIZES, contexts, PRECISIONS, PASSES):
        # The optimizer sees parameters only, and two types of them.
        if passes != "optimizer" or (context == CONTEXTS[0] and precision in ("fp32", "bf16")):
            yield size, passes, context, precision, "sdpa", "eager"
    few, passes = ("fp32", "bf16_autocast"), ("forward", "forward_backward", "step")
    for size, context, precision, one in product(SIZES, contexts[2:], few, ("forward", "step")):
        for attention in ("naive", "triton"):
            yield size, one, context, precision, attention, "eager"
    for size, precision, one, attention in product(SIZES, few, passes, ("sdpa", "naive")):
        yield size, one, 512, precision, attention, "compile"
    for size, context, precision, one in product(SIZES, (128, 512), few, passes):
        yield size, one, context, precision, "sdpa", "cuda_graph"


def _tier(size, context):
    return "full" if size in LARGEST or context in LONG_CONTEXTS else "nightly"


def _cases():
    for case in _combinations():
        size, passes, context, precision, attention, execution = case
        quick = case in QUICK
        # An interpreter's time is no result, and only accelerators have graphs.
        needs = "accelerator" if attention == "triton" or execution == "cuda_graph" else None
        marks = pytest.mark.roofline(
            tier="quick" if quick else _tier(size, context),
            gate=quick and execution == "eager" and passes in ("forward", "step"),
            needs=needs,
            oom="record",
        )
        yield pytest.param(*case, id=f"{size}-{passes}-c{context}-{precision}-{attention}-{execution}", marks=marks)


@pytest.mark.parametrize(("size", "passes", "context", "precision", "attention", "execution"), list(_cases()))
def test_transformer(roofline, device, size, passes, context, precision, attention, execution):
    """One pass of a step, as it is, compiled, or replayed from a graph."""
    measure(roofline, device, SIZES[size], passes, context, precision, attention, execution)


def measure(roofline, device, config, passes, context, precision, attention="sdpa", execution="eager"):
    """Measure a pass of a model of any shape, or skip it with what it needs and what was found."""
    numbers = precision_named(precision)
    _require(roofline, device, config, passes, context, numbers, attention, execution)
    with numbers.settings():
        training = Training(
            config,
            batch=BATCH,
            context=context,
            precision=numbers,
            attention=attention,
            device=device,
            capturable=execution == "cuda_graph",
        )
        with executing.executed(execution, training, passes) as done:
            return roofline.measure(
                done.call,
                work=_work(config, passes, context, numbers),
                metric=None if passes == "optimizer" else numbers.metric,
                verify=lambda: check(training, done),
                # What a graph needs it has already, and a compiled model has no parts to look at.
                peak_bytes=execution != "cuda_graph",
                model=training.model if execution == "eager" else None,
                compiles=execution == "compile",
            )


def _work(config, passes, context, precision):
    if passes == "optimizer":
        return Work(**adamw_bytes(config.parameters, precision.parameters.itemsize))
    flops = transformer_flops(config.d_model, config.d_ff, config.layers, config.vocab, BATCH, context, passes=passes)
    return Work(**flops, tokens=BATCH * context)


def _require(roofline, device, config, passes, context, precision, attention="sdpa", execution="eager"):
    """Skip what this device does not do, and what cannot fit."""
    reason = precisions.why_not(precision, device) or executing.why_not(execution, device, precision, passes)
    if reason:
        pytest.skip(reason)
    if attention == "triton":
        try:
            case = make_case(1, 1, 16, config.head_dim, precision.products, device, causal=True)
            once(implementation("triton"), case, "both")
        except Unavailable as error:
            pytest.skip(str(error))
    roofline.require_memory(
        bytes_at_least(
            config,
            batch=BATCH,
            context=context,
            passes=passes,
            precision=precision,
            attention=attention,
            execution=execution,
        )
    )


def stepping(rank, size, passes, context):
    """What a rank of its own times: the passes of a model that was just made."""
    precision = precision_named("fp32")
    torch.set_float32_matmul_precision(precision.matmul)
    training = Training(
        SIZES[size], batch=BATCH, context=context, precision=precision, attention="sdpa", device=rank.device
    )
    done = executing.Pass(passes, training.pass_of(passes), training.accumulate_anew)
    return Timed(done.call, verify=lambda: check(training, done))


@pytest.mark.roofline(tier="nightly")
@pytest.mark.parametrize("passes", ["forward", "forward_backward"])
@pytest.mark.parametrize("size", [size for size in SIZES if size not in LARGEST])
def test_transformer_warm_up(roofline, device, distributed, size, passes):
    """Steps 0, 1, 2 … of a new process beside the steady state: what first steps cost, and how many are needed."""
    config, context = SIZES[size], CONTEXTS[0]
    precision = precision_named("fp32")
    _require(roofline, device, config, passes, context, precision)
    work = _work(config, passes, context, precision)
    if distributed.kind != device.type:
        # Ranks do not own such a device; a test before this one may have paid for some of its first step.
        _warm_up_here(roofline, device, config, passes, context, work)
        return
    roofline.measure_ranks(
        distributed,
        stepping,
        size,
        passes,
        context,
        world_size=1,
        work=work,
        metric=precision.metric,
        timing="pipelined",
        timeout=WARM_UP_TIMEOUT_S,
        first_calls=FIRST_STEPS,
        fresh=True,
    )


def _warm_up_here(roofline, device, config, passes, context, work):
    precision = precision_named("fp32")
    with precision.settings():
        training = Training(config, batch=BATCH, context=context, precision=precision, attention="sdpa", device=device)
        with executing.executed("eager", training, passes) as done:
            roofline.measure(
                done.call,
                work=work,
                metric=precision.metric,
                verify=lambda: check(training, done),
                first_calls=FIRST_STEPS,
            )


def _memory_cases():
    for size, context, precision, passes in product(SIZES, CONTEXTS, PRECISIONS, ("forward", "step")):
        # Where float32 is rounded before it is multiplied, memory is the same.
        if precision != "tf32":
            quick = (size, context, precision) == ("small", 128, "fp32")
            marks = pytest.mark.roofline(tier="quick" if quick else _tier(size, context), oom="record")
            yield pytest.param(
                size, context, precision, passes, id=f"{size}-c{context}-{precision}-{passes}", marks=marks
            )


@pytest.mark.parametrize(("size", "context", "precision", "passes"), list(_memory_cases()))
def test_transformer_memory(roofline, device, size, context, precision, passes):
    """What the memory of a steady step goes into, and one activation of the residual stream beside its formula."""
    tell_memory(roofline, device, SIZES[size], context, precision, passes)


def tell_memory(roofline, device, config, context, precision, passes):
    """Follow the memory of a pass of a model of any shape."""
    numbers = precision_named(precision)
    _require(roofline, device, config, passes, context, numbers)
    expected = activation_bytes(config, BATCH, context, numbers.parameters)
    with numbers.settings():
        training = Training(config, batch=BATCH, context=context, precision=numbers, attention="sdpa", device=device)
        call = training.pass_of(passes)
        if passes == "step":
            # The first one makes the optimizer's state.
            call()
        found = roofline.memory(
            call, model=training.model, optimizer=training.optimizer, predicted={"blocks.0": expected}
        )
    (output,) = found.outputs
    assert output.measured_bytes == expected, (
        f"blocks.0 returned {output.measured_bytes} bytes; expected {expected}, batch · context · d_model · element"
    )
    return found
