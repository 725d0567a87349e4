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
import torch._dynamo

import pytest_roofline.cli
import pytest_roofline.display
import pytest_roofline.distributed.seen
import pytest_roofline.judging.comparing
import pytest_roofline.kernel_gate.compile
import pytest_roofline.measuring.ceiling
import pytest_roofline.measuring.devices.amd
import pytest_roofline.measuring.devices.cpu
import pytest_roofline.measuring.devices.fake
import pytest_roofline.measuring.devices.nvidia
import pytest_roofline.measuring.environment
import pytest_roofline.measuring.measure
import pytest_roofline.measuring.timing
import pytest_roofline.observe.external
import pytest_roofline.outcomes
import pytest_roofline.plugin
import pytest_roofline.running
import pytest_roofline.selection

with contextlib.suppress(ImportError):
    import triton  # noqa: F401

__all__ = ["msgspec", "pytest_roofline", "scipy", "torch"]
