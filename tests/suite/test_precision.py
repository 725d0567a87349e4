"""The facts about the installed torch as a user runs them, and what is said when a release changes one."""

from types import SimpleNamespace

import pytest
import torch

from .benchmarks import load

CPU = SimpleNamespace(device=torch.device("cpu"))


@pytest.fixture(scope="module")
def suite():
    """The module of the benchmarks, freshly imported."""
    return load("precision")


def test_the_sums_are_those_of_the_seeds(suite):
    assert [printed for *_, printed, _ in suite.SUMS.values()] == [
        "10.0001",
        "9.9531",
        "10.0021",
        "10.0021",
    ]


@pytest.mark.parametrize(
    "combination", ["fp32", "fp16", "fp16_into_fp32", "fp16_converted_into_fp32"]
)
def test_the_installed_torch_sums_as_expected(suite, combination):
    suite.test_accumulation(CPU, combination)


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_the_installed_torch_has_the_expected_types(suite, dtype):
    suite.test_autocast_cpu(CPU, dtype)


def test_an_accelerators_table_differs_from_the_cpus_in_layer_norm_only(suite):
    with pytest.raises(AssertionError) as error:
        suite.test_autocast(CPU, "fp16")
    assert [line for line in str(error.value).splitlines() if "differs" in line] == [
        "LayerNorm   FP16    FP32 <- differs"
    ]


def test_a_type_that_this_torch_does_not_autocast_to_is_a_skip(suite, monkeypatch):
    monkeypatch.setattr(
        suite, "why_not", lambda precision, device: f"needs {precision.name}, found none"
    )
    with pytest.raises(pytest.skip.Exception, match="needs bf16_autocast, found none"):
        suite.test_autocast(CPU, "bf16")


def test_autocast_needs_no_scaled_loss(suite, monkeypatch):
    seen = []
    monkeypatch.setattr(suite, "why_not", lambda precision, device: seen.append(precision.scaled))
    suite.test_autocast_cpu(CPU, "fp16")
    assert seen == [False]


def test_a_release_that_changes_a_type_is_named_with_the_whole_table_and_the_remedy(
    suite, monkeypatch
):
    found = suite._expected(torch.bfloat16, torch.bfloat16) | {"loss": torch.bfloat16}
    monkeypatch.setattr(suite, "autocast_dtypes", lambda device, dtype: found)
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    with pytest.raises(AssertionError) as error:
        suite.test_autocast_cpu(CPU, "bf16")
    # pytest adds its own comparison below what the assertion says.
    assert str(error.value).splitlines()[:9] == [
        "torch 9.9.9 gives other types under autocast to BF16 on cpu; expected as torch 2.13 does:",
        "part        found   expected",
        "parameters  FP32    FP32",
        "fc1         BF16    BF16",
        "LayerNorm   BF16    BF16",
        "logits      BF16    BF16",
        "loss        BF16    FP32 <- differs",
        "gradients   FP32    FP32",
        suite.REMEDY,
    ]


def test_a_release_that_sums_otherwise_is_named_with_both_sums(suite, monkeypatch):
    monkeypatch.setattr(suite, "accumulate", lambda *_, **__: torch.tensor(10.0))
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    with pytest.raises(AssertionError) as error:
        suite.test_accumulation(CPU, "fp16")
    assert str(error.value).splitlines()[:2] == [
        "torch 9.9.9 sums 1000 times 0.01 (FP16) into FP16 on cpu; expected as torch 2.13 does:",
        "found 10.0, expected 9.953125",
    ]
