"""Causal self-attention of a transformer, by name: softmax(q kᵀ / √D) v over the keys that a query sees."""

import math

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from ..attention.masking import visible_keys

ATTENTIONS = ("naive", "sdpa", "triton")


def attention_core(name: str) -> nn.Module:
    """Return a module from q, k, v, each [B, H, S, D], to the output [B, H, S, D].

    Args:
        name: `naive`, by the formula and with all scores in memory; `sdpa`, PyTorch's; `triton`, our kernels, which run
            in Triton's interpreter where tensors are on the CPU.

    Raises:
        ValueError: there is no such attention.
        ImportError: at the first call of `triton`: there is no Triton 3.6 or newer.
    """
    if name == "naive":
        return NaiveAttention()
    if name == "sdpa":
        return SdpaAttention()
    if name == "triton":
        return TritonAttention()
    raise ValueError(f"attention is {name!r}; expected one of {', '.join(ATTENTIONS)}")


class Scores(nn.Module):
    """q and k [B, H, S, D] to scaled scores [B, H, S, S], -inf where a key is later than its query."""

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        """Return the scores after the mask."""
        positions = torch.arange(q.shape[-2], device=q.device)
        # Queries are scaled before the product. A 16-bit type would round scores twice, and float16 overflow earlier.
        scores = (q * (1 / math.sqrt(q.shape[-1]))) @ k.transpose(-2, -1)
        return scores.masked_fill(~visible_keys(positions, positions, 0), -math.inf)


class Values(nn.Module):
    """Weights [B, H, S, S] and v [B, H, S, D] to the output [B, H, S, D]."""

    def forward(self, weights: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Return the weighted sum of the values."""
        return weights @ v


class NaiveAttention(nn.Module):
    """Attention by its formula, in three modules, which a profile can distinguish."""

    def __init__(self) -> None:
        super().__init__()
        self.scores = Scores()
        self.softmax = nn.Softmax(dim=-1)
        self.values = Values()

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q, k, v [B, H, S, D] to the output [B, H, S, D]."""
        weights: torch.Tensor = self.softmax(self.scores(q, k))
        output: torch.Tensor = self.values(weights, v)
        return output


class SdpaAttention(nn.Module):
    """PyTorch's fused attention, with whichever back end it chooses."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q, k, v [B, H, S, D] to the output [B, H, S, D]."""
        return scaled_dot_product_attention(q, k, v, is_causal=True)


class TritonAttention(nn.Module):
    """FlashAttention-2 of `roofline_kernels.attention`."""

    def __init__(self) -> None:
        super().__init__()
        # Imported here, since it imports Triton, which only this class needs.
        from ..attention import flash_attention

        self._attend = flash_attention

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """q, k, v [B, H, S, D] to the output [B, H, S, D]."""
        return self._attend(q, k, v, causal=True)
