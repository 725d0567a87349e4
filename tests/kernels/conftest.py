"""What tests of kernels need of Triton."""

import os

import pytest


@pytest.fixture(scope="session")
def compiler():
    """Triton that compiles: under TRITON_INTERPRET=1 it only interprets, in the whole process."""
    if os.environ.get("TRITON_INTERPRET", "0").lower() in ("1", "true", "yes", "on"):
        pytest.skip("needs Triton to compile, found TRITON_INTERPRET=1")
