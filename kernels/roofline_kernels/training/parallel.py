"""A data-parallel training step: every rank has its own batch, and gradients are averaged over all ranks.

`ddp` is DistributedDataParallel: every rank holds the whole model, gradients are summed in buckets while the backward
pass goes on. `fsdp2` is `fully_shard` on every block and on the model: every rank holds its share of each parameter,
gathers a block's before it is needed, and gets its share of the summed gradients. Both exchange them in the parameters'
own type, under autocast too.
Sources: Li et al., "PyTorch Distributed" (2020); Zhao et al., "PyTorch FSDP" (2023), and torch's documentation of
`torch.distributed.fsdp.fully_shard`.
"""

import contextlib
import inspect
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from ..transformer import SEED, Config, Transformer, loss_of, make_batch
from .precisions import Precision, precision_named
from .steps import LEARNING_RATE

STRATEGIES = ("ddp", "fsdp2")
# The parameter whose gradient is compared with a mean. The gradient of the first block has gone through all others.
AVERAGED = "blocks.0.attention.query.weight"


class ParallelStep:
    """Model, optimizer and batch of one rank, and the step that trains them with the others.

    Args:
        config: the model's shape.
        strategy: one of `STRATEGIES`; None is a plain model, which communicates with nobody.
        batch: sequences of each rank.
        context: tokens of a sequence.
        group: the ranks that train together; None for a plain model.
        device: the rank's own.
        precision: one of `PRECISIONS` whose loss is not scaled.
        attention: one of `ATTENTIONS`.
        learning_rate: of AdamW.

    Raises:
        ValueError: no such strategy, precision or attention; a strategy without ranks; a precision with a scaled loss.
    """

    def __init__(
        self,
        config: Config,
        strategy: str | None,
        *,
        batch: int,
        context: int,
        group: dist.ProcessGroup | None,
        device: torch.device,
        precision: str = "fp32",
        attention: str = "sdpa",
        learning_rate: float = LEARNING_RATE,
    ) -> None:
        self.strategy, self._config, self._group = strategy, config, group
        self.precision = _unscaled(precision)
        self._device = device
        plain = Transformer(
            config,
            context=context,
            attention=attention,
            device=device,
            dtype=self.precision.parameters,
        )
        self.model = plain if strategy is None else wrap(plain, strategy, group, device)
        # Sharding replaces the parameters, so the optimizer is made after wrapping.
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate)
        rank = dist.get_rank(group) if group is not None else 0
        self.tokens, self.targets = make_batch(config, batch, context, device, seed=SEED + rank)
        self.loss: torch.Tensor | None = None

    def step(self) -> None:
        """Make one full step: forward, backward, the gradients' average over all ranks, AdamW."""
        with self.precision.settings():
            self.forward_backward()
            self.optimizer.step()

    def step_alone(self) -> None:
        """Make a step without the gradients' average, under `no_sync`. Models of ranks then differ.

        Raises:
            ValueError: another strategy.
        """
        with self._apart(), self.precision.settings():
            self.forward_backward()
            self.optimizer.step()

    def forward_backward(self) -> None:
        """Compute new gradients in the parameters, averaged over all ranks."""
        self.optimizer.zero_grad(set_to_none=True)
        with self.precision.casting(self._device):
            loss = loss_of(self.model(self.tokens), self.targets)
        loss.backward()
        self.loss = loss.detach()

    def average_error(self) -> float:
        """Return the error of the gradient of `AVERAGED`, as a share of the expected gradient's norm.

        The expected gradient is the mean of plain models over all ranks. All ranks must call this together, before the
        first step, since the plain models are new ones.
        """
        plain = ParallelStep(
            self._config,
            None,
            batch=self.tokens.shape[0],
            context=self.tokens.shape[1],
            group=None,
            device=self._device,
            precision=self.precision.name,
        )
        plain.tokens, plain.targets = self.tokens, self.targets
        for step in (plain, self):
            with self.precision.settings():
                step.forward_backward()
        expected = plain._gradient_of(AVERAGED).float()
        dist.all_reduce(expected, group=self._group)
        expected /= dist.get_world_size(self._group)
        return float((self._gradient_of(AVERAGED).float() - expected).norm() / expected.norm())

    def _gradient_of(self, name: str) -> torch.Tensor:
        """Return the whole gradient of a parameter, even if each rank holds a share of it."""
        model = self.model.module if isinstance(self.model, DistributedDataParallel) else self.model
        gradient: Any = model.get_parameter(name).grad
        whole: torch.Tensor = (
            gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
        )
        return whole

    def verify(self) -> bool:
        """Return whether the last loss is finite. No other rank takes part."""
        return self.loss is not None and bool(torch.isfinite(self.loss))

    def fingerprint(self) -> list[int]:
        """Return the sum of each parameter's bits, equal on all ranks with the same model.

        Empty for `fsdp2`, where every rank holds other shares.
        """
        if self.strategy == "fsdp2":
            return []
        return [_bits(parameter.detach()) for parameter in self.model.parameters()]

    def _apart(self) -> contextlib.AbstractContextManager[None]:
        """Return the context without the gradients' average. Raise ValueError unless it is ddp."""
        if not isinstance(self.model, DistributedDataParallel):
            raise ValueError(
                f"a step without synchronisation with {self.strategy}; expected ddp, which has no_sync"
            )
        return self.model.no_sync()


def wrap(
    model: Transformer, strategy: str, group: dist.ProcessGroup | None, device: torch.device
) -> nn.Module:
    """Return the model wrapped for training by the ranks of a group.

    Raises:
        ValueError: no such strategy, or no group.
    """
    _check(strategy)
    if group is None:
        raise ValueError(
            f"{strategy} without a group of ranks; expected the group that trains together"
        )
    if strategy == "ddp":
        return DistributedDataParallel(
            model,
            device_ids=None if device.type == "cpu" else [device],
            process_group=group,
            **_own_buffers(),
        )
    mesh = DeviceMesh.from_group(group, device.type)
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def least_bytes(config: Config, strategy: str, ranks: int, element_bytes: int) -> int:
    """Return the bytes that a rank needs at least.

    They are parameters, gradients and AdamW's two moments, and the buckets of ddp. A rank of fsdp2 also needs the whole
    model, since a plain model is made before it is sharded.

    Args:
        config: the model's shape.
        strategy: one of `STRATEGIES`.
        ranks: that train together.
        element_bytes: of a parameter.
    """
    _check(strategy)
    plain = 4 * config.parameters * element_bytes
    return plain + (config.parameters * element_bytes if strategy == "ddp" and ranks > 1 else 0)


def _check(strategy: str) -> None:
    """Raise ValueError if there is no such strategy."""
    if strategy not in STRATEGIES:
        raise ValueError(f"strategy is {strategy!r}; expected one of {', '.join(STRATEGIES)}")


def _own_buffers() -> dict[str, Any]:
    """Return the arguments of DDP with which it does not send the rotary tables in every step.

    They are the same on all ranks and never change.
    """
    is_newer = "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    return {"forward_sync_buffers" if is_newer else "broadcast_buffers": False}


def _unscaled(name: str) -> Precision:
    """Return a precision by its name. Raise ValueError if its loss is scaled."""
    precision = precision_named(name)
    if precision.scaled:
        raise ValueError(
            f"precision is {name}, whose loss is scaled; expected one that needs no scaling, as bf16_autocast"
        )
    return precision


def _bits(parameter: torch.Tensor) -> int:
    """Return the sum of a tensor's bit patterns, each an integer of its element's width."""
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return int(parameter.contiguous().view(kinds[parameter.element_size()]).sum(dtype=torch.int64))
