"""Whether a pass did what it should: held against the same weights run plainly, in float32, one sequence at a time."""

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

# How allocators say that there is no room: torch's and Python's own have classes, others only words.
_NO_ROOM = ("can't allocate memory", "not enough memory", "out of memory", "_ALLOC_FAILED")


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a precision may be off.

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
    """Hold what a pass left behind against what it should be; where it drops gradients, none are left afterwards.

    What it is held against is computed on the host where the device has no room for it.

    Raises:
        AssertionError: naming what is wrong, by how much, and what is accepted; or there is no room on the host either,
            which says nothing about the pass.
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
        # A graph's lie in its own memory, where every replay needs them.
        if done.name == "forward_backward" and done.keep != done.call:
            training.drop()


def check_memory(
    categories: Mapping[str, int], peak_bytes: int, *, weights: int, least: int, passes: str
) -> None:
    """Hold what the memory of a pass goes into against what is known of a model and its optimizer, in bytes.

    Raises:
        AssertionError: naming what is wrong, with what was expected.
    """
    parameters, state = (categories.get(name, 0) for name in ("parameters", "optimizer"))
    # A GPU's allocator rounds every one of them up.
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
    timed_loss = training.loss
    done.keep()
    found = {name: parameter.grad for name, parameter in training.model.named_parameters()}
    _check_gradients(training, timed_loss, found)


def _check_backward(training: Training, done: Pass) -> None:
    found = done.call()
    assert isinstance(found, tuple)
    names = [name for name, _ in training.model.named_parameters()]
    _check_gradients(training, training.loss, dict(zip(names, found, strict=True)))


def _check_gradients(
    training: Training, timed_loss: torch.Tensor | None, found: Mapping[str, torch.Tensor | None]
) -> None:
    """The loss is right; every gradient is there, finite and right."""
    for name, gradient in _present(training, found):
        assert torch.isfinite(gradient).all(), f"the gradient of {name} is not finite"

    def compare(reference: Reference) -> None:
        loss, gradients = reference.loss_and_gradients()
        _check_loss(training, timed_loss, loss)
        for name, expected in gradients:
            gradient = found[name]
            assert gradient is not None
            unscaled = gradient.detach().to(expected.device, torch.float32) / training.scale
            _check_gradient(training, name, unscaled, expected)

    _with_reference(training, compare)


def _present(
    training: Training, found: Mapping[str, torch.Tensor | None]
) -> Iterable[tuple[str, torch.Tensor]]:
    for name, parameter in training.model.named_parameters():
        gradient = found[name]
        assert gradient is not None, f"{name} has no gradient"
        assert gradient.shape == parameter.shape, (
            f"the gradient of {name} is {list(gradient.shape)}"
        )
        yield name, gradient


def _check_step(training: Training, done: Pass) -> None:
    loss, gradients = _with_reference(training, _loss_and_samples)
    before = states_of(training)
    with visible_rate(training.optimizer):
        done.call()
    after = states_of(training)
    _check_loss(training, training.loss, loss)
    for name, state in before.items():
        found = after[name].gradient_since(state)
        _check_gradient(training, name, found, gradients[name])
        check_moved(state, found, after[name])


def _loss_and_samples(reference: Reference) -> tuple[float, dict[str, torch.Tensor]]:
    loss, gradients = reference.loss_and_gradients()
    return loss, {name: sampled(gradient) for name, gradient in gradients}


def _check_optimizer(training: Training, done: Pass) -> None:
    found = {name: parameter.grad for name, parameter in training.model.named_parameters()}
    gradients = {name: sampled(gradient) for name, gradient in _present(training, found)}
    before = states_of(training)
    with visible_rate(training.optimizer):
        done.call()
    after = states_of(training)
    for name, state in before.items():
        check_moved(state, gradients[name], after[name])


def _with_reference(training: Training, compare: Callable[[Reference], T]) -> T:
    """What comparing gives, on the host where the device's memory runs out."""
    told = ""
    for place in dict.fromkeys((training.device, torch.device("cpu"))):
        try:
            return compare(Reference(training, place))
        except (RuntimeError, MemoryError) as error:
            if not _no_room(error):
                raise
            told = (str(error) or "no memory").splitlines()[0]
    raise AssertionError(
        f"the pass ran, but memory ran out while it was checked, on the host too: {told}; so it is not known to be "
        "right: leave more memory free, or choose a smaller size"
    )


def _no_room(error: BaseException) -> bool:
    named = any(
        base.__name__ in ("OutOfMemoryError", "MemoryError") for base in type(error).__mro__
    )
    return named or any(words in str(error) for words in _NO_ROOM)


def _check_loss(training: Training, found: torch.Tensor | None, expected: float) -> None:
    assert found is not None, "there is no loss"
    close("the loss", found, torch.tensor(expected), TOLERANCES[training.precision.name].loss)


def _check_gradient(
    training: Training, name: str, found: torch.Tensor, expected: torch.Tensor
) -> None:
    """Hold the norm of the error against the norm of what is expected; NaN is refused as well."""
    tolerance = TOLERANCES[training.precision.name].gradient
    error, size = float((found - expected).norm()), float(expected.norm())
    assert error <= tolerance * size, (
        f"the gradient of {name}: off by {error:.3g}, where its norm is {size:.3g}; accepted is {tolerance:g} of it"
    )


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
