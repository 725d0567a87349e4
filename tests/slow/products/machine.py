"""The pytest plugin that puts a stand-in in the place of an accelerator; by `-p` where rounds start processes anew."""

import contextlib
import json
import os
from unittest import mock

import pytest

from pytest_roofline.hardware.lookup import product_of
from roofline_kernels import gemm, memcpy

from .recorded import facts_of
from .standin import Clockwork, Rates, StandIn

# Of the environment: the product and its rates, for the processes of further rounds.
ASKED = "PRODUCTS_STAND_IN"
# Tests whose copies go over the host's link.
WAYS = {"test_memcpy_h2d": "h2d", "test_memcpy_d2h": "d2h"}
# What moves the bytes of the others, where it is not a parameter of the test.
KERNELS = {
    "test_memcpy_d2d": "copy_engine",
    "test_memcpy_d2d_triton": "triton",
    "test_gemm": "gemm",
    "test_gemm_projection": "gemm",
}


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
        with Clockwork(self.device) as clockwork, self.standing_in(clockwork):
            return (yield)

    @contextlib.contextmanager
    def standing_in(self, clockwork: Clockwork):
        """In the place of what needs a device: Triton's copy, a product's types, and large random matrices."""
        with contextlib.ExitStack() as stack:
            for owner, name, value in (
                (memcpy, "triton_copy", lambda: memcpy.copy),
                (gemm, "why_not", self._why_not),
                (gemm, "normal", clockwork.normal),
            ):
                stack.enter_context(mock.patch.object(owner, name, value))
            yield

    def _why_not(self, kind: gemm.Kind, _: object) -> str:
        """A product multiplies the types that its datasheet has."""
        known = product_of(self.device.recorded)
        if known is None or kind.metric in known.peaks:
            return ""
        return f"needs {kind.name}, found {self.device.recorded.product}, which has none"


def pytest_configure(config: pytest.Config) -> None:
    """The stand-in that the environment asks for."""
    asked = json.loads(os.environ[ASKED])
    config.pluginmanager.register(Machine(StandIn(facts_of(asked["product"]), Rates(**asked["rates"]))))
