"""Whether AdamW made the step that its formula gives, of every parameter, looked at in a sample of its elements."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from .steps import Training

# Elements that are looked at of each parameter: a state of all of them need not fit a second time.
MOST = 2**14
# Of a moment, where its type is exact enough for it: a gradient found from a moment has lost digits.
ROUNDING = 1e-4
# Of a step that is worked out from the moments behind it: where the count of steps lies on the device, a power of 0.999
# is taken from 1 in float32.
STEP_ROUNDING = 2e-5
# So large that what the decay takes is beyond the rounding of float32, and a step beyond that of bfloat16.
CHECKED_RATE = 1e-2
# torch's defaults; not read from the optimizer, which may have others by mistake.
DECAY, BETAS, SMALLEST = 1e-2, (0.9, 0.999), 1e-8


@contextlib.contextmanager
def visible_rate(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """With a rate at which a step can be told from rounding; a CUDA graph sees it as well, if its rate is a tensor."""
    (group,) = optimizer.param_groups
    before = float(group["lr"])
    _set_rate(group, CHECKED_RATE)
    try:
        yield
    finally:
        _set_rate(group, before)


def _set_rate(group: dict[str, object], rate: float) -> None:
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(rate)
    else:
        group["lr"] = rate


@dataclass(frozen=True, slots=True)
class AdamWState:
    """What AdamW knows of a parameter, in float64 on the host, of the elements that `sampled` takes.

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
        """The gradient of the one step between, from the first moment."""
        gradient: torch.Tensor = (self.mean - BETAS[0] * before.mean) / (1 - BETAS[0])
        return gradient


def states_of(training: Training) -> dict[str, AdamWState]:
    """As they are now, by the parameter's name.

    Raises:
        AssertionError: of a parameter the optimizer knows nothing.
    """
    return {name: _state(training, name, one) for name, one in training.model.named_parameters()}


def _state(training: Training, name: str, parameter: torch.Tensor) -> AdamWState:
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
    """Hold one step of a parameter, at the visible rate, against AdamW's formula, element by element.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), algorithm 2, with torch's defaults.

    Args:
        before: the step.
        gradient: of the elements that the states have.
        after: the step.

    Raises:
        AssertionError: naming what is wrong.
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
    # Decay and step are rounded one after the other.
    rounded = before.eps * (before.value.abs() + value.abs())
    _within(name, after.value, value, rounded + max(STEP_ROUNDING, 4 * before.eps) * step.abs())
    _check_decay(before, after.value - value)
    assert bool((after.value != before.value).any()), f"{name} did not move"


def _check_decay(before: AdamWState, error: torch.Tensor) -> None:
    """Over a whole matrix rounding goes either way, a wrong decay one: in bfloat16 no single element tells of it.

    Decay of less than half the distance to the next number is undone by rounding: so much is accepted.
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
    """Of a parameter, or what belongs to it, every nth element in float64 on the host; all of a small one.

    n has no divisor with the row's length in common, so that no column is left out.
    """
    count = max(1, values.numel() // MOST)
    while math.gcd(count, values.shape[-1]) > 1 and count > 1:
        count += 1
    return values.detach().reshape(-1)[::count].cpu().double()


def _within(what: str, found: torch.Tensor, expected: torch.Tensor, accepted: torch.Tensor) -> None:
    error = (found - expected).abs()
    wrong = ~(error <= accepted)
    assert not bool(wrong.any()), (
        f"{what}: {int(wrong.sum())} of {wrong.numel()} elements are not what AdamW's formula gives, "
        f"off by up to {float(error[wrong].max()):.3g}"
    )
