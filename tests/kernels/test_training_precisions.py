"""Precisions: what they set and restore, in what products are, and what is said where a device lacks one."""

import contextlib
import subprocess
import sys

import pytest
import torch

from roofline_kernels.training.precisions import PRECISIONS, precision_named, why_not

CPU = torch.device("cpu")


def test_settings_hold_inside_and_are_restored():
    for name, matmul in [("fp32", "highest"), ("tf32", "high"), ("bf16", "highest")]:
        before = torch.get_float32_matmul_precision()
        with contextlib.suppress(KeyError), PRECISIONS[name].settings():
            inside = torch.get_float32_matmul_precision(), torch.backends.cuda.matmul.allow_tf32
            raise KeyError
        assert inside == (matmul, name == "tf32"), (name, matmul)
        assert torch.get_float32_matmul_precision() == before, (name, matmul)


@pytest.mark.parametrize("whose", ["torch.backends.cuda.matmul", "torch.backends"])
def test_settings_hold_where_a_program_used_those_of_each_library(whose):
    # In a process of its own: torch does not go back to its old setting.
    program = f"""
import torch
from roofline_kernels.training.precisions import PRECISIONS
{whose}.fp32_precision = "tf32"
for name in ("fp32", "tf32"):
    with PRECISIONS[name].settings():
        print(torch.backends.cuda.matmul.fp32_precision)
print(torch.backends.cuda.matmul.fp32_precision)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.stdout.split(), done.returncode) == (["ieee", "tf32", "tf32"], 0), done.stderr


def test_a_matrix_product_has_the_type_that_its_precision_names():
    for name, parameters, products in [
        ("fp32", torch.float32, torch.float32),
        ("bf16_autocast", torch.float32, torch.bfloat16),
        ("fp16_autocast", torch.float32, torch.float16),
        ("bf16", torch.bfloat16, torch.bfloat16),
    ]:
        precision = precision_named(name)
        values = torch.ones(2, 2, dtype=precision.parameters)
        with precision.casting(CPU):
            found = (values @ values).dtype
        assert (precision.parameters, precision.products, found) == (parameters, products, products)


def test_a_cpu_does_all_but_tf32():
    for name in ["fp32", "bf16_autocast", "fp16_autocast", "bf16"]:
        assert why_not(precision_named(name), CPU) == "", name


def test_tf32_needs_cuda_or_rocm():
    assert why_not(precision_named("tf32"), CPU) == "needs TF32, which CUDA and ROCm devices have, found cpu"


@pytest.mark.parametrize(("value", "told"), [(1.0, ""), (1 + 2**-12, "needs TF32, found that A Device rounds no")])
def test_tf32_is_found_by_the_digits_that_a_product_loses(monkeypatch, value, told):
    # In float64, whose products never lose them, and with inputs that have lost them already.
    exact = torch.full((512, 512), value, dtype=torch.float64)
    monkeypatch.setattr(torch, "full", lambda *arguments, **options: exact)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A Device")
    found = why_not(precision_named("tf32"), torch.device("cuda"))
    assert found.startswith(told)
    assert bool(found) == bool(told)


def test_where_autocast_does_nothing_the_type_that_is_found_is_told(monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *arguments, **options: contextlib.nullcontext())
    found = why_not(precision_named("bf16_autocast"), CPU)
    assert found == "needs matrix products in torch.bfloat16 on cpu, found them in torch.float32"


def test_where_a_loss_cannot_be_scaled_the_first_line_of_the_error_is_told(monkeypatch):
    def refuse(device):
        raise NotImplementedError(f"no unscaling on {device}\nand more")

    monkeypatch.setattr(torch.amp, "GradScaler", refuse)
    assert why_not(precision_named("fp16_autocast"), CPU) == "needs fp16_autocast on cpu, found: no unscaling on cpu"


def test_metrics_name_the_type_whose_peak_counts():
    assert {name: one.metric for name, one in PRECISIONS.items()} == {
        "fp32": "fp32_TFLOPS",
        "tf32": "tf32_TFLOPS",
        "bf16_autocast": "bf16_TFLOPS",
        "fp16_autocast": "fp16_TFLOPS",
        "bf16": "bf16_TFLOPS",
    }
