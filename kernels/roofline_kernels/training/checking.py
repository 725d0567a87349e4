"""Whether a pass did what it should: held against the same weights run plainly, in float32, one sequence at a time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch.func import functional_call

from ..transformer import Transformer, loss_of
from .executing import Pass
from .precisions import PRECISIONS
from .steps import Training

# Of all parameters the one whose gradient passes through every block, and whose step is worked out by hand.
FIRST = "blocks.0.attention.query.weight"
# Of a moment, where its type is exact enough for it: a gradient found from a moment has lost digits.
ROUNDING = 1e-4


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a precision may be off.

    Args:
        logits: of the largest logit.
        loss: of the loss.
        gradient: of the largest element of a gradient.
    """

    logits: float
    loss: float
    gradient: float


TOLERANCES: Mapping[str, Tolerance] = MappingProxyType(
    {
        "fp32": Tolerance(logits=1e-4, loss=1e-5, gradient=1e-3),
        "tf32": Tolerance(logits=1e-2, loss=1e-3, gradient=5e-2),
        "bf16_autocast": Tolerance(logits=5e-2, loss=5e-3, gradient=1e-1),
        "fp16_autocast": Tolerance(logits=1e-2, loss=1e-3, gradient=5e-2),
        "bf16": Tolerance(logits=5e-2, loss=5e-3, gradient=1e-1),
    }
)


def check(training: Training, done: Pass) -> None:
    """Hold what a pass left behind against what it should be.

    Raises:
        AssertionError: naming what is wrong, by how much, and what is accepted.
    """
    checks = {
        "forward": _check_forward,
        "forward_backward": _check_forward_backward,
        "backward": _check_backward,
        "step": _check_step,
        "optimizer": _check_optimizer,
    }
    checks[done.name](training, done)


