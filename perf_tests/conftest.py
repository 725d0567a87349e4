"""What the benchmarks share: the device under test."""

import pytest


@pytest.fixture
def device(roofline):
    """The torch device that is measured."""
    return roofline.device
