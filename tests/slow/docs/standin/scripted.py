"""A machine on which the commands of the pages run: a device whose clock only moves when a test says so.

How fast it is depends on the name under which a run is kept, as runs of one machine differ by half a percent.
"""

import os
import sys
import types
import zlib
from importlib import metadata

import pytest

if {"ROOFLINE_ROUND", "WITHOUT_TORCH"} & set(os.environ) and "torch" not in sys.modules:
    # A run on the fake device asks torch for its version, and importing all of it takes longer than all the rest.
    sys.modules["torch"] = torch = types.ModuleType("torch")
    torch.__version__, torch.version = (
        metadata.version("torch"),
        types.SimpleNamespace(cuda=None, hip=None),
    )
    torch.get_num_threads, torch.Tensor = lambda: 1, type("Tensor", (), {})


@pytest.hookimpl(optionalhook=True)
def pytest_roofline_device(config, name):
    from pytest_roofline.engine.devices.fake import FakeDevice

    config.fake = FakeDevice()
    return config.fake


@pytest.fixture
def busy(pytestconfig):
    """Keeps the device busy for so many seconds."""
    name = pytestconfig.getoption("roofline_save") or ""
    factor = 1 + 0.004 * (zlib.crc32(name.encode()) % 9 - 4) / 4
    return lambda seconds: pytestconfig.fake.work(seconds * factor)
