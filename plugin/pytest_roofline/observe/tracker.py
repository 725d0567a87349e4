"""torch's own memory tracker for one call, without its statistics by module.

`torch.distributed._tools` has it under no public name: all that is used of it stands here, and where a version of torch
lacks any of it, `memory_use` says so. Its statistics by module refuse a model that is called twice and parameters
without gradients; without them there is nothing left that could.
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
# These get what torch has just made of data from Python or C++, without an operator that would show it.
_LIFTS = ("aten::lift_fresh", "aten::lift_fresh_copy", "aten::lift")


class NoModules(ModTracker):
    """Tells whether autograd runs backward, and hooks into no module."""

    def __enter__(self) -> "NoModules":
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Tracker(MemTracker):
    """The storages of one call by category, and each phase's peak. They are on one device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._mod_tracker = NoModules()  # type: ignore[no-untyped-call]
        # Tensors of an accelerator tell its number.
        numbered = device.type == "cpu" or device.index is not None
        self._device = device if numbered else torch.device(device.type, 0)
        # Of what was seen, what was there before the call.
        self.before_bytes = 0
        self.phase_peaks: dict[Step, int] = {}
        # When, in which step, and what was alive by then less what had been met: that was there from the start.
        self._moments: list[tuple[float, Step, Counter[_MemRefType]]] = []
        self._met: Counter[_MemRefType] = Counter()
        # Whether any operator came by, and whether one of them allocated something.
        self.seen = self.allocated = False

    @property
    def now_bytes(self) -> int:
        """All that is alive now."""
        return sum(self._by_category(self._curr_mem_snap).values())

    @property
    def categories(self) -> dict[str, int]:
        """Return the peak by category, the largest first."""
        sizes = {
            CATEGORY_OF[kind]: size
            for kind, size in self._by_category(self._peak_mem_snap).items()
            if size
        }
        return dict(sorted(sizes.items(), key=lambda pair: -pair[1]))

    def over_time(self, began_s: float) -> list[MemoryPoint]:
        """Return how much was alive at every change. It begins at a time of the system's clock."""
        return [
            MemoryPoint(max(0.0, at_s - began_s), step, self._then(growth))
            for at_s, step, growth in self._moments
        ]

    def _then(self, growth: "Counter[_MemRefType]") -> dict[str, int]:
        sizes = {CATEGORY_OF[kind]: growth[kind] + self._met[kind] for kind in CATEGORY_OF}
        return {kind: size for kind, size in sizes.items() if size > 0}

    def meet(
        self, tensors: list[torch.Tensor], optimizer: Optimizer | None, model: nn.Module | None
    ) -> None:
        """Note the memory of before the call, by category. The first category of a storage stays."""
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
        for parameter in parameters:
            self._update_and_maybe_create_winfos(parameter, _MemRefType.PARAM)
            self._follow_gradient(parameter)

    def _follow_gradient(self, parameter: torch.Tensor) -> None:
        """Track a parameter's gradient, and the gradients that it gets."""
        if parameter.grad is not None:
            self._track(_MemRefType.GRAD, parameter.grad)
        handles = self._param_to_grad_hook_handles.get(parameter)
        if handles is None and parameter.requires_grad and parameter.is_leaf:
            handle = parameter.register_post_accumulate_grad_hook(self._mark_gradient)
            # The tracker removes two for each.
            self._param_to_grad_hook_handles[parameter] = handle, handle

    def close(self) -> None:
        """Leave no hook behind, also where the call never began."""
        self._deregister_param_and_optimizer_hooks()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(map(is_traceable_wrapper_subclass_type, types)):
            # What such a tensor is made of comes by in a moment.
            return NotImplemented
        if func.name().partition(".")[0] not in _LIFTS:
            # What is taken without having been seen was there before the call.
            sizes_before = self._by_category(self._curr_mem_snap)
            tree_map_only(torch.Tensor, self._meet_argument, (args, kwargs))
            self._count_from_the_start(sizes_before)
        self._update_peak_stats(None)
        storage_count = len(self._WINFO)
        output = super().__torch_dispatch__(func, types, args, kwargs)  # type: ignore[no-untyped-call]
        self.seen, self.allocated = True, self.allocated or len(self._WINFO) > storage_count
        return output

    def _meet_argument(self, tensor: torch.Tensor) -> None:
        self._track(
            _MemRefType.PARAM if isinstance(tensor, nn.Parameter) else _MemRefType.OTH, tensor
        )
        if isinstance(tensor, nn.Parameter):
            self._follow_gradient(tensor)

    def _count_from_the_start(self, sizes_before: dict[_MemRefType, int]) -> None:
        """Count newly met memory from the start of the call. It was there before the call, and so
        at the peak and in every phase.
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
            self.phase_peaks = {step: most + met_bytes for step, most in self.phase_peaks.items()}

    def _mark_gradient(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self._update_and_maybe_create_winfos(parameter.grad, _MemRefType.GRAD)

    def _update_peak_stats(self, peak_state: Any) -> None:
        step: Step = (
            "optimizer" if self._in_opt else "backward" if self._mod_tracker.is_bw else "forward"
        )
        self.phase_peaks[step] = max(self.phase_peaks.get(step, 0), self.now_bytes)
        self._note(step)
        super()._update_peak_stats(peak_state)

    def note_end(self) -> None:
        """Say what is alive when the call has ended."""
        self._note("optimizer" if self._in_opt else "forward")

    def _note(self, step: Step) -> None:
        growth = Counter(self._by_category(self._curr_mem_snap))
        growth.subtract(self._met)
        if not self._moments or self._moments[-1][1:] != (step, growth):
            self._moments.append((time.time(), step, growth))

    def _by_category(self, snapshots: Any) -> dict[_MemRefType, int]:
        sizes = snapshots.get(self._device, {})
        return {kind: sizes[kind] for kind in CATEGORY_OF if kind in sizes}

    def _track(self, reftype: Any, t: torch.Tensor) -> None:
        # A sparse tensor has no storage of its own; what it is made of came by.
        if t.layout is torch.strided:
            super()._track(reftype, t)

    def _update_and_maybe_create_winfos(
        self, t: torch.Tensor, reftype: Any, update_existing: bool = False
    ) -> Any:
        if t.layout is torch.strided:
            return super()._update_and_maybe_create_winfos(t, reftype, update_existing)
        return set()
