"""A decoder-only language model in five sizes, for measurements of training and inference steps.

Pre-norm RMSNorm, rotary positions, SwiGLU with three matrices, no biases, the head tied to the embedding.
Source: Touvron et al., "LLaMA" (2023), section 2.2, but for the tied head.
"""

import math
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.functional import cross_entropy, linear

from .decoder.block import NORM_EPS, Block
from .decoder.config import SIZES, Config, name_of_shape, size_named
from .decoder.cores import ATTENTIONS
from .decoder.filling import fill_normal
from .decoder.rotary import rotary_tables

__all__ = [
    "ATTENTIONS",
    "SEED",
    "SIZES",
    "Config",
    "Transformer",
    "loss_of",
    "make_batch",
    "name_of_shape",
    "size_named",
]

# The standard deviation of the embedding, as in GPT-2. It is also the head, and larger logits would make the
# predictions of a new model too certain.
EMBEDDING_DEVIATION = 0.02
SEED = 0


class Transformer(nn.Module):
    """The model, from tokens to the logits of the next token at each position.

    Args:
        config: its shape.
        context: the longest sequence that it takes.
        attention: one of `ATTENTIONS`.
        device: of the parameters; "meta" makes a model without memory.
        dtype: of the parameters; bfloat16 makes a model that is bfloat16 throughout, its rotary tables excepted.
        seed: of the parameters; the same seed gives the same values on every device, rounded to the type.

    Raises:
        ValueError: a context below one, or an attention that does not exist.
    """

    def __init__(
        self,
        config: Config,
        *,
        context: int,
        attention: str = "sdpa",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        seed: int = SEED,
    ) -> None:
        super().__init__()
        if context < 1:
            raise ValueError(f"context is {context}; expected 1 or more")
        place = torch.get_default_device() if device is None else torch.device(device)
        kind = torch.get_default_dtype() if dtype is None else dtype
        exact = torch.promote_types(kind, torch.float32)
        tables = rotary_tables(config.head_dim, context, config.rope_theta, place, exact)
        self.config, self.context = config, context
        # torch's own filling of matrices takes several times as long as `fill_normal` below, so it is skipped.
        self.embedding = nn.utils.skip_init(
            nn.Embedding, config.vocab, config.d_model, device=place, dtype=kind
        )
        self.blocks = nn.ModuleList(
            Block(config, attention, tables, place, kind) for _ in range(config.layers)
        )
        self.norm = nn.RMSNorm(config.d_model, NORM_EPS, device=place, dtype=kind)
        fill_normal(self._deviations(), seed)

    def _deviations(self) -> Iterator[tuple[torch.Tensor, float]]:
        """Yield every matrix with its standard deviation.

        With these, variances stay at about 1 through each matrix and over all blocks.
        """
        yield self.embedding.weight, EMBEDDING_DEVIATION
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                # Two matrices of each block add to the residual stream. They are scaled so that all add up to about 1.
                is_added = name.endswith((".output", ".down"))
                fan_in = module.in_features * (2 * self.config.layers if is_added else 1)
                yield module.weight, 1 / math.sqrt(fan_in)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits [B, S, vocab] of tokens [B, S], int64.

        Raises:
            ValueError: tokens of another type or shape, or a sequence longer than the context.
        """
        self._check(tokens)
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return linear(self.norm(x), self.embedding.weight)

    def _check(self, tokens: torch.Tensor) -> None:
        """Raise ValueError unless tokens are [B, S], int64, within the context."""
        if tokens.dtype != torch.int64 or tokens.dim() != 2:
            raise ValueError(
                f"tokens are {list(tokens.shape)}, {tokens.dtype}; expected [batch, sequence], torch.int64"
            )
        if not 1 <= tokens.shape[1] <= self.context:
            raise ValueError(
                f"a sequence has {tokens.shape[1]} tokens; expected 1 … {self.context}, the context of this model; "
                "make the model with a longer context, or cut the sequence"
            )


def loss_of(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross entropy, a scalar: float32, or float64 for float64 logits.

    Args:
        logits: [B, S, vocab].
        targets: [B, S], int64: the token that each position should predict.
    """
    exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return cross_entropy(exact.flatten(0, 1), targets.flatten())


def make_batch(
    config: Config, batch: int, context: int, device: torch.device | str, seed: int = SEED
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return random tokens and their targets, the next tokens: each [batch, context], int64.

    The same seed gives the same tokens on every device.
    """
    generator = torch.Generator().manual_seed(seed)
    text = torch.randint(config.vocab, (batch, context + 1), generator=generator, device="cpu").to(
        device
    )
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()
