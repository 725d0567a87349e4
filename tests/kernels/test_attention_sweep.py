"""The sweep of naive attention: its inputs, and that its cheap checks see what is wrong."""

import sys

import pytest
import torch

from roofline_kernels.attention import compiling, sweep

from ..tools import require_tools

CPU = torch.device("cpu")
SEQUENCE, D_MODEL = 40, 16


@pytest.fixture
def inputs():
    return sweep.inputs(SEQUENCE, D_MODEL, CPU)


def gradients_of(inputs):
    output = sweep.forward(*inputs)
    grad = sweep.output_gradient(output)
    return grad, sweep.backward(output, grad, *inputs)


def test_inputs_are_of_the_sweeps_shape_alike_every_time_and_differ_from_each_other(inputs):
    assert [(tuple(one.shape), one.dtype, one.requires_grad) for one in inputs] == [
        ((8, 1, SEQUENCE, D_MODEL), torch.float32, True)
    ] * 3
    again = sweep.inputs(SEQUENCE, D_MODEL, CPU)
    assert all(torch.equal(one, other) for one, other in zip(inputs, again, strict=True))
    assert not torch.equal(inputs[0], inputs[1])
    assert not torch.equal(inputs[1], inputs[2])


def test_right_results_are_right():
    for sequence in [1, 2, 15, 16, 17, 64]:
        inputs = sweep.inputs(sequence, D_MODEL, CPU)
        sweep.check_output(sweep.forward(*inputs), *inputs)
        grad, gradients = gradients_of(inputs)
        sweep.check_gradients(gradients, grad, *inputs)


def test_attention_without_a_mask_is_wrong(inputs):
    with pytest.raises(AssertionError, match="output is off by"):
        sweep.check_output(torch.nn.functional.scaled_dot_product_attention(*inputs), *inputs)


@pytest.mark.parametrize("batch", [0, 7])
@pytest.mark.parametrize("row", [0, SEQUENCE // 2, SEQUENCE - 1])
def test_a_wrong_row_is_seen(inputs, batch, row):
    output = sweep.forward(*inputs).detach()
    output[batch, 0, row] += 0.01
    with pytest.raises(AssertionError, match="output is off by"):
        sweep.check_output(output, *inputs)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_wrong_gradient_is_seen(inputs, which):
    grad, gradients = gradients_of(inputs)
    gradients[which][0, 0, -1] *= 1.01
    with pytest.raises(AssertionError, match=f"d{'qkv'[which]} is off by"):
        sweep.check_gradients(gradients, grad, *inputs)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_gradient_that_is_not_finite_is_seen_anywhere(inputs, which):
    grad, gradients = gradients_of(inputs)
    gradients[which][3, 0, 7, 5] = torch.nan
    with pytest.raises(AssertionError, match=f"d{'qkv'[which]} is not finite"):
        sweep.check_gradients(gradients, grad, *inputs)


def test_a_backward_pass_can_be_repeated_and_adds_nothing_up(inputs):
    output = sweep.forward(*inputs)
    grad = sweep.output_gradient(output)
    first, second = (sweep.backward(output, grad, *inputs) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert [one.grad for one in inputs] == [None] * 3


def test_without_a_compiler_a_cpu_compiles_nothing(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert compiling.why_not_compiled(CPU) == "needs a C++ compiler for torch.compile, found no no-such-compiler"
    monkeypatch.setenv("CXX", sys.executable)
    assert compiling.why_not_compiled(CPU) == ""


def test_without_triton_a_gpu_compiles_nothing(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert compiling.why_not_compiled(torch.device("cuda")) == "needs triton for torch.compile, found none"


def test_compiled_passes_are_right_and_can_be_repeated(inputs):
    require_tools("g++")
    with sweep.compiled() as forward:
        output = forward(*inputs)
        sweep.check_output(output, *inputs)
        grad = sweep.output_gradient(output)
        for _ in range(2):
            sweep.check_gradients(sweep.backward(output, grad, *inputs), grad, *inputs)
