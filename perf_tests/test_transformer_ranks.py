"""A data-parallel training step over ranks: what it takes beside the step of one rank, and what communication is of it.

Weak scaling: every rank has a batch of its own, of the same size whatever the world. Each test measures the full step
(forward, backward, the gradients' average, AdamW) three ways:

* `alone`: one rank with a plain model, which communicates with nobody; on a CPU with as many threads as each of N has;
* `together`: all N ranks with `ddp` (DistributedDataParallel) or `fsdp2` (`fully_shard` on every block and on the
  model). Work and tokens are those of one rank, time that of the slowest;
* `no_sync`, of DDP only: all N ranks at the same time, each for itself.

And it tells, as figures that no verdict looks at:

* `efficiency`: the time of `alone` over that of `together`; what a rank keeps of its speed;
* `tokens of all ranks`, a second;
* `communicating`: the share of a step in which a collective is on its way, and `exposed`: in which it is, and the rank
  computes nothing meanwhile; means over ranks, from a profile of further steps that are not timed
  (`roofline_kernels.training.communication` says what counts). Waiting for a slower rank is in both;
* `beyond no_sync`: the share of `together` that `no_sync` does without. It is not profiled. `exposed` should be near
  it; where they are far apart, trust `beyond no_sync`.

A figure that is made of times is left out, with a warning, where one of these is invalid.
"""

import warnings
from statistics import fmean

import pytest

from pytest_roofline import Timed, Work, format_amount, usable_cores
from roofline_kernels.training.communication import profiled
from roofline_kernels.training.estimates import bytes_at_least
from roofline_kernels.training.parallel import STRATEGIES, ParallelStep, least_bytes
from roofline_kernels.training.precisions import precision_named
from roofline_kernels.transformer import Config, size_named
from roofline_kernels.work import transformer_flops

# Of the seeds' sizes none makes a step in less than seconds on two cores; this one is for the quick tier there.
TINY = Config(256, 1024, 4, 4)
# Its steps take a tenth of a second.
TINY_BUDGET_S = 0.5
# Those of the small model take seconds on two cores, and many more beside busy neighbours.
LONG_TIMEOUT_S = 600.0
WARM_UP_STEPS, PROFILED_STEPS = 2, 3
# Of a gradient's norm: products in bfloat16 differ by less, a sum in place of a mean by the number of ranks.
AVERAGE_TOLERANCE = 1e-2


def pytest_generate_tests(metafunc):
    """Give the test its cases, of the model, context and batch that the options ask for."""
    option = metafunc.config.option
    cases = _cases(option.transformer_size, option.context, option.batch)
    names = ("strategy", "size", "world_size", "batch", "context", "precision")
    metafunc.parametrize(names, list(cases))


def _cases(asked, context, batch):
    """Model, world, batch of a rank, context and precision: small ones on CPUs, those of the seeds on accelerators."""
    for strategy in STRATEGIES:
        for world_size in (2, 4):
            tier = "quick" if (strategy, world_size) == ("ddp", 2) else "nightly"
            yield _case(
                "cpu", tier, strategy, asked or "tiny", world_size, batch, context, 1, 128, "fp32"
            )
            if asked is None:
                yield _case(
                    "cpu", "nightly", strategy, "small", world_size, batch, context, 1, 128, "fp32"
                )
        for size in ("small", "medium") if asked is None else (asked,):
            for world_size in (2, 4, 8):
                tier = "quick" if (size, world_size) == (asked or "small", 2) else "nightly"
                yield _case(
                    "accelerator",
                    tier,
                    strategy,
                    size,
                    world_size,
                    batch,
                    context,
                    4,
                    512,
                    "bf16_autocast",
                )


def _case(
    needs, tier, strategy, size, world_size, batch, context, usual_batch, usual_context, precision
):
    context = context or usual_context
    more = "" if batch in (None, usual_batch) else f"-b{batch}"
    return pytest.param(
        strategy,
        size,
        world_size,
        batch or usual_batch,
        context,
        precision,
        id=f"{strategy}-{size}-{world_size}ranks-s{context}{more}-{precision}",
        marks=pytest.mark.roofline(
            needs=needs, tier=tier, budget=TINY_BUDGET_S if size == "tiny" else None
        ),
    )


def _model(size):
    return TINY if size == "tiny" else size_named(size)


def _step_of(rank, strategy, size, batch, context, precision):
    return ParallelStep(
        _model(size),
        strategy,
        batch=batch,
        context=context,
        group=rank.group if strategy is not None else None,
        device=rank.device,
        precision=precision,
    )


def training(rank, *case):
    """What a rank times: full steps, with the others or, without a strategy, alone."""
    one = _step_of(rank, *case)
    return Timed(one.step, verify=one.verify)


def training_apart(rank, *case):
    """What a rank times: full steps of DDP without the average over ranks."""
    one = _step_of(rank, *case)
    return Timed(one.step_alone, verify=one.verify)


