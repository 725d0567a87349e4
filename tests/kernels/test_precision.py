"""Sums in few digits against exact arithmetic, and types under autocast on models that are built to differ."""

from fractions import Fraction

import pytest
import torch
from torch import nn

from roofline_kernels.precision import (
    HIDDEN,
    PARTS,
    ToyModel,
    accumulate,
    autocast_dtypes,
    dtype_table,
)

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16


def rounded_sum(sum_dtype, term_dtype, terms):
    """The sum in exact fractions, rounded once after each addition."""
    term, total = Fraction(torch.tensor(0.01, dtype=term_dtype).item()), Fraction(0)
    for _ in range(terms):
        # A sum of two FP16 or FP32 numbers is exact in FP64 here, so that torch rounds once.
        total = Fraction(
            torch.tensor(float(total + term), dtype=torch.float64).to(sum_dtype).item()
        )
    return float(total)


def test_a_sum_is_rounded_after_every_addition_and_stands_still_where_a_term_is_less_than_half_a_step():
    for sum_dtype, term_dtype in [(FP32, FP32), (FP16, FP16), (FP32, FP16), (BF16, BF16)]:
        assert rounded_sum(sum_dtype, term_dtype, 1000) == accumulate(sum_dtype, term_dtype).item()
    assert accumulate(BF16, BF16, terms=1000) == accumulate(BF16, BF16, terms=2000) == 4


class UpcastNorm(nn.LayerNorm):
    """Autocast's accelerators do this: LayerNorm in FP32, whatever comes in."""

    def forward(self, x):
        return super().forward(x.float())


class HalfNorm(UpcastNorm):
    """A release that gave its result in half precision."""

    def forward(self, x):
        return super().forward(x).half()


def with_parts(**parts):
    model = ToyModel()
    for name, part in parts.items():
        setattr(model, name, part)
    return model


def test_every_part_has_the_type_that_it_computes_in():
    usual = autocast_dtypes("cpu", BF16)
    assert tuple(usual) == PARTS
    for dtype in [FP16, BF16]:
        found = autocast_dtypes("cpu", dtype)
        assert (found["fc1"], found["logits"]) == (dtype, dtype), dtype
    # Another type of layer norm, of logits or of parameters is seen.
    for norm, dtype in [(UpcastNorm, FP32), (HalfNorm, FP16)]:
        assert autocast_dtypes("cpu", BF16, with_parts(norm=norm(HIDDEN))) == usual | {
            "LayerNorm": dtype
        }
    found = autocast_dtypes(
        "cpu", FP16, with_parts(fc2=nn.Sequential(ToyModel().fc2, UpcastNorm(5)))
    )
    assert (found["fc1"], found["logits"]) == (FP16, FP32)
    model = ToyModel().to(BF16)
    found = autocast_dtypes("cpu", BF16, model)
    assert (found["parameters"], found["gradients"]) == (BF16, BF16)
    assert not any(module._forward_hooks for module in model.modules())


def test_parameters_of_several_types_are_refused():
    model = ToyModel()
    model.norm.half()
    with pytest.raises(ValueError) as error:
        autocast_dtypes("cpu", BF16, model)
    assert (
        str(error.value)
        == "the parameters have the types FP16, FP32; expected one type for all of them"
    )


def test_the_table_marks_what_differs():
    found = {"fc1": FP16, "LayerNorm": FP16}
    assert dtype_table(found, found | {"LayerNorm": FP32}) == (
        "part        found   expected\nfc1         FP16    FP16\nLayerNorm   FP16    FP32 <- differs"
    )
