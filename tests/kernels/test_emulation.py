"""Where a CPU emulates a type, steps that would take for ever are refused; nowhere else."""

import torch

from roofline_kernels.training import emulation
from roofline_kernels.training.emulation import product_rate, why_too_slow
from roofline_kernels.training.precisions import precision_named

CPU = torch.device("cpu")
MINUTE_OF_EMULATION = 60 * 10**9


def test_an_emulated_type_is_refused_beyond_a_minute_with_what_it_takes_and_what_was_found(
    monkeypatch,
):
    # A CPU that multiplies float32 at 100 GFLOP/s, bfloat16 at a fifth of it, and float16 at 1 GFLOP/s.
    rates = {torch.float32: 1e11, torch.bfloat16: 2e10, torch.float16: 1e9}
    monkeypatch.setattr(emulation, "product_rate", rates.__getitem__)
    emulated = precision_named("fp16_autocast")
    assert why_too_slow(40 * MINUTE_OF_EMULATION, emulated, CPU) == (
        "needs about 40 min a call, found 1.00 GFLOP/s in torch.float16, 100 x below float32; expected 60 s a call at "
        "most where a type is emulated"
    )
    assert why_too_slow(MINUTE_OF_EMULATION, emulated, CPU) == ""
    assert why_too_slow(10**18, emulated, torch.device("meta")) == ""
    for precision in ["fp32", "bf16", "bf16_autocast"]:
        assert why_too_slow(10**16, precision_named(precision), CPU) == "", precision


def test_a_rate_is_measured_without_the_first_product(monkeypatch):
    monkeypatch.setattr(emulation, "PATIENCE_S", 0.0)
    assert product_rate.__wrapped__(torch.float32) > 0
    monkeypatch.undo()
    # It makes the kernels: 0.8 s here, which took bfloat16 for emulated where it is faster than float32.
    taken_s = iter([0.8, 1e-3, 0.6])
    monkeypatch.setattr(emulation, "_product_s", lambda factor: next(taken_s))
    assert product_rate.__wrapped__(torch.bfloat16) == 2 * emulation.PROBE_ROWS**3 / 1e-3
