"""`pytest perf_tests -k memcpy` on an H100: 42 tests in less than a minute, with what the host does for them counted.

The device's clock is scripted, and torch computes on the CPU. Half of its tensors claim to lie on the card, and what
torch does with them is one entry of the card's stream, a transfer, or work of the host. The rates below are predictions
from the sources beside them, and no measurement; the counts are what the benchmarks really do.
"""

import functools
import importlib.util
import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from pytest_roofline.engine import devices, host
from pytest_roofline.engine.devices.cuda import CUDA
from roofline_kernels import memcpy

from .machine import WAYS
from .recorded import facts_of
from .standin import ATEN, EMPTY, Rates, StandIn, _bytes, _do, _is_view, _mutated, _tensors

CARD = torch.device("cuda")
# Of an H100 SXM5: published copies within its memory, and over its link (docs/results/published.md).
RATES = Rates(memory_GBps=2900, h2d_GBps=50, d2h_GBps=50, pageable=0.2)
# A comparison on a device is a launch, a small transfer and a wait: 30 to 60 µs on a GPU, with what Python adds.
WAIT_S = 60e-6
# A view of a buffer, such as a slice of a slab: measured with torch 2.13 on a two-core virtual machine, and doubled.
VIEW_S = 3e-6
# What one processor reads and writes; two cores of a virtual machine copy 8 to 12 GB/s.
HOST_BYTES_PER_S = 4e9
# First touch in huge pages took 0.5 s for 4.2 GB (docs/design.md); to lock pages is predicted to take longer.
TOUCHED_BYTES_PER_S, LOCKED_BYTES_PER_S = 8e9, 2.5e9
# Whose result the host waits for.
ANSWERS = {ATEN.equal.default, ATEN._local_scalar_dense.default, ATEN.nonzero.default}


class OnCard(torch.Tensor):
    """Memory that claims to lie on the card."""

    device = CARD  # type: ignore[assignment]


