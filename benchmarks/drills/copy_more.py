"""A drill: every memory copy of the suite moves 1.3 times its bytes, so the gate must turn red.

    PYTHONPATH=benchmarks/drills python -m pytest -p copy_more perf_tests -k memcpy --roofline-against=…

It goes through the documented hook `pytest_roofline_function`; results and files are left alone.
"""

import pytest
import torch

SHARE = 0.3
# The extra bytes come from a buffer far larger than any cache, moving on with every call, so that they cost as much.
SCRATCH_BYTES = 1 << 30

_scratch: list[torch.Tensor] = []


@pytest.hookimpl
def pytest_roofline_function(item, name, fn):
    if "memcpy" not in item.name:
        return None
    if not _scratch:
        _scratch.extend(torch.ones(SCRATCH_BYTES, dtype=torch.uint8) for _ in range(2))
    position = 0

    def copy_more(source, target):
        nonlocal position
        fn(source, target)
        extra = int(source.numel() * SHARE)
        if position + extra > SCRATCH_BYTES:
            position = 0
        fn(_scratch[0][position : position + extra], _scratch[1][position : position + extra])
        position += extra

    return copy_more
