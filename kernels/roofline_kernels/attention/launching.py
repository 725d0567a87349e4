"""One launch of a kernel: everything that it is called with, whether on a GPU, in the interpreter or never."""

from dataclasses import dataclass
from typing import Any

import torch
from triton.runtime.errors import OutOfResources

from .architectures import architecture_of
from .configurations import Configuration
from .interpreting import launch_interpreted


class TileTooLarge(ValueError):
    """A tile does not fit into the shared memory that a program may use: bytes needed and bytes there."""

    def __init__(
        self, kernel: str, tiles: Configuration, architecture: str, needed_bytes: int, limit_bytes: int
    ) -> None:
        self.needed_bytes, self.limit_bytes = needed_bytes, limit_bytes
        super().__init__(
            f"the {kernel} kernel with tiles of {tiles.block_m} queries and {tiles.block_n} keys needs "
            f"{needed_bytes:,} bytes of shared memory; {architecture} has {limit_bytes:,} for a program; take a "
            "smaller tile or fewer stages"
        )


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel with its grid and arguments.

    Args:
        kernel: a function decorated with `triton.jit`.
        name: what it does, for messages.
        tiles: how it is compiled.
        programs: of its flat grid.
        arguments: by name: tensors, descriptors, numbers, and the values of constants.
    """

    kernel: Any
    name: str
    tiles: Configuration
    programs: int
    arguments: dict[str, Any]

    def run(self, device: torch.device) -> None:
        """Launch it, on a CPU in the interpreter.

        Raises:
            TileTooLarge: before anything is launched.
        """
        if device.type == "cpu":
            launch_interpreted(self.kernel, (self.programs,), self.arguments)
            return
        # Triton launches on the current device, whichever the tensors are on.
        with torch.cuda.device(device):
            try:
                self.kernel[(self.programs,)](**self.arguments, **self.tiles.options())
            except OutOfResources as error:
                if error.name != "shared memory":
                    raise
                architecture = architecture_of(device)
                raise TileTooLarge(self.name, self.tiles, architecture, error.required, error.limit) from None
