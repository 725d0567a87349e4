"""Measurements as pages show them: copies that compute nothing."""

import pytest

from pytest_roofline.core.work import Work

from ..conftest import MIB, Make


class Copies(Make):
    """The same factories, of pure copies."""

    def copy(self, size_bytes=64 * MIB):
        return Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)


@pytest.fixture(scope="session")
def make():
    return Copies()
