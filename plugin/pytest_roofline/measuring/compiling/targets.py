"""Names of targets: how users spell them, and what Triton calls them."""

import re
from typing import Any

from ...core.errors import BadInput, CompileFailed

_NVIDIA = re.compile(r"sm_?(?P<capability>\d{2,3})a?", re.IGNORECASE)
_AMD = re.compile(r"gfx(?P<major>\d{1,2})(?P<stepping>[0-9a-f]{2})", re.IGNORECASE)
# RDNA and its successors run waves of 32 lanes, CDNA and older those of 64.
FIRST_OF_32_LANES = 10


def canonical(target: object) -> str:
    """A target as files name it: `sm_90`, `gfx942`.

    Raises:
        BadInput: no spelling of one.
    """
    text = target.strip() if isinstance(target, str) else ""
    if found := _NVIDIA.fullmatch(text):
        return f"sm_{found['capability']}"
    if _AMD.fullmatch(text):
        return text.lower()
    raise BadInput(f"target is {target!r}; expected the likes of sm_80, sm_90, sm_100, gfx90a, gfx942 or gfx1100")


def is_nvidia(target: str) -> bool:
    """Whether a canonical target is one of NVIDIA's; AMD's else."""
    return target.startswith("sm_")


def gpu_target(target: str) -> Any:
    """Triton's own name of a canonical target."""
    from triton.backends.compiler import GPUTarget

    if is_nvidia(target):
        return GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    found = _AMD.fullmatch(target)
    assert found is not None
    return GPUTarget("hip", target, 32 if int(found["major"]) >= FIRST_OF_32_LANES else 64)


def name_of(gpu: Any) -> str:
    """The canonical name of one of Triton's targets.

    Raises:
        CompileFailed: it is of a back end whose binaries nobody here can read.
    """
    if gpu.backend not in ("cuda", "hip"):
        raise CompileFailed(
            f"the kernel was compiled for {gpu.arch} by Triton's back end {gpu.backend!r}; expected cuda or hip, whose "
            "binaries can be read"
        )
    return f"sm_{gpu.arch}" if gpu.backend == "cuda" else str(gpu.arch)
