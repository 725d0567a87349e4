"""`torch.compile` for measuring: anew for one shape, and on request with a repeatable backward pass."""

import contextlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._functorch.config


@contextlib.contextmanager
def compiled(function: Callable[..., Any], keep_graph: bool = True) -> Iterator[Callable[..., Any]]:
    """Yield a compiled function. Its first call must be made while the context lasts.

    Args:
        function: to compile.
        keep_graph: whether its backward pass can be repeated; False is torch's default.
    """
    # After several shapes torch would make a kernel for any shape, and beyond a limit of them compile nothing.
    torch.compiler.reset()
    settings = torch._functorch.config
    # By default the backward pass may overwrite saved buffers, and then refuses to keep the graph.
    changes = {"donated_buffer": False} if keep_graph else {}
    with settings.patch(changes):
        yield torch.compile(function, fullgraph=True, dynamic=False)


def why_not_compiled(device: torch.device) -> str:
    """Return why `torch.compile` cannot make kernels for a device; empty if it can."""
    if device.type == "cpu":
        compiler = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
        return (
            ""
            if shutil.which(compiler)
            else f"needs a C++ compiler for torch.compile, found no {compiler}"
        )
    if device.type in ("cuda", "xpu") and importlib.util.find_spec("triton") is None:
        return "needs triton for torch.compile, found none"
    return ""
