"""One launch of a kernel: everything that it is called with, whether on a GPU, in the interpreter or never."""

from dataclasses import dataclass
from typing import Any

import torch
from triton.runtime.errors import OutOfResources

from .architectures import architecture_of
from .configurations import Configuration
from .interpreting import launch_interpreted

# The memories that a tile may need too much of, by Triton's name, with the unit for messages.
_MEMORIES = {
    "shared memory": "bytes of shared memory",
    "tensor memory": "columns of tensor memory",
}
# The unit for registers, which are checked before compiling.
_REGISTERS = "registers for its accumulators and scores alone"


class TileTooLarge(ValueError):
    """A tile needs more registers or memory than a program may use.

    Args:
        kernel: what it does.
        tiles: how it was compiled.
        architecture: for which.
        needed: bytes of shared memory, or on Blackwell columns of tensor memory.
        limit: how many a program may use, or of registers a thread.
        memory: which of them.
    """

    def __init__(
        self,
        kernel: str,
        tiles: Configuration,
        architecture: str,
        needed: int,
        limit: int,
        memory: str = "shared memory",
    ) -> None:
        self.needed, self.limit, self.memory = needed, limit, memory
        super().__init__(
            f"the {kernel} kernel with tiles of {tiles.block_m} queries and {tiles.block_n} keys needs "
            f"{needed:,} {_MEMORIES.get(memory, _REGISTERS)}; {architecture} has {limit:,} for a "
            f"{'thread' if memory == 'registers' else 'program'}; take a smaller tile or fewer stages"
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
                if error.name not in _MEMORIES:
                    raise
                raise TileTooLarge(
                    self.name,
                    self.tiles,
                    architecture_of(device),
                    error.required,
                    error.limit,
                    error.name,
                ) from None