def communicating(rank, *case):
    """Shares of communication and of what is exposed, from a profile, and the fingerprint of the model afterwards.

    First of all, a gradient is held against the mean over ranks that a plain all_reduce gives.
    """
    one = _step_of(rank, *case)
    error = one.average_error()
    assert error <= AVERAGE_TOLERANCE, (
        f"the gradient of rank {rank:d} is off the mean over ranks by {error:.3g} of its norm; accepted is "
        f"{AVERAGE_TOLERANCE:g}: the back end does not average as it should"
    )
    for _ in range(WARM_UP_STEPS):
        one.step()
    told = profiled(one.step, rank.device, PROFILED_STEPS)
    return told.share, told.exposed_share, one.fingerprint()


def test_transformer_ranks(
    roofline, distributed, strategy, size, world_size, batch, context, precision
):
    """The full step of one rank alone and of all together; scaling efficiency, and communication's share of a step."""
    case, timeout = (size, batch, context, precision), None if size == "tiny" else LONG_TIMEOUT_S
    _require(roofline, distributed, strategy, world_size, *case)

    def measure(name, function, strategy, ranks):
        return roofline.measure_ranks(
            distributed,
            function,
            strategy,
            *case,
            world_size=ranks,
            work=_work(*case),
            name=name,
            timing="pipelined",
            metric=precision_named(precision).metric,
            timeout=timeout,
        )

    alone = measure("alone", training, None, 1)
    together = measure("together", training, strategy, world_size)
    _check_threads(roofline.device, alone, together)
    if _valid("efficiency", alone, together):
        roofline.figure("efficiency", alone.median_s / together.median_s, "share")
    if _valid("tokens of all ranks", together):
        roofline.figure(
            "tokens of all ranks", world_size * batch * context / together.median_s, "tokens/s"
        )
    found = distributed.run(communicating, strategy, *case, world_size=world_size, timeout=timeout)
    _tell_communication(roofline, found)
    if strategy == "ddp":
        apart = measure("no_sync", training_apart, strategy, world_size)
        if _valid("beyond no_sync", apart, together):
            roofline.figure("beyond no_sync", 1 - apart.median_s / together.median_s, "share")


def _valid(figure, *measurements):
    """Whether a figure may be made of these times; if not, a warning says why."""
    invalid = [one for one in measurements if one.invalid]
    if invalid:
        why = "; ".join(f"{one.label} is INVALID: {one.invalid}" for one in invalid)
        warnings.warn(f"no figure {figure!r}: {why}", stacklevel=2)
    return not invalid


def _check_threads(device, alone, together):
    """On a CPU a rank alone must not have the cores of the others."""
    if device.type != "cpu":
        return
    one, each = alone.ranks.threads, together.ranks.threads
    same = one is not None and one == each
    assert same, (
        f"a rank alone computes with {one} threads, each of {together.ranks.size} ranks with {each} (None where ranks "
        "differ); expected equal numbers, since the efficiency would compare cores otherwise"
    )


def _tell_communication(roofline, found):
    shares, exposed, fingerprints = zip(*found, strict=True)
    apart = [
        str(rank) for rank, fingerprint in enumerate(fingerprints) if fingerprint != fingerprints[0]
    ]
    assert not apart, (
        f"after the same steps the models of rank 0 and of ranks {', '.join(apart)} differ; expected the same bits"
    )
    if not all(shares):
        # No share is told rather than a wrong one.
        warnings.warn(
            "the profile of a rank shows no collective; expected those of NCCL, RCCL or Gloo",
            stacklevel=2,
        )
        return
    roofline.figure("communicating", fmean(shares), "share")
    roofline.figure("exposed", fmean(exposed), "share")


def _work(size, batch, context, _precision):
    """Of one rank, as its time is."""
    model = _model(size)
    flops = transformer_flops(
        model.d_model, model.d_ff, model.layers, model.vocab, batch, context, passes="step"
    )
    return Work(**flops, tokens=batch * context)


def _require(roofline, distributed, strategy, world_size, size, batch, context, precision):
    """Skip what cannot run here: too few devices or cores, another torch, too little memory."""
    on_cpu, cores = roofline.device.type == "cpu", usable_cores()
    too_few_cores = (
        f"needs {world_size} cores, found {cores}" if on_cpu and world_size > cores else ""
    )
    if reason := distributed.available(world_size) or too_few_cores:
        roofline.skip_for_hardware(reason)
    model, numbers = _model(size), precision_named(precision)
    need = max(
        least_bytes(model, strategy, world_size, numbers.parameters.itemsize),
        bytes_at_least(model, batch=batch, context=context, passes="step", precision=numbers),
    )
    # Ranks on a CPU take theirs from the same memory.
    need *= world_size if on_cpu else 1
    free = distributed.free_bytes(world_size)
    if need > free:
        whose = f"{world_size} ranks of one memory" if on_cpu else "every rank"
        roofline.skip_for_hardware(
            f"needs {format_amount(need)} for {whose}, found {format_amount(free)}"
        )
