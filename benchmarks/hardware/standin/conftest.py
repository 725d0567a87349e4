"""The faithful fake under pytest, for the stages of `on_hardware.py` where there is no card."""

import sys
import types
import zlib
from importlib import metadata
from pathlib import Path

import pytest

if "torch" not in sys.modules:
    # A run on the fake asks torch for its version, and importing all of it takes longer than all the rest.
    sys.modules["torch"] = torch = types.ModuleType("torch")
    torch.__version__, torch.version = (
        metadata.version("torch"),
        types.SimpleNamespace(cuda=None, hip=None),
    )
    torch.get_num_threads, torch.Tensor = lambda: 1, type("Tensor", (), {})

sys.path.insert(0, str(Path(__file__).parents[2]))

from hardware.faithful import faithful, planted


@pytest.hookimpl(optionalhook=True)
def pytest_roofline_device(config, name):
    """The fake that stands in for a card."""
    config.fake = faithful(**planted())
    return config.fake


@pytest.fixture
def busy(request):
    """Keeps the device busy for so many seconds, times what is planted for this test.

    Runs of one card differ by half a percent: so do these, by the name under which they are kept.
    """
    name = Path(request.config.getoption("roofline_save") or "").name
    slow = planted().get("suite_slow", {})
    factor = 1 + 0.002 * (zlib.crc32(name.encode()) % 9 - 4) / 4
    for part, planted_factor in slow.items():
        factor *= planted_factor if part in f"{name} {request.node.name}" else 1.0
    return lambda seconds: request.config.fake.work(seconds * factor)
