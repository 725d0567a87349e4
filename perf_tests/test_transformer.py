"""What an inference or training step of a transformer costs, whole and in parts, over sizes, contexts and precisions.

Batch 4, five sizes from 121 million to 3.4 billion parameters; `--d-model`, `--layers`, `--heads`, `--d-ff`,
`--context` and `--batch` ask for others. FLOPs are the model's matrix products, so that the share of the device's peak
is the MFU. `forward` is inference; `backward` is that of a graph that stays, and `optimizer` is AdamW alone, shown as
the traffic that it needs at least. Every measurement is held against the same weights run plainly in float32.

What cannot fit is skipped with the bytes that it needs at least; what runs out of memory all the same is recorded.
"""

from dataclasses import dataclass
from itertools import product

import pytest
import torch

from pytest_roofline import Timed, Work, option_value
from roofline_kernels.attention.implementations import Unavailable, implementation, make_case, once
from roofline_kernels.training import executing, precisions
from roofline_kernels.training.checking import check, check_memory
from roofline_kernels.training.emulation import why_too_slow
from roofline_kernels.training.estimates import activation_bytes, bytes_at_least
from roofline_kernels.training.precisions import PRECISIONS, precision_named
from roofline_kernels.training.steps import PASSES, Training
from roofline_kernels.transformer import SIZES, size_named
from roofline_kernels.work import adamw_bytes, transformer_flops

DEFAULT_BATCH = 4
CONTEXTS, LONG_CONTEXTS = (128, 256, 512, 1024), (2048, 4096)
# Autocast without its cache of cast weights; and what its memory stands beside.
UNCACHED = "bf16_autocast_uncached"
CASTS = ("fp32", "bf16_autocast", UNCACHED, "bf16")
LARGEST = ("xl", "2.7B")
# Steps 0, 1, 2 … that are timed one by one: ten behind 0, 1 and 5 others.
FIRST_STEPS = 15
WARM_UP_CONTEXT = 256
# Of a rank that makes them on two cores: a step of the large size takes a minute there.
WARM_UP_TIMEOUT_S = 7200.0

# Passes, precision, attention and execution that are quick, at the first size: at a context of 128 everywhere, and at
# one of 512 on accelerators. On two cores a forward pass of the small size takes a second at a context of 128.
ON_ANY = {(passes, "fp32", "sdpa", "eager") for passes in PASSES}
ON_ACCELERATORS = {
    (passes, precision, "sdpa", "eager")
    for passes, precision in product(("forward", "step"), ("fp32", "bf16_autocast"))
} | {("step", "bf16_autocast", "sdpa", execution) for execution in ("compile", "cuda_graph")}


@dataclass(frozen=True)
class Asked:
    """What the options ask for."""

    on_accelerator: bool = False
    size: str | None = None
    context: int | None = None
    batch: int = DEFAULT_BATCH

    @property
    def sizes(self):
        """The names of the models."""
        return tuple(SIZES) if self.size is None else (self.size,)

    def contexts(self, *usual):
        """The contexts: those that are usual for a case, or the one that was asked for."""
        return usual if self.context is None else (self.context,)

    def is_quick(self, size, context, case):
        """Whether a case is for every run."""
        if size != self.sizes[0]:
            return False
        everywhere = context in self.contexts(128) and case in ON_ANY
        return everywhere or (
            self.on_accelerator and context in self.contexts(512) and case in ON_ACCELERATORS
        )


def pytest_generate_tests(metafunc):
    """Give each test its cases; the device that is measured decides which of them are quick."""
    names, cases = CASES[metafunc.function.__name__]
    option, on_accelerator = metafunc.config.option, _on_accelerator(metafunc.config)
    asked = Asked(
        on_accelerator, option.transformer_size, option.context, option.batch or DEFAULT_BATCH
    )
    found = list(cases(asked))
    # A context of the warm-up is none of its parameters but where it is asked for.
    metafunc.parametrize((*names, "context")[: len(found[0].values)], found)


def _on_accelerator(config):
    if asked := option_value(config, "device"):
        return asked != "cpu"
    xpu = getattr(torch, "xpu", None)
    return (
        torch.cuda.is_available()
        or torch.backends.mps.is_available()
        or (xpu is not None and xpu.is_available())
    )


def _combinations(asked):
    """Size, passes, context, precision, attention and execution, each combination once."""
    contexts, sizes = asked.contexts(*CONTEXTS, *LONG_CONTEXTS), asked.sizes
    for size, context, precision, passes in product(sizes, contexts, PRECISIONS, PASSES):
        if precision == UNCACHED and (
            context not in asked.contexts(512) or passes not in ("forward", "step")
        ):
            continue
        # The optimizer sees parameters only, and two types of them.
        if passes != "optimizer" or (context == contexts[0] and precision in ("fp32", "bf16")):
            yield size, passes, context, precision, "sdpa", "eager"
    few, passes = ("fp32", "bf16_autocast"), ("forward", "forward_backward", "step")
    beyond = asked.contexts(*CONTEXTS[1:], *LONG_CONTEXTS)
    for size, context, precision, one in product(sizes, beyond, few, ("forward", "step")):
        for attention in ("naive", "triton"):
            yield size, one, context, precision, attention, "eager"
    for size, context, precision, one in product(sizes, asked.contexts(256, 512), few, passes):
        for attention in ("sdpa", "naive"):
            yield size, one, context, precision, attention, "compile"
    for size, context, precision, one in product(sizes, asked.contexts(128, 512), few, passes):
        yield size, one, context, precision, "sdpa", "cuda_graph"


