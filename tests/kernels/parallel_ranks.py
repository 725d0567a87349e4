"""Starts two ranks over Gloo on loopback, trains a tiny model on them in every way, and prints what each rank found.

`python parallel_ranks.py` prints one JSON object: by strategy and rank, how far gradients and parameters are from those
of one process with all batches, fingerprints, and what a profile tells of communication.
"""

import json
import time

import torch
import torch.distributed as dist
from forked_ranks import answers_of
from torch.distributed.fsdp import FSDPModule

from roofline_kernels.training.communication import profiled
from roofline_kernels.training.parallel import STRATEGIES, ParallelStep
from roofline_kernels.transformer import SEED, Config, make_batch

CPU = torch.device("cpu")
RANKS = 2
# Of a step that takes some ten milliseconds, and a few times as long on a busy machine.
LATE_S = 0.5
TINY = Config(32, 64, 2, 2, vocab=96)
BATCH, CONTEXT, STEPS = 2, 16, 3
# Large enough for a few steps to change a parameter by far more than rounding does.
LEARNING_RATE = 1e-3


def one(strategy, group=None, precision="fp32"):
    return ParallelStep(
        TINY,
        strategy,
        batch=BATCH,
        context=CONTEXT,
        group=group,
        device=CPU,
        precision=precision,
        learning_rate=LEARNING_RATE,
    )


def on_all_batches():
    """What one process with the batches of all ranks has: gradients of the first step, parameters after the last."""
    alone = one(None)
    batches = [make_batch(TINY, BATCH, CONTEXT, CPU, seed=SEED + rank) for rank in range(RANKS)]
    alone.tokens, alone.targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    alone.forward_backward()
    gradients = [parameter.grad.clone() for parameter in alone.model.parameters()]
    for _ in range(STEPS):
        alone.step()
    return gradients, [parameter.detach() for parameter in alone.model.parameters()]


def whole(tensor):
    """All of a tensor, where each rank holds a share."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def local(tensor):
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def apart(found, expected):
    """The largest difference, over all tensors."""
    return max((whole(a) - b).abs().max().item() for a, b in zip(found, expected, strict=True))


def late_step(together):
    """A step for which the last rank lets the others wait."""
    if dist.get_rank() == RANKS - 1:
        time.sleep(LATE_S)
    together.step()


def trained(strategy, expected):
    """What a strategy gives on this rank."""
    gradients, parameters = expected
    average_error = one(strategy, dist.group.WORLD).average_error()
    together = one(strategy, dist.group.WORLD)
    together.forward_backward()
    found = {
        "gradients": apart([parameter.grad for parameter in together.model.parameters()], gradients)
    }
    found["average error"] = average_error
    for _ in range(STEPS):
        together.step()
    found["parameters"] = apart(
        [parameter.detach() for parameter in together.model.parameters()], parameters
    )
    found["elements"] = sum(local(parameter).numel() for parameter in together.model.parameters())
    found["units"] = sum(isinstance(module, FSDPModule) for module in together.model.modules())
    found["fingerprint"], found["verified"] = together.fingerprint(), together.verify()
    told = profiled(together.step, CPU, STEPS)
    found["profile"] = [told.step_s, told.communication_s, told.exposed_s]
    if strategy == "ddp":
        told = profiled(lambda: late_step(together), CPU, STEPS)
        found["profile beside a late rank"] = [told.step_s, told.communication_s, told.exposed_s]
        together.step_alone()
        found["fingerprint alone"] = together.fingerprint()
    mixed = one(strategy, dist.group.WORLD, "bf16_autocast")
    mixed.step()
    found["mixed verified"] = mixed.verify()
    return found


def main():
    """Print what each rank found, by rank."""
    # Before the fork, so that what an optimizer's first step and FSDP2 import is imported once.
    torch.set_num_threads(1)
    expected = on_all_batches()

    def found(rank):
        own = one(None)
        own.tokens, own.targets = make_batch(TINY, BATCH, CONTEXT, CPU, seed=SEED + rank)
        own.forward_backward()
        told = {strategy: trained(strategy, expected) for strategy in STRATEGIES}
        return told | {
            "alone": {
                "gradients": apart([each.grad for each in own.model.parameters()], expected[0])
            }
        }

    print(json.dumps(answers_of(RANKS, found)))


if __name__ == "__main__":
    main()
