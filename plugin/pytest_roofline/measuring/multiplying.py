"""How torch multiplies float32, set for a measured product and restored after it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def multiplying(kind: str, name: str) -> Iterator[None]:
    """In the type that is asked for, whatever the test that measures has chosen for itself."""
    backends = settings()
    before = [backend.fp32_precision for backend in backends]
    with torch.no_grad(), torch.autocast(kind.partition(":")[0], enabled=False):
        try:
            for backend in backends:
                backend.fp32_precision = "tf32" if name == "tf32" else "ieee"
            yield
        finally:
            for backend, precision in zip(backends, before, strict=True):
                backend.fp32_precision = precision


def settings() -> list[Any]:
    """What says how float32 is multiplied, one setting a library."""
    libraries: list[Any] = [torch.backends.cuda, torch.backends.mkldnn]
    return [library.matmul for library in libraries]
