"""Attention: a plain reference, the tiled algorithm in PyTorch, and FlashAttention-2 in Triton."""

from .flash import flash_attention

__all__ = ["flash_attention"]
