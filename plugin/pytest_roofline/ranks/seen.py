"""A device that only ranks have open: the controller knows what they say of it, and holds no context there.

So a GPU that takes one process at a time is left to its rank.
"""

import contextlib
from dataclasses import replace
from typing import Any, NoReturn

from ..core.errors import DeviceError
from ..core.facts import DeviceFacts, Environment, Gpu
from ..engine.devices import amd, nvidia
from ..engine.devices.base import RealDevice, Traits


class SeenDevice(RealDevice):
    """What the device of rank 0 is, for a header, a key and a look at its health.

    Args:
        environment: as rank 0 told.
    """

    def __init__(self, environment: Environment) -> None:
        self._facts = environment.device
        self.name = environment.device.type
        self.traits = Traits(tick_s=0.0, shortest_span_s=0.0)

    def facts(self) -> DeviceFacts:
        """What rank 0 told."""
        return self._facts

    def gpu(self) -> Gpu | None:
        """What the vendor's management library tells of it, which needs no context; None where it tells nothing."""
        # Whatever a library does, a run must not end for its health.
        with contextlib.suppress(Exception):
            found = nvidia.gpu(self._facts.uuid)
            return None if found is None else replace(found, others_bytes=None)
        return None

    def silent_library(self) -> str:
        """Why the vendor's management library tells nothing on this host; empty where it does."""
        import torch

        return amd.silent() if torch.version.hip else nvidia.silent()

    def release(self) -> None:
        """Nothing is held."""

    def synchronize(self) -> None:
        """Nothing was submitted from here."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise DeviceError(
            f"{self.name} is open in the ranks only, since every test of this run uses the fixture distributed; "
            "measure over ranks, with roofline.measure_ranks, and ask for memory by distributed.free_bytes()"
        )

    stamp = elapsed_s = flusher = free_bytes = _refuse
