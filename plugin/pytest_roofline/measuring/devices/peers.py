"""GPUs side by side in one process: each is asked by its own index, since another may be the current one."""

import torch

from .base import Stamp
from .cuda import CudaDevice, open_cuda


class CudaPeer(CudaDevice):
    """One GPU of several; opening it leaves the current one current."""

    def __init__(self, index: int) -> None:
        current = torch.cuda.current_device()
        super().__init__(index)
        torch.cuda.set_device(current)

    def stamp(self) -> Stamp:
        """An event behind the work on its own current stream."""
        with torch.cuda.device(self.index):
            return super().stamp()

    def spin(self, cycles: int) -> None:
        """On this very GPU."""
        with torch.cuda.device(self.index):
            super().spin(cycles)

    def wait_for(self, stamp: Stamp) -> None:
        """Its current stream goes on when another GPU's event has happened."""
        assert isinstance(stamp, torch.cuda.Event)
        torch.cuda.current_stream(self.index).wait_event(stamp)


def open_peer(name: str) -> CudaPeer:
    """The GPU that is named `cuda:N`, to be timed beside others.

    Raises:
        DeviceError: there is no such GPU.
    """
    current = torch.cuda.current_device() if torch.cuda.is_available() else 0
    # The usual opener tells what there is where this one is not.
    index = open_cuda(int(name.partition(":")[2] or 0), "devices").index
    torch.cuda.set_device(current)
    return CudaPeer(index)
