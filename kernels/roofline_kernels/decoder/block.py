"""A block of the transformer: attention and a feed-forward part, each behind a norm and added to its input."""

import torch
from torch import nn

from .config import Config
from .cores import attention_core
from .rotary import Rotary

# As Llama's.
NORM_EPS = 1e-5


class Block(nn.Module):
    """A pre-norm block, from [B, S, d_model] to the same shape.

    Args:
        config: the model's shape.
        attention: one of `ATTENTIONS`.
        tables: cosines and sines, see `rotary_tables`.
        device: of the parameters, whose matrices are left to be filled.
        dtype: of the parameters.
    """

    def __init__(
        self,
        config: Config,
        attention: str,
        tables: tuple[torch.Tensor, torch.Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.d_model, NORM_EPS, device=device, dtype=dtype)
        self.attention = Attention(config, attention, tables, device, dtype)
        self.feed_forward_norm = nn.RMSNorm(config.d_model, NORM_EPS, device=device, dtype=dtype)
        self.feed_forward = FeedForward(config, device, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the residual stream [B, S, d_model] with the outputs of both parts added."""
        x = x + self.attention(self.attention_norm(x))
        output: torch.Tensor = self.feed_forward(self.feed_forward_norm(x))
        return x + output


class Attention(nn.Module):
    """Causal self-attention with rotary positions; arguments as of `Block`."""

    def __init__(
        self,
        config: Config,
        attention: str,
        tables: tuple[torch.Tensor, torch.Tensor],
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        self.heads = config.heads
        width = config.d_model
        self.query = unfilled_linear(width, width, device, dtype)
        self.key = unfilled_linear(width, width, device, dtype)
        self.value = unfilled_linear(width, width, device, dtype)
        self.rotary = Rotary(*tables)
        self.core = attention_core(attention)
        self.output = unfilled_linear(width, width, device, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, S, d_model] to the same."""
        q = self.rotary(self._in_heads(self.query(x)))
        k = self.rotary(self._in_heads(self.key(x)))
        v = self._in_heads(self.value(x))
        attended: torch.Tensor = self.core(q, k, v)
        output: torch.Tensor = self.output(attended.transpose(1, 2).flatten(2))
        return output

    def _in_heads(self, x: torch.Tensor) -> torch.Tensor:
        """Return a view [B, H, S, D] of [B, S, d_model]."""
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate(x)) · up(x)).

    Source: Shazeer, "GLU Variants Improve Transformer" (2020), equation 6.
    """

    def __init__(self, config: Config, device: torch.device, dtype: torch.dtype) -> None:
        super().__init__()
        self.gate = unfilled_linear(config.d_model, config.d_ff, device, dtype)
        self.up = unfilled_linear(config.d_model, config.d_ff, device, dtype)
        self.activation = nn.SiLU()
        self.down = unfilled_linear(config.d_ff, config.d_model, device, dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, S, d_model] to the same."""
        output: torch.Tensor = self.down(self.activation(self.gate(x)) * self.up(x))
        return output


def unfilled_linear(
    inputs: int, outputs: int, device: torch.device, dtype: torch.dtype
) -> nn.Linear:
    """Return a linear layer without bias, whose matrix is not filled yet.

    torch's own filling would take most of the time to make a model.
    """
    layer: nn.Linear = nn.utils.skip_init(
        nn.Linear, inputs, outputs, bias=False, device=device, dtype=dtype
    )
    return layer
