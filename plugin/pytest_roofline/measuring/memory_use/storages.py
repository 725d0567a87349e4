"""The storages behind tensors: those of one device, also of tensors made of tensors."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

# Tensor classes that hold other tensors and no memory of their own name these two methods (torch's documentation of
# traceable wrapper subclasses): DTensor, nested and quantized tensors.
_WRAPS = ("__tensor_flatten__", "__tensor_unflatten__")


def wraps(kind: type) -> bool:
    """Whether tensors of a class only hold others."""
    return all(hasattr(kind, name) for name in _WRAPS)


def tensors_in(value: object) -> Iterator[torch.Tensor]:
    """Every tensor in nested tuples, lists and mappings."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from tensors_in(inner)
    elif isinstance(value, tuple | list):
        for inner in value:
            yield from tensors_in(inner)


def storages_of(tensor: torch.Tensor, device: torch.device) -> Iterator[torch.UntypedStorage]:
    """The storages of a tensor that lie on a device; none where they cannot be told, as of an opaque layout."""
    if wraps(type(tensor)):
        for name in tensor.__tensor_flatten__()[0]:  # type: ignore[attr-defined]
            # A DTensor counts its mesh among them.
            for part in tensors_in(getattr(tensor, name)):
                yield from storages_of(part, device)
    elif tensor.layout == torch.sparse_coo:
        for part in (tensor._indices(), tensor._values()):
            yield from storages_of(part, device)
    elif tensor.layout == torch.strided:
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return
        # A tensor without memory says that it is on a device, and its storage says that it is on none.
        if _same(storage.device, device):
            yield storage


def _same(found: torch.device, wanted: torch.device) -> bool:
    return found.type == wanted.type and wanted.index in (None, found.index)


def dtype_name(dtype: torch.dtype) -> str:
    """`float32`."""
    return str(dtype).removeprefix("torch.")


@contextlib.contextmanager
def resizes_told(tell: Callable[[torch.UntypedStorage], None]) -> Iterator[None]:
    """Tell of storages that are made smaller or larger by hand, past all operators, as sharding does with weights."""
    kind: Any = torch.UntypedStorage
    resize = kind.resize_

    def told(storage: torch.UntypedStorage, size_bytes: int) -> object:
        result = resize(storage, size_bytes)
        tell(storage)
        return result

    kind.resize_ = told
    try:
        yield
    finally:
        # It is inherited, so what was set here hides it.
        del kind.resize_
