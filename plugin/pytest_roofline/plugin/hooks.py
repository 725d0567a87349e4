"""The hooks of the plugin. They are light, since every run of pytest loads them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..engine.devices import Device
    from .kinds import ResultKind


class Hooks:
    """Hooks that a conftest.py or another plugin may implement to change what is measured, and on what."""

    @pytest.hookspec(firstresult=True)
    def pytest_roofline_device(self, config: pytest.Config, name: str | None) -> "Device | None":
        """Return the device to measure on; None for the built-in choice.

        Args:
            config: pytest's configuration.
            name: what `--roofline-device` asks for; None if it was not given.
        """

    @pytest.hookspec(firstresult=True)
    def pytest_roofline_function(
        self, item: pytest.Item, name: str, fn: Callable[..., object]
    ) -> Callable[..., object] | None:
        """Return the function to measure instead of `fn`; None measures `fn`.

        This is the seam for drills: slow a function down and see the gate turn red. The measurement carries the label
        `replaced`, so it never becomes a baseline.

        Args:
            item: the test that measures.
            name: the measurement's name within the test; empty for the only one.
            fn: the function that the test gave.
        """

    @pytest.hookspec
    def pytest_roofline_result_kinds(self, config: pytest.Config) -> "Sequence[ResultKind]":  # type: ignore[empty-body]
        """Return further kinds of result.

        Each is judged and shown as times, memory and compiled kernels are.

        Args:
            config: pytest's configuration.
        """
