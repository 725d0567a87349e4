"""The expected results of a pass, from the same weights in exact float32, one sequence at a time.

Blocks are computed one at a time too, and each forward pass is repeated before its backward pass. Beside the measured
model there may be memory for one block in float32 with its gradients, but not for a second model.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import nn
from torch.func import functional_call
from torch.nn.functional import embedding, linear, rms_norm

from ..decoder.block import NORM_EPS
from ..transformer import Transformer, loss_of
from .precisions import PRECISIONS
from .steps import Training

Named = dict[str, torch.Tensor]
# One tensor a sequence, [1, S, d_model].
Streams = list[torch.Tensor]


class Reference:
    """A model of the training's weights, with PyTorch's attention and without autocast.

    Args:
        training: whose weights and batch.
        place: the device to compute on; weights are copied to it.
    """

    def __init__(self, training: Training, place: torch.device) -> None:
        self._training, self._place = training, place
        context = training.tokens.shape[1]
        single_block = replace(training.config, layers=1)
        self._block = Transformer(
            single_block, context=context, attention="sdpa", device="meta"
        ).blocks[0]

    def logits(self) -> Iterator[torch.Tensor]:
        """Yield the logits of each sequence, [1, S, V]."""
        for streams in self._streams():
            last = streams
        model = self._training.model
        head, norm = self._exact(model.embedding.weight), self._exact(model.norm.weight)
        for x in last:
            with torch.no_grad(), PRECISIONS["fp32"].settings():
                logits = _logits(x, norm, head)
            yield logits

    def loss_and_gradients(self) -> tuple[float, Iterator[tuple[str, torch.Tensor]]]:
        """Return the mean loss, and an iterator over every parameter's name and gradient.

        Those of the last block come first. A gradient is valid until the next one is taken.
        """
        inputs = list(self._streams())
        loss, norm, head, upstream = self._behind_blocks(inputs.pop())
        return loss, self._gradients(inputs, norm, head, upstream)

    def _gradients(
        self, inputs: list[Streams], norm: torch.Tensor, head: torch.Tensor, upstream: Streams
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield every parameter's name and gradient.

        Args:
            inputs: of each block, for each sequence.
            norm: the gradient by the last norm.
            head: the gradient by the head.
            upstream: the gradients by the last block's output.
        """
        yield "norm.weight", norm
        for index in reversed(range(len(inputs))):
            named, upstream = self._backwards(
                self._training.model.blocks[index], inputs.pop(), upstream
            )
            for name, gradient in named.items():
                yield f"blocks.{index}.{name}", gradient
        # The head and the embedding are one parameter, so their gradients are added.
        for tokens, gradient in zip(self._training.tokens.to(self._place), upstream, strict=True):
            head.index_add_(0, tokens, gradient[0])
        yield "embedding.weight", head

    def _streams(self) -> Iterator[Streams]:
        """Yield the input of each block, then the output of the last."""
        model = self._training.model
        table = self._exact(model.embedding.weight)
        streams = [
            embedding(tokens, table) for tokens in self._training.tokens.to(self._place).split(1)
        ]
        yield streams
        for block in model.blocks:
            weights = self._weights(block)
            with torch.no_grad(), PRECISIONS["fp32"].settings():
                streams = [functional_call(self._block, weights, (x,)) for x in streams]
            yield streams

    def _behind_blocks(self, streams: Streams) -> tuple[float, torch.Tensor, torch.Tensor, Streams]:
        """Return the loss, and its gradients by the last norm, by the head, and by the last block's output."""
        model, total = self._training.model, 0.0
        norm, head = (
            self._exact(weight).requires_grad_()
            for weight in (model.norm.weight, model.embedding.weight)
        )
        leaves = [x.requires_grad_() for x in streams]
        targets = self._training.targets.to(self._place).split(1)
        for x, target in zip(leaves, targets, strict=True):
            with torch.enable_grad(), PRECISIONS["fp32"].settings():
                loss = loss_of(_logits(x, norm, head), target) / len(leaves)
                loss.backward()
            total += float(loss.detach())
        return total, _gradient(norm), _gradient(head), [_gradient(x) for x in leaves]

    def _backwards(
        self, block: nn.Module, streams: Streams, upstream: Streams
    ) -> tuple[Named, Streams]:
        """Return the gradients by a block's parameters and by its input, from those by its output."""
        weights = self._weights(block)
        parameters = {name: weights[name].requires_grad_() for name, _ in block.named_parameters()}
        leaves = [x.requires_grad_() for x in streams]
        for x, gradient in zip(leaves, upstream, strict=True):
            with torch.enable_grad(), PRECISIONS["fp32"].settings():
                functional_call(self._block, weights, (x,)).backward(gradient)
        return {name: _gradient(weight) for name, weight in parameters.items()}, [
            _gradient(x) for x in leaves
        ]

    def _weights(self, block: nn.Module) -> Named:
        """Return a block's parameters and buffers in float32 on this place, by name."""
        named = {**dict(block.named_parameters()), **dict(block.named_buffers())}
        return {name: self._exact(tensor) for name, tensor in named.items()}

    def _exact(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(self._place, torch.float32)


def _logits(x: torch.Tensor, norm: torch.Tensor, head: torch.Tensor) -> torch.Tensor:
    return linear(rms_norm(x, norm.shape, norm, NORM_EPS), head)


def _gradient(leaf: torch.Tensor) -> torch.Tensor:
    assert leaf.grad is not None
    return leaf.grad
