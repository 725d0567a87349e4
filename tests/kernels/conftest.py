"""What tests of kernels share."""

import os

import pytest
import torch
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="session")
def compiler():
    """Triton that compiles: under TRITON_INTERPRET=1 it only interprets, in the whole process."""
    if os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "yes", "on"):
        pytest.skip("needs Triton to compile, found TRITON_INTERPRET=1")


@pytest.fixture(scope="module")
def one_thread():
    """For small products: to share one with a second thread takes longer, on a busy machine a hundred times."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(threads)
