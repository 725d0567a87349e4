"""The five STREAM operations in PyTorch, with a check of the values that each must leave."""

from collections.abc import Callable

import torch

# BabelStream's default: 2^25 elements, 256 MiB of double precision.
ELEMENTS = 2**25
# The size of AMD's acceptance limits (BabelStream -s 268435456): 2 GiB of double precision.
LARGE_ELEMENTS = 2**28
# BabelStream's scalar and first values, except for c. An operation must change the array that it writes, and scale
# would leave BabelStream's zero unchanged.
SCALAR = 0.4
FIRST_A, FIRST_B, FIRST_C = 0.1, 0.2, 0.7

Operation = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], object]


def has_double(device: torch.device) -> bool:
    """Return whether a device computes in double precision.

    Metal has none, and only some of Intel's GPUs have it.
    """
    if device.type == "xpu":
        return bool(torch.xpu.get_device_properties(device).has_fp64)
    return device.type != "mps"


class Arrays:
    """A maker of the arrays a, b and c of a STREAM operation, which also checks them afterwards.

    Args:
        elements: elements of each array.
        device: where they are.
        dtype: float64 as BabelStream has it, or float32.
    """

    def __init__(self, elements: int, device: torch.device, dtype: torch.dtype) -> None:
        self.elements, self.dtype = elements, dtype
        self.array_bytes = elements * dtype.itemsize
        self._device = device
        # The dot product of each set of arrays, by the address of its array a.
        self._dots: dict[int, torch.Tensor] = {}

    def make(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return new arrays a, b, c: each [elements], filled with the first values."""
        a, b, c = (
            torch.full((self.elements,), value, dtype=self.dtype, device=self._device)
            for value in (FIRST_A, FIRST_B, FIRST_C)
        )
        return a, b, c

    def operation(self, name: str) -> Operation:
        """Return the operation to time, called as `f(a, b, c)`."""

        def dot(a: torch.Tensor, b: torch.Tensor, _: torch.Tensor) -> None:
            self._dots[a.data_ptr()] = torch.dot(a, b)

        operations: dict[str, Operation] = {
            "copy": lambda a, _, c: c.copy_(a),
            "scale": lambda _, b, c: torch.mul(c, SCALAR, out=b),
            "add": lambda a, b, c: torch.add(a, b, out=c),
            "triad": lambda a, b, c: torch.add(b, c, alpha=SCALAR, out=a),
            "dot": dot,
        }
        return operations[name]

    def check(self, name: str) -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], bool]:
        """Return a check of the arrays, and of the dot product, after an operation.

        It returns whether every element has the value that one call leaves.
        """
        expected_values = {
            "copy": (FIRST_A, FIRST_B, FIRST_A),
            "scale": (FIRST_A, SCALAR * FIRST_C, FIRST_C),
            "add": (FIRST_A, FIRST_B, FIRST_A + FIRST_B),
            "triad": (FIRST_B + SCALAR * FIRST_C, FIRST_B, FIRST_C),
            "dot": (FIRST_A, FIRST_B, FIRST_C),
        }[name]
        # An element has a few roundings. A sum of n terms may be off by n roundings (Higham, Accuracy and Stability,
        # section 4.2). In single precision that bound would accept any sum, so it is limited.
        epsilon = torch.finfo(self.dtype).eps
        close, sum_close = 16 * epsilon, min(self.elements * epsilon, 1e-3)

        def check(*arrays: torch.Tensor) -> bool:
            for array, value in zip(arrays, expected_values, strict=True):
                low, high = torch.aminmax(array)
                # NaN fails this comparison too.
                if not (abs(float(low) - value) <= close and abs(float(high) - value) <= close):
                    return False
            if name != "dot":
                return True
            expected = FIRST_A * FIRST_B * self.elements
            dot = self._dots.get(arrays[0].data_ptr())
            return dot is not None and abs(float(dot) - expected) <= expected * sum_close

        return check
