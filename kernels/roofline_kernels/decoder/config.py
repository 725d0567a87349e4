"""The shapes of the models that are measured, and how many parameters each has."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Config:
    """The shape of a model.

    Args:
        d_model: width of the residual stream.
        d_ff: width inside the feed-forward part.
        layers: blocks.
        heads: of attention; each has d_model / heads dimensions, an even number.
        vocab: tokens that there are.
        rope_theta: base of the rotary positions.

    Raises:
        ValueError: a size below one, heads that do not divide d_model, or a head of odd width.
    """

    d_model: int
    d_ff: int
    layers: int
    heads: int
    vocab: int = 10_000
    rope_theta: float = 10_000.0

    def __post_init__(self) -> None:
        sizes = {
            name: getattr(self, name) for name in ("d_model", "d_ff", "layers", "heads", "vocab")
        }
        wrong = ", ".join(f"{name} {size}" for name, size in sizes.items() if size < 1)
        if wrong:
            raise ValueError(f"{wrong}; expected 1 or more")
        if self.d_model % self.heads:
            raise ValueError(
                f"d_model {self.d_model} with {self.heads} heads; expected heads that divide it"
            )
        if self.head_dim % 2:
            raise ValueError(
                f"d_model {self.d_model} with {self.heads} heads has heads of width {self.head_dim}; expected an even "
                "one, since rotary positions turn pairs"
            )

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.d_model // self.heads

    @property
    def parameters(self) -> int:
        """The number of parameters. The head is the embedding, so it counts once."""
        block = 4 * self.d_model**2 + 3 * self.d_model * self.d_ff + 2 * self.d_model
        return self.layers * block + self.vocab * self.d_model + self.d_model


SIZES: Mapping[str, Config] = MappingProxyType(
    {
        "small": Config(768, 3072, 12, 12),
        "medium": Config(1024, 4096, 24, 16),
        "large": Config(1280, 5120, 36, 20),
        "xl": Config(1600, 6400, 48, 25),
        "2.7B": Config(2560, 10240, 32, 32),
    }
)


def size_named(name: str) -> Config:
    """Return the shape of a size in `SIZES`, or of a name such as `d768_ff3072_l12_h12`.

    Raises:
        ValueError: there is no such size or shape.
    """
    if name in SIZES:
        return SIZES[name]
    if match := re.fullmatch(r"d(\d+)_ff(\d+)_l(\d+)_h(\d+)", name):
        d_model, d_ff, layers, heads = map(int, match.groups())
        return Config(d_model, d_ff, layers, heads)
    raise ValueError(
        f"size is {name!r}; expected one of {', '.join(SIZES)}, or a shape such as d768_ff3072_l12_h12"
    )


def name_of_shape(d_model: int, d_ff: int | None, layers: int, heads: int | None) -> str:
    """Return the name of a shape, for `size_named`: that in `SIZES` if it is one of them.

    Args:
        d_model: width of the residual stream.
        d_ff: width inside the feed-forward part; four times d_model by default, as in `SIZES`.
        layers: blocks.
        heads: of attention; by default as many as have 64 dimensions each.

    Raises:
        ValueError: what `Config` refuses.
    """
    shape = Config(
        d_model, 4 * d_model if d_ff is None else d_ff, layers, heads or max(1, d_model // 64)
    )
    shape_name = f"d{shape.d_model}_ff{shape.d_ff}_l{shape.layers}_h{shape.heads}"
    return next((name for name, size in SIZES.items() if size == shape), shape_name)
