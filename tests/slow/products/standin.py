"""An accelerator without hardware: torch computes on the CPU, and a scripted clock goes by what it computes.

Whatever torch does in a test is seen by a dispatch mode. Each operator is one entry of the fake device's stream, and
takes as long as its bytes do in memory or over the host's link. Nothing sleeps.

Of large vectors only the first of every 64 MiB is really there, in part: operators on them are done on these parts
alone, so that 2 GiB cost as little as 4 MiB, and pages that nobody touches take no memory. What a test verifies is
verified there. An operator that was done on the same values before is not done again, but takes its time.
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from pytest_roofline.core.facts import DeviceFacts
from pytest_roofline.engine.devices.cuda import CUDA, HIP
from pytest_roofline.engine.devices.fake import FakeDevice

MIB = 2**20
# Vectors from here up are there in part: of every STRIDE bytes of their storage the first PART.
LARGE_BYTES, STRIDE_BYTES, PART_BYTES = 4 * MIB, 64 * MIB, MIB // 8
# What the least that a device does takes.
SHORTEST_S = 2e-6
ATEN = torch.ops.aten
# Whose result at one index depends on that index alone, into memory that is there.
ELEMENTWISE = {
    ATEN.copy_.default,
    ATEN.fill_.Scalar,
    ATEN.mul.out,
    ATEN.add.out,
    ATEN.bitwise_not.out,
    ATEN.bitwise_not_.default,
}
# What they write they do not read.
OVERWRITING = {ATEN.copy_.default, ATEN.fill_.Scalar, ATEN.zero_.default}
EMPTY = {ATEN.empty.memory_format, ATEN.empty_strided.default, ATEN.empty_like.default}


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast an accelerator is. A `slow` factor of 1.15 makes each transfer take 15 % longer.

    Args:
        memory_GBps: read + write.
        h2d_GBps: pinned memory, one way; `d2h_GBps` likewise.
        pageable: the share of these from pageable memory.
        kernel_GBps: read + write, by what moves it: `copy_engine`, `triton`, a STREAM operation; where it is not
            `memory_GBps`.
        slow_memory: factor on times of the memory.
        slow_link: factor on times of the host's link.
    """

    memory_GBps: float = 1000.0
    h2d_GBps: float = 20.0
    d2h_GBps: float = 20.0
    pageable: float = 0.4
    slow_memory: float = 1.0
    slow_link: float = 1.0
    kernel_GBps: Mapping[str, float] = field(default_factory=dict)


class StandIn(FakeDevice):
    """A fake device with the recorded facts of a product."""

    def __init__(self, facts: DeviceFacts, rates: Rates) -> None:
        kind = HIP if (facts.architecture or "").startswith("gfx") else CUDA
        super().__init__(
            facts.product,
            launch_s=4e-6,
            record_s=1e-6,
            latency_s=4e-6,
            tick_s=kind.tick_s,
            # Without the longer warm-up: no clock of this device settles, and real operators take real time.
            traits=replace(kind, warmup_floor_s=0.005),
        )
        self.recorded, self.rates = facts, rates
        # Which way copies of the running test go over the host's link, and from what memory.
        self.way: str | None = None
        self.memory = "pinned"
        # What moves its bytes otherwise, as `Rates.kernel_GBps` calls it.
        self.kernel: str | None = None

    def facts(self) -> DeviceFacts:
        """As recorded."""
        return self.recorded

    def free_bytes(self) -> int:
        """All of its memory."""
        return self.recorded.memory_bytes or 0

    def peak_bytes(self, call: Any) -> None:
        """It does not tell."""

    def held_bytes(self, call: Any) -> None:
        """It does not tell."""

    def done(self, func: Any, read_bytes: int, write_bytes: int) -> None:
        """An operator was done: its entry in the stream."""
        rates = self.rates
        over_link = self.way is not None and func is ATEN.copy_.default
        if over_link:
            share = 1.0 if self.memory == "pinned" else rates.pageable
            one_way = rates.h2d_GBps if self.way == "h2d" else rates.d2h_GBps
            seconds = write_bytes / (one_way * share * 1e9) * rates.slow_link
        else:
            memory_GBps = rates.kernel_GBps.get(self.kernel or "", rates.memory_GBps)
            seconds = (read_bytes + write_bytes) / (memory_GBps * 1e9) * rates.slow_memory
        self.work(max(SHORTEST_S, seconds))
        if func is ATEN._local_scalar_dense.default or (over_link and self.memory != "pinned"):
            # The host waits for a number, and for what it has to stage itself.
            self.synchronize()


