"""torch's own memory tracker for one call, without its statistics by module.

`torch.distributed._tools` has it under no public name. Only this module uses it, and where a version of torch lacks a
part, `memory_use` says so. Its statistics by module are left out, since they fail for a model that is called twice, and
for parameters without gradients.
"""

import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker, _MemRefType
from torch.distributed._tools.mod_tracker import ModTracker
from torch.optim.optimizer import Optimizer
from torch.utils._python_dispatch import is_traceable_wrapper_subclass_type
from torch.utils._pytree import tree_map_only

from ..core.memory import Category, MemoryPoint, Step

CATEGORY_OF: dict[_MemRefType, Category] = {
    _MemRefType.PARAM: "parameters",
    _MemRefType.BUFFER: "buffers",
    _MemRefType.GRAD: "gradients",
    _MemRefType.ACT: "activations",
    _MemRefType.TEMP: "temporaries",
    _MemRefType.OPT: "optimizer",
    _MemRefType.OTH: "other",
}
# Operators whose argument torch has just made of data from Python or C++, which no operator showed before.
_LIFTS = ("aten::lift_fresh", "aten::lift_fresh_copy", "aten::lift")


class NoModules(ModTracker):
    """Tells whether autograd runs backward, but hooks into no module."""

    def __enter__(self) -> "NoModules":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Tracker(MemTracker):
    """The storages of one call on one device, by category, and each phase's peak.

    A storage that is first seen as an argument of an operator was there before the call. It is called "met".
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._mod_tracker = NoModules()  # type: ignore[no-untyped-call]
        # Tensors of an accelerator tell its number, so the device needs one too.
        has_number = device.type == "cpu" or device.index is not None
        self._device = device if has_number else torch.device(device.type, 0)
        # The memory that was there before the call, as far as the call uses it.
        self.before_bytes = 0
        self.phase_peaks: dict[Step, int] = {}
        # For each change: the time, the step, and the living memory less the memory that was met until then. The met
        # memory was there from the start, so all of it is added to every moment later.
        self._moments: list[tuple[float, Step, Counter[_MemRefType]]] = []
        self._met: Counter[_MemRefType] = Counter()
        # Whether any operator ran, and whether one of them allocated memory.
        self.seen = self.allocated = False

    @property
    def now_bytes(self) -> int:
        """Return the bytes that are alive now."""
        return sum(self._by_category(self._curr_mem_snap).values())

    @property
    def categories(self) -> dict[str, int]:
        """Return the bytes at the peak by category, the largest first."""
        sizes = {
            CATEGORY_OF[kind]: size
            for kind, size in self._by_category(self._peak_mem_snap).items()
            if size
        }
        largest_first = sorted(sizes, key=lambda category: -sizes[category])
        return {category: sizes[category] for category in largest_first}

    def over_time(self, began_s: float) -> list[MemoryPoint]:
        """Return the living memory at every change.

        It is that of tensors that are still used. Times count from `began_s`, in seconds of the system's clock.
        """
        return [
            MemoryPoint(max(0.0, at_s - began_s), step, self._sizes_at(growth))
            for at_s, step, growth in self._moments
        ]

    def _sizes_at(self, growth: "Counter[_MemRefType]") -> dict[str, int]:
        """Return the living memory by category at a moment with this growth."""
        sizes = {CATEGORY_OF[kind]: growth[kind] + self._met[kind] for kind in CATEGORY_OF}
        return {kind: size for kind, size in sizes.items() if size > 0}

    def meet(
        self, tensors: list[torch.Tensor], optimizer: Optimizer | None, model: nn.Module | None
    ) -> None:
        """Record the memory from before the call, by category.

        It is that of arguments, optimizer and model. A storage keeps the first category that it gets.
        """
        self.track_external(*tensors)
        if optimizer is not None:
            self._meet_parameters(
                parameter for group in optimizer.param_groups for parameter in group["params"]
            )
            self.track_external(optimizer)
        if model is not None:
            self._meet_parameters(model.parameters())
            for buffer in model.buffers():
                self._update_and_maybe_create_winfos(buffer, _MemRefType.BUFFER)
        self.before_bytes = self.now_bytes

    def _meet_parameters(self, parameters: Iterable[torch.Tensor]) -> None:
        """Record parameters and their gradients."""
        for parameter in parameters:
            self._update_and_maybe_create_winfos(parameter, _MemRefType.PARAM)
            self._follow_gradient(parameter)

    def _follow_gradient(self, parameter: torch.Tensor) -> None:
        """Track a parameter's gradient, and those that it gets later."""
        if parameter.grad is not None:
            self._track(_MemRefType.GRAD, parameter.grad)
        handles = self._param_to_grad_hook_handles.get(parameter)
        if handles is None and parameter.requires_grad and parameter.is_leaf:
            handle = parameter.register_post_accumulate_grad_hook(self._mark_gradient)
            # The tracker's own clean-up expects two handles of each parameter.
            self._param_to_grad_hook_handles[parameter] = handle, handle

    def close(self) -> None:
        """Remove all hooks, also if the call never began."""
        self._deregister_param_and_optimizer_hooks()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operator, and record the memory of its arguments and results.

        torch calls this for every operator, `func`, with the types of its tensors.
        """
        if any(map(is_traceable_wrapper_subclass_type, types)):
            # torch then calls this again with the tensors that such a tensor is made of.
            return NotImplemented
        name, _, _ = func.name().partition(".")
        if name not in _LIFTS:
            # An argument that was not seen before was there before the call. The argument of a lift is new instead.
            sizes_before = self._by_category(self._curr_mem_snap)
            tree_map_only(torch.Tensor, self._meet_argument, (args, kwargs))
            self._count_from_the_start(sizes_before)
        # The new arguments may make a new peak even before the operator runs.
        self._update_peak_stats(None)
        # torch's tracker keeps an entry in `_WINFO` for each storage, so a new entry is an allocation.
        storage_count = len(self._WINFO)
        output = super().__torch_dispatch__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        self.seen = True
        self.allocated = self.allocated or len(self._WINFO) > storage_count
        return output

    def _meet_argument(self, tensor: torch.Tensor) -> None:
        """Record an argument of an operator, unless it is known already."""
        if isinstance(tensor, nn.Parameter):
            self._track(_MemRefType.PARAM, tensor)
            self._follow_gradient(tensor)
        else:
            self._track(_MemRefType.OTH, tensor)

    def _count_from_the_start(self, sizes_before: dict[_MemRefType, int]) -> None:
        """Add memory that was met now to earlier peaks.

        `sizes_before` are those before it was met.

        It was there before the call, so it was there at the peak and in every phase.
        """
        peak = self._peak_mem_snap.setdefault(
            self._device, dict.fromkeys([*CATEGORY_OF, "Total"], 0)
        )
        for kind, size in self._by_category(self._curr_mem_snap).items():
            met_bytes = size - sizes_before.get(kind, 0)
            peak[kind] += met_bytes
            self._met[kind] += met_bytes
            self._peak_mem[self._device] = self._peak_mem.get(self._device, 0) + met_bytes
            self.before_bytes += met_bytes
            self.phase_peaks = {
                step: peak_bytes + met_bytes for step, peak_bytes in self.phase_peaks.items()
            }

    def _mark_gradient(self, parameter: torch.Tensor) -> None:
        """Record the gradient that a parameter has just got."""
        if parameter.grad is not None:
            self._update_and_maybe_create_winfos(parameter.grad, _MemRefType.GRAD)

    def _update_peak_stats(self, peak_state: Any) -> None:
        """Record the living memory in the present step; torch's tracker calls this."""
        step: Step = "backward" if self._mod_tracker.is_bw else "forward"
        # The optimizer's step may run within the backward pass.
        if self._in_opt:
            step = "optimizer"
        self.phase_peaks[step] = max(self.phase_peaks.get(step, 0), self.now_bytes)
        self._note(step)
        super()._update_peak_stats(peak_state)

    def note_end(self) -> None:
        """Record the living memory at the end of the call."""
        self._note("optimizer" if self._in_opt else "forward")

    def _note(self, step: Step) -> None:
        """Keep the time, the step and the present memory.

        Nothing is kept if nothing has changed since the last moment.
        """
        growth = Counter(self._by_category(self._curr_mem_snap))
        growth.subtract(self._met)
        if self._moments:
            _, last_step, last_growth = self._moments[-1]
            if (last_step, last_growth) == (step, growth):
                return
        self._moments.append((time.time(), step, growth))

    def _by_category(self, snapshots: Any) -> dict[_MemRefType, int]:
        """Return the bytes on this device from a snapshot of torch's tracker."""
        sizes = snapshots.get(self._device, {})
        return {kind: sizes[kind] for kind in CATEGORY_OF if kind in sizes}

    def _track(self, reftype: Any, t: torch.Tensor) -> None:
        """Track a tensor's storage; the names are those of torch's method."""
        # A sparse tensor has no storage of its own; the tensors that it is made of are tracked.
        if t.layout is torch.strided:
            super()._track(reftype, t)

    def _update_and_maybe_create_winfos(
        self, t: torch.Tensor, reftype: Any, update_existing: bool = False
    ) -> Any:
        """Record the storage of a tensor that has one, and return its records.

        torch's tracker calls this, and the names are those of its method. A sparse tensor has no storage of its own.
        """
        if t.layout is torch.strided:
            return super()._update_and_maybe_create_winfos(t, reftype, update_existing)
        return set()
