"""Rotary position embedding: queries and keys turned by their positions, so that scores depend on distances only."""

import torch
from torch import nn


def rotary_tables(
    head_dim: int, positions: int, theta: float, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines of each position's angles, both [positions, head_dim / 2].

    Pair i of a head turns by theta^(-2i / head_dim) radians a position. Angles are worked out in float64 on the CPU:
    in float32 they would be off by a thousandth at position 16,384.

    Args:
        head_dim: D, even.
        positions: how many, from 0.
        theta: the base.
        device: of the tables; "meta" makes tables without memory.
        dtype: of the tables; float32 holds them well enough for every narrower model.
    """
    if device.type == "meta":
        shape = (positions, head_dim // 2)
        return torch.empty(shape, device=device, dtype=dtype), torch.empty(
            shape, device=device, dtype=dtype
        )
    frequencies = theta ** -(
        torch.arange(0, head_dim, 2, dtype=torch.float64, device="cpu") / head_dim
    )
    angles = torch.outer(torch.arange(positions, dtype=torch.float64, device="cpu"), frequencies)
    return angles.cos().to(device, dtype), angles.sin().to(device, dtype)


class Rotary(nn.Module):
    """RoPE over neighbours: elements 2i and 2i + 1 of a head are one pair, the two coordinates of a vector that turns.

    Source: Su et al., "RoFormer" (2021), equation 34; Llama's own code pairs alike, while GPT-NeoX and transformers
    pair element i with i + D/2, so weights of theirs would have to be permuted.

    It turns in the type of its tables, float32 or wider, and gives the result in the type of its input: with autocast
    as in a model that is bfloat16 throughout, whose positions would otherwise blur. So choose a model's type when it is
    made: `.to(torch.bfloat16)` afterwards would round the tables as well.

    Args:
        cosines: [positions, D / 2], see `rotary_tables`; all layers may share them.
        sines: alike.
    """

    cosines: torch.Tensor
    sines: torch.Tensor

    def __init__(self, cosines: torch.Tensor, sines: torch.Tensor) -> None:
        super().__init__()
        # A checkpoint need not hold the tables, since they follow from the configuration.
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return queries or keys [B, H, S, D] turned by their positions, which begin with 0."""
        length = x.shape[-2]
        cosines, sines = self.cosines[:length], self.sines[:length]
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        # Each product has the wider type, that of the tables.
        turned = torch.stack((even * cosines - odd * sines, even * sines + odd * cosines), dim=-1)
        return turned.flatten(-2).to(x.dtype)
