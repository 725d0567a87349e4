"""The check of a pass against the same weights in float32, without optimizations, one sequence at a time."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import torch

from .adamw import check_moved, sampled, states_of, visible_rate
from .executing import Pass
from .reference import Reference
from .steps import Training

T = TypeVar("T")

# Messages of allocators without room. torch and Python also raise errors of special classes.
_NO_ROOM = ("can't allocate memory", "not enough memory", "out of memory", "_ALLOC_FAILED")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The accepted errors of a precision, as shares.

    Args:
        logits: of the largest logit.
        loss: of the loss.
        gradient: of a gradient's norm, by each parameter.
    """

    logits: float
    loss: float
    gradient: float


TOLERANCES: Mapping[str, Tolerance] = MappingProxyType(
    {
        "fp32": Tolerance(logits=1e-4, loss=1e-5, gradient=1e-3),
        "tf32": Tolerance(logits=1e-2, loss=1e-3, gradient=5e-2),
        "bf16_autocast": Tolerance(logits=5e-2, loss=5e-3, gradient=1e-1),
        "bf16_autocast_uncached": Tolerance(logits=5e-2, loss=5e-3, gradient=1e-1),
        "fp16_autocast": Tolerance(logits=1e-2, loss=1e-3, gradient=5e-2),
        "bf16": Tolerance(logits=5e-2, loss=5e-3, gradient=1e-1),
    }
)


def check(training: Training, done: Pass) -> None:
    """Check the results of a pass. If the pass drops its gradients, the check does so too.

    The expected results are computed on the host if the device has no room for them.

    Raises:
        AssertionError: a result is wrong, with its error and the accepted one; or the host has no room either, and then
            it is unknown whether the pass is right.
    """
    checks = {
        "forward": _check_forward,
        "forward_backward": _check_forward_backward,
        "backward": _check_backward,
        "step": _check_step,
        "optimizer": _check_optimizer,
    }
    try:
        checks[done.name](training, done)
    finally:
        # The gradients of a CUDA graph stay, since every replay writes into their memory.
        if done.name == "forward_backward" and done.keep != done.call:
            training.drop()


def check_memory(
    categories: Mapping[str, int], peak_bytes: int, *, weights: int, least: int, passes: str
) -> None:
    """Check the memory of a pass, by category, against the sizes of model and optimizer.

    Args:
        categories: bytes by category.
        peak_bytes: the most bytes of the pass.
        weights: bytes of the model's parameters.
        least: the least possible peak, from the estimate.
        passes: the name of the pass.

    Raises:
        AssertionError: a figure is wrong, with the expected one.
    """
    parameters, state = (categories.get(name, 0) for name in ("parameters", "optimizer"))
    # A GPU's allocator rounds the size of every parameter up.
    assert weights <= parameters <= 1.001 * weights, (
        f"parameters take {parameters} bytes; expected {weights}, as many as the model has"
    )
    moments = 2 * weights if passes == "step" else 0
    assert state >= moments, (
        f"the optimizer's state takes {state} bytes; expected {moments} for two moments, or more"
    )
    assert peak_bytes >= least, (
        f"the peak is {peak_bytes} bytes; expected {least} or more, by the estimate"
    )


def _check_forward(training: Training, _done: Pass) -> None:
    """Check the logits of the last forward pass. All checks have the pass as a parameter."""
    tolerance = TOLERANCES[training.precision.name].logits

    def compare(reference: Reference) -> None:
        assert training.logits is not None, "there are no logits"
        for index, expected in enumerate(reference.logits()):
            close(
                f"logits of sequence {index}",
                training.logits[index : index + 1],
                expected,
                tolerance,
            )

    _with_reference(training, compare)


def _check_forward_backward(training: Training, done: Pass) -> None:
    """Check the timed loss, and the gradients of one more pass that keeps them."""
    timed_loss = training.loss
    done.keep()
    gradients = {name: parameter.grad for name, parameter in training.model.named_parameters()}
    _check_gradients(training, timed_loss, gradients)


def _check_backward(training: Training, done: Pass) -> None:
    """Check the loss, and the gradients that one more backward pass returns."""
    gradients = done.call()
    assert isinstance(gradients, tuple)
    names = [name for name, _ in training.model.named_parameters()]
    _check_gradients(training, training.loss, dict(zip(names, gradients, strict=True)))


