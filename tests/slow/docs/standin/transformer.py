"""Named and parametrised as the shipped steps are."""

from itertools import product

import pytest

from pytest_roofline import Work

FLOPS = {"forward": 10**11, "step": 3 * 10**11}
RATES = {"fp32": 4e13, "bf16_autocast": 4e14}
# How long each takes, against eager.
FACTORS = {"eager": 1.0, "compile": 0.8, "cuda_graph": 0.7}
CASES = [
    *product(FLOPS, RATES, ("eager", "compile")),
    ("step", "bf16_autocast", "cuda_graph"),
]


@pytest.mark.parametrize(("passes", "precision", "execution"), CASES)
@pytest.mark.parametrize("size", ["small"])
def test_transformer(roofline, busy, size, passes, precision, execution):
    seconds = FLOPS[passes] / RATES[precision] * FACTORS[execution]
    metric = f"{precision.removesuffix('_autocast')}_TFLOPS"
    roofline.measure(
        lambda: busy(seconds), work=Work(flops=FLOPS[passes], tokens=512), metric=metric
    )
