"""Copies that run at once: between GPUs of one process, and between a GPU and the host.

In PyTorch a copy between two GPUs waits for the current streams of both, and both wait for it, so such copies run one
after the other. Copies that are to run at once therefore have streams of their own, one on each of their two GPUs.
"""

from collections.abc import Callable, Sequence
from itertools import permutations
from statistics import median

import torch

from . import memcpy

Way = tuple[torch.device, torch.device]


def ordered_pairs(devices: int) -> list[tuple[int, int]]:
    """Return every (source, target) among so many GPUs.

    With fewer than two, the pairs are those of GPUs 0 and 1, so that their tests are skipped and not missing.
    """
    return list(permutations(range(max(2, devices)), 2))


def one_to_all(source: int, devices: int) -> list[tuple[int, int]]:
    """Return the ways from one GPU to every other one."""
    return [(source, target) for target in range(devices) if target != source]


def all_to_one(target: int, devices: int) -> list[tuple[int, int]]:
    """Return the ways from every other GPU to one."""
    return [(source, target) for source in range(devices) if source != target]


def both_ways(first: int, second: int) -> list[tuple[int, int]]:
    """Return the ways from each of two GPUs to the other."""
    return [(first, second), (second, first)]


def on_gpus(ways: Sequence[tuple[int, int]]) -> list[Way]:
    """Return ways between torch's devices from ways between indices."""
    return [(torch.device("cuda", source), torch.device("cuda", target)) for source, target in ways]


def work_at_once(size_bytes: int, ways: int) -> dict[str, int]:
    """Return the work of so many copies at once: all bytes that arrive, and those on one link."""
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
        """Return source and target of each way, in a row: each [size_bytes], uint8, contiguous.

        Every byte of a target differs from its source's, and no two sources are equal, so that a copy to the wrong
        target is found.
        """
        pairs = [buffers.pair() for buffers in self._each]
        for way, pair in enumerate(pairs):
            for buffer in pair:
                buffer.bitwise_xor_(way)
        return tuple(buffer for pair in pairs for buffer in pair)


class Same:
    """The check of copies at once, for one set of buffers or for all timed sets."""

    def __call__(self, *buffers: torch.Tensor) -> bool:
        """Return whether every target of a set equals its source."""
        return all(memcpy.same(*pair) for pair in _pairs(buffers))

    def spoil(self, sets: Sequence[tuple[torch.Tensor, ...]]) -> None:
        """Make every byte of the targets differ from its source again."""
        for pairs in zip(*map(_pairs, sets), strict=True):
            memcpy.same.spoil(pairs)

    def first_wrong(self, sets: Sequence[tuple[torch.Tensor, ...]]) -> int | None:
        """Return the index of the first set with a wrong target; None if all are right."""
        # One list for each way, with its pair of every set.
        pairs_by_way = zip(*map(_pairs, sets), strict=True)
        first_by_way = [memcpy.same.first_wrong(pairs) for pairs in pairs_by_way]
        return min((first for first in first_by_way if first is not None), default=None)


same = Same()


def _pairs(buffers: Sequence[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return (source, target) of each way, from buffers in a row."""
    return list(zip(buffers[::2], buffers[1::2], strict=True))


class AtOnce:
    """A function that makes copies at once, called with the buffers that `PeerBuffers` makes.

    A call begins when all of its GPUs have done their earlier work, and all of them wait for its end. So calls never
    overlap, and the time on any GPU is that of the whole call.

    Args:
        ways: (source, target) of each copy; all GPUs wait for each other on the first of them.
        copy: copies a source to a target, on the source's GPU if it is on one; None is `memcpy.copy`.
        timed: whether `seconds_each` will be called, which needs events that take the time.
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
        """Copy each source to its target. With GPUs, it returns before the copies are done."""
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
        """Return the seconds of each way beside the others, as medians of some calls.

        One more call goes before them to warm up. The ways must be `timed`.
        """
        seconds_by_way: list[list[float]] = [[] for _ in self._copied]
        for _ in range(calls + 1):
            self(*buffers)
            self._done.synchronize()
            for seconds, copied in zip(seconds_by_way, self._copied, strict=True):
                seconds.append(self._events[self._gpus[0]].elapsed_time(copied) * 1e-3)
        return [median(seconds[1:]) for seconds in seconds_by_way]

    def _gather(self) -> torch.cuda.Event:
        """Return an event that happens when every GPU has done the work of its current stream."""
        first, *others = self._gpus
        for gpu in others:
            self._events[gpu].record(torch.cuda.current_stream(gpu))
            torch.cuda.current_stream(first).wait_event(self._events[gpu])
        self._events[first].record(torch.cuda.current_stream(first))
        return self._events[first]

    def _let_all_wait(self) -> None:
        """Let every GPU's current stream wait for all copies."""
        first, *others = self._gpus
        for copied in self._copied:
            torch.cuda.current_stream(first).wait_event(copied)
        self._done.record(torch.cuda.current_stream(first))
        for gpu in others:
            torch.cuda.current_stream(gpu).wait_event(self._done)