def _check_gradients(
    training: Training,
    timed_loss: torch.Tensor | None,
    gradients: Mapping[str, torch.Tensor | None],
) -> None:
    """Raise AssertionError unless the loss is right, and every gradient is there, finite and right."""
    for name, gradient in _present(training, gradients):
        assert torch.isfinite(gradient).all(), f"the gradient of {name} is not finite"

    def compare(reference: Reference) -> None:
        loss, expected_gradients = reference.loss_and_gradients()
        _check_loss(training, timed_loss, loss)
        for name, expected in expected_gradients:
            gradient = gradients[name]
            assert gradient is not None
            unscaled = gradient.detach().to(expected.device, torch.float32) / training.scale
            _check_gradient(training, name, unscaled, expected)

    _with_reference(training, compare)


def _present(
    training: Training, gradients: Mapping[str, torch.Tensor | None]
) -> Iterable[tuple[str, torch.Tensor]]:
    """Yield every parameter's gradient. Raise AssertionError if one is missing or of another shape."""
    for name, parameter in training.model.named_parameters():
        gradient = gradients[name]
        assert gradient is not None, f"{name} has no gradient"
        assert gradient.shape == parameter.shape, (
            f"the gradient of {name} is {list(gradient.shape)}"
        )
        yield name, gradient


def _check_step(training: Training, done: Pass) -> None:
    """Check loss, gradients and the optimizer's change of one more step.

    The gradients are computed from the optimizer's moments, since a step drops them.
    """
    loss, gradients = _with_reference(training, _loss_and_samples)
    before = states_of(training)
    with visible_rate(training.optimizer):
        done.call()
    after = states_of(training)
    _check_loss(training, training.loss, loss)
    for name, state in before.items():
        gradient = after[name].gradient_since(state)
        _check_gradient(training, name, gradient, gradients[name])
        check_moved(state, gradient, after[name])


def _loss_and_samples(reference: Reference) -> tuple[float, dict[str, torch.Tensor]]:
    """Return the expected loss, and a sample of each expected gradient."""
    loss, gradients = reference.loss_and_gradients()
    return loss, {name: sampled(gradient) for name, gradient in gradients}


def _check_optimizer(training: Training, done: Pass) -> None:
    """Check the optimizer's change of one more step on the gradients that are there."""
    all_gradients = {name: parameter.grad for name, parameter in training.model.named_parameters()}
    gradients = {name: sampled(gradient) for name, gradient in _present(training, all_gradients)}
    before = states_of(training)
    with visible_rate(training.optimizer):
        done.call()
    after = states_of(training)
    for name, state in before.items():
        check_moved(state, gradients[name], after[name])


def _with_reference(training: Training, compare: Callable[[Reference], T]) -> T:
    """Return the result of `compare` with a reference on the device, else on the host.

    The host is used if the device's memory runs out. Raise AssertionError if that of the host does too.
    """
    reason = ""
    for place in dict.fromkeys((training.device, torch.device("cpu"))):
        try:
            return compare(Reference(training, place))
        except (RuntimeError, MemoryError) as error:
            if not _no_room(error):
                raise
            reason = (str(error) or "no memory").splitlines()[0]
    raise AssertionError(
        f"the pass ran, but memory ran out while it was checked, on the host too: {reason}; so it is not known to be "
        "right: leave more memory free, or choose a smaller size"
    )


def _no_room(error: BaseException) -> bool:
    """Return whether an error says, by its class or message, that memory ran out."""
    has_class = any(
        base.__name__ in ("OutOfMemoryError", "MemoryError") for base in type(error).__mro__
    )
    return has_class or any(words in str(error) for words in _NO_ROOM)


def _check_loss(training: Training, loss: torch.Tensor | None, expected: float) -> None:
    """Raise AssertionError unless there is a loss, close to the expected one."""
    assert loss is not None, "there is no loss"
    close("the loss", loss, torch.tensor(expected), TOLERANCES[training.precision.name].loss)


def _check_gradient(
    training: Training, name: str, gradient: torch.Tensor, expected: torch.Tensor
) -> None:
    """Raise AssertionError if the error's norm is too large a share of the gradient's, or is NaN."""
    tolerance = TOLERANCES[training.precision.name].gradient
    error, size = float((gradient - expected).norm()), float(expected.norm())
    assert error <= tolerance * size, (
        f"the gradient of {name}: off by {error:.3g}, where its norm is {size:.3g}; accepted is {tolerance:g} of it"
    )


def close(subject: str, actual: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    """Check that the largest error is at most a share of the largest value, and not NaN.

    Raises:
        AssertionError: with error, largest value and tolerance.
    """
    error = float((exact(actual) - exact(expected)).abs().max())
    largest = float(exact(expected).abs().max())
    assert error <= tolerance * largest, (
        f"{subject}: off by {error:.3g}, where the largest is {largest:.3g}; accepted is {tolerance:g} of it"
    )


def exact(values: torch.Tensor) -> torch.Tensor:
    """Return a copy in float64 on the host, since Metal has no double precision."""
    return values.detach().cpu().double()
