"""Several stand-ins of one machine, each with rates of its own, as one process sees them: `cuda:0`, `cuda:1`, …."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from .machine import Machine
from .recorded import facts_of
from .standin import Clockwork, Rates, StandIn


class Member(StandIn):
    """One of several: which it is, whether it was lost, and how busy others keep it.

    Args:
        group: all of them.
        index: its own.
        product: that it is.
        rates: how fast it is.
    """

    def __init__(self, group: "Group", index: int, product: str, rates: Rates) -> None:
        facts = replace(facts_of(product), index=index, uuid=f"GPU-0000000{index}")
        super().__init__(facts, rates)
        self.group, self.index = group, index
        self.busy = 0.0
        self.lost = False

    def siblings(self) -> tuple[str, ...]:
        return tuple(f"cuda:{index}" for index in range(len(self.group.members)))

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        before, self.group.device = self.group.device, self
        self.group.turns.append(self.index)
        try:
            yield
        finally:
            self.group.device = before

    def busy_siblings(self) -> dict[str, float]:
        others = (one for one in self.group.members if one is not self)
        return {f"GPU {one.index} ({one.recorded.uuid})": one.busy for one in others}

    def done(self, *arguments: Any) -> None:
        if self.lost:
            raise RuntimeError("CUDA error: GPU is lost")
        super().done(*arguments)


class Group(Machine):
    """Hands in any of them by its name; `turns` holds whose turn it was, in the order measured."""

    def __init__(self, products: Sequence[str], rates: Sequence[Rates]) -> None:
        self.turns: list[int] = []
        self.members = [
            Member(self, *one) for one in zip(range(len(products)), products, rates, strict=True)
        ]
        super().__init__(self.members[0])

    @pytest.hookimpl(optionalhook=True)
    def pytest_roofline_device(self, name: str | None) -> StandIn:
        """The one of this name; the first for the run itself."""
        return self.members[int(name.partition(":")[2])] if name else self.members[0]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        """Around a test's body: what torch does is done by the one whose turn it is."""
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        way = parameters.get("way", item.originalname.removeprefix("test_memcpy_"))
        for one in self.members:
            one.way, one.memory = (
                way if way in ("h2d", "d2h") else None,
                parameters.get("memory", "pinned"),
            )
        with Clockwork(Turn(self)):
            return (yield)


class Turn:
    """The clock of whichever member is measured now."""

    def __init__(self, group: Group) -> None:
        self._group = group

    def done(self, *arguments: Any) -> None:
        self._group.device.done(*arguments)
