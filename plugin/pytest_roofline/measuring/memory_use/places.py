"""Where in a model something happens: the submodule that runs, and in backward the one whose backward it is."""

import bisect
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from ..part_names import class_name, part_names
from .storages import tensors_in


class Places:
    """Follows a model through its forward passes.

    Every node of autograd's graph has a number, and numbers of a thread count up. Those that are made while a submodule
    runs are that submodule's, which tells in backward whose node is at work.

    Args:
        model: None where nobody gave one; then nothing has a place.
        predicted: names of submodules whose outputs are to be measured.
    """

    def __init__(self, model: nn.Module | None, predicted: Mapping[str, int]) -> None:
        self._model = model
        self._stack: list[str] = []
        self._from: list[int] = []
        self._owner: list[str] = []
        self._thread = threading.get_ident()
        # Whether submodules ran in another thread, whose nodes have numbers that begin anew.
        self._elsewhere = False
        self.outputs: dict[str, int | None] = dict.fromkeys(predicted)
        self._names: dict[int, list[str]] = {}
        self._parameters: dict[int, str] = {}
        self._root = ""
        if model is not None:
            plain = part_names(model)
            for name, module in model.named_modules(remove_duplicate=False):
                self._names.setdefault(id(module), []).append(plain(name))
            self._parameters = {id(parameter): plain(name) for name, parameter in model.named_parameters()}
            self._root = class_name(model)

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Follow the model; whatever happens inside, its hooks are gone afterwards."""
        with contextlib.ExitStack() as stack:
            for module in self._model.modules() if self._model is not None else ():
                handle = module.register_forward_pre_hook(self._enter, prepend=True)
                stack.callback(handle.remove)
                handle = module.register_forward_hook(self._leave, always_call=True)
                stack.callback(handle.remove)
            yield

    @property
    def names(self) -> set[str]:
        """Of all submodules; the model itself has an empty one."""
        return {name for names in self._names.values() for name in names}

    @property
    def inside(self) -> bool:
        """Whether a submodule runs."""
        return bool(self._stack)

    def here(self, *, backward: bool) -> str:
        """The innermost submodule that runs, or whose backward runs; empty where nobody knows."""
        if self._stack:
            return self._stack[-1] or self._root
        return self._of_node(_current_node()) if backward else ""

    def parameter(self, tensor: torch.Tensor) -> str:
        """A parameter's name; empty where it is none of the model's."""
        return self._parameters.get(id(tensor), "")

    def _of_node(self, node: Any) -> str:
        if node is None or self._elsewhere:
            return ""
        variable = _accumulates(node)
        if variable is not None:
            return self.parameter(variable)
        at = bisect.bisect_right(self._from, node._sequence_nr()) - 1
        return self._owner[at] if at >= 0 else ""

    def _enter(self, module: nn.Module, _arguments: object) -> None:
        names = self._names[id(module)]
        within = f"{self._stack[-1]}." if self._stack and self._stack[-1] else ""
        # One that stands at several places runs at the one below the module that called it.
        self._stack.append(next((name for name in names if name.startswith(within)), names[0]))
        self._note()

    def _leave(self, module: nn.Module, _arguments: object, output: object) -> None:
        names = self._names[id(module)]
        # An exception may have left inner ones behind.
        while self._stack and self._stack[-1] not in names:
            self._stack.pop()
        if self._stack:
            self._measure(self._stack.pop(), output)
        self._note()

    def _measure(self, name: str, output: object) -> None:
        if name in self.outputs:
            size = sum(tensor.nbytes for tensor in tensors_in(output))
            self.outputs[name] = max(size, self.outputs[name] or 0)

    def _note(self) -> None:
        if threading.get_ident() != self._thread:
            self._elsewhere = True
            return
        self._from.append(_next_number())
        self._owner.append((self._stack[-1] or self._root) if self._stack else "")


def _none() -> Any:
    return None


# torch tells of these three under no public name; what a version does not have stays unknown.
_current_node: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", _none)
_next_number: Callable[[], int] = getattr(torch._C._autograd, "_get_sequence_nr", lambda: 0)


NO_BACKWARD = -1


def backward_now() -> int:
    """Which backward autograd runs in this thread, as torch.utils.module_tracker asks; NO_BACKWARD outside of any."""
    return int(torch._C._current_graph_task_id())


def differentiates() -> bool:
    """Whether an operator's backward is at work right now, and no gradient is stored or sent to other ranks."""
    node = _current_node()
    return node is not None and _accumulates(node) is None


def gradient_of() -> torch.Tensor | None:
    """The tensor whose gradient autograd stores right now."""
    return _accumulates(_current_node())


def _accumulates(node: Any) -> torch.Tensor | None:
    return node.variable if node is not None and node.name() == "torch::autograd::AccumulateGrad" else None
