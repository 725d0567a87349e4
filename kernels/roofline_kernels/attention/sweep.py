"""The sweep over naive attention of Stanford's CS336: its sizes, its passes, and fast checks.

Batch 8, one head, causal, float32: a score matrix alone takes 8·S²·4 bytes, 8 GiB at S = 16384, so that somewhere on
the way most devices run out of memory. Source: assignment 2 (systems), problem `pytorch_attention`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from . import compiling
from .reference import attention_output

BATCH = 8
D_MODELS = (16, 32, 64, 128)
SEQUENCES = (256, 1024, 4096, 8192, 16384)
# So many of the last queries are checked, and the keys that only they can see.
LAST = 16
# float32 against float64, of the largest value: sums over 16384 keys are off by some 1e-6.
TOLERANCE = 1e-4

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def inputs(sequence: int, d_model: int, device: torch.device) -> Inputs:
    """Return q, k and v: [8, 1, S, D], float32, standard normal, with gradients."""
    q, k, v = (
        _normal((BATCH, 1, sequence, d_model), device, seed).requires_grad_() for seed in range(3)
    )
    return q, k, v


def output_gradient(output: torch.Tensor) -> torch.Tensor:
    """Return a standard normal gradient of the output, for the backward pass."""
    return _normal(output.shape, output.device, seed=3)


def _normal(shape: tuple[int, ...], device: torch.device, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(device)


def forward(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Return the output, [8, 1, S, D], with the graph of its backward pass."""
    return attention_output(q, k, v, causal=True)


def backward(
    output: torch.Tensor, grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> Inputs:
    """Return the gradients of q, k and v. The graph is kept, and no gradient is added up."""
    dq, dk, dv = torch.autograd.grad(output, (q, k, v), grad, retain_graph=True)
    return dq, dk, dv


def compiled() -> AbstractContextManager[Callable[..., torch.Tensor]]:
    """Return the context of the compiled forward pass, whose backward pass can be repeated."""
    return compiling.compiled(forward)


def check_output(output: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Compare some rows of the output with float64.

    Raises:
        AssertionError: a value is not finite, or a row is wrong.
    """
    assert torch.isfinite(output).all(), "the output is not finite"
    for index in (0, BATCH - 1):
        rows = _Rows(*(one[index, 0] for one in (q, k, v)))
        _close("output", output[index, 0, rows.rows], rows.probabilities @ rows.v)


def check_gradients(
    gradients: Inputs, grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> None:
    """Compare some rows of the gradients with float64.

    A row of dq depends on one query only. A row of dk and dv depends on all queries that see its key, so the last keys
    are checked, which only the last queries see.

    Raises:
        AssertionError: a value is not finite, or a row is wrong.
    """
    dq, dk, dv = gradients
    for name, one in (("dq", dq), ("dk", dk), ("dv", dv)):
        assert torch.isfinite(one).all(), f"{name} is not finite"
    for index in (0, BATCH - 1):
        rows = _Rows(*(one[index, 0] for one in (q, k, v)))
        d_output = _exact(grad[index, 0, rows.rows])
        d_scores = rows.d_scores(d_output)
        _close("dq", dq[index, 0, rows.rows], rows.scale * (d_scores @ rows.k))
        last = slice(-rows.last, None)
        _close("dk", dk[index, 0, last], rows.scale * (d_scores[last, last].T @ rows.q[last]))
        _close("dv", dv[index, 0, last], rows.probabilities[last, last].T @ d_output[last])


class _Rows:
    """The first, the middle and the last rows of one head's causal attention, in float64 on the host.

    Args:
        q: [S, D].
        k: [S, D].
        v: [S, D].
    """

    def __init__(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        sequence = len(q)
        self.last = min(LAST, sequence)
        self.rows = torch.tensor(
            [0, sequence // 2, *range(sequence - self.last, sequence)], device=q.device
        )
        self.q, self.k, self.v = _exact(q[self.rows]), _exact(k), _exact(v)
        self.scale = q.shape[1] ** -0.5
        hidden = torch.arange(sequence) > self.rows.cpu()[:, None]
        scores = (self.scale * (self.q @ self.k.T)).masked_fill(hidden, -torch.inf)
        self.probabilities = scores.softmax(dim=-1)

    def d_scores(self, d_output: torch.Tensor) -> torch.Tensor:
        """The gradient of the scaled scores, of these rows."""
        d_probabilities = d_output @ self.v.T
        delta = (self.probabilities * d_probabilities).sum(dim=-1, keepdim=True)
        scores: torch.Tensor = self.probabilities * (d_probabilities - delta)
        return scores


def _exact(values: torch.Tensor) -> torch.Tensor:
    # On the host, since Metal has no double precision.
    return values.detach().cpu().double()


def _close(name: str, seen: torch.Tensor, expected: torch.Tensor) -> None:
    error, largest = (_exact(seen) - expected).abs().max().item(), expected.abs().max().item()
    assert error <= TOLERANCE * largest, (
        f"{name} is off by {error:.3g}, where the largest value is {largest:.3g}"
    )