class Reference:
    """The training's weights in a model of its own: eager, float32 as IEEE has it, PyTorch's attention."""

    def __init__(self, training: Training) -> None:
        self._training = training
        context = training.tokens.shape[1]
        self._model = Transformer(training.config, context=context, attention="sdpa", device="meta")

    def logits(self) -> Iterator[torch.Tensor]:
        """Of each sequence, [1, S, V]."""
        weights = self._weights()
        for tokens, _ in self._sequences():
            with torch.no_grad(), PRECISIONS["fp32"].settings():
                yield self._run(weights, tokens)

    def loss_and_gradient(self) -> tuple[float, torch.Tensor]:
        """The mean loss, and its gradient by the parameter `FIRST`."""
        weights = self._weights()
        first = weights[FIRST].clone().requires_grad_()
        weights[FIRST] = first
        total, gradient, count = 0.0, torch.zeros_like(first), len(self._training.tokens)
        for tokens, targets in self._sequences():
            with PRECISIONS["fp32"].settings():
                loss = loss_of(self._run(weights, tokens), targets) / count
                gradient += torch.autograd.grad(loss, first)[0]
            total += float(loss.detach())
        return total, gradient

    def _weights(self) -> dict[str, torch.Tensor]:
        model = self._training.model
        named = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        return {name: tensor.detach().float() for name, tensor in named.items()}

    def _sequences(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return zip(self._training.tokens.split(1), self._training.targets.split(1), strict=True)

    def _run(self, weights: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = functional_call(self._model, weights, (tokens,))
        return logits


def _check_forward(training: Training, _done: Pass) -> None:
    assert training.logits is not None, "there are no logits"
    for index, expected in enumerate(Reference(training).logits()):
        found = training.logits[index : index + 1]
        close(f"logits of sequence {index}", found, expected, TOLERANCES[training.precision.name].logits)


def _check_forward_backward(training: Training, done: Pass) -> None:
    expected = Reference(training).loss_and_gradient()
    _check_loss(training, expected[0])
    done.keep()
    _check_gradients(training, [parameter.grad for parameter in training.parameters], expected[1])


def _check_backward(training: Training, done: Pass) -> None:
    expected = Reference(training).loss_and_gradient()
    _check_loss(training, expected[0])
    found = done.call()
    assert isinstance(found, tuple)
    _check_gradients(training, list(found), expected[1])


def _check_step(training: Training, done: Pass) -> None:
    loss, gradient = Reference(training).loss_and_gradient()
    before = AdamWState.of(training)
    done.call()
    after = AdamWState.of(training)
    _check_loss(training, loss)
    found = after.gradient_since(before)
    close(f"the gradient of {FIRST}", found, gradient.cpu(), TOLERANCES[training.precision.name].gradient)
    check_moved(before, found, after)


def _check_optimizer(training: Training, done: Pass) -> None:
    gradient = training.model.get_parameter(FIRST).grad
    assert gradient is not None, f"{FIRST} has no gradient"
    before = AdamWState.of(training)
    done.call()
    check_moved(before, exact(gradient), AdamWState.of(training))


def _check_loss(training: Training, expected: float) -> None:
    assert training.loss is not None, "there is no loss"
    close("the loss", training.loss, torch.tensor(expected), TOLERANCES[training.precision.name].loss)


def _check_gradients(training: Training, found: list[torch.Tensor | None], expected: torch.Tensor) -> None:
    """Every gradient is there and finite, and that of `FIRST` is right."""
    for (name, parameter), gradient in zip(training.model.named_parameters(), found, strict=True):
        assert gradient is not None, f"{name} has no gradient"
        assert gradient.shape == parameter.shape, f"the gradient of {name} is {list(gradient.shape)}"
        assert torch.isfinite(gradient).all(), f"the gradient of {name} is not finite"
        if name == FIRST:
            unscaled = gradient.float() / training.scale
            close(f"the gradient of {name}", unscaled, expected, TOLERANCES[training.precision.name].gradient)


@dataclass(frozen=True, slots=True)
class AdamWState:
    """What AdamW knows of the parameter `FIRST`, in float64 on the host.

    Args:
        value: the parameter.
        mean: its first moment.
        square: its second moment.
        steps: done so far.
        eps: of the parameter's type, the distance from 1 to the next number.
        options: of the optimizer.
    """

    value: torch.Tensor
    mean: torch.Tensor
    square: torch.Tensor
    steps: int
    eps: float
    options: Mapping[str, Any]

    @classmethod
    def of(cls, training: Training) -> "AdamWState":
        """As it is now."""
        parameter = training.model.get_parameter(FIRST)
        state = training.optimizer.state[parameter]
        assert state, f"the optimizer has no state of {FIRST}: it made no step"
        return cls(
            value=exact(parameter),
            mean=exact(state["exp_avg"]),
            square=exact(state["exp_avg_sq"]),
            steps=int(state["step"]),
            eps=torch.finfo(parameter.dtype).eps,
            options=training.optimizer.param_groups[0],
        )

    def gradient_since(self, before: "AdamWState") -> torch.Tensor:
        """The gradient of the one step between, from the first moment."""
        beta = self.options["betas"][0]
        gradient: torch.Tensor = (self.mean - beta * before.mean) / (1 - beta)
        return gradient


def check_moved(before: AdamWState, gradient: torch.Tensor, after: AdamWState) -> None:
    """Hold one step against AdamW's formula, element by element.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), algorithm 2, with torch's defaults.

    Raises:
        AssertionError: naming what is wrong.
    """
    rate, decay, smallest = (before.options[name] for name in ("lr", "weight_decay", "eps"))
    (first, second), steps = before.options["betas"], before.steps + 1
    assert after.steps == steps, f"the optimizer made {after.steps - before.steps} steps; expected 1"
    square = second * before.square + (1 - second) * gradient**2
    rounding = max(ROUNDING, 4 * before.eps)
    _within("the second moment", after.square, square, rounding * (square + ROUNDING * square.max()))
    mean = first * before.mean + (1 - first) * gradient
    _within("the first moment", after.mean, mean, rounding * (mean.abs() + ROUNDING * mean.abs().max()))
    root = (after.square / (1 - second**steps)).sqrt() + smallest
    step = rate * after.mean / (1 - first**steps) / root
    value = before.value * (1 - rate * decay) - step
    _within(FIRST, after.value, value, 4 * before.eps * before.value.abs() + 4 * rounding * step.abs())
    assert bool((after.value != before.value).any()), f"{FIRST} did not move"


def close(what: str, found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """Hold the largest error against a share of the largest value; NaN is refused as well.

    Raises:
        AssertionError: with error, largest value and tolerance.
    """
    error = float((exact(found) - exact(expected)).abs().max())
    largest = float(exact(expected).abs().max())
    assert error <= tolerance * largest, (
        f"{what}: off by {error:.3g}, where the largest is {largest:.3g}; accepted is {tolerance:g} of it"
    )


def exact(values: torch.Tensor) -> torch.Tensor:
    """A copy in float64 on the host, since Metal has no double precision."""
    return values.detach().cpu().double()


def _within(what: str, found: torch.Tensor, expected: torch.Tensor, accepted: torch.Tensor) -> None:
    error = (found - expected).abs()
    wrong = ~(error <= accepted)
    assert not bool(wrong.any()), (
        f"{what}: {int(wrong.sum())} of {wrong.numel()} elements are not what AdamW's formula gives, "
        f"off by up to {float(error[wrong].max()):.3g}"
    )
