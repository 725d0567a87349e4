"""How a pass is executed: operation by operation, compiled, or replayed from a CUDA graph."""

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
# They do not begin with what is compiled: the model's forward pass.
NOT_COMPILED = ("backward", "optimizer")


def why_not(execution: str, device: torch.device, precision: Precision, passes: str) -> str:
    """Why a pass cannot be executed in a way, with what that needs and what was found; empty where it can.

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
        call: does it; this is timed.
        keep: does it, too, but leaves the gradients in the parameters, where the pass would drop them at its end.
    """

    name: str
    call: Callable[[], object]
    keep: Callable[[], object]


@contextlib.contextmanager
def executed(execution: str, training: Training, passes: str) -> Iterator[Pass]:
    """The pass to time; it must be called while the context lasts.

    Of `compile` the first call compiles. It compiles anew: no kernel comes from the cache of an earlier run, so what
    the first call takes beyond the others is the time of compiling. The optimizer stays as it is.
    """
    with _compiling(training) if execution == "compile" else contextlib.nullcontext():
        done = as_it_is(training, passes)
        if execution == "cuda_graph":
            # Gradients lie in the graph's own memory; dropping them would cost nothing, and hide them.
            replay = _captured(training.device, done.keep)
            done = Pass(passes, replay, replay)
        yield done


def as_it_is(training: Training, passes: str) -> Pass:
    """The pass by whatever the training has for it now: its model, or what a compiler made of it."""
    call = training.pass_of(passes)
    return Pass(passes, call, training.accumulate_anew if passes == "forward_backward" else call)


@contextlib.contextmanager
def _compiling(training: Training) -> Iterator[None]:
    """With the model and its loss compiled, each when it is first called."""
    infer, lose = training.infer, training.lose
    with (
        _cold(),
        # No graph is gone through twice, so torch's own choice is measured.
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
    """With caches of compiled kernels that are empty, in memory and on disk, and that are gone afterwards."""
    from torch._inductor import utils

    with contextlib.ExitStack() as stack:
        stack.enter_context(utils.fresh_cache())
        try:
            yield
        finally:
            # Torch keeps the folder where it sees an error.
            stack.close()


def _captured(device: torch.device, call: Callable[[], object]) -> Callable[[], None]:
    """The replay of a call; inputs and results stay where they are.

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