def _tier(size, context):
    return "full" if size in LARGEST or context in LONG_CONTEXTS else "nightly"


def _with_batch(text, batch):
    """Text of an id, with the batch where it is another than usual."""
    return text if batch == DEFAULT_BATCH else f"{text}-b{batch}"


def _cases(asked):
    for size, passes, context, *rest in _combinations(asked):
        precision, attention, execution = rest
        quick = asked.is_quick(size, context, (passes, *rest))
        # An interpreter's time is no result, and only accelerators have graphs.
        needs = "accelerator" if attention == "triton" or execution == "cuda_graph" else None
        marks = pytest.mark.roofline(
            tier="quick" if quick else _tier(size, context),
            gate=quick and execution == "eager" and passes in ("forward", "step"),
            needs=needs,
            oom="record",
        )
        shape = _with_batch(f"c{context}", asked.batch)
        name = f"{size}-{passes}-{shape}-{precision}-{attention}-{execution}"
        yield pytest.param(size, passes, context, *rest, asked.batch, id=name, marks=marks)


def test_transformer(
    roofline, device, size, passes, context, precision, attention, execution, batch
):
    """One pass of a step, as it is, compiled, or replayed from a graph."""
    measure(
        roofline, device, size_named(size), passes, context, precision, attention, execution, batch
    )


def measure(
    roofline,
    device,
    config,
    passes,
    context,
    precision,
    attention="sdpa",
    execution="eager",
    batch=DEFAULT_BATCH,
):
    """Measure a pass of a model of any shape, or skip it with what it needs and what was found."""
    numbers = precision_named(precision)
    work = _work(config, passes, context, numbers, batch)
    _require(
        roofline, device, config, passes, context, numbers, work, attention, execution, batch=batch
    )
    with numbers.settings():
        training = Training(
            config,
            batch=batch,
            context=context,
            precision=numbers,
            attention=attention,
            device=device,
            capturable=execution == "cuda_graph",
        )
        with executing.executed(execution, training, passes) as done:
            return roofline.measure(
                done.call,
                work=work,
                metric=None if passes == "optimizer" else numbers.metric,
                verify=lambda: check(training, done),
                # What a graph needs it has already, and a compiled model has no parts to look at.
                peak_bytes=execution != "cuda_graph",
                model=training.model if execution == "eager" else None,
                compiles=execution == "compile",
            )


def _work(config, passes, context, precision, batch):
    if passes == "optimizer":
        return Work(**adamw_bytes(config.parameters, precision.parameters.itemsize))
    flops = transformer_flops(
        config.d_model, config.d_ff, config.layers, config.vocab, batch, context, passes=passes
    )
    return Work(**flops, tokens=batch * context)


def _require(
    roofline,
    device,
    config,
    passes,
    context,
    precision,
    work,
    attention="sdpa",
    execution="eager",
    *,
    batch,
):
    """Skip what this device does not do, what would take it for ever, and what cannot fit."""
    reason = (
        precisions.why_not(precision, device)
        or executing.why_not(execution, device, precision, passes)
        or why_too_slow(work.flops, precision, device)
    )
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
            batch=batch,
            context=context,
            passes=passes,
            precision=precision,
            attention=attention,
            execution=execution,
        )
    )


def stepping(rank, size, passes, context, batch):
    """What a rank of its own times: the passes of a model that was just made."""
    precision = precision_named("fp32")
    torch.set_float32_matmul_precision(precision.matmul)
    training = Training(
        size_named(size),
        batch=batch,
        context=context,
        precision=precision,
        attention="sdpa",
        device=rank.device,
    )
    done = executing.as_it_is(training, passes)
    return Timed(done.call, verify=lambda: check(training, done))


@pytest.fixture
def context():
    """Of the steps after which others published a series over warm-up; a context that is asked for takes its place."""
    return WARM_UP_CONTEXT


def _warm_up_cases(asked):
    for size, passes in product(asked.sizes, ("forward", "forward_backward", "step", "backward")):
        name, more = _with_batch(f"{size}-{passes}", asked.batch), ()
        if asked.context is not None:
            name, more = f"{name}-c{asked.context}", (asked.context,)
        # Where ranks own the device, a rank that runs out of memory is a failure all the same.
        marks = pytest.mark.roofline(tier=_tier(size, asked.context), oom="record")
        yield pytest.param(size, passes, asked.batch, *more, id=name, marks=marks)


