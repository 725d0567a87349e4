"""How torch multiplies float32, set for a measured product and restored after it."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch


@contextlib.contextmanager
def multiplying(kind: str, name: str) -> Iterator[None]:
    """In the type that is asked for, whatever the test that measures has chosen for itself."""
    backends = new_settings() or [_OneSetting()]
    before = [backend.fp32_precision for backend in backends]
    with torch.no_grad(), torch.autocast(kind.partition(":")[0], enabled=False):
        try:
            for backend in backends:
                backend.fp32_precision = "tf32" if name == "tf32" else "ieee"
            yield
        finally:
            for backend, precision in zip(backends, before, strict=True):
                backend.fp32_precision = precision


def new_settings() -> list[Any]:
    """What says how float32 is multiplied, since torch 2.9: one setting a library; empty in a torch before."""
    libraries = (getattr(torch.backends, name) for name in ("cuda", "mkldnn"))
    found = [getattr(library, "matmul", None) for library in libraries]
    return [setting for setting in found if hasattr(setting, "fp32_precision")]


class _OneSetting:
    """The setting of a torch before 2.9, which newer ones refuse to read once theirs were used."""

    @property
    def fp32_precision(self) -> str:
        return torch.get_float32_matmul_precision()

    @fp32_precision.setter
    def fp32_precision(self, precision: str) -> None:
        torch.set_float32_matmul_precision({"ieee": "highest", "tf32": "high"}.get(precision, precision))
