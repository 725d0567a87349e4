"""The pass itself, on a real CPU and a tiny model: ranges, classes, work, and that nothing is left behind."""

import pytest
import torch
from torch import nn

from pytest_roofline.core.errors import DeviceError
from pytest_roofline.core.profiles import Profile
from pytest_roofline.measuring.devices.cpu import CpuDevice
from pytest_roofline.measuring.profiling import capture, clocks, external, ranges
from pytest_roofline.measuring.profiling.analysis import analyse_file
from pytest_roofline.measuring.profiling.capture import NoProfile, capture_external, capture_torch
from pytest_roofline.measuring.profiling.clocks import Subject
from pytest_roofline.measuring.profiling.events import CALL
from pytest_roofline.measuring.profiling.external import attached

from .profiles import Model, training_step

BATCH, CONTEXT, WIDTH, LAYERS, CALLS = 2, 8, 16, 2, 3


@pytest.fixture(scope="module")
def step(tmp_path_factory):
    """A real profile of three training steps: the trace's findings, the clocks, and the model."""
    torch.manual_seed(0)
    model = Model(WIDTH)
    run = training_step(model, torch.randint(0, 10, (BATCH, CONTEXT)))
    run()
    path = tmp_path_factory.mktemp("profile") / "step.trace.json.gz"
    captured = capture_torch(CpuDevice(), Subject(run, [()], model, call_s=0.01), path)
    return analyse_file(path), captured, model


def test_three_calls_are_seen_and_their_shares_add_up_to_the_span(step):
    found, _, _ = step
    assert (CALLS, False, 0.0) == (found.calls, found.on_device, found.overlap_s)
    assert pytest.approx(1.0) == sum(one.share for one in found.classes)


def test_every_class_of_a_training_step_is_there(step):
    kinds = {one.name for one in step[0].classes}
    expected = {"matrix product", "attention softmax", "elementwise", "reduction", "embedding and gather", "optimizer"}
    assert expected | {"idle"} <= kinds
    assert "attention fused" not in kinds


def test_the_work_inside_attention_is_what_the_shapes_say(step):
    forward, backward = step[0].attention
    product = 2 * BATCH * CONTEXT * CONTEXT * WIDTH
    projection = 2 * BATCH * CONTEXT * WIDTH * WIDTH
    scores = BATCH * CONTEXT * CONTEXT
    each = CALLS * LAYERS
    assert (each * 2 * product, each * projection, each * 5 * scores) == (
        forward.products_flops, forward.projections_flops, forward.softmax_flops
    )  # fmt: skip
    # Each product has two gradients, here of activations with activations, or of a weight and of its input.
    assert (each * 4 * product, each * 2 * projection, each * 4 * scores) == (
        backward.products_flops, backward.projections_flops, backward.softmax_flops
    )  # fmt: skip
    assert 0 == forward.fused_s == backward.fused_s


def test_the_parts_have_their_forward_and_their_backward_time(step):
    parts = {part.part: part for part in step[0].parts}
    inside = {f"blocks.*.attention.core.{name}" for name in ("scores", "softmax", "values")}
    with_time = inside | {"blocks.*.attention.query", "blocks.*.attention_norm", "embedding"}
    assert with_time <= set(parts)
    assert all(parts[name].forward_s > 0 and parts[name].backward_s > 0 for name in with_time)


def test_the_table_counts_the_products_of_all_calls(step):
    rows = {row.name: row for row in step[0].kernels}
    # Two a layer forward, four backward.
    assert CALLS * LAYERS * 6 == rows["aten::bmm"].count
    assert "matrix product" == rows["aten::bmm"].kind


def test_the_clocks_stand_side_by_side(step):
    found, captured, _ = step
    timers = captured.timers
    assert timers.host_s >= timers.device_s > 0
    assert timers.profiled_host_s > 0
    assert 0 < found.busy_s <= found.span_s
    assert () == captured.missing


def test_the_hooks_are_gone(step):
    for module in step[2].modules():
        assert not module._forward_hooks
        assert not module._forward_pre_hooks


def test_a_function_that_fails_leaves_no_hook_and_no_profiler_behind(tmp_path):
    model = nn.Linear(2, 2)

    def fail():
        if model._forward_hooks:
            raise ZeroDivisionError("only under the profiler")

    with pytest.raises(ZeroDivisionError):
        capture_torch(CpuDevice(), Subject(fail, [()], model, call_s=0.01), tmp_path / "t.json.gz")
    assert not model._forward_hooks
    assert not torch._C._autograd._profiler_enabled()


def test_another_profiler_in_this_process_is_in_the_way(tmp_path):
    with torch.profiler.profile(), pytest.raises(NoProfile, match="a profiler is at work"):
        capture_torch(CpuDevice(), Subject(lambda: None, [()], None, call_s=0.01), tmp_path / "t.json.gz")


@pytest.mark.parametrize(("call_s", "calls"), [(0.0, 3), (0.1, 3), (0.67, 2), (1.5, 1), (60.0, 1)])
def test_so_many_calls_as_fit_into_two_seconds_and_one_at_least(call_s, calls):
    assert calls == Subject(lambda: None, [()], None, call_s).calls


def test_the_sets_of_a_rotation_are_called_in_turn():
    seen = []
    subject = Subject(seen.append, [(1,), (2,)], None, 1.0)
    for index in range(3):
        subject.call(index)
    assert [1, 2, 1] == seen


class Marks:
    """Records the ranges that an external profiler would see."""

    def __init__(self):
        self.open, self.seen = [], []

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
    return found


class Gpu(CpuDevice):
    """The CPU under the name of a GPU."""

    def __init__(self):
        super().__init__()
        self.name = "cuda:0"