def test_transformer_warm_up(roofline, device, distributed, size, passes, batch, context):
    """Steps 0, 1, 2 … of a new process beside the steady state: what first steps cost, and how many are needed."""
    config = size_named(size)
    precision = precision_named("fp32")
    work = _work(config, passes, context, precision, batch)
    _require(roofline, device, config, passes, context, precision, work, batch=batch)
    if distributed.kind != device.type:
        # Ranks do not own such a device; a test before this one may have paid for some of its first step.
        _warm_up_here(roofline, device, config, passes, context, work, batch)
        return
    roofline.measure_ranks(
        distributed,
        stepping,
        size,
        passes,
        context,
        batch,
        world_size=1,
        work=work,
        metric=precision.metric,
        timing="pipelined",
        timeout=WARM_UP_TIMEOUT_S,
        first_calls=FIRST_STEPS,
        fresh=True,
    )


def _warm_up_here(roofline, device, config, passes, context, work, batch):
    precision = precision_named("fp32")
    with precision.settings():
        training = Training(
            config,
            batch=batch,
            context=context,
            precision=precision,
            attention="sdpa",
            device=device,
        )
        with executing.executed("eager", training, passes) as done:
            roofline.measure(
                done.call,
                work=work,
                metric=precision.metric,
                verify=lambda: check(training, done),
                first_calls=FIRST_STEPS,
            )


def _memory_cases(asked):
    for size, context, precision, passes in product(
        asked.sizes, asked.contexts(*CONTEXTS), PRECISIONS, ("forward", "step")
    ):
        # Where float32 is rounded before it is multiplied, memory is the same; a cache has a test of its own.
        if precision not in ("tf32", UNCACHED):
            quick = (
                precision == "fp32" and size == asked.sizes[0] and context in asked.contexts(128)
            )
            marks = pytest.mark.roofline(
                tier="quick" if quick else _tier(size, context),
                oom="record",
            )
            shape = _with_batch(f"c{context}", asked.batch)
            name = f"{size}-{shape}-{precision}-{passes}"
            yield pytest.param(size, context, precision, passes, asked.batch, id=name, marks=marks)


def test_transformer_memory(roofline, device, size, context, precision, passes, batch):
    """What the memory of a steady step goes into, and one activation of the residual stream beside its formula."""
    tell_memory(roofline, device, size_named(size), context, precision, passes, batch)


def _cast_memory_cases(asked):
    for size, context, passes in product(asked.sizes, asked.contexts(256), ("forward", "step")):
        name = f"{size}-{_with_batch(f'c{context}', asked.batch)}-{passes}"
        marks = pytest.mark.roofline(tier=_tier(size, context), oom="record")
        yield pytest.param(size, context, passes, asked.batch, id=name, marks=marks)


def test_transformer_cast_memory(roofline, device, size, context, passes, batch):
    """Peaks under autocast, with and without its cache of cast weights, beside float32 and `.to(bfloat16)`."""
    for precision in CASTS:
        found = tell_memory(
            roofline, device, size_named(size), context, precision, passes, batch, name=precision
        )
        roofline.figure(f"peak in {precision}", found.peak_bytes, "B")


def tell_memory(
    roofline, device, config, context, precision, passes, batch=DEFAULT_BATCH, name=None
):
    """Follow the memory of a pass of a model of any shape."""
    numbers = precision_named(precision)
    work = _work(config, passes, context, numbers, batch)
    _require(roofline, device, config, passes, context, numbers, work, batch=batch)
    with numbers.settings():
        training = Training(
            config, batch=batch, context=context, precision=numbers, attention="sdpa", device=device
        )
        call = training.pass_of(passes)
        if passes == "step":
            # The first one makes the optimizer's state.
            call()
        residual = []
        training.model.blocks[0].register_forward_hook(
            lambda *given: residual.append(given[-1].nbytes)
        )
        found = roofline.memory(call, model=training.model, optimizer=training.optimizer, name=name)
    expected = activation_bytes(config, batch, context, numbers.parameters)
    assert residual == [expected], (
        f"blocks.0 returned {residual} bytes; expected {expected}, batch · context · d_model"
    )
    count = sum(parameter.numel() for parameter in training.model.parameters())
    assert count == config.parameters, (
        f"the model has {count} parameters; expected {config.parameters}, by its shape"
    )
    if name is None:
        roofline.figure("activation of the residual stream", expected, "B")
        roofline.figure("parameters", count, "count")
    least = bytes_at_least(config, batch=batch, context=context, passes=passes, precision=numbers)
    weights = config.parameters * numbers.parameters.itemsize
    check_memory(found.categories, found.peak_bytes, weights=weights, least=least, passes=passes)
    return found


CASES = {
    "test_transformer": (
        ("size", "passes", "context", "precision", "attention", "execution", "batch"),
        _cases,
    ),
    "test_transformer_warm_up": (("size", "passes", "batch"), _warm_up_cases),
    "test_transformer_cast_memory": (("size", "context", "passes", "batch"), _cast_memory_cases),
    "test_transformer_memory": (("size", "context", "precision", "passes", "batch"), _memory_cases),
}
