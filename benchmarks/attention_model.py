"""What is foreseen of the attention kernels on an H100, before one has run them: a model of a tile, and predictions.

    python benchmarks/attention_model.py

A tile of the forward pass has BLOCK_M x BLOCK_N scores. Its two products take 2 · D FLOPs a score each, a score one
exponential and three float32 instructions (scaled less its base, largest, sum), and a row D more to rescale the output.
The shipped kernel waits for QKᵀ before it begins with them, so their times add up. `predictions()` is what a program
holds beside what a card did; `docs/results/attention-model.md` shows both tables.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from rank_figures.page import table

from roofline_kernels.attention.configurations import shipped

PREDICTED = Path(__file__).with_name("attention_predictions.json")
# Of which product all of this is foreseen, by its name in `specs.json`, and how its kernels are configured.
PRODUCT, ARCHITECTURE = "h100-sxm5", "sm_90"
# A clock of one multiprocessor. Source: Shah et al., "FlashAttention-3", 2024, section 3: 989 TFLOP/s of products and
# 16 special functions on each of 132 multiprocessors at 1830 MHz; NVIDIA, "H100 Tensor Core GPU Architecture": 128
# float32 lanes.
MATRIX_FLOPS, EXPONENTIALS, FLOAT32 = 4096, 16, 128
# Of a score: a fused multiply-add (its scale and its base), a maximum, an addition.
INSTRUCTIONS = 3
HEAD_DIMS = (64, 128)
COLUMNS = ("head dim", "tile", "products", "exponentials", "float32", "one after the other",
           "float32 under exponentials", "softmax under the next QKᵀ")  # fmt: skip
PREDICTIONS = ("what", "pass", "head dim", "mask", "foreseen")
WORDS = {
    "flops_per_s": "rate", "less_than_full": "slower than without a mask by", "of_best": "of the best other's rate",
    "over_flash": "over PyTorch's flash",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tile:
    """Clocks that one multiprocessor needs for one tile of the forward pass.

    Args:
        products: QKᵀ and PV.
        exponentials: one a score.
        float32: all else that is done with scores and output.
    """

    products: float
    exponentials: float
    float32: float

    @property
    def in_turn(self) -> float:
        """Share of the products' rate where nothing goes on beside anything else: what the shipped kernel does."""
        return self.products / (self.products + self.exponentials + self.float32)

    @property
    def pipes_at_once(self) -> float:
        """Share of it where different warps' exponentials and float32 instructions go on at the same time."""
        return self.products / (self.products + max(self.exponentials, self.float32))

    @property
    def overlapped(self) -> float:
        """Share of it where the softmax of a tile goes on under the QKᵀ of the next."""
        half = self.products / 2
        return self.products / (half + max(half, self.exponentials + self.float32))


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is foreseen of our kernels on an H100 at long sequences in bfloat16.

    Args:
        name: short, and never changed.
        passes: `forward` or `backward`.
        head_dim: None means each.
        causal: whether under a causal mask.
        value: `flops_per_s`; `less_than_full`: 1 less the rate over that without a mask; `of_best`: over the best of
            PyTorch's back ends; `over_flash`: over its flash.
        least: in `unit`.
        most: likewise; None where there is no end.
        unit: `FLOP/s` or `share`.
    """

    name: str
    passes: str
    head_dim: int | None
    causal: bool
    value: str
    least: float
    most: float | None
    unit: str


def tile(head_dim: int, block_m: int, block_n: int) -> Tile:
    """The clocks of a tile, by arithmetic alone."""
    scores = block_m * block_n
    return Tile(
        4 * scores * head_dim / MATRIX_FLOPS,
        scores / EXPONENTIALS,
        (INSTRUCTIONS * scores + block_m * head_dim) / FLOAT32,
    )


def predictions() -> list[Prediction]:
    """All of them, each name once."""
    return [Prediction(**row) for row in json.loads(PREDICTED.read_text(encoding="utf-8"))]


def model_table() -> str:
    """The model of each shipped tile, as Markdown."""
    rows = []
    for head_dim in HEAD_DIMS:
        own = shipped()[ARCHITECTURE]["forward"]["16-bit"][head_dim]
        one = tile(head_dim, own.block_m, own.block_n)
        clocks = (f"{value:,.0f}" for value in (one.products, one.exponentials, one.float32))
        shares = (f"{value:.0%}" for value in (one.in_turn, one.pipes_at_once, one.overlapped))
        rows.append((str(head_dim), f"{own.block_m} × {own.block_n}", *clocks, *shares))
    return table(COLUMNS, rows)


def prediction_table() -> str:
    """What is foreseen, as Markdown."""
    return table(PREDICTIONS, list(map(_row, predictions())))


def _row(one: Prediction) -> tuple[str, ...]:
    head_dim = "each" if one.head_dim is None else str(one.head_dim)
    return WORDS[one.value], one.passes, head_dim, "causal" if one.causal else "full", _range(one)


def _range(one: Prediction) -> str:
    factor, unit = (1e-12, " TFLOP/s") if one.unit == "FLOP/s" else (100, " %")
    least = f"{one.least * factor:.0f}"
    return (
        f"{least}{unit} or more"
        if one.most is None
        else f"{least} to {one.most * factor:.0f}{unit}"
    )


def main() -> int:
    """Print both tables."""
    print(model_table(), prediction_table(), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
