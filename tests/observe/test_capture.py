"""The untimed pass itself: how often it calls, which ranges it sets, and that nothing is left behind."""

import gzip
import json

import pytest
import torch
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from pytest_roofline.core.errors import RooflineError
from pytest_roofline.core.profiles import Profile
from pytest_roofline.engine.devices.cpu import CpuDevice
from pytest_roofline.observe import capture
from pytest_roofline.observe.capture import (
    Calls,
    annotate,
    class_name,
    nvtx_of,
    part_names,
    take,
)
from pytest_roofline.observe.shares import CALL

from .models import Model, training_step

EMPTY = Profile("t", "t", "p", "cpu", 1)


class Gpu(CpuDevice):
    """The CPU under the name of a GPU, or of another device."""

    def __init__(self, name="cuda:0"):
        super().__init__()
        self.name = name


class Marks:
    """Records the ranges that an external profiler would see."""

    def __init__(self):
        self.open, self.seen, self.told = [], [], []

    def push(self, name):
        self.open.append(name)
        self.seen.append(tuple(self.open))

    def pop(self):
        self.open.pop()


@pytest.fixture
def marks(monkeypatch):
    found = Marks()
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", found.push)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", found.pop)
    for name in ("start", "stop"):
        monkeypatch.setattr(torch.cuda.profiler, name, lambda: found.told.append(len(found.seen)))
    return found


def counted(call_s):
    """Calls that are counted, and the count."""
    calls = []
    return Calls(lambda: calls.append(torch.ones(2).sum()), [()], None, call_s), calls


def test_a_call_is_made_once_to_warm_up_and_as_often_as_fits_into_two_seconds(tmp_path):
    for call_s, profiled, made in (
        (0.0, 3, 4),
        (0.1, 3, 4),
        (0.67, 2, 3),
        (1.5, 1, 2),
        (60.0, 1, 1),
    ):
        calls, count = counted(call_s)
        assert (profiled, 0) == (calls.count, len(count))
        if call_s in (0.1, 60.0):
            found = take(CpuDevice(), "torch", calls, EMPTY, tmp_path / "t.json.gz")
            assert (made, profiled) == (len(count), found.calls)
            assert found.profiled_s > 0
            assert {"aten::sum", "aten::ones"} <= {row.name for row in found.kernels}
    # The sets of a rotation are called in turn.
    seen = []
    calls = Calls(seen.append, [(1,), (2,)], None, 1.0)
    for index in range(3):
        calls.call(index)
    assert [1, 2, 1] == seen
    trace = json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))
    assert CALL in {one.get("name") for one in trace["traceEvents"]}


def test_a_function_that_fails_leaves_no_hook_and_no_profiler_behind():
    model = nn.Linear(2, 2)

    def fail():
        if torch._C._autograd._profiler_enabled():
            raise ZeroDivisionError("only under the profiler")

    with pytest.raises(ZeroDivisionError):
        take(CpuDevice(), "torch", Calls(fail, [()], model, 0.01), EMPTY, None)
    assert not model._forward_hooks
    assert not torch._C._autograd._profiler_enabled()


def test_what_cannot_be_profiled_is_a_sentence():
    calls, _ = counted(0.1)
    with torch.profiler.profile(), pytest.raises(RooflineError, match="another profiler runs"):
        take(CpuDevice(), "torch", calls, EMPTY, None)
    with pytest.raises(RooflineError, match="holds no activity"):
        take(CpuDevice(), "torch", Calls(lambda: None, [()], None, 0.1), EMPTY, None)
    assert ["kernels on mps"] == [
        text.partition(":")[0] for text in capture._blind_spots(Gpu("mps"), "torch")
    ]
    assert [] == capture._blind_spots(CpuDevice(), "torch")


def test_an_external_profiler_sees_the_same_ranges_between_start_and_stop(marks, monkeypatch):
    run = training_step(model := Model(16), torch.randint(0, 10, (2, 8)))
    found = take(Gpu(), "external", Calls(run, [()], model, 1.5), EMPTY, None)
    began, ended = marks.told
    inside = marks.seen[began:ended]
    names = {opened[-1] for opened in inside}
    assert {
        CALL,
        "Model",
        "embedding",
        "blocks.0.attention.core.softmax",
        "blocks.1.attention.query",
    } <= names
    nested = (
        CALL,
        "Model",
        "blocks.0.attention",
        "blocks.0.attention.core",
        "blocks.0.attention.core.scores",
    )
    assert nested in inside
    # The call before the start warms up; it is not looked at.
    assert 0 < began < ended == len(marks.seen)
    assert ([], "external", 1, (capture.ELSEWHERE,)) == (
        marks.open,
        found.tool,
        found.calls,
        found.missing,
    )
    assert found.profiled_s > 0
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert (
        capture.HIP_NEVER_STOPS
        in take(Gpu(), "external", Calls(run, [()], None, 1.5), EMPTY, None).missing
    )


def test_a_part_that_raises_or_calls_itself_ends_its_ranges(marks):
    class Twice(nn.Module):
        def forward(self, depth):
            if depth == 0:
                raise ValueError("no")
            return self(depth - 1)

    model = nn.Sequential(Twice())
    with annotate(model, nvtx_of("cuda")), pytest.raises(ValueError, match="no"):
        model(1)
    assert [] == marks.open
    assert [("Sequential",), ("Sequential", "0"), ("Sequential", "0", "0")] == marks.seen


def test_a_compiled_model_is_not_compiled_again_for_its_hooks():
    model, graphs, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), [], torch.ones(1, 2)

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model, backend=backend)
    expected = compiled(x)
    with annotate(compiled, None):
        assert torch.equal(expected, compiled(x))
    assert torch.equal(expected, compiled(x))
    assert all(
        "record_function" not in str(node.target) for graph in graphs for node in graph.graph.nodes
    )
    torch.compiler.reset()


def test_parts_have_the_names_that_their_author_gave_them():
    plain = part_names(nn.Linear(1, 1))
    for path, name in (
        ("blocks.3._orig_mod.core", "blocks.3.core"), ("_checkpoint_wrapped_module", ""), ("", ""),
        ("a.module", "a.module"),
    ):  # fmt: skip
        assert name == plain(path)
    inside = nn.Sequential(checkpoint_wrapper(nn.Linear(1, 1)))
    wrapped = torch.compile(nn.DataParallel(inside))
    assert "Sequential" == class_name(wrapped) == class_name(inside)
    assert "0.weight" == part_names(wrapped)("_orig_mod.module.0._checkpoint_wrapped_module.weight")
    # Unless a part is really called so.
    model = nn.ModuleDict({"module": nn.Linear(1, 1), "head": nn.Linear(1, 1)})
    assert "module.weight" == part_names(model)("module.weight")
