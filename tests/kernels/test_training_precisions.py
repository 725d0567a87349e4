"""Precisions: what they set and restore, in what products are, and what is said where a device lacks one."""

import contextlib

import torch

from roofline_kernels.training.precisions import PRECISIONS, precision_named, why_not

from .. import warm

CPU = torch.device("cpu")


def test_settings_hold_inside_and_are_restored():
    for name, matmul in [("fp32", "highest"), ("tf32", "high"), ("bf16", "highest")]:
        before = torch.get_float32_matmul_precision()
        with contextlib.suppress(KeyError), PRECISIONS[name].settings():
            inside = torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32
            raise KeyError
        assert inside == (matmul, name == "tf32"), name
        assert torch.get_float32_matmul_precision() == before, name
    # In processes of their own: where a program used the settings of each library, torch does not go back.
    for whose in ["torch.backends.cuda.matmul", "torch.backends"]:
        program = f"""
import torch
from roofline_kernels.training.precisions import PRECISIONS
{whose}.fp32_precision = "tf32"
for name in ("fp32", "tf32"):
    with PRECISIONS[name].settings():
        print(torch.backends.cuda.matmul.fp32_precision)
print(torch.backends.cuda.matmul.fp32_precision)
"""
        done = warm.run(["-c", program])
        assert (done.stdout.split(), done.returncode) == (["ieee", "tf32", "tf32"], 0), done.stderr


def test_a_matrix_product_has_the_type_that_its_precision_names_and_a_metric_of_that_type():
    for name, parameters, products, metric in [
        ("fp32", torch.float32, torch.float32, "fp32_TFLOPS"),
        ("bf16_autocast", torch.float32, torch.bfloat16, "bf16_TFLOPS"),
        ("bf16_autocast_uncached", torch.float32, torch.bfloat16, "bf16_TFLOPS"),
        ("fp16_autocast", torch.float32, torch.float16, "fp16_TFLOPS"),
        ("bf16", torch.bfloat16, torch.bfloat16, "bf16_TFLOPS"),
    ]:
        precision = precision_named(name)
        values = torch.ones(2, 2, dtype=precision.parameters)
        with precision.casting(CPU):
            found = (values @ values).dtype
            assert torch.is_autocast_cache_enabled() == (name != "bf16_autocast_uncached")
        assert (precision.parameters, precision.products, found) == (parameters, products, products)
        assert (precision.metric, why_not(precision, CPU)) == (metric, "")
    assert PRECISIONS["tf32"].metric == "tf32_TFLOPS"


def test_tf32_needs_cuda_or_rocm_and_is_found_by_the_digits_that_a_product_loses(monkeypatch):
    assert (
        why_not(precision_named("tf32"), CPU)
        == "needs TF32, which CUDA and ROCm devices have, found cpu"
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A Device")
    for value, told in [(1.0, ""), (1 + 2**-12, "needs TF32, found that A Device rounds no")]:
        # In float64, whose products never lose them, and with inputs that have lost them already.
        exact = torch.ones(512, 512, dtype=torch.float64) * value
        monkeypatch.setattr(torch, "full", lambda *arguments, exact=exact, **options: exact)
        found = why_not(precision_named("tf32"), torch.device("cuda"))
        assert (found.startswith(told), bool(found)) == (True, bool(told))


def test_what_a_device_does_not_do_is_told_with_what_was_found(monkeypatch):
    def refuse(device):
        raise NotImplementedError(f"no unscaling on {device}\nand more")

    monkeypatch.setattr(torch.amp, "GradScaler", refuse)
    assert (
        why_not(precision_named("fp16_autocast"), CPU)
        == "needs fp16_autocast on cpu, found: no unscaling on cpu"
    )
    monkeypatch.setattr(torch, "autocast", lambda *arguments, **options: contextlib.nullcontext())
    found = why_not(precision_named("bf16_autocast"), CPU)
    assert found == "needs matrix products in torch.bfloat16 on cpu, found them in torch.float32"