class Placing(TorchFunctionMode):
    """Makes and moves what is asked for on the card, which this torch has not."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func is torch.empty and kwargs.get("device") == CARD:
            return torch.empty(*args, dtype=kwargs["dtype"]).as_subclass(OnCard)
        if func is torch.Tensor.to and len(args) == 2 and not isinstance(args[1], torch.dtype):
            here = isinstance(args[0], OnCard)
            if here or torch.device(args[1]) != CARD:
                assert here == (torch.device(args[1]) == CARD), "nothing large is to be moved back to the host"
                return args[0]
            new = torch.empty(args[0].shape, dtype=args[0].dtype).as_subclass(OnCard)
            new.copy_(args[0])
            return new
        return func(*args, **kwargs)


def _done(func: Any, args: Any, kwargs: Any) -> Any:
    """The operator: as it is on slabs, and on the parts that are there of what is larger."""
    large = any(one.untyped_storage().nbytes() > memcpy._SLAB_BYTES for one in _tensors((args, kwargs)))
    return _do(func, args, kwargs) if large else func(*args, **kwargs)


class Counting(TorchDispatchMode):
    """Does each operator, and lets the clocks know: the card's of its own and of transfers, the host's of all else."""

    def __init__(self, device: StandIn) -> None:
        super().__init__()
        self.device = device
        self.waits = self.views = self.host_bytes = self.link_bytes = 0
        # Pairs that hold the copy, since the last operator that wrote anything.
        self.copied: set[int] = set()
        self._locked: set[int] = set()

    def __str__(self) -> str:
        told = f"{self.host_bytes / 1e9:.1f} GB by the host, {self.link_bytes / 1e9:.1f} GB over the link"
        return f"{self.waits} waits, {self.views} views, {told}"

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        locked = kwargs.pop("pin_memory", False)
        if func in EMPTY:
            new = func(*args, **kwargs)
            if locked:
                self._locked.add(new.untyped_storage().data_ptr())
                self.device.pass_time(new.nbytes / LOCKED_BYTES_PER_S)
            return new
        if _is_view(func):
            self.views += 1
            self.device.pass_time(VIEW_S)
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            result = _done(func, args, kwargs)
        written = {id(one): one for one in (*_mutated(func, args, kwargs), *_tensors(result))}
        if written:
            self.copied.clear()
        self._took(func, list(written.values()), _tensors((args, kwargs)))
        return result

    def _took(self, func: Any, written: list[torch.Tensor], given: list[torch.Tensor]) -> None:
        sides = {isinstance(one, OnCard) for one in given}
        moved = _bytes(given) + _bytes(one for one in written if all(one is not other for other in given))
        if sides == {False, True}:
            assert func is ATEN.copy_.default, f"{func} of both memories"
            self.link_bytes += _bytes(written)
            locked = any(one.untyped_storage().data_ptr() in self._locked for one in given)
            share = 1.0 if locked else RATES.pageable
            self.device.work(_bytes(written) / (RATES.h2d_GBps * share * 1e9))
            if not locked:
                self.device.synchronize()
        elif sides == {True}:
            self.device.work(max(2e-6, moved / (RATES.memory_GBps * 1e9)))
            if func in ANSWERS:
                self.waits += 1
                self.device.synchronize()
                self.device.pass_time(WAIT_S)
        else:
            self.host_bytes += moved
            self.device.pass_time(moved / HOST_BYTES_PER_S + _bytes(written) / TOUCHED_BYTES_PER_S)


class Minute:
    """The plugin of the inner run: the card, and the copy that is measured on it."""

    def __init__(self, device: StandIn, counting: Counting) -> None:
        self.device, self.counting = device, counting
        self.seconds, self.waits = 0.0, False
        self.waits_of: dict[str, int] = {}

    @pytest.hookimpl(optionalhook=True)
    def pytest_roofline_device(self) -> StandIn:
        """The device of every run."""
        return self.device

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        """Around a test's body."""
        size_bytes, pageable = item.callspec.params["size_bytes"], item.callspec.params.get("memory") == "pageable"
        way, counting = WAYS.get(item.originalname), self.counting
        rate = RATES.memory_GBps / 2 if way is None else RATES.h2d_GBps * (RATES.pageable if pageable else 1)
        self.seconds, self.waits, before = max(2e-6, size_bytes / rate / 1e9), pageable, counting.waits
        with counting, Placing():
            found = yield
        self.waits_of[item.name] = counting.waits - before
        return found

    def copy(self, source: torch.Tensor, target: torch.Tensor) -> None:
        """In the place of what is measured: the card's time, and the data where they are not there yet."""
        if id(target) not in self.counting.copied:
            with _disable_current_modes(), torch._C.DisableTorchFunctionSubclass():
                _done(ATEN.copy_.default, (target, source), {})
            self.counting.copied.add(id(target))
        self.device.work(self.seconds)
        if self.waits:
            self.device.synchronize()


@pytest.fixture
def minute(bench, monkeypatch):
    """All of `-k memcpy`, as anybody would run it, and the outcomes."""
    device = StandIn(facts_of("h100-sxm5-80gb"), RATES)
    device.traits = CUDA
    plugin = Minute(device, Counting(device))
    monkeypatch.setattr(devices, "torch_device", lambda _: CARD)
    monkeypatch.setattr(host, "free_memory_bytes", lambda: 2**36)
    monkeypatch.setattr(memcpy, "copy", plugin.copy)
    monkeypatch.setattr(memcpy, "triton_copy", lambda: plugin.copy)
    monkeypatch.setattr(memcpy, "random_tile", functools.cache(memcpy.random_tile.__wrapped__))
    if importlib.util.find_spec("triton") is None:
        monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    plugin.result = bench.run_whole(plugin, "test_memcpy.py")
    return plugin


def test_the_copies_of_an_h100_take_less_than_a_minute_and_wait_a_slab_at_a_time(minute, bench):
    measured = bench.last.measurements
    assert (len(measured), {one.verified for one in measured}) == (42, {True}), minute.result.stdout.str()
    assert max(one.samples.argument_sets for one in measured) == 51_201
    # A slab of 64 MiB holds both sides; of 2.1 GB each 64 MiB are compared alone.
    assert max(minute.waits_of.values()) == -(-memcpy.LAST_SIZE_BYTES // memcpy._CHUNK_BYTES), minute.waits_of
    budgets_s = sum(one.samples.warmup_s + one.samples.measuring_s for one in measured)
    assert minute.device.host_s() < 60, f"{budgets_s:.1f} s of it measuring; {minute.counting}"
