"""What a call's memory goes into, against bytes that were counted by hand and against the device's own counter.

The small model has two matrices of 8 by 16 and a GELU between; 64 rows go through it, all in float32.
"""

import gc
import sys
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.memory import MemoryUse
from pytest_roofline.engine.devices.base import AllocatedBytes
from pytest_roofline.engine.devices.cpu import CpuDevice
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.observe import memory_use
from pytest_roofline.observe.memory_use import FollowedCall, follow
from pytest_roofline.observe.over_time import allocator_trace, thin_out

# Every collection of garbage would go through all of it once an optimizer has loaded it.
pytestmark = pytest.mark.usefixtures("torch_compiler")
EMPTY = MemoryUse("t", "t", "p", "cpu", "", 0)
ROWS, WIDTH, INNER, FLOAT = 64, 8, 16, 4
NARROW, WIDE = ROWS * WIDTH * FLOAT, ROWS * INNER * FLOAT
MATRIX = WIDTH * INNER * FLOAT
PARAMETERS = 2 * MATRIX
# Two moments for each parameter, and a count of steps for each matrix.
ADAMW = 2 * PARAMETERS + 2 * FLOAT


def take(fn, arguments=(), model=None, optimizer=None, device=None):
    return follow(device or CpuDevice(), FollowedCall(fn, arguments, model, optimizer), EMPTY)


class Training:
    """A model, its optimizer, an input, and a gradient that a loss would give."""

    def __init__(self, rows=ROWS):
        self.model = nn.Sequential(
            nn.Linear(WIDTH, INNER, bias=False), nn.GELU(), nn.Linear(INNER, WIDTH, bias=False)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.inputs = torch.randn(rows, WIDTH), torch.randn(rows, WIDTH)

    def step(self, x, gradient):
        self.model(x).backward(gradient)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def follow(self, fn=None, **given):
        given = {"model": self.model, "optimizer": self.optimizer, "arguments": self.inputs} | given
        return take(fn or self.step, **given)


@pytest.fixture
def training():
    found = Training()
    found.step(*found.inputs)
    return found


def test_the_peak_of_a_training_step_is_what_a_hand_counts(training):
    found = training.follow()
    # While the lower matrix's backward is done: its gradient and that of its input are there, and nothing is freed yet.
    assert found.categories == {
        "activations": WIDE + WIDE + NARROW, "temporaries": WIDE + MATRIX, "other": 2 * NARROW, "optimizer": ADAMW,
        "parameters": PARAMETERS,
    }  # fmt: skip
    assert found.phase == "backward"
    assert found.before_bytes == PARAMETERS + ADAMW + 2 * NARROW
    assert found.phase_peaks["forward"] == found.before_bytes + WIDE + WIDE + NARROW
    # The last gradient comes when the activations have gone.
    assert found.phase_peaks["optimizer"] < found.phase_peaks["forward"]
    # On a CPU the device counts the same bytes as the operators show.
    assert (found.device_peak_bytes, found.missing) == (found.peak_bytes, ())


def test_memory_over_time_begins_before_the_call_holds_the_peak_and_ends_behind_it(training):
    found = training.follow()
    points = found.over_time
    assert (found.before_bytes, found.peak_bytes) == (
        points[0].total_bytes,
        max(one.total_bytes for one in points),
    )
    assert found.categories == max(points, key=lambda one: one.total_bytes).categories
    # zero_grad lets the gradients go; what is found late was there from the start.
    assert points[-1].total_bytes == found.before_bytes
    assert ["forward", "backward", "optimizer"] == list(dict.fromkeys(one.step for one in points))[
        :3
    ]
    assert [one.at_s for one in points] == sorted(one.at_s for one in points)
    alone = training.follow(model=None, optimizer=None).over_time
    assert [one.total_bytes for one in points] == [one.total_bytes for one in alone]
    assert () == found.allocator
    # Of many moments the fullest of each part stays, with both ends.
    many = thin_out([7, *range(1000), 3], lambda value: value)
    assert (122, 7, 999, 3) == (len(many), many[0], many[-2], many[-1])


def test_the_trace_of_the_allocator_is_summed_from_what_there_was(monkeypatch):
    """Entries as torch.cuda.memory._snapshot() has them, of its second device."""
    second = SimpleNamespace(name="cuda:1")

    def entry(action, size, at_us):
        return {
            "action": action,
            "size": size,
            "time_us": 1_000_000 + at_us,
            "addr": 0,
            "stream": 0,
        }

    trace = [
        entry("segment_alloc", 2048, 5), entry("alloc", 512, 6), entry("free_requested", 512, 9),
        entry("free_completed", 512, 10), entry("snapshot", 0, 11), entry("segment_free", 2048, 12),
    ]  # fmt: skip
    switched, histories = [], iter((False, False, True))
    monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: next(histories), raising=False)
    monkeypatch.setattr(torch.cuda, "memory_allocated", {1: 100}.get)
    monkeypatch.setattr(torch.cuda, "memory_reserved", {1: 4096}.get)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: {"device_traces": [[], trace]})
    monkeypatch.setattr(
        torch.cuda.memory, "_record_memory_history", lambda **asked: switched.append(asked)
    )
    with allocator_trace(second, 1.0) as points:
        assert [] == points
    assert [(100, 4096), (100, 6144), (612, 6144), (100, 6144), (100, 4096)] == [
        (one.allocated_bytes, one.reserved_bytes) for one in points
    ]
    assert [pytest.approx(value * 1e-6) for value in (0, 5, 6, 9, 12)] == [
        one.at_s for one in points
    ]
    assert {"enabled": None} == switched[1]
    # A call that fails switches it off too, and a history that somebody else keeps stays on.
    with pytest.raises(ValueError, match="in the middle"), allocator_trace(second, 1.0):
        raise ValueError("in the middle")
    with allocator_trace(second, 1.0) as points:
        pass
    assert (4, []) == (len(switched), points)


