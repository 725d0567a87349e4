"""Ways to execute a pass: why one does not apply, what is compiled, and in which order a graph is captured."""

import contextlib
import os
from pathlib import Path

import torch

from roofline_kernels.attention import compiling
from roofline_kernels.training import executing
from roofline_kernels.training.checking import check
from roofline_kernels.training.executing import CAPTURE_WARMUP, executed, why_not
from roofline_kernels.training.precisions import precision_named

from .training_cases import CPU, make_training

CUDA = torch.device("cuda")


def test_what_does_not_apply_is_told():
    for execution, device, precision, passes, told in [
        (
            "compile",
            CUDA,
            "fp32",
            "backward",
            "that begins with the compiled forward pass, found backward",
        ),
        (
            "compile",
            CPU,
            "fp32",
            "optimizer",
            "that begins with the compiled forward pass, found optimizer",
        ),
        (
            "cuda_graph",
            CPU,
            "fp32",
            "forward",
            "needs a CUDA or ROCm device for a CUDA graph, found cpu",
        ),
        (
            "cuda_graph",
            CUDA,
            "fp32",
            "backward",
            "in the same CUDA graph, found the backward pass alone",
        ),
        (
            "cuda_graph",
            CUDA,
            "fp16_autocast",
            "step",
            "that the host does not wait in, found fp16_autocast",
        ),
        ("cuda_graph", CUDA, "fp16_autocast", "forward", ""),
        ("cuda_graph", CUDA, "bf16_autocast", "step", ""),
    ]:
        found = why_not(execution, device, precision_named(precision), passes)
        assert told in found, (execution, device, precision, passes)
        assert bool(found) == bool(told), (execution, device, precision, passes)


def test_compiling_needs_what_torch_needs_for_it(monkeypatch):
    monkeypatch.setattr(compiling, "why_not_compiled", lambda device: f"no compiler on {device}")
    assert why_not("compile", CPU, precision_named("fp32"), "step") == "no compiler on cpu"


def test_compiled_is_the_model_or_its_loss_with_empty_caches_that_are_gone_afterwards(monkeypatch):
    ran, folders, before = [], [], os.environ.get("TORCHINDUCTOR_CACHE_DIR")

    @contextlib.contextmanager
    def compiled(function, keep_graph):
        assert not keep_graph

        def run(*arguments):
            ran.append(function)
            folders.append(Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]))
            return function(*arguments)

        yield run

    monkeypatch.setattr(compiling, "compiled", compiled)
    for passes in ("forward", "step"):
        training = make_training()
        plain = (training.infer, training.lose)
        # After an error too.
        with contextlib.suppress(KeyError), executed("compile", training, passes) as one:
            one.call()
            raise KeyError
        assert ran.pop() == plain[passes == "step"]
        assert (training.infer, training.lose) == plain
        assert not folders[-1].exists()
        assert os.environ.get("TORCHINDUCTOR_CACHE_DIR") == before


def test_a_compiled_step_under_autocast_is_right_and_may_reuse_what_was_saved(monkeypatch):
    donated = []

    def traced(function, **options):
        donated.append(torch._functorch.config.donated_buffer)
        return torch_compile(function, **options, backend="aot_eager")

    torch_compile, default = torch.compile, torch._functorch.config.donated_buffer
    monkeypatch.setattr(torch, "compile", traced)
    training = make_training("bf16_autocast")
    with executed("compile", training, "step") as one:
        one.call()
        one.call()
        check(training, one)
    assert donated == [default, default]


class Recorder:
    """Stands in for CUDA's streams and graphs, and writes down what is asked of them."""

    def __init__(self, monkeypatch):
        self.said = []
        recorder = self

        class Stream:
            def __init__(self, name):
                self.name = name

            def wait_stream(self, other):
                recorder.said.append(f"{self.name} waits for {other.name}")

        class Graph:
            def replay(self):
                recorder.said.append("replay")

        @contextlib.contextmanager
        def inside(what):
            recorder.said.append(f"begin {getattr(what, 'name', 'capture')}")
            yield
            recorder.said.append("end")

        monkeypatch.setattr(torch.cuda, "Stream", lambda device: Stream("side"))
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: Stream("current"))
        monkeypatch.setattr(torch.cuda, "stream", inside)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "graph", inside)


def test_a_graph_is_captured_after_a_warm_up_on_a_side_stream(monkeypatch):
    recorder = Recorder(monkeypatch)
    replay = executing._captured(CUDA, lambda: recorder.said.append("call"))
    replay()
    assert recorder.said == [
        "side waits for current", "begin side", *["call"] * CAPTURE_WARMUP, "end", "current waits for side",
        "begin capture", "call", "end", "replay",
    ]  # fmt: skip


def test_a_graph_leaves_its_gradients_to_whoever_looks(monkeypatch):
    # The capture runs, and a replay leaves all as it is: so the gradients are those of one pass, not of four.
    Recorder(monkeypatch)
    training = make_training()
    with executed("cuda_graph", training, "forward_backward") as one:
        assert one.call == one.keep
    check(training, one)
