"""The attentions that are measured side by side, each under one name, and the passes of each that are timed."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from .architectures import NoSuchArchitecture
from .configurations import GLUON, chosen
from .flash import flash_attention
from .reference import attention_output

Attention = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, bool], torch.Tensor]

_SDPA = {
    "sdpa_flash": "FLASH_ATTENTION",
    "sdpa_cudnn": "CUDNN_ATTENTION",
    "sdpa_efficient": "EFFICIENT_ATTENTION",
    "sdpa_math": "MATH",
}
# Errors of PyTorch if the only allowed back end cannot do a case.
_REFUSALS = (
    "No available kernel",
    "No viable backend",
    "no kernel found",
    "No execution plans",
    "cuDNN Frontend error",
)
IMPLEMENTATIONS = ("triton", "gluon", *_SDPA, "eager", "compiled")
PASSES = ("forward", "backward", "both")


class Unavailable(RuntimeError):
    """An implementation cannot do what was asked of it here; the message says what and why."""


def implementation(name: str, *, tile: int | None = None) -> Attention:
    """Return an attention of queries, keys and values [B, H, S, D], called as `f(q, k, v, causal)`.

    Args:
        name: one of `IMPLEMENTATIONS` but `compiled`, which is `compiling.compiled(plain)`; `gluon` is `triton` with
            the forward pass in Gluon, `sdpa_…` holds PyTorch to one back end, and `eager` is the plain reference.
        tile: of `triton`: queries and keys of a tile.
    """
    if name == "triton":
        return lambda q, k, v, causal: flash_attention(q, k, v, causal=causal, tile=tile)
    if name == "gluon":
        return _in_gluon
    if name in _SDPA:
        return _with_backend(name)
    if name == "eager":
        return plain
    raise ValueError(
        f"implementation is {name!r}; expected one of {', '.join(IMPLEMENTATIONS)}, and not compiled"
    )


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Return the attention of the reference, by its formula."""
    return attention_output(q, k, v, causal=causal)


def _in_gluon(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Return the attention whose forward pass is in Gluon. Raise Unavailable for other shapes."""
    tiles = GLUON.get(q.shape[3])
    if tiles is None or q.element_size() != 2:
        raise Unavailable(
            f"needs a two-byte type and a head dimension of {' or '.join(map(str, GLUON))}, found {q.dtype} and "
            f"{q.shape[3]}"
        )
    with chosen(forward=tiles):
        return flash_attention(q, k, v, causal=causal)


def _with_backend(name: str) -> Attention:
    """Return PyTorch's attention with one back end only."""
    backend = getattr(SDPBackend, _SDPA[name], None)

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        if backend is None:
            raise Unavailable(
                f"needs {name}, found torch {torch.__version__}, which does not have that back end"
            )
        # PyTorch raises an error if this back end cannot do the case.
        with sdpa_kernel([backend]):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)

    return attend


@dataclass(eq=False, slots=True)
class Case:
    """One problem of self-attention, with its last results.

    Args:
        q: [B, H, S, D]; k, v and d_out alike. They require gradients.
        d_out: the gradient of the output, dense.
        causal: whether later keys are hidden.
        out: of the last forward pass.
        gradients: of q, k and v, by the last backward pass.
    """

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    d_out: torch.Tensor
    causal: bool
    out: torch.Tensor | None = None
    gradients: tuple[torch.Tensor, ...] = field(default=())

    @property
    def inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries, keys and values."""
        return self.q, self.k, self.v


def make_case(
    batch: int,
    heads: int,
    sequence: int,
    head_dim: int,
    dtype: torch.dtype,
    device: torch.device,
    *,
    causal: bool,
) -> Case:
    """Return a case of standard normal values, the same at every call.

    The values matter, since the softmax and the clock depend on them.
    """
    generator = torch.Generator(device=device).manual_seed(20230717)

    def normal() -> torch.Tensor:
        shape = (batch, heads, sequence, head_dim)
        return torch.randn(shape, generator=generator, device=device, dtype=torch.float32).to(dtype)

    q, k, v = (normal().requires_grad_() for _ in range(3))
    return Case(q, k, v, normal(), causal)


def pass_of(name: str, run: Attention, case: Case) -> Callable[[Case], None]:
    """Return the pass to time: `forward` without a graph, `backward` of a kept graph, or `both`.

    Raises:
        Unavailable: the implementation cannot do this case here.
        ValueError: there is no such pass.
    """
    if name not in PASSES:
        raise ValueError(f"passes is {name!r}; expected one of {', '.join(PASSES)}")
    once(run, case, name)
    if name == "forward":
        return lambda case: _forward(run, case)
    if name == "both":
        return lambda case: _both(run, case)
    # The backward pass needs the graph of a forward pass on this very case.
    case.out = run(*case.inputs, case.causal)
    return _backward


def once(run: Attention, case: Case, passes: str) -> None:
    """Call an implementation once, so that it compiles, or refuses the case, before it is timed.

    Args:
        run: the implementation.
        case: the problem.
        passes: those that will be timed. For `forward` no backward pass is tried, which might not fit.

    Raises:
        Unavailable: with the reasons that PyTorch, Triton or the kernels gave.
    """
    with warnings.catch_warnings(record=True) as records:
        warnings.simplefilter("always")
        try:
            _forward(run, case) if passes == "forward" else _both(run, case)
        except NoSuchArchitecture as error:
            raise Unavailable(str(error)) from None
        except ImportError as error:
            if (error.name or "").partition(".")[0] != "triton":
                raise
            raise Unavailable(f"needs Triton, found none or an old one: {error}") from None
        except RuntimeError as error:
            if not any(text in str(error) for text in _REFUSALS):
                raise
            reasons = [str(warning.message).partition(" (Triggered")[0] for warning in records]
            causes = "; ".join([str(error).partition("\n")[0], *reasons])
            raise Unavailable(
                f"needs a back end of PyTorch that does this case on {case.q.device}, found: {causes}"
            ) from None


def _forward(run: Attention, case: Case) -> None:
    """Store the output of a forward pass without a graph."""
    with torch.no_grad():
        case.out = run(*case.inputs, case.causal)


def _backward(case: Case) -> None:
    """Store the gradients of a backward pass, and keep the graph."""
    assert case.out is not None
    case.gradients = torch.autograd.grad(case.out, case.inputs, case.d_out, retain_graph=True)


def _both(run: Attention, case: Case) -> None:
    """Store output and gradients of a forward and a backward pass."""
    out = run(*case.inputs, case.causal)
    case.gradients = torch.autograd.grad(out, case.inputs, case.d_out)
    case.out = out.detach()
