"""Which errors tell of memory running out, and how much they asked for, by the words of torch's allocators."""

import pytest
import torch

from pytest_roofline.core.memory import out_of_memory, parse_sizes

KIB, MIB, GIB = 2**10, 2**20, 2**30
ACCELERATOR = (
    "out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.10 GiB is free. "
    "Including non-PyTorch memory, this process has 78.04 GiB memory in use. Of the allocated memory 77.20 GiB is "
    "allocated by PyTorch, and 12.00 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is "
    "large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
# Before torch 2.1.
OLD = (
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 39.59 GiB total capacity; 37.20 GiB already allocated; "
    "12.19 MiB free; 38.00 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "
    "max_split_size_mb to avoid fragmentation."
)
XPU = (
    "XPU out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 15.56 GiB. Of the allocated memory "
    "14.20 GiB is allocated by PyTorch, and 1.00 MiB is reserved by PyTorch but unallocated. Please use `empty_cache` "
    "to release all unoccupied cached memory."
)
CPU = (
    "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
    "1099511627776 bytes. Error code 12 (Cannot allocate memory)"
)
CPU_ELSEWHERE = "DefaultCPUAllocator: not enough memory: you tried to allocate 8589934592 bytes."
MPS = (
    "MPS backend out of memory (MPS allocated: 18.04 GiB, other allocations: 64.00 KiB, max allowed: 18.13 GiB). Tried "
    "to allocate 256.00 MiB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for "
    "memory allocations (may cause system failure)."
)
METAL = "Invalid buffer size: 24.00 GiB"
NUMPY = "Unable to allocate 128. GiB for an array with shape (17179869184,) and data type float64"
ERRORS = [
    (torch.OutOfMemoryError(f"CUDA {ACCELERATOR}"), 2 * GIB, round(1.1 * GIB)),
    (torch.cuda.OutOfMemoryError(f"HIP {ACCELERATOR}"), 2 * GIB, round(1.1 * GIB)),
    (torch.OutOfMemoryError(OLD), 20 * MIB, round(12.19 * MIB)),
    (torch.OutOfMemoryError(XPU), 4 * GIB, None),
    (RuntimeError(CPU), 2**40, None),
    (RuntimeError(CPU_ELSEWHERE), 8 * GIB, None),
    (RuntimeError(MPS), 256 * MIB, None),
    (RuntimeError(METAL), 24 * GIB, None),
    (MemoryError(NUMPY), 128 * GIB, None),
    (MemoryError(), None, None),
    (
        RuntimeError(
            "CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"
        ),
        None,
        None,
    ),
    (
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        None,
        None,
    ),
    (RuntimeError("HIP error: out of memory"), None, None),
    (
        RuntimeError(
            "Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"
        ),
        None,
        None,
    ),
    (RuntimeError("std::bad_alloc"), None, None),
    (RuntimeError("Triton Error [CUDA]: out of memory"), None, None),
    (RuntimeError("Triton Error [HIP]:  Code: 2, Message: out of memory"), None, None),
    (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), None, None),
    (
        RuntimeError(
            "CUDA error: HIPBLAS_STATUS_ALLOC_FAILED when calling `hipblasCreate(handle)`"
        ),
        None,
        None,
    ),
]


def test_an_allocators_error_is_known_with_what_it_tells():
    for error, asked, free in ERRORS:
        assert out_of_memory(error) is error
        assert parse_sizes(str(error)) == (asked, free), error


def test_torchs_own_error_on_this_cpu_is_known():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**55, dtype=torch.uint8)
    assert out_of_memory(raised.value) is raised.value
    assert parse_sizes(str(raised.value))[0] == 2**55


class OutOfResources(Exception):
    """As Triton calls a tile that does not fit into shared memory."""


def test_everything_else_is_no_lack_of_memory():
    for error in (
        RuntimeError("shape '[2]' is invalid for input of size 3"),
        RuntimeError("the pool is out of memory of its past"),
        ValueError(CPU),
        OutOfResources("out of resource: shared memory, Required: 98304, Hardware limit: 65536."),
        RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"),
        ExceptionGroup("several", [RuntimeError(CPU), RuntimeError("something else")]),
        ExceptionGroup("several", [AssertionError("out of memory")]),
        KeyboardInterrupt(),
        None,
    ):
        assert out_of_memory(error) is None, error


def raised_from(error, cause):
    error.__cause__ = cause
    return error


def test_what_led_to_an_error_may_tell_of_it():
    first, second, other = RuntimeError(CPU), MemoryError(), RuntimeError("while cleaning up")
    assert out_of_memory(raised_from(RuntimeError("cuda:0 stopped answering"), first)) is first
    assert (
        out_of_memory(ExceptionGroup("several", [raised_from(ValueError(), first), second]))
        is first
    )
    # One that merely came after it, and a conclusion of the test's own, do not.
    other.__context__ = first
    assert out_of_memory(other) is None
    assert out_of_memory(raised_from(AssertionError("should fit"), first)) is None
    circle = raised_from(ValueError("a"), ValueError("b"))
    circle.__cause__.__cause__ = circle
    assert out_of_memory(circle) is None


def test_sizes_count_by_1024_and_are_unknown_where_they_are_not_told():
    for message in (
        "",
        "Tried to allocate nothing",
        "allocate 2.00 GiB",
        "Tried to allocate 2 apples",
    ):
        assert parse_sizes(message) == (None, None)
    for unit, size in (("B", 1), ("KiB", KIB), ("MiB", MIB), ("GiB", GIB), ("TiB", 2**40)):
        assert parse_sizes(f"Tried to allocate 3.50 {unit}.") == (round(3.5 * size), None)
