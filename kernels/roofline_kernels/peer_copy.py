"""Copies that run at once: between GPUs of one process, and between a GPU and the host.

PyTorch lets a copy between two GPUs wait for the current streams of both, and lets both wait for it: copies from there
would go one after the other. So copies that are to run at once get streams of their own, one on each of their two GPUs.
"""

from collections.abc import Callable, Sequence
from itertools import permutations
from statistics import median

import torch

from . import memcpy

Way = tuple[torch.device, torch.device]


def ordered_pairs(devices: int) -> list[tuple[int, int]]:
    """Every (source, target) among so many GPUs; 0 to 1 also where there are fewer, to be skipped and not forgotten."""
    return list(permutations(range(max(2, devices)), 2))


def one_to_all(source: int, devices: int) -> list[tuple[int, int]]:
    """From one GPU to every other one."""
    return [(source, target) for target in range(devices) if target != source]


def all_to_one(target: int, devices: int) -> list[tuple[int, int]]:
    """From every other GPU to one."""
    return [(source, target) for source in range(devices) if source != target]


def both_ways(first: int, second: int) -> list[tuple[int, int]]:
    """From each of two GPUs to the other."""
    return [(first, second), (second, first)]


def on_gpus(ways: Sequence[tuple[int, int]]) -> list[Way]:
    """The same ways with torch's devices in place of indices."""
    return [(torch.device("cuda", source), torch.device("cuda", target)) for source, target in ways]


def work_at_once(size_bytes: int, ways: int) -> dict[str, int]:
    """So many copies of `size_bytes` at once, each across a link: all that arrives, and what one link carries."""
    return {"payload_bytes": ways * size_bytes, "wire_bytes": size_bytes}


class PeerBuffers:
    """Fresh buffers for copies that run at once.

    Args:
        size_bytes: bytes of each copy.
        ways: from which device to which.
        pinned: whether memory of the host is page-locked, without which its copies do not run at once.
    """

    def __init__(self, size_bytes: int, ways: Sequence[Way], *, pinned: bool = False) -> None:
        self._each = [
            memcpy.CopyBuffers(size_bytes, source, target, pinned=pinned) for source, target in ways
        ]

    def make(self) -> tuple[torch.Tensor, ...]:
        """Source and target of the first way, then of the next: each [size_bytes], uint8, contiguous.

        Every byte of a target differs from its source's, and no source is like another, so that what went the wrong
        way is seen.
        """
        made = [buffers.pair() for buffers in self._each]
        for way, pair in enumerate(made):
            for buffer in pair:
                buffer.bitwise_xor_(way)
        return tuple(buffer for pair in made for buffer in pair)


class Same:
    """Whether every byte of every copy arrived, of one set of buffers or of all that were timed."""

    def __call__(self, *buffers: torch.Tensor) -> bool:
        """Whether one set is right."""
        return all(memcpy.same(*pair) for pair in _pairs(buffers))

    def spoil(self, sets: Sequence[tuple[torch.Tensor, ...]]) -> None:
        """Make every byte of the targets differ from its source again."""
        for pairs in zip(*map(_pairs, sets), strict=True):
            memcpy.same.spoil(pairs)

    def first_wrong(self, sets: Sequence[tuple[torch.Tensor, ...]]) -> int | None:
        """The number of the first set with a wrong target; None where all are right."""
        found = [memcpy.same.first_wrong(pairs) for pairs in zip(*map(_pairs, sets), strict=True)]
        return min((first for first in found if first is not None), default=None)


same = Same()


def _pairs(buffers: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(buffers[::2], buffers[1::2], strict=True))


class AtOnce:
    """Copies side by side, called with the buffers that `PeerBuffers` makes.

    A call begins when all of its GPUs have done what was submitted before, and all of them wait for its end: so one
    call never overlaps the next, and every GPU sees the whole of it.

    Args:
        ways: from which device to which, the host's for memory of the host; all meet on the first GPU among them.
        copy: what copies, as `memcpy.copy`, on the source's GPU where that is one.
        timed: whether `seconds_each` is to be called, for which events take the time.
    """

    def __init__(
        self,
        ways: Sequence[Way],
        copy: Callable[[torch.Tensor, torch.Tensor], None] | None = None,
        *,
        timed: bool = False,
    ) -> None:
        self._copy = copy or memcpy.copy
        self._gpus = list(
            dict.fromkeys(device for way in ways for device in way if device.type == "cuda")
        )
        if self._gpus:
            self._streams = [
                [torch.cuda.Stream(device) for device in way if device.type == "cuda"]
                for way in ways
            ]
            self._events = {gpu: torch.cuda.Event(enable_timing=timed) for gpu in self._gpus}
            self._copied = [torch.cuda.Event(enable_timing=timed) for _ in ways]
            self._done = torch.cuda.Event()

    def __call__(self, *buffers: torch.Tensor) -> None:
        """Copy each source to its target: asynchronous where they are on accelerators."""
        pairs = zip(buffers[::2], buffers[1::2], strict=True)
        if not self._gpus:
            for source, target in pairs:
                self._copy(source, target)
            return
        begin = self._gather()
        for streams, copied, (source, target) in zip(
            self._streams, self._copied, pairs, strict=True
        ):
            streams[0].wait_event(begin)
            with torch.cuda.stream(streams[-1]), torch.cuda.stream(streams[0]):
                self._copy(source, target)
            copied.record(streams[0])
        self._let_all_wait()

    def seconds_each(self, *buffers: torch.Tensor, calls: int = 10) -> list[float]:
        """How long each way took beside the others, in seconds: medians of some calls, behind one that warms up."""
        taken: list[list[float]] = [[] for _ in self._copied]
        for _ in range(calls + 1):
            self(*buffers)
            self._done.synchronize()
            for found, copied in zip(taken, self._copied, strict=True):
                found.append(self._events[self._gpus[0]].elapsed_time(copied) * 1e-3)
        return [median(found[1:]) for found in taken]

    def _gather(self) -> torch.cuda.Event:
        """What happens when every GPU has done what was submitted to its current stream."""
        first, *others = self._gpus
        for gpu in others:
            self._events[gpu].record(torch.cuda.current_stream(gpu))
            torch.cuda.current_stream(first).wait_event(self._events[gpu])
        self._events[first].record(torch.cuda.current_stream(first))
        return self._events[first]

    def _let_all_wait(self) -> None:
        """Every GPU's current stream goes on when all has been copied."""
        first, *others = self._gpus
        for copied in self._copied:
            torch.cuda.current_stream(first).wait_event(copied)
        self._done.record(torch.cuda.current_stream(first))
        for gpu in others:
            torch.cuda.current_stream(gpu).wait_event(self._done)
