"""`torch.compile` for measuring: made anew for one shape, where asked with a backward pass that can be repeated."""

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
    """A function through `torch.compile`; it must be called first while the context lasts.

    Args:
        function: to compile.
        keep_graph: whether its backward pass can be repeated; without, torch does as it does by default.
    """
    # Of several shapes torch would make one kernel for any shape, and past its limit of them compile none.
    torch.compiler.reset()
    settings = torch._functorch.config
    # Otherwise the backward pass may reuse what was saved for it, and refuses to keep the graph.
    kept = {"donated_buffer": False} if keep_graph else {}
    with settings.patch(kept):
        yield torch.compile(function, fullgraph=True, dynamic=False)


def why_not_compiled(device: torch.device) -> str:
    """Why `torch.compile` cannot make kernels for a device; empty where it can."""
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