def test_without_a_model_and_an_optimizer_parameters_and_gradients_are_still_known(training):
    alone, given = training.follow(model=None, optimizer=None), training.follow()
    # The optimizer's state was there when its step took it, as what nobody knows.
    state = given.categories.pop("optimizer")
    assert alone.categories == given.categories | {"other": given.categories["other"] + state}
    assert (alone.peak_bytes, alone.before_bytes) == (given.peak_bytes, given.before_bytes)
    # The first step peaks in the optimizer where the batch is small.
    found = Training(rows=1).follow()
    assert found.phase == "optimizer"
    assert found.categories["optimizer"] >= ADAMW
    assert found.categories["gradients"] == PARAMETERS
    assert found.phase_peaks["optimizer"] == found.peak_bytes


def test_what_is_no_allocation_and_what_is():
    x = torch.zeros(100)
    # Views and results in place.
    assert take(lambda x: x.view(10, 10).t().add_(1), (x,)).categories == {"other": x.nbytes}
    # Data from Python.
    found = take(lambda: torch.tensor([1.0] * 100))
    assert (found.before_bytes, found.categories) == (0, {"activations": 400})

    def resized():
        tensor = torch.empty(0)
        tensor.untyped_storage().resize_(4000)
        tensor.add_(1)
        tensor.untyped_storage().resize_(0)
        return torch.empty(250), tensor

    assert take(resized).peak_bytes == 4000
    # What the function held itself.
    assert take(lambda: x + 1).categories == {"other": 400, "activations": 400}
    # A tensor made of tensors is what those are.
    two = TwoTensor(torch.ones(100), torch.ones(100))
    assert take(lambda pair: pair * 2, (two,)).categories == {"other": 800, "activations": 800}
    # Sparse gradients are made of what is not sparse.
    table = nn.Embedding(50, WIDTH, sparse=True)
    assert (
        take(lambda: table(torch.arange(10)).sum().backward(), model=table).categories["parameters"]
        == 1600
    )


