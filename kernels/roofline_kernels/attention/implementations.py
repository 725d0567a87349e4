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
# What PyTorch says where the one back end that it is held to cannot do a case.
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
    """An attention of queries, keys and values [B, H, S, D], called as `f(q, k, v, causal)`.

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
        return _held_to(name)
    if name == "eager":
        return plain
    raise ValueError(
        f"implementation is {name!r}; expected one of {', '.join(IMPLEMENTATIONS)}, and not compiled"
    )


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """The reference, by its formula."""
    return attention_output(q, k, v, causal=causal)


def _in_gluon(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    tiles = GLUON.get(q.shape[3])
    if tiles is None or q.element_size() != 2:
        raise Unavailable(
            f"needs a two-byte type and a head dimension of {' or '.join(map(str, GLUON))}, found {q.dtype} and "
            f"{q.shape[3]}"
        )
    with chosen(forward=tiles):
        return flash_attention(q, k, v, causal=causal)


def _held_to(name: str) -> Attention:
    backend = getattr(SDPBackend, _SDPA[name], None)

    def held(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
        if backend is None:
            raise Unavailable(
                f"needs {name}, found torch {torch.__version__}, which does not have that back end"
            )
        # It raises where that one cannot do what is asked.
        with sdpa_kernel([backend]):
            return scaled_dot_product_attention(q, k, v, is_causal=causal)

    return held


@dataclass(eq=False, slots=True)
class Case:
    """One problem of self-attention and what was last made of it.

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
    """A case of standard normal values, the same at every call: of other values softmax and clocks would differ."""
    generator = torch.Generator(device=device).manual_seed(20230717)

    def normal() -> torch.Tensor:
        shape = (batch, heads, sequence, head_dim)
        return torch.randn(shape, generator=generator, device=device, dtype=torch.float32).to(dtype)

    q, k, v = (normal().requires_grad_() for _ in range(3))
    return Case(q, k, v, normal(), causal)


def pass_of(name: str, run: Attention, case: Case) -> Callable[[Case], None]:
    """What to time: `forward` without a graph, `backward` of a graph that stays, or `both` from the start.

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
    # Made anew in the test's own time: the graph belongs to this very case.
    case.out = run(*case.inputs, case.causal)
    return _backward


def once(run: Attention, case: Case, passes: str) -> None:
    """Call an implementation as often as it takes for what it compiles or refuses to come now.

    Args:
        run: the implementation.
        case: the problem.
        passes: those that will be timed; a forward pass does not ask whether its backward pass would fit.

    Raises:
        Unavailable: with the reasons that PyTorch, Triton or the kernels gave.
    """
    with warnings.catch_warnings(record=True) as told:
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
            reasons = [str(warning.message).partition(" (Triggered")[0] for warning in told]
            found = "; ".join([str(error).partition("\n")[0], *reasons])
            raise Unavailable(
                f"needs a back end of PyTorch that does this case on {case.q.device}, found: {found}"
            ) from None


def _forward(run: Attention, case: Case) -> None:
    with torch.no_grad():
        case.out = run(*case.inputs, case.causal)


def _backward(case: Case) -> None:
    assert case.out is not None
    case.gradients = torch.autograd.grad(case.out, case.inputs, case.d_out, retain_graph=True)


def _both(run: Attention, case: Case) -> None:
    out = run(*case.inputs, case.causal)
    case.gradients = torch.autograd.grad(out, case.inputs, case.d_out)
    case.out = out.detach()
