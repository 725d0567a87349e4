"""Sums in few digits against exact arithmetic, and types under autocast on models that are built to differ."""

from fractions import Fraction

import pytest
import torch
from torch import nn

from roofline_kernels.precision import HIDDEN, PARTS, ToyModel, accumulate, autocast_dtypes, dtype_table

FP32, FP16, BF16 = torch.float32, torch.float16, torch.bfloat16


def rounded_sum(sum_dtype, term_dtype, terms):
    """The sum in exact fractions, rounded once after each addition."""
    term = Fraction(torch.tensor(0.01, dtype=term_dtype).item())
    total = Fraction(0)
    for _ in range(terms):
        # A sum of two FP16 or FP32 numbers is exact in FP64 here, so that torch rounds once.
        total = Fraction(torch.tensor(float(total + term), dtype=torch.float64).to(sum_dtype).item())
    return float(total)


def test_a_sum_is_rounded_after_every_addition():
    for sum_dtype, term_dtype in [(FP32, FP32), (FP16, FP16), (FP32, FP16), (BF16, BF16)]:
        assert rounded_sum(sum_dtype, term_dtype, 1000) == accumulate(sum_dtype, term_dtype).item()


def test_a_bf16_sum_stands_still_where_a_term_is_less_than_half_a_step():
    assert accumulate(BF16, BF16, terms=1000) == accumulate(BF16, BF16, terms=2000) == 4


def test_every_part_has_a_type_in_the_order_in_which_they_come_to_be():
    assert PARTS == tuple(autocast_dtypes("cpu", BF16))


def test_the_first_layer_and_the_logits_have_the_type_that_was_asked_for():
    for dtype in [FP16, BF16]:
        found = autocast_dtypes("cpu", dtype)
        assert (found["fc1"], found["logits"]) == (dtype, dtype), dtype


class UpcastNorm(nn.LayerNorm):
    """Autocast's accelerators do this: LayerNorm in FP32, whatever comes in."""

    def forward(self, x):
        return super().forward(x.float())


class HalfNorm(UpcastNorm):
    """A release that gave its result in half precision."""

    def forward(self, x):
        return super().forward(x).half()


def test_another_type_of_layer_norm_is_seen():
    for norm, dtype in [(UpcastNorm, FP32), (HalfNorm, FP16)]:
        model = ToyModel()
        model.norm = norm(HIDDEN)
        assert autocast_dtypes("cpu", BF16, model) == autocast_dtypes("cpu", BF16) | {"LayerNorm": dtype}


def test_gradients_have_the_type_of_their_parameters():
    found = autocast_dtypes("cpu", BF16, ToyModel().to(BF16))
    assert (found["parameters"], found["gradients"]) == (BF16, BF16)


def test_logits_of_another_type_are_seen():
    model = ToyModel()
    model.fc2 = nn.Sequential(model.fc2, UpcastNorm(5))
    found = autocast_dtypes("cpu", FP16, model)
    assert (found["fc1"], found["logits"]) == (FP16, FP32)


def test_parameters_of_several_types_are_refused():
    model = ToyModel()
    model.norm.half()
    with pytest.raises(ValueError) as error:
        autocast_dtypes("cpu", BF16, model)
    assert str(error.value) == "the parameters have the types FP16, FP32; expected one type for all of them"


def test_the_hooks_are_gone_afterwards():
    model = ToyModel()
    autocast_dtypes("cpu", BF16, model)
    assert not any(module._forward_hooks for module in model.modules())


def test_the_table_marks_what_differs():
    found = {"fc1": FP16, "LayerNorm": FP16}
    assert dtype_table(found, found | {"LayerNorm": FP32}) == (
        "part        found   expected\nfc1         FP16    FP16\nLayerNorm   FP16    FP32 <- differs"
    )
