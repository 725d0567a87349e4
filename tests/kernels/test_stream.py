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
# The array that each writes, and what it leaves there, from the first values a, b, c.
RESULTS = {
    "copy": (2, lambda a, b, c: a),
    "scale": (1, lambda a, b, c: 0.4 * c),
    "add": (2, lambda a, b, c: a + b),
    "triad": (0, lambda a, b, c: b + 0.4 * c),
}


def operated(name, times=1, upto=None):
    """An operation's arrays after it ran on so many of their elements, and its check."""
    arrays = Arrays(ELEMENTS, CPU, torch.float64)
    buffers = arrays.make()
    for _ in range(times):
        arrays.operation(name)(*(buffer[:upto] for buffer in buffers))
    return buffers, arrays.check(name)


def test_an_operation_leaves_what_its_formula_says_and_changes_every_element():
    for name, (written, formula) in RESULTS.items():
        before, _ = operated(name, times=0)
        after, _ = operated(name)
        expected = formula(*(float(buffer[0]) for buffer in before))
        assert [pytest.approx(expected, rel=1e-15)] * ELEMENTS == after[written].tolist(), name
        # Else an operation that does nothing could not be told from one that ran.
        assert bool((abs(after[written] - before[written]) > 1e-3).all()), name


def test_the_check_accepts_many_calls_and_refuses_none_and_one_wrong_element_anywhere():
    for name in OPERATIONS:
        buffers, check = operated(name, times=50)
        assert check(*buffers), name
        buffers, check = operated(name, times=0)
        assert not check(*buffers), name
        for position, array in itertools.product([0, ELEMENTS // 2, ELEMENTS - 1], [0, 1, 2]):
            buffers, check = operated(name)
            buffers[array][position] += 1e-6
            assert not check(*buffers), (name, position, array)


def test_the_check_refuses_what_left_elements_out_what_is_nan_and_another_operation():
    for name, upto in [*((name, -1) for name in OPERATIONS), ("dot", 0), ("dot", 1)]:
        buffers, check = operated(name, upto=upto)
        assert not check(*buffers), (name, upto)
    arrays = Arrays(ELEMENTS, CPU, torch.float64)
    a, b, c = arrays.make()
    poisoned = a.clone()
    poisoned[7] = math.nan
    arrays.operation("dot")(poisoned, b, c)
    assert not arrays.check("dot")(a, b, c)
    for name, other in itertools.product(OPERATIONS, RESULTS):
        if name != other:
            buffers, _ = operated(other)
            arrays = Arrays(ELEMENTS, CPU, torch.float64)
            arrays.operation("dot")(*arrays.make())
            assert not arrays.check(name)(*buffers), f"{name} took what {other} left"


def test_bytes_of_an_array_are_those_of_its_elements():
    assert [Arrays(1000, CPU, dtype).array_bytes for dtype in (torch.float64, torch.float32)] == [
        8000,
        4000,
    ]
