"""What is foreseen of the attention kernels on an H100, before one has run them: a model of a tile, and predictions.

    python benchmarks/attention_model.py -o docs/results/flash-resources.md

It writes its part of the page that `flash_resources.py` makes.
A tile of the forward pass has BLOCK_M x BLOCK_N scores. Its two products take 2 · D FLOPs a score each, a score one
exponential and three float32 instructions (scaled less its base, largest, sum), and a row D more to rescale the output.
The shipped kernel waits for QKᵀ before it begins with them, so their times add up; the one in Gluon makes the softmax
of a tile under products. Kernels that were measured reach a share of what the model allows, and the rates that are
foreseen of ours are that share of it. `predictions()` is what a program holds beside what a card did.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from parts import with_part
from rank_figures.page import filled, table

from pytest_roofline.core.errors import BadFile
from pytest_roofline.hardware.lookup import shipped_hardware
from roofline_kernels.attention.configurations import GLUON, shipped

PROGRAM = "benchmarks/attention_model.py"
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
OWN = shipped()[ARCHITECTURE]["forward"]["16-bit"]
COLUMNS = ("head dim", "tile", "products", "exponentials", "float32", "one after the other",
           "float32 under exponentials", "softmax under the next QKᵀ")  # fmt: skip
MEASUREMENTS = ("kernel", "measured", "allowed", "of which it reaches")
PREDICTIONS = ("what", "kernel", "pass", "head dim", "mask", "foreseen")
WORDS = {
    "flops_per_s": "rate", "less_than_full": "slower than without a mask by", "of_best": "of the best other's rate",
    "over_flash": "over PyTorch's flash",
}  # fmt: skip

TEXT = """## What is foreseen of an H100

{conclusion}

