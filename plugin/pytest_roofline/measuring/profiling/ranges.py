"""Ranges named after the parts of a model, while its calls are profiled: in torch's trace, and for external profilers.

They are set by forward hooks, and only as long as the profiled calls last: a timed call pays nothing for them.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.profiler import record_function

from ..part_names import class_name, part_names

Push = Callable[[str], object]
Pop = Callable[[], object]


def nvtx_of(device: str) -> tuple[Push, Pop] | None:
    """What puts ranges before an external profiler: NVTX, which torch maps to ROCTX under ROCm; None where nothing."""
    if device.partition(":")[0] != "cuda":
        return None
    return torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop


@contextlib.contextmanager
def annotated(model: torch.nn.Module | None, marks: tuple[Push, Pop] | None) -> Iterator[None]:
    """Every part of a model is a range inside; the hooks are gone behind it, whatever happens.

    Args:
        model: None leaves everything as it is.
        marks: what else is told of the begin and the end of a range.
    """
    with contextlib.ExitStack() as hooks:
        if model is not None:
            plain = part_names(model)
            for path, module in model.named_modules():
                before, after = _hooks(plain(path) or class_name(model), marks)
                hooks.callback(module.register_forward_pre_hook(before, prepend=True).remove)
                hooks.callback(module.register_forward_hook(after, always_call=True).remove)
        yield


def _hooks(name: str, marks: tuple[Push, Pop] | None) -> tuple[Callable[..., None], Callable[..., None]]:
    """What opens a range and what closes it; a part may be called within itself."""
    opened: list[Any] = []

    def before(*_: object) -> None:
        if torch.compiler.is_compiling():
            return
        found = record_function(name)
        found.__enter__()
        opened.append(found)
        if marks is not None:
            marks[0](name)

    def after(*_: object) -> None:
        # A failed call ends its ranges too, and those that were never opened have no end.
        if torch.compiler.is_compiling() or not opened:
            return
        if marks is not None:
            marks[1]()
        opened.pop().__exit__(None, None, None)

    return before, after
