"""The five STREAM operations: each check accepts what the operation leaves and nothing else."""

import itertools
import math

import pytest
import torch

from roofline_kernels.stream import Arrays
from roofline_kernels.work import STREAM

CPU = torch.device("cpu")
ELEMENTS = 1003
OPERATIONS = list(STREAM)
WRITTEN = {"copy": 2, "scale": 1, "add": 2, "triad": 0}
# What each leaves in the array that it writes, from the first values a, b, c.
RESULTS = {
    "copy": lambda a, b, c: a,
    "scale": lambda a, b, c: 0.4 * c,
    "add": lambda a, b, c: a + b,
    "triad": lambda a, b, c: b + 0.4 * c,
}


def operated(name, times=1, dtype=torch.float64):
    """An operation's arrays after it ran, and its check."""
    arrays = Arrays(ELEMENTS, CPU, dtype)
    buffers = arrays.make()
    for _ in range(times):
        arrays.operation(name)(*buffers)
    return buffers, arrays.check(name)


def test_the_check_accepts_the_result_of_many_calls():
    for name in OPERATIONS:
        buffers, check = operated(name, times=50)
        assert check(*buffers), name


def test_an_operation_leaves_what_its_formula_says():
    for name in WRITTEN:
        arrays = Arrays(ELEMENTS, CPU, torch.float64)
        buffers = arrays.make()
        expected = RESULTS[name](*(float(buffer[0]) for buffer in buffers))
        arrays.operation(name)(*buffers)
        assert [pytest.approx(expected, rel=1e-15)] * ELEMENTS == buffers[WRITTEN[name]].tolist(), name


def test_an_operation_changes_every_element_that_it_writes():
    for name in WRITTEN:
        # Else an operation that does nothing could not be told from one that ran.
        arrays = Arrays(ELEMENTS, CPU, torch.float64)
        buffers = arrays.make()
        before = buffers[WRITTEN[name]].clone()
        arrays.operation(name)(*buffers)
        assert bool((abs(buffers[WRITTEN[name]] - before) > 1e-3).all()), name


def test_the_check_refuses_an_operation_that_never_ran():
    for name in OPERATIONS:
        buffers, check = operated(name, times=0)
        assert not check(*buffers), name


def test_the_check_refuses_one_wrong_element_anywhere():
    for position, array, name in itertools.product([0, ELEMENTS // 2, ELEMENTS - 1], [0, 1, 2], OPERATIONS):
        buffers, check = operated(name)
        buffers[array][position] += 1e-6
        assert not check(*buffers), (position, array, name)


def test_the_check_refuses_an_operation_that_left_out_the_last_element():
    for name in WRITTEN:
        arrays = Arrays(ELEMENTS, CPU, torch.float64)
        buffers = arrays.make()
        arrays.operation(name)(*(buffer[:-1] for buffer in buffers))
        assert not arrays.check(name)(*buffers), name


def test_the_check_refuses_a_dot_product_that_left_out_elements():
    for length in [0, 1, ELEMENTS - 1]:
        arrays = Arrays(ELEMENTS, CPU, torch.float64)
        buffers = arrays.make()
        arrays.operation("dot")(*(buffer[:length] for buffer in buffers))
        assert not arrays.check("dot")(*buffers), length


def test_the_check_refuses_a_dot_product_that_is_nan():
    arrays = Arrays(ELEMENTS, CPU, torch.float64)
    buffers = arrays.make()
    poisoned = buffers[0].clone()
    poisoned[7] = math.nan
    arrays.operation("dot")(poisoned, buffers[1], buffers[2])
    assert not arrays.check("dot")(*buffers)


def test_the_check_of_one_operation_refuses_another():
    for name in OPERATIONS:
        for other in set(WRITTEN) - {name}:
            buffers, _ = operated(other)
            arrays = Arrays(ELEMENTS, CPU, torch.float64)
            arrays.operation("dot")(*arrays.make())
            assert not arrays.check(name)(*buffers), f"{name} took what {other} left"


def test_bytes_of_an_array_are_those_of_its_elements():
    assert [Arrays(1000, CPU, dtype).array_bytes for dtype in (torch.float64, torch.float32)] == [8000, 4000]