Made by `python benchmarks/attention_model.py`.
From arithmetic over one tile of the forward pass on one multiprocessor, whose clock makes 4,096
FLOPs of a product of two-byte types, 16 exponentials or 128 float32 instructions. A tile of M
queries and N keys at head dimension D takes 4·M·N·D FLOPs, M·N exponentials, and 3·M·N + M·D
float32 instructions. The shipped kernel waits for QKᵀ before it begins with the softmax, so
that these times add up; where the softmax of a tile goes on under products, as in the kernel in
[Gluon](../authors/kernels.md#the-triton-kernels), only the longer of the two counts. The clocks
of one tile, and shares of the rate of products alone:

{model}

Loads, waits, barriers, conversions, that a maximum takes longer than an addition, and a clock
that sinks under the load are left out, which makes all shares too high. Two kernels that were
measured on one H100, at head dimension 128 with 8,192 queries and keys and no mask, say by how
much ([pytorch/benchmark #2391](https://github.com/pytorch/benchmark/pull/2391)): Triton's
tutorial, whose times add up, and FlashAttention-3, which overlaps.

{measured}

So the rates of our forward passes without a mask are foreseen at the same share of what the
model allows them. The other ranges are estimates of somebody who read the compiled code. That
of the backward pass rests on a measurement as well: behind a guard ptxas lets the matrix
instructions of dK and dV overlap, and the same change took Triton's tutorial from 275 to 335
TFLOP/s on an H100 ([triton #2590](https://github.com/triton-lang/triton/pull/2590)). All are
for an H100 SXM5, bfloat16 and 8,192 tokens or more; they were written down before a card has
run it, so that one can prove them wrong. The estimates as data:
[attention_predictions.json](../../benchmarks/attention_predictions.json).

{foreseen}
"""


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
class Measured:
    """The rate of somebody's forward pass on an H100, in tiles of 128 x 128 at head dimension 128, without a mask.

    Args:
        kernel: whose.
        path: which property of `Tile` is its path through a tile.
        flops_per_s: bfloat16, 8,192 queries and keys.
    """

    kernel: str
    path: str
    flops_per_s: float

    @property
    def allowed_flops_per_s(self) -> float:
        """What the model allows of it."""
        return getattr(tile(128, 128, 128), self.path) * peak_flops_per_s()

    @property
    def reached(self) -> float:
        """Share of what the model allows."""
        return self.flops_per_s / self.allowed_flops_per_s


# Source: pytorch/benchmark pull request 2391, one H100, both in the same run.
MEASURED = (
    Measured("Triton's tutorial", "in_turn", 470.7e12),
    Measured("FlashAttention-3", "overlapped", 614.2e12),
)
# How each of our kernels goes through a tile.
PATHS = {"triton": "in_turn", "gluon": "overlapped"}


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is foreseen of our kernels on an H100 at long sequences in bfloat16.

    Args:
        name: short, and never changed.
        kernel: `triton`, or `gluon` where the forward pass is the one in Gluon.
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
    kernel: str
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


def peak_flops_per_s() -> float:
    """The datasheet's rate of products of bfloat16."""
    products = shipped_hardware().catalogue.products
    (h100,) = (row for row in products if row.product == PRODUCT)
    return h100.peaks["bf16_TFLOPS"].value * 1e12


def predictions() -> list[Prediction]:
    """All of them, each name once: rates of forward passes by the model, then what was estimated."""
    estimated = json.loads(PREDICTED.read_text(encoding="utf-8"))
    return [*_modelled(), *(Prediction(**row) for row in estimated)]


def _modelled() -> Iterator[Prediction]:
    """Rates without a mask: of what the model allows, as much as measured kernels reach."""
    shares = [measured.reached for measured in MEASURED]
    for (kernel, path), head_dim in product(PATHS.items(), HEAD_DIMS):
        tiles = GLUON[head_dim] if kernel == "gluon" else OWN[head_dim]
        allowed = getattr(tile(head_dim, tiles.block_m, tiles.block_n), path) * peak_flops_per_s()
        name = f"forward d{head_dim}" if kernel == "triton" else f"{kernel} forward d{head_dim}"
        yield Prediction(name, kernel, "forward", head_dim, False, "flops_per_s", min(shares) * allowed,
                         max(shares) * allowed, "FLOP/s")  # fmt: skip


def measured_table() -> str:
    """What measured kernels reach of the model, as Markdown."""
    rows = []
    for measured in MEASURED:
        rates = (measured.flops_per_s, measured.allowed_flops_per_s)
        words = (f"{rate * 1e-12:.0f} TFLOP/s" for rate in rates)
        rows.append((measured.kernel, *words, f"{measured.reached:.2f}"))
    return table(MEASUREMENTS, rows)


def model_table() -> str:
    """The model of each shipped tile, as Markdown."""
    rows = []
    for head_dim in HEAD_DIMS:
        tiles = OWN[head_dim]
        one = tile(head_dim, tiles.block_m, tiles.block_n)
        clocks = (f"{value:,.0f}" for value in (one.products, one.exponentials, one.float32))
        shares = (f"{value:.0%}" for value in (one.in_turn, one.pipes_at_once, one.overlapped))
        rows.append((str(head_dim), f"{tiles.block_m} × {tiles.block_n}", *clocks, *shares))
    return table(COLUMNS, rows)


def prediction_table() -> str:
    """What is foreseen, as Markdown."""
    return table(PREDICTIONS, list(map(_row, predictions())))


def _row(one: Prediction) -> tuple[str, ...]:
    head_dim = "each" if one.head_dim is None else str(one.head_dim)
    mask = "causal" if one.causal else "full"
    return WORDS[one.value], one.kernel, one.passes, head_dim, mask, _range(one)


def _range(one: Prediction) -> str:
    factor, unit = (1e-12, " TFLOP/s") if one.unit == "FLOP/s" else (100, " %")
    least = f"{one.least * factor:.0f}"
    return (
        f"{least}{unit} or more"
        if one.most is None
        else f"{least} to {one.most * factor:.0f}{unit}"
    )


def part() -> str:
    """Return the part of the page, as Markdown."""
    tables = {
        "model": model_table(), "measured": measured_table(), "foreseen": prediction_table()
    }  # fmt: skip
    return filled(TEXT.format(conclusion=conclusion(), **tables))


def conclusion() -> str:
    """Return the sentence that the part begins with."""
    rates = {row.kernel: _range(row) for row in _modelled() if row.head_dim == max(HEAD_DIMS)}
    return (
        f"At head dimension {max(HEAD_DIMS)} the shipped forward pass is foreseen at {rates['triton']} on an H100 "
        f"without a mask, and the one in Gluon at {rates['gluon']}."
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the part, and write it where asked to; return 0, or 2 for a page that has no place for it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, help="Markdown page whose part to write")
    options = parser.parse_args(arguments)
    text = part()
    print(text)
    if options.output:
        try:
            page = options.output.read_text(encoding="utf-8")
            options.output.write_text(with_part(page, PROGRAM, text), encoding="utf-8")
        except (BadFile, OSError) as error:
            print(f"attention_model: {options.output}: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
