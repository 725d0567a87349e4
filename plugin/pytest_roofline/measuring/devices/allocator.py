"""What torch's caching allocator keeps count of, alike on every kind of accelerator that has one."""

from collections.abc import Callable
from types import ModuleType

from .base import Allocated


class CountedMemory:
    """A device whose memory torch's allocator counts: what it has handed out, and not what it caches."""

    index: int
    library: ModuleType
    """`torch.cuda` or `torch.xpu`."""

    def synchronize(self) -> None:
        """Wait until all submitted work is done."""
        raise NotImplementedError

    def peak_bytes(self, call: Callable[[], object]) -> int:
        """By torch's allocator, above what was allocated before."""
        self.synchronize()
        before = self.library.memory_allocated(self.index)
        self.library.reset_peak_memory_stats(self.index)
        call()
        self.synchronize()
        return max(0, int(self.library.max_memory_allocated(self.index) - before))

    def held_bytes(self, call: Callable[[], object]) -> int:
        """By torch's allocator, which counts what is handed out and not what it caches."""
        self.synchronize()
        before = self.library.memory_allocated(self.index)
        kept = call()
        self.synchronize()
        held = max(0, int(self.library.memory_allocated(self.index) - before))
        del kept
        return held

    def allocated(self) -> Allocated:
        """By torch's allocator."""
        return Allocated(self.library.memory_allocated(self.index), self.library.max_memory_allocated(self.index))
