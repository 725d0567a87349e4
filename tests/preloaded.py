"""What runs of pytest inside this process would import, imported before them: for the conftest.py of their tests.

pytester forgets every module that an inner run imported first, so that the next imports it again: half a second of
each run. torch, numpy and Triton 3.6 do not survive a second import at all.
"""

import contextlib

import msgspec
import scipy.optimize
import scipy.special
import scipy.stats
import torch

import pytest_roofline.baselines.comparing
import pytest_roofline.cli.baseline
import pytest_roofline.cli.main
import pytest_roofline.engine.ceiling
import pytest_roofline.engine.devices.amd
import pytest_roofline.engine.devices.cpu
import pytest_roofline.engine.devices.fake
import pytest_roofline.engine.devices.nvidia
import pytest_roofline.engine.host
import pytest_roofline.engine.measure
import pytest_roofline.engine.timing
import pytest_roofline.plugin
import pytest_roofline.plugin.display
import pytest_roofline.plugin.held_reports
import pytest_roofline.plugin.running
from pytest_roofline.core.features import FEATURES

with contextlib.suppress(ImportError):
    import triton  # noqa: F401
if "kernel_gate" in FEATURES:
    import pytest_roofline.kernel_gate.compile
if "ranks" in FEATURES:
    import pytest_roofline.plugin.leading
    import pytest_roofline.plugin.over_ranks
    import pytest_roofline.ranks.facts

__all__ = ["msgspec", "pytest_roofline", "scipy", "torch"]