def test_an_external_profiler_sees_the_same_ranges_between_start_and_stop(marks, monkeypatch):
    events = []
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: events.append(len(marks.seen)))
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: events.append(len(marks.seen)))
    model = Model(WIDTH)
    run = training_step(model, torch.randint(0, 10, (BATCH, CONTEXT)))
    captured = capture_external(Gpu(), Subject(run, [()], model, call_s=1.5))
    began, ended = events
    inside = marks.seen[began:ended]
    names = {opened[-1] for opened in inside}
    assert {CALL, "Model", "embedding", "blocks.0.attention.core.softmax", "blocks.1.attention.query"} <= names
    nested = (CALL, "Model", "blocks.0.attention", "blocks.0.attention.core", "blocks.0.attention.core.scores")
    assert nested in inside
    assert [] == marks.open
    # The call before the start warms up; it is not looked at.
    assert 0 < began < ended == len(marks.seen)
    assert captured.timers.profiled_host_s > 0
    assert captured.timers.span_s is None


def test_a_part_that_raises_ends_its_ranges(marks):
    class Failing(nn.Module):
        def forward(self, x):
            raise ValueError("no")

    model = nn.Sequential(nn.Linear(2, 2), Failing())
    with ranges.annotated(model, ranges.nvtx_of("cuda")), pytest.raises(ValueError, match="no"):
        model(torch.ones(1, 2))
    assert [] == marks.open
    assert [("Sequential",), ("Sequential", "0"), ("Sequential", "1")] == marks.seen


def test_a_part_within_itself_opens_and_closes_twice(marks):
    class Twice(nn.Module):
        def forward(self, depth):
            return self(depth - 1) if depth else depth

    model = Twice()
    with ranges.annotated(model, ranges.nvtx_of("cuda")):
        model(1)
    assert [("Twice",), ("Twice", "Twice")] == marks.seen
    assert [] == marks.open


def test_a_compiled_model_is_not_compiled_again_for_its_hooks():
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(model, backend=backend)
    x = torch.ones(1, 2)
    expected = compiled(x)
    with ranges.annotated(compiled, None):
        assert torch.equal(expected, compiled(x))
    assert torch.equal(expected, compiled(x))
    assert all("record_function" not in str(node.target) for graph in graphs for node in graph.graph.nodes)
    torch.compiler.reset()


def test_no_external_profiler_can_be_told_on_a_cpu():
    with pytest.raises(NoProfile, match="through CUDA or ROCm, and this is cpu"):
        capture_external(CpuDevice(), Subject(lambda: None, [()], None, 0.1))


@pytest.mark.parametrize("name", external.ATTACHED)
def test_an_attached_profiler_is_seen_by_what_it_sets(name):
    assert f"{name} is set" in attached({name: "1"})
    assert "" == attached({name: ""})


def test_a_device_that_torch_does_not_profile_is_named():
    class Mps(CpuDevice):
        def __init__(self):
            super().__init__()
            self.name = "mps"

    kinds, missing = capture._activities(Mps())
    assert [torch.profiler.ProfilerActivity.CPU] == kinds
    assert ["kernels on mps"] == [sentence.partition(":")[0] for sentence in missing]


def test_stamps_that_cannot_be_read_leave_the_other_clocks():
    class Odd(CpuDevice):
        def elapsed_s(self, start, end):
            raise DeviceError("cannot time its events")

    host_s, device_s, why = clocks.unprofiled(Odd(), Subject(lambda: None, [()], None, 0.1))
    assert host_s >= 0
    assert device_s is None
    assert ("the device's timer: cannot time its events",) == why


def counted(call_s):
    """A function that counts its calls, as a subject, and the count."""
    calls = []
    return Subject(lambda: calls.append(torch.ones(2).sum()), [()], None, call_s, stamped=True), calls


def test_a_long_call_is_made_once_more_and_no_second_time(tmp_path):
    subject, calls = counted(call_s=100.0)
    captured = capture_torch(CpuDevice(), subject, tmp_path / "t.json.gz")
    assert 1 == len(calls)
    assert (100.0, 100.0) == (captured.timers.host_s, captured.timers.device_s)
    assert captured.timers.profiled_host_s < 100.0
    assert (clocks.NOT_AGAIN,) == captured.missing
    assert {"aten::sum", "aten::ones"} <= {row.name for row in analyse_file(tmp_path / "t.json.gz").kernels}


def test_a_short_call_is_made_three_times_by_the_clocks_once_to_warm_up_and_three_times_profiled(tmp_path):
    subject, calls = counted(call_s=0.1)
    capture_torch(CpuDevice(), subject, tmp_path / "t.json.gz")
    assert 3 + 1 + 3 == len(calls)
    assert 3 == analyse_file(tmp_path / "t.json.gz").calls


def test_on_rocm_the_profile_says_that_nobody_was_told_of_begin_and_end(marks, monkeypatch):
    monkeypatch.setattr(torch.cuda.profiler, "start", lambda: None)
    monkeypatch.setattr(torch.cuda.profiler, "stop", lambda: None)
    subject = Subject(lambda: None, [()], None, call_s=1.5)
    assert capture.HIP_NEVER_STOPS not in capture_external(Gpu(), subject).missing
    monkeypatch.setattr(torch.version, "hip", "6.4")
    marks.seen.clear()
    assert capture.HIP_NEVER_STOPS in capture_external(Gpu(), subject).missing
    # The range is around the call that is looked at, and not around the one before it.
    assert [(CALL,)] == marks.seen


@pytest.mark.parametrize("calls", [0, -1])
def test_a_profile_of_no_call_is_refused(calls):
    with pytest.raises(ValueError, match="one profiled call"):
        Profile("t", "t", "p", "cpu", calls)