class Clockwork(TorchDispatchMode):
    """Does each operator, and lets a device's clock know."""

    def __init__(self, device: StandIn) -> None:
        super().__init__()
        self._device = device
        self._numbers = itertools.count(1)
        # The number of the operator that last wrote a memory, by its address; unlike torch's versions, never the same
        # of two buffers that lie at one address one after the other.
        self._written: dict[int, int] = {}
        # By operator and vectors, who had written these last when it was done.
        self._done: dict[object, tuple[int, ...]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        # A torch for CPUs has no pinned memory.
        kwargs.pop("pin_memory", None)
        if func in EMPTY:
            # Whatever is done with a new memory is not what was done with one at its address before.
            new = func(*args, **kwargs)
            self._written[_memory(new)] = next(self._numbers)
            return new
        if _is_view(func):
            return func(*args, **kwargs)
        result = self._once(func, args, kwargs)
        written = {
            id(tensor): tensor for tensor in (*_mutated(func, args, kwargs), *_tensors(result))
        }
        read = [
            one
            for one in _tensors((args, kwargs))
            if func not in OVERWRITING or id(one) not in written
        ]
        if func._overloadname == "out":
            read = [one for one in read if id(one) not in written]
        self._device.done(func, _bytes(read), _bytes(written.values()))
        return result

    def _once(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The result of an operator, which is there already where it overwrites one vector by the same values again."""
        vectors = _vectors(args, kwargs)
        key = (func, *((one.data_ptr(), one.numel()) for one in vectors))
        again = (
            func in ELEMENTWISE and func is not ATEN.bitwise_not_.default and _are_large(vectors)
        )
        if again and self._done.get(key) == self._writers(vectors):
            return _mutated(func, args, kwargs)[0]
        result = _do(func, args, kwargs)
        number = next(self._numbers)
        self._written |= {
            _memory(one): number for one in (*_mutated(func, args, kwargs), *_tensors(result))
        }
        if again:
            self._done[key] = self._writers(vectors)
        return result

    def _writers(self, vectors: list[torch.Tensor]) -> tuple[int, ...]:
        return tuple(self._written.get(_memory(one), 0) for one in vectors)


def _do(func: Any, args: Any, kwargs: Any) -> Any:
    """The operator, of large vectors in part."""
    if func is ATEN.full.default and len(args[0]) == 1 and _size_bytes(args, kwargs) >= LARGE_BYTES:
        new = torch.empty(*args[0], **kwargs)
        _do(ATEN.fill_.Scalar, (new, args[1]), {})
        return new
    vectors = _vectors(args, kwargs)
    if not _are_large(vectors):
        return func(*args, **kwargs)
    mutated = _mutated(func, args, kwargs)
    parts = [_at(args, kwargs, part) for part in _parts((mutated or vectors)[0])]
    if func in ELEMENTWISE:
        for some, named in parts:
            func(*some, **named)
        return mutated[0]
    if func is ATEN.equal.default:
        return all(func(*some, **named) for some, named in parts)
    if func is ATEN.aminmax.default:
        ends = [func(*some, **named) for some, named in parts]
        return torch.stack([low for low, _ in ends]).min(), torch.stack(
            [high for _, high in ends]
        ).max()
    if func is ATEN.dot.default:
        # As if the rest held what is there.
        there = sum(some[0].numel() for some, _ in parts)
        return sum(func(*some, **named) for some, named in parts) * (vectors[0].numel() / there)
    return func(*args, **kwargs)


def _memory(tensor: torch.Tensor) -> int:
    """The address of a tensor's memory, views of which share it."""
    return tensor.untyped_storage().data_ptr()


def _vectors(args: Any, kwargs: Any) -> list[torch.Tensor]:
    return [one for one in _tensors((args, kwargs)) if one.dim()]


def _are_large(vectors: list[torch.Tensor]) -> bool:
    return bool(vectors) and all(_is_large(one, vectors[0]) for one in vectors)


def _is_large(vector: torch.Tensor, like: torch.Tensor) -> bool:
    size_bytes = vector.numel() * vector.itemsize
    alike = vector.dim() == 1 and vector.is_contiguous() and vector.numel() == like.numel()
    return alike and size_bytes >= LARGE_BYTES


def _parts(vector: torch.Tensor) -> list[slice]:
    """Where a vector is there, in its own elements."""
    start_bytes = vector.storage_offset() * vector.itemsize
    end_bytes = start_bytes + vector.numel() * vector.itemsize
    found = []
    for place in range(start_bytes // STRIDE_BYTES * STRIDE_BYTES, end_bytes, STRIDE_BYTES):
        low, high = max(place, start_bytes), min(place + PART_BYTES, end_bytes)
        if low < high:
            found.append(
                slice(
                    (low - start_bytes) // vector.itemsize, (high - start_bytes) // vector.itemsize
                )
            )
    return found


def _at(args: Any, kwargs: Any, part: slice) -> Any:
    """The arguments of an operator in one part of their vectors."""
    return tree_map(
        lambda one: one[part] if isinstance(one, torch.Tensor) and one.dim() else one,
        (args, kwargs),
    )


def _is_view(func: Any) -> bool:
    return any(
        one.alias_info is not None and not one.alias_info.is_write for one in func._schema.returns
    )


def _mutated(func: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """What an operator writes of its arguments."""
    schema = func._schema.arguments
    given = itertools.chain(zip((one.name for one in schema), args, strict=False), kwargs.items())
    written = {one.name for one in schema if one.alias_info is not None and one.alias_info.is_write}
    return [value for name, value in given if name in written and isinstance(value, torch.Tensor)]


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _bytes(tensors: Iterable[torch.Tensor]) -> int:
    return sum(one.numel() * one.itemsize for one in tensors)


def _size_bytes(args: Any, kwargs: Any) -> int:
    dtype = kwargs.get("dtype") or torch.get_default_dtype()
    return math.prod(args[0]) * dtype.itemsize
