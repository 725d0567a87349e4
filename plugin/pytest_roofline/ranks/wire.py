"""Plain data and tensors as bytes: what arguments and results of rank functions may be. Data only, never code.

It is pickle with the two doors shut that make it unsafe and surprising: what is written must be plain, and what is read
may name nothing but the few classes below.
"""

import dataclasses
import io
import pickle
from typing import TYPE_CHECKING, Any

from ..core.errors import BadInput

# Torch is there where a tensor is: what starts a rank sends its first words without it.
if TYPE_CHECKING:
    import torch

# Of one result or one set of arguments: more belongs into a file, or stays on the rank.
MOST_BYTES = 64 * 2**20
# Records of ours that may travel, by the modules that they are defined in.
_OURS = (
    "pytest_roofline.core.",
    "pytest_roofline.ranks.",
    "pytest_roofline.engine.request",
    "pytest_roofline.engine.measure",
    "pytest_roofline.engine.log",
)
_BUILTINS = ("complex", "bytearray", "range", "slice", "set", "frozenset", "int", "tuple")
_EXPECTED = "expected numbers, text, bytes, None, tuples, lists, sets, dicts, tensors and dtypes"


def encode(value: object, what: str, most_bytes: int = MOST_BYTES) -> bytes:
    """`value` as bytes."""
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, most_bytes).dump(value)
    except _NotPlainError as error:
        raise BadInput(f"{what} holds {error.described}; {_EXPECTED}") from None
    except _TooLargeError as error:
        raise BadInput(_too_large(what, error.size_bytes, most_bytes)) from None
    except RecursionError:
        raise BadInput(f"{what} is nested too deeply; {_EXPECTED}") from None
    if buffer.tell() > most_bytes:
        raise BadInput(_too_large(what, buffer.tell(), most_bytes))
    return buffer.getvalue()


def decode(data: bytes, what: str) -> Any:
    """What `encode` wrote."""
    try:
        return _Unpickler(io.BytesIO(data)).load()
    except BadInput as error:
        raise BadInput(f"{what} {error}") from None
    except Exception as error:  # pickle raises whatever a damaged stream leads it to.
        raise BadInput(f"{what} cannot be read: {type(error).__name__}: {error}") from None


def _too_large(what: str, size_bytes: int, most_bytes: int) -> str:
    return (
        f"{what} is {size_bytes / 2**20:.0f} MiB or more; expected at most {most_bytes / 2**20:.0f} MiB: "
        "reduce it on the rank, or write it to a file there"
    )


class _NotPlainError(Exception):
    def __init__(self, value: object) -> None:
        kind = type(value)
        name = getattr(value, "__qualname__", None) if isinstance(value, type) or callable(value) else None
        self.described = name or f"a {kind.__module__}.{kind.__qualname__}"


class _TooLargeError(Exception):
    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes


class _Pickler(pickle.Pickler):
    """Asks about everything that is not built from the plainest types."""

    def __init__(self, buffer: io.BytesIO, most_bytes: int) -> None:
        super().__init__(buffer, protocol=5)
        self._most_bytes = most_bytes
        self._tensor_bytes = 0

    def reducer_override(self, value: Any) -> Any:
        import torch

        kind = type(value)
        if kind in (complex, bytearray, range, slice):
            return NotImplemented
        if any(value is known for known in (_tensor, _dtype, int, tuple, complex, bytearray, range, slice)):
            return NotImplemented
        if isinstance(value, torch.Tensor):
            return self._reduce_tensor(value)
        if kind is torch.dtype:
            return _dtype, (str(value).removeprefix("torch."),)
        if kind is torch.Size:
            return tuple, (tuple(value),)
        if isinstance(value, type) and _is_record(value):
            return NotImplemented
        if _is_record(kind):
            return kind, tuple(getattr(value, field.name) for field in dataclasses.fields(value))
        if isinstance(value, int) and not isinstance(value, bool) and kind.__module__.startswith(_OURS):
            return int, (int(value),)
        raise _NotPlainError(value)

    def _reduce_tensor(self, value: "torch.Tensor") -> Any:
        import torch

        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            raise _NotPlainError(value)
        self._tensor_bytes += value.numel() * value.element_size()
        if self._tensor_bytes > self._most_bytes:
            raise _TooLargeError(self._tensor_bytes)
        plain = value.detach().cpu().resolve_conj().resolve_neg().reshape(-1)
        # Not `contiguous()`, which leaves a single element with whatever stride it has.
        plain = plain.clone(memory_format=torch.contiguous_format)
        data = bytes(plain.view(torch.uint8).numpy()) if plain.numel() else b""
        return _tensor, (str(value.dtype).removeprefix("torch."), tuple(value.shape), data)


class _Unpickler(pickle.Unpickler):
    """Knows nothing but plain types, tensors and our records."""

    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name in ("_tensor", "_dtype"):
            return globals()[name]
        if module == "builtins" and name in _BUILTINS:
            return super().find_class(module, name)
        if module.startswith(_OURS):
            kind = super().find_class(module, name)
            if isinstance(kind, type) and _is_record(kind):
                return kind
        raise BadInput(f"names {module}.{name}; {_EXPECTED}")


def _is_record(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) and kind.__module__.startswith(_OURS)


def _tensor(dtype: str, shape: tuple[int, ...], data: bytes) -> "torch.Tensor":
    import torch

    kind = _dtype(dtype)
    if not data:
        return torch.empty(shape, dtype=kind)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(kind).reshape(shape)


def _dtype(name: str) -> "torch.dtype":
    import torch

    kind = getattr(torch, name, None)
    if not isinstance(kind, torch.dtype):
        raise BadInput(f"names the dtype {name!r}, which this torch has not")
    return kind
