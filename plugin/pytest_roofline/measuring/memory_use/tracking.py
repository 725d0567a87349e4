"""Sees every operator's storages come and go, while one call runs."""

import contextlib
import functools
import weakref
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode

from ...core.memory_use import Category, Step
from .blocks import Block, Log
from .places import NO_BACKWARD, Places, backward_now, differentiates, gradient_of
from .storages import dtype_name, resizes_told, storages_of, tensors_in, wraps

# Of two things that a storage is at once, what stands first here holds.
_ROLES: tuple[Category, ...] = ("parameters", "gradients", "optimizer", "buffers", "inputs")
# These get what torch has just made of data from Python or C++, without an operator that would show it.
_LIFTS = ("aten.lift_fresh", "aten.lift_fresh_copy", "aten.lift")


class Tracker(TorchDispatchMode):
    """The log of one call.

    A storage that an operator returns and that was not there yet is allocated; it is released when torch lets go of
    it, of which a weak reference tells. One that an operator takes without having been seen was there before.

    Args:
        device: whose memory.
        places: tells where in the model an operator runs.
    """

    # Operators that take functions come by as well, instead of being refused.
    supports_higher_order_operators = True

    def __init__(self, device: torch.device, places: Places) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.log = Log()
        # Whether any operator of the call took or returned something on the device.
        self.seen = False
        self._device = device
        self._places = places
        self._live: dict[int, tuple[Block, weakref.ref[torch.UntypedStorage]]] = {}
        self._step: Step = "forward"
        self._backward = NO_BACKWARD
        # Which backward ran when an optimizer began its step, one for each that is in its step.
        self._stepping: list[int] = []
        # Tensors whose gradient autograd is about to store.
        self._getting: list[torch.Tensor] = []
        self._stopped = False

    @contextlib.contextmanager
    def following(self) -> Iterator[None]:
        """Log what happens inside; whatever does, nothing is left in torch afterwards."""
        with contextlib.ExitStack() as stack:
            stack.callback(self._stop)
            stack.callback(register_optimizer_step_pre_hook(self._before_step).remove)
            stack.callback(register_optimizer_step_post_hook(self._after_step).remove)
            stack.enter_context(resizes_told(self._resize))
            stack.enter_context(self)
            yield

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[object, ...] = (), kwargs: dict[str, object] | None = None
    ) -> Any:
        if any(map(wraps, types)):
            # What such a tensor is made of comes by in a moment.
            return NotImplemented
        self.mark_stored()
        self._step = self._step_now()
        operator = str(getattr(func, "overloadpacket", func))
        if operator not in _LIFTS:
            self._meet((args, kwargs))
        result = func(*args, **(kwargs or {}))
        for tensor in tensors_in(result):
            self._see(tensor, operator)
        leaf = gradient_of() if self._step == "backward" else None
        if leaf is not None:
            self._getting.append(leaf)
        return result

    def mark(self, tensor: torch.Tensor, role: Category, owner: str = "") -> None:
        """Say what a tensor is; what was not seen yet was there before the call."""
        for storage in storages_of(tensor, self._device):
            block = self._known(storage) or self._found(storage, tensor)
            if block.role is None or _ROLES.index(role) < _ROLES.index(block.role):
                block.role, block.owner = role, owner

    def mark_model(self, model: nn.Module) -> None:
        """Say which are a model's parameters with their gradients, and its buffers."""
        for parameter in model.parameters():
            self._mark_parameter(parameter)
        for buffer in model.buffers():
            self.mark(buffer, "buffers")

    def mark_optimizer(self, optimizer: Optimizer) -> None:
        """Say which are an optimizer's parameters with their gradients, and its state."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._mark_parameter(parameter)
        for parameter, state in list(optimizer.state.items()):
            owner = self._places.parameter(parameter) if isinstance(parameter, torch.Tensor) else ""
            for tensor in tensors_in(state):
                self.mark(tensor, "optimizer", owner)

    def _mark_parameter(self, parameter: torch.Tensor) -> None:
        self.mark(parameter, "parameters", self._places.parameter(parameter))
        self._mark_gradient(parameter)

    def _mark_gradient(self, leaf: torch.Tensor) -> None:
        if leaf.grad is not None:
            self.mark(leaf.grad, "gradients", self._places.parameter(leaf))

    def mark_stored(self) -> None:
        """Mark the gradients that autograd was about to store when it last came by."""
        while self._getting:
            self._mark_gradient(self._getting.pop())

    def _before_step(self, optimizer: Optimizer, *_: object) -> None:
        self._stepping.append(backward_now())
        self.mark_optimizer(optimizer)

    def _after_step(self, optimizer: Optimizer, *_: object) -> None:
        self._stepping.pop()
        self.mark_optimizer(optimizer)

    def _step_now(self) -> Step:
        running = backward_now()
        # An optimizer may step inside a backward, as well as run one of its own.
        if self._stepping and self._stepping[-1] == running and not self._places.inside:
            return "optimizer"
        if running != NO_BACKWARD:
            if running != self._backward:
                self._backward = running
                self.log.backward_begins()
            return "backward"
        # What clips gradients or copies weights does so without being differentiated itself.
        outside = self.log.backwards and not torch.is_grad_enabled() and not self._places.inside
        return "other" if outside else "forward"

    def _meet(self, arguments: object) -> None:
        for tensor in tensors_in(arguments):
            for storage in storages_of(tensor, self._device):
                self.seen = True
                if self._known(storage) is None:
                    self._found(storage, tensor).kept = self._step == "backward" and differentiates()
            if isinstance(tensor, nn.Parameter):
                self.mark(tensor, "parameters", self._places.parameter(tensor))

    def _see(self, tensor: torch.Tensor, operator: str) -> None:
        for storage in storages_of(tensor, self._device):
            self.seen = True
            block = self._known(storage)
            if block is None:
                block = self._block(storage, tensor, operator)
                self.log.allocated(block, self._step)
            elif storage.nbytes() != block.size_bytes:
                self.log.resized(block, storage.nbytes(), self._step)

    def _known(self, storage: torch.UntypedStorage) -> Block | None:
        entry = self._live.get(storage._cdata)
        return None if entry is None else entry[0]

    def _found(self, storage: torch.UntypedStorage, tensor: torch.Tensor) -> Block:
        block = self._block(storage, tensor, "")
        self.log.found(block)
        return block

    def _block(self, storage: torch.UntypedStorage, tensor: torch.Tensor, operator: str) -> Block:
        """A block that is followed from now on; one that no operator made was there before the call."""
        block = Block(
            size_bytes=storage.nbytes(),
            made=self._step if operator else "before",
            shape=tuple(tensor.shape),
            dtype=dtype_name(tensor.dtype),
            operator=operator,
            place=self._places.here(backward=self._step == "backward") if operator else "",
        )
        key: int = storage._cdata
        self._live[key] = block, weakref.ref(storage, functools.partial(self._release, key))
        return block

    def _release(self, key: int, _: object) -> None:
        if not self._stopped:
            self.log.released(self._live.pop(key)[0], self._step)

    def _resize(self, storage: torch.UntypedStorage) -> None:
        block = self._known(storage)
        if block is not None:
            self.log.resized(block, storage.nbytes(), self._step)

    def _stop(self) -> None:
        self._getting.clear()
        self._stopped = True
        self._live.clear()