def test_what_cannot_be_followed_is_refused(training, monkeypatch):
    with pytest.raises(BadInput, match=r"model is a int; expected a torch.nn.Module"):
        training.follow(model=3)
    with pytest.raises(BadInput, match=r"optimizer is a int; expected a torch.optim.Optimizer"):
        training.follow(optimizer=3)
    with pytest.raises(
        BadInput, match="the call allocated no tensor on cpu; expected a function that computes on"
    ):
        take(lambda: 3)
    monkeypatch.delitem(sys.modules, "pytest_roofline.observe.tracker", raising=False)
    monkeypatch.setitem(sys.modules, "torch.distributed._tools.mem_tracker", None)
    with pytest.raises(
        BadInput, match=r"MemTracker, which torch .* does not have here .*peak_bytes=True"
    ):
        training.follow()


def test_whatever_is_raised_nothing_stays_behind(training):
    class Failing(FakeDevice):
        def peak_bytes(self, call):
            call()
            raise RuntimeError("lost the device")

    kept = []

    def forward():
        y = torch.ones(10)
        kept.append(weakref.ref(y))
        return y

    with pytest.raises(RuntimeError, match="lost the device") as _held:
        take(forward, device=Failing())
    gc.collect()
    assert kept[0]() is None

    def fail(x, gradient):
        training.model(x)
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        training.follow(fail)
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        training.follow(lambda *_: torch.empty(2**50))
    assert [
        len(one._forward_hooks) + len(one._forward_pre_hooks) for one in training.model.modules()
    ] == [0] * 4
    assert not any(one._post_accumulate_grad_hooks for one in training.model.parameters())
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    optimizers = sys.modules["torch.optim.optimizer"]
    assert not optimizers._global_optimizer_pre_hooks
    assert not optimizers._global_optimizer_post_hooks


def test_compiled_code_runs_operator_by_operator_and_is_compiled_afterwards(training):
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(training.model, backend=backend)
    found = take(compiled, training.inputs[:1], compiled)
    assert graphs == []
    assert found.missing == (
        "the allocations of compiled code, since the operators ran one by one",
    )
    assert found.categories["activations"] == WIDE + WIDE + NARROW
    # A frame that torch meets under a dispatch mode it never compiles again, and what is timed next would be slow.
    compiled(training.inputs[0])
    assert len(graphs) == 1


def test_what_the_device_counts_beside_the_operators(training):
    @torch.library.custom_op("roofline_tests::with_scratch", mutates_args=())
    def with_scratch(x: torch.Tensor) -> torch.Tensor:
        scratch = torch.ones(1000)
        return x * scratch.sum()

    class Counting(FakeDevice):
        def allocated(self):
            return AllocatedBytes(now_bytes=5000)

        def peak_bytes(self, call):
            call()
            return 1200

    x = torch.ones(10)
    found = take(lambda: with_scratch(x))
    # The scratch itself and its sum.
    assert (found.peak_bytes, found.unseen_bytes) == (2 * x.nbytes, 4000 + 4)
    found = take(lambda x: x + 1, (x,), device=Counting())
    assert (found.device_before_bytes, found.device_peak_bytes) == (5000, 6200)
    with torch.profiler.profile():
        found = training.follow()
    assert (found.device_peak_bytes, found.unseen_bytes) == (None, None)
    assert found.missing == ("the device's own peak, since cpu reports no peak",)


def test_a_call_that_passes_no_operator_is_said_to_be_unseen(training, monkeypatch):
    unseen = "allocations outside of operators, as in a replayed graph"
    assert training.follow(lambda *_: None).missing[0].startswith(unseen)
    x = torch.ones(100)
    assert take(lambda: x.add_(1)).missing == ()
    # Where a graph could hide, operators that allocate nothing are not all that there is.
    monkeypatch.setattr(memory_use, "WITH_GRAPHS", ("cpu",))
    assert take(lambda: x.add_(1)).missing[0].startswith(unseen)
    assert take(lambda: x + 1).missing == ()


def test_what_operators_do_not_show_is_what_the_device_counts_beside_them():
    use = replace(EMPTY, peak_bytes=1000)
    # Memory from before is no memory that operators did not show; a counter of changes alone starts with it.
    assert (
        replace(use, before_bytes=300, device_before_bytes=350, device_peak_bytes=1130).unseen_bytes
        == 80
    )
    assert replace(use, before_bytes=300, device_peak_bytes=1040).unseen_bytes == 40
