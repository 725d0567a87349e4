"""Named and parametrised as the shipped steps are."""

import pytest

from pytest_roofline import Work

FLOPS = {"forward": 10**11, "step": 3 * 10**11}
RATES = {"fp32": 4e13, "bf16_autocast": 4e14}


@pytest.mark.parametrize("execution", ["eager", "compile"])
@pytest.mark.parametrize("precision", RATES)
@pytest.mark.parametrize("passes", FLOPS)
@pytest.mark.parametrize("size", ["small"])
def test_transformer(roofline, busy, size, passes, precision, execution):
    seconds = FLOPS[passes] / RATES[precision] * (0.8 if execution == "compile" else 1.0)
    metric = f"{precision.removesuffix('_autocast')}_TFLOPS"
    roofline.measure(
        lambda: busy(seconds), work=Work(flops=FLOPS[passes], tokens=512), metric=metric
    )
