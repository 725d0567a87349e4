"""The sweep of naive attention: its inputs, and that its cheap checks see what is wrong."""

import itertools
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
    shapes = [(tuple(one.shape), one.dtype, one.requires_grad) for one in inputs]
    assert shapes == [((8, 1, SEQUENCE, D_MODEL), torch.float32, True)] * 3
    again = sweep.inputs(SEQUENCE, D_MODEL, CPU)
    assert all(torch.equal(one, other) for one, other in zip(inputs, again, strict=True))
    assert not any(torch.equal(one, other) for one, other in itertools.pairwise(inputs))


def test_right_results_are_right_and_a_backward_pass_adds_nothing_up():
    for sequence in [1, 2, 15, 16, 17, 64]:
        inputs = sweep.inputs(sequence, D_MODEL, CPU)
        output = sweep.forward(*inputs)
        sweep.check_output(output, *inputs)
        grad = sweep.output_gradient(output)
        first, second = (sweep.backward(output, grad, *inputs) for _ in range(2))
        sweep.check_gradients(first, grad, *inputs)
        assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
        assert [one.grad for one in inputs] == [None] * 3


def test_a_missing_mask_and_a_wrong_row_are_seen(inputs):
    wrong = [torch.nn.functional.scaled_dot_product_attention(*inputs)]
    for batch, row in itertools.product([0, 7], [0, SEQUENCE // 2, SEQUENCE - 1]):
        wrong.append(sweep.forward(*inputs).detach())
        wrong[-1][batch, 0, row] += 0.01
    for output in wrong:
        with pytest.raises(AssertionError, match="output is off by"):
            sweep.check_output(output, *inputs)


def test_a_wrong_gradient_is_seen_and_one_that_is_not_finite_anywhere(inputs):
    for which, (place, change, told) in itertools.product(
        range(3), [((0, 0, -1), 1.01, "off by"), ((3, 0, 7, 5), torch.nan, "not finite")]
    ):
        grad, gradients = gradients_of(inputs)
        gradients[which][place] *= change
        with pytest.raises(AssertionError, match=f"d{'qkv'[which]} is {told}"):
            sweep.check_gradients(gradients, grad, *inputs)


def test_without_a_compiler_or_triton_nothing_is_compiled(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert (
        compiling.why_not_compiled(CPU)
        == "needs a C++ compiler for torch.compile, found no no-such-compiler"
    )
    monkeypatch.setenv("CXX", sys.executable)
    assert compiling.why_not_compiled(CPU) == ""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert (
        compiling.why_not_compiled(torch.device("cuda"))
        == "needs triton for torch.compile, found none"
    )


def test_compiled_passes_are_right_and_can_be_repeated(inputs):
    require_tools("g++")
    with sweep.compiled() as forward:
        output = forward(*inputs)
        sweep.check_output(output, *inputs)
        grad = sweep.output_gradient(output)
        for _ in range(2):
            sweep.check_gradients(sweep.backward(output, grad, *inputs), grad, *inputs)
