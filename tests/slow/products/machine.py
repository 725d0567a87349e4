"""The pytest plugin that puts a stand-in in the place of an accelerator; by `-p` where rounds start processes anew."""

import json
import os
from unittest import mock

import pytest

from roofline_kernels import memcpy

from .recorded import facts_of
from .standin import Clockwork, Rates, StandIn

# Of the environment: the product and its rates, for the processes of further rounds.
ASKED = "PRODUCTS_STAND_IN"
# Tests whose copies go over the host's link.
WAYS = {"test_memcpy_h2d": "h2d", "test_memcpy_d2h": "d2h"}
# What moves the bytes of the others, where it is not a parameter of the test.
KERNELS = {"test_memcpy_d2d": "copy_engine", "test_memcpy_d2d_triton": "triton"}


class Machine:
    """Hands in the stand-in, and follows what torch does in the tests."""

    def __init__(self, device: StandIn) -> None:
        self.device = device

    @pytest.hookimpl(optionalhook=True)
    def pytest_roofline_device(self) -> StandIn:
        """The device of every run."""
        return self.device

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        """Around a test's body; which way its copies go, and from what memory, a torch for CPUs cannot tell."""
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        self.device.way = WAYS.get(item.originalname)
        self.device.memory = parameters.get("memory", "pinned")
        self.device.kernel = parameters.get("operation", KERNELS.get(item.originalname))
        # Triton's copy needs a device.
        with (
            Clockwork(self.device),
            mock.patch.object(memcpy, "triton_copy", return_value=memcpy.copy),
        ):
            return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """The stand-in that the environment asks for."""
    asked = json.loads(os.environ[ASKED])
    config.pluginmanager.register(
        Machine(StandIn(facts_of(asked["product"]), Rates(**asked["rates"])))
    )
