"""The check of a step of AdamW against its formula, for a sample of the elements of every parameter."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .steps import Training

# About so many elements of each parameter are checked, since there may be no memory for a second state of all.
MOST = 2**14
# The accepted error of a moment, as a share. A gradient that is computed from a moment has lost digits.
ROUNDING = 1e-4
# The accepted error of a step, as a share. If the count of steps is on the device, torch subtracts a power of 0.999
# from 1 in float32.
STEP_ROUNDING = 2e-5
# The learning rate of a checked step. It is so large that the decay exceeds the rounding of float32, and the step that
# of bfloat16.
CHECKED_RATE = 1e-2
# torch's defaults. They are not read from the optimizer, so that wrong ones there are found.
DECAY, BETAS, SMALLEST = 1e-2, (0.9, 0.999), 1e-8


@contextlib.contextmanager
def visible_rate(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Set the learning rate to `CHECKED_RATE`, and restore it afterwards.

    A CUDA graph uses it too if the rate is a tensor.
    """
    (group,) = optimizer.param_groups
    before = float(group["lr"])
    _set_rate(group, CHECKED_RATE)
    try:
        yield
    finally:
        _set_rate(group, before)


def _set_rate(group: dict[str, object], rate: float) -> None:
    """Set the rate of a group of parameters; a tensor is changed in place."""
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


@dataclass(frozen=True, slots=True)
class AdamWState:
    """The state of AdamW for the sampled elements of a parameter, in float64 on the host.

    Args:
        name: of the parameter.
        value: the parameter.
        mean: its first moment.
        square: its second moment.
        steps: done so far.
        eps: of the parameter's type, the distance from 1 to the next number.
        matrix: whether the parameter is one; the values of a norm's weights are all alike.
    """

    name: str
    value: torch.Tensor
    mean: torch.Tensor
    square: torch.Tensor
    steps: int
    eps: float
    matrix: bool

    def gradient_since(self, before: "AdamWState") -> torch.Tensor:
        """Return the gradient of the one step since `before`, from the first moments."""
        gradient: torch.Tensor = (self.mean - BETAS[0] * before.mean) / (1 - BETAS[0])
        return gradient


def states_of(training: Training) -> dict[str, AdamWState]:
    """Return the present state of each parameter, by its name.

    Raises:
        AssertionError: the optimizer has no state of a parameter.
    """
    return {
        name: _state(training, name, parameter)
        for name, parameter in training.model.named_parameters()
    }


def _state(training: Training, name: str, parameter: torch.Tensor) -> AdamWState:
    """Return the present state of one parameter."""
    state = training.optimizer.state[parameter]
    assert state, f"the optimizer has no state of {name}: it made no step"
    return AdamWState(
        name=name,
        value=sampled(parameter),
        mean=sampled(state["exp_avg"]),
        square=sampled(state["exp_avg_sq"]),
        steps=int(state["step"]),
        eps=torch.finfo(parameter.dtype).eps,
        matrix=parameter.dim() == 2,
    )


def check_moved(before: AdamWState, gradient: torch.Tensor, after: AdamWState) -> None:
    """Compare one step of a parameter at `CHECKED_RATE` with AdamW's formula, element by element.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), algorithm 2, with torch's defaults.

    Args:
        before: the state before the step.
        gradient: of the sampled elements.
        after: the state after the step.

    Raises:
        AssertionError: the step differs from the formula; the message says in what.
    """
    name, (first, second), steps = before.name, BETAS, before.steps + 1
    assert after.steps == steps, (
        f"the optimizer made {after.steps - before.steps} steps of {name}; expected 1"
    )
    square = second * before.square + (1 - second) * gradient**2
    rounding = max(ROUNDING, 4 * before.eps)
    _within(
        f"the second moment of {name}",
        after.square,
        square,
        rounding * (square + ROUNDING * square.max()),
    )
    mean = first * before.mean + (1 - first) * gradient
    _within(
        f"the first moment of {name}",
        after.mean,
        mean,
        rounding * (mean.abs() + ROUNDING * mean.abs().max()),
    )
    root = (after.square / (1 - second**steps)).sqrt() + SMALLEST
    step = CHECKED_RATE * after.mean / (1 - first**steps) / root
    value = before.value * (1 - CHECKED_RATE * DECAY) - step
    # torch rounds twice: after the decay and after the step.
    rounded = before.eps * (before.value.abs() + value.abs())
    _within(name, after.value, value, rounded + max(STEP_ROUNDING, 4 * before.eps) * step.abs())
    _check_decay(before, after.value - value)
    assert bool((after.value != before.value).any()), f"{name} did not move"


def _check_decay(before: AdamWState, error: torch.Tensor) -> None:
    """Raise AssertionError if a matrix decayed by too much or too little.

    In bfloat16 a wrong decay cannot be seen in one element. Over the whole matrix it adds up, while rounding errors
    cancel. Rounding undoes a decay below half the distance to the next number, so such an error is accepted.
    """
    if not before.matrix:
        return
    decayed = float((error * before.value).sum() / (before.value**2).sum())
    accepted = max(
        STEP_ROUNDING, before.eps / 8 + (CHECKED_RATE * DECAY if before.eps > ROUNDING else 0.0)
    )
    assert abs(decayed) <= accepted, (
        f"{before.name} decayed by {-decayed:.3g} more than AdamW's formula says, found over the whole matrix; "
        f"accepted is {accepted:.3g}"
    )


def sampled(values: torch.Tensor) -> torch.Tensor:
    """Return every nth element in float64 on the host; all elements of a small tensor.

    n and the length of a row have no common divisor, so that no column is left out.
    """
    step = max(1, values.numel() // MOST)
    while math.gcd(step, values.shape[-1]) > 1 and step > 1:
        step += 1
    return values.detach().reshape(-1)[::step].cpu().double()


def _within(
    subject: str, actual: torch.Tensor, expected: torch.Tensor, accepted: torch.Tensor
) -> None:
    """Raise AssertionError if any element is off by more than it may be; NaN always is."""
    error = (actual - expected).abs()
    wrong = ~(error <= accepted)
    assert not bool(wrong.any()), (
        f"{subject}: {int(wrong.sum())} of {wrong.numel()} elements are not what AdamW's formula gives, "
        f"off by up to {float(error[wrong].max()):.3g}"
    )
