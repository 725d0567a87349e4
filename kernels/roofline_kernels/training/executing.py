"""The ways to execute a pass: operation by operation, compiled, or replayed from a CUDA graph."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from ..attention import compiling
from .precisions import Precision
from .steps import Training

EXECUTIONS = ("eager", "compile", "cuda_graph")
# Calls on a side stream before a capture. Source: "CUDA semantics", torch's manual, which takes three; by then the
# optimizer's state is made, and libraries have their workspaces.
CAPTURE_WARMUP = 3
# Passes without the model's forward pass, which is what is compiled.
NOT_COMPILED = ("backward", "optimizer")


def why_not(execution: str, device: torch.device, precision: Precision, passes: str) -> str:
    """Return why a pass cannot be executed in a way; empty if it can.

    Raises:
        ValueError: there is no such way.
    """
    if execution not in EXECUTIONS:
        raise ValueError(f"execution is {execution!r}; expected one of {', '.join(EXECUTIONS)}")
    if execution == "compile":
        if passes in NOT_COMPILED:
            return f"needs a pass that begins with the compiled forward pass, found {passes}"
        return compiling.why_not_compiled(device)
    return _why_not_captured(device, precision, passes) if execution == "cuda_graph" else ""


def _why_not_captured(device: torch.device, precision: Precision, passes: str) -> str:
    """Return why a pass cannot be captured in a CUDA graph; empty if it can."""
    if device.type != "cuda":
        return f"needs a CUDA or ROCm device for a CUDA graph, found {device.type}"
    if passes == "backward":
        return "needs a forward pass in the same CUDA graph, found the backward pass alone"
    if passes == "step" and precision.scaled:
        return (
            f"needs a step that the host does not wait in, found {precision.name}, "
            "which looks for infinite gradients"
        )
    return ""


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass as it is executed.

    Args:
        name: one of `PASSES`.
        call: executes the pass; this is timed.
        keep: executes it too, but leaves the gradients in the parameters, even if the pass drops them at its end.
    """

    name: str
    call: Callable[[], object]
    keep: Callable[[], object]


@contextlib.contextmanager
def executed(execution: str, training: Training, passes: str) -> Iterator[Pass]:
    """Yield the pass to time. It must be called while the context lasts.

    With `compile` the first call compiles, without kernels from an earlier run's cache. So the time of compiling is
    what the first call takes longer than the others. The optimizer is not compiled.
    """
    with _compiling(training) if execution == "compile" else contextlib.nullcontext():
        done = as_it_is(training, passes)
        if execution == "cuda_graph":
            # The graph writes gradients into memory of its own, so dropping them would only hide them.
            replay = _captured(training.device, done.keep)
            done = Pass(passes, replay, replay)
        yield done


def as_it_is(training: Training, passes: str) -> Pass:
    """Return the pass with the training's present functions: its model, or the compiled one."""
    call = training.pass_of(passes)
    return Pass(passes, call, training.accumulate_anew if passes == "forward_backward" else call)


@contextlib.contextmanager
def _compiling(training: Training) -> Iterator[None]:
    """Let the training use compiled functions, and restore the original ones afterwards.

    Each is compiled at its first call.
    """
    infer, lose = training.infer, training.lose
    with (
        _cold(),
        # No backward pass is repeated here, so torch may choose as usual.
        compiling.compiled(infer, keep_graph=False) as compiled_infer,
        compiling.compiled(lose, keep_graph=False) as compiled_lose,
    ):
        training.infer, training.lose = compiled_infer, compiled_lose
        try:
            yield
        finally:
            training.infer, training.lose = infer, lose


@contextlib.contextmanager
def _cold() -> Iterator[None]:
    """Use empty caches of compiled kernels, in memory and on disk, and remove them afterwards."""
    from torch._inductor import utils

    with contextlib.ExitStack() as stack:
        stack.enter_context(utils.fresh_cache())
        try:
            yield
        finally:
            # torch would keep the folder if it saw the error, so it is closed before that.
            stack.close()


def _captured(device: torch.device, call: Callable[[], object]) -> Callable[[], None]:
    """Return the replay of a call. Its inputs and results keep their memory.

    Source: "CUDA semantics" in torch's manual, whole-network capture.
    """
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(CAPTURE_WARMUP):
            call()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay
