"""What a call's memory goes into, against bytes that were counted by hand and against the device's own counter.

The small model has two matrices of 8 by 16 and a GELU between; 64 rows go through it, all in float32.
"""

import gc
import sys
import weakref
from types import SimpleNamespace

import pytest
import torch

# Optimizers load it at their first step; every collection of garbage would then go through all of it.
import torch._dynamo
from torch import nn
from torch.utils.checkpoint import checkpoint

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.memory_use import CATEGORIES
from pytest_roofline.measuring.devices.base import Allocated
from pytest_roofline.measuring.devices.cpu import CpuDevice
from pytest_roofline.measuring.devices.fake import FakeDevice
from pytest_roofline.measuring.memory_use.blocks import Block, Log, find_peak
from pytest_roofline.measuring.memory_use.classify import categories
from pytest_roofline.measuring.memory_use.missing import unseen
from pytest_roofline.measuring.memory_use.snapshot import snapshot
from pytest_roofline.measuring.memory_use.taking import Call, take
from pytest_roofline.measuring.memory_use.tracking import Tracker

ROWS, WIDTH, INNER, FLOAT = 64, 8, 16, 4
NARROW, WIDE = ROWS * WIDTH * FLOAT, ROWS * INNER * FLOAT
MATRIX = WIDTH * INNER * FLOAT
PARAMETERS = 2 * MATRIX
# Two moments for each parameter, and a count of steps for each matrix.
ADAMW = 2 * PARAMETERS + 2 * FLOAT


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, INNER, bias=False)
        self.activation = nn.GELU()
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        return self.down(self.activation(self.up(x)))


class Training:
    """A model, its optimizer, an input, and a gradient that a loss would give."""

    def __init__(self, rows=ROWS, optimizer=torch.optim.AdamW):
        self.model = Small()
        self.optimizer = optimizer(self.model.parameters(), lr=1e-3)
        self.inputs = torch.randn(rows, WIDTH), torch.randn(rows, WIDTH)

    def step(self, x, gradient):
        y = self.model(x)
        y.backward(gradient)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def follow(self, fn=None, arguments=None, **given):
        given = {"model": self.model, "optimizer": self.optimizer} | given
        return take(
            CpuDevice(), Call(self.step if fn is None else fn, self.inputs if arguments is None else arguments, **given)
        )


@pytest.fixture
def training():
    return Training()


def place_of(found, operator):
    return [one.place for one in found.largest if one.operator == operator]


def test_the_peak_of_a_training_step_is_what_a_hand_counts(training):
    training.step(*training.inputs)
    found = training.follow()
    # While the lower matrix's backward is done: its gradient and that of its input are there, and nothing is freed yet.
    assert found.categories == {
        "activations": WIDE + WIDE + NARROW,
        "inputs": 2 * NARROW,
        "temporaries": WIDE,
        "optimizer": ADAMW,
        "parameters": PARAMETERS,
        "gradients": MATRIX,
    }
    assert found.peak_bytes == sum(found.categories.values())
    assert found.phase == "backward"
    assert found.before_bytes == PARAMETERS + ADAMW + 2 * NARROW
    assert found.phase_peaks["forward"] == found.before_bytes + WIDE + WIDE + NARROW
    # The last gradient comes when the activations have gone.
    assert found.phase_peaks["optimizer"] < found.phase_peaks["forward"]


def test_on_a_cpu_the_device_counts_the_same_bytes_as_the_operators_show(training):
    training.step(*training.inputs)
    found = training.follow()
    assert found.device_peak_bytes == found.peak_bytes
    assert found.missing == ()


def test_the_largest_allocations_have_their_place_in_the_model(training):
    training.step(*training.inputs)
    found = training.follow()
    # Two activations in the forward pass, and the gradient of one of them in the backward pass of what comes after it.
    assert [one.size_bytes for one in found.largest] == [WIDE, WIDE, WIDE, NARROW, NARROW]
    told = {(one.category, one.made, one.operator, one.place) for one in found.largest[:3]}
    assert told == {
        ("activations", "forward", "aten.mm", "up"),
        ("activations", "forward", "aten.gelu", "activation"),
        ("temporaries", "backward", "aten.mm", "down"),
    }
    assert found.largest[0].shape == (ROWS, INNER)
    assert found.largest[0].dtype == "float32"


def test_the_first_step_peaks_in_the_optimizer_where_the_batch_is_small():
    training = Training(rows=1)
    found = training.follow()
    assert found.phase == "optimizer"
    assert found.categories["optimizer"] == ADAMW
    assert found.categories["gradients"] == PARAMETERS
    assert found.phase_peaks["optimizer"] == found.peak_bytes
    # What the optimizer made in the call belongs to a parameter.
    owners = {one.place for one in found.largest if one.category in ("optimizer", "gradients")}
    assert owners <= {"up.weight", "down.weight"}


def test_what_the_call_made_stands_beside_the_weights_that_are_larger():
    # So many that they are the five largest of all.
    layers = nn.Sequential(*(nn.Linear(100, 100, bias=False) for _ in range(6)))
    x = torch.randn(2, 100)
    found = take(CpuDevice(), Call(layers, (x,), layers))
    assert [(one.size_bytes, one.category) for one in found.largest] == [(40_000, "parameters")] * 5
    assert found.largest_made[0].size_bytes == 2 * 100 * FLOAT
    assert {one.made for one in found.largest_made} == {"forward"}
    assert found.largest_made[0].operator == "aten.mm"


def test_inference_keeps_nothing_but_its_output(training):
    with torch.no_grad():
        found = training.follow(training.model, training.inputs[:1], optimizer=None)
    assert found.categories == {"temporaries": 2 * WIDE, "inputs": NARROW, "parameters": PARAMETERS}
    assert found.phase == "forward"
    assert found.phase_peaks == {"forward": found.peak_bytes}


def test_a_forward_pass_whose_result_is_kept_keeps_what_its_backward_needs(training):
    found = training.follow(training.model, training.inputs[:1], optimizer=None)
    assert found.categories["activations"] == WIDE + WIDE + NARROW


def test_a_backward_alone_finds_activations_from_before(training):
    x, gradient = training.inputs
    y = training.model(x)
    found = training.follow(lambda: y.backward(gradient), ())
    # What only the operators of the backward use tells nothing else apart; both were captured, not given.
    assert found.categories["activations"] == WIDE + WIDE + 2 * NARROW
    assert found.phase == "backward"


def test_an_optimizer_alone_is_known_without_being_given(training):
    training.step(*training.inputs)
    for parameter in training.model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    found = training.follow(training.optimizer.step, (), model=None, optimizer=None)
    assert found.phase == "optimizer"
    assert found.categories | {"temporaries": 0} == {
        "optimizer": ADAMW,
        "parameters": PARAMETERS,
        "gradients": PARAMETERS,
        "temporaries": 0,
    }


def test_without_a_model_parameters_and_gradients_are_still_known_and_places_are_not(training):
    training.step(*training.inputs)
    found, with_model = training.follow(model=None, optimizer=None), training.follow()
    assert found.categories == with_model.categories
    assert {one.place for one in found.largest} == {""}


def test_the_gradient_of_an_input_is_a_gradient_too():
    x = torch.ones(100, requires_grad=True)
    found = take(CpuDevice(), Call(lambda x: (x * 2).sum().backward(), (x,)))
    # Beside them the sum and the one that its backward begins with.
    assert found.categories == {"gradients": x.nbytes, "inputs": x.nbytes, "activations": 8}


def test_what_comes_after_the_optimizer_is_none_of_it(training):
    def step_and_more(x, gradient):
        training.step(x, gradient)
        torch.ones(10**5)

    assert training.follow(step_and_more).phase == "forward"


def test_the_weights_that_inference_uses_are_parameters_without_a_model(training):
    found = training.follow(training.model, training.inputs[:1], model=None, optimizer=None)
    assert found.categories["parameters"] == PARAMETERS
    assert "other" not in found.categories


def test_a_submodule_that_raises_is_left_all_the_same(training):
    def survive(x):
        try:
            training.model.up(x[:, :1])
        except RuntimeError:
            return torch.ones(10**5)

    found = training.follow(survive, training.inputs[:1], optimizer=None)
    assert (found.largest[0].size_bytes, found.largest[0].place) == (4 * 10**5, "")


def test_gradients_of_a_second_backward_add_to_those_of_the_first(training):
    def twice(x, gradient):
        training.model(x).backward(gradient)
        training.model(x).backward(gradient)

    found = training.follow(twice)
    assert found.categories["gradients"] == PARAMETERS
    assert found.phase == "backward"


def test_what_clips_gradients_is_neither_forward_nor_backward(training):
    def clipped(x, gradient):
        training.model(x).backward(gradient)
        nn.utils.clip_grad_norm_(training.model.parameters(), 1.0)

    found = training.follow(clipped)
    assert set(found.phase_peaks) == {"forward", "backward", "other"}


def test_a_second_forward_pass_after_a_backward_is_forward(training):
    def again(x, gradient):
        training.model(x).backward(gradient)
        with torch.no_grad():
            training.model(torch.cat([x] * 8))

    found = training.follow(again)
    # The concatenation itself stands outside of the model; eight times the rows do not.
    assert found.phase == "forward"
    assert place_of(found, "aten.gelu") == ["activation"]


def test_views_and_results_in_place_are_no_allocations():
    x = torch.zeros(100)
    found = take(CpuDevice(), Call(lambda x: x.view(10, 10).t().add_(1), (x,)))
    assert found.peak_bytes == x.nbytes
    assert found.categories == {"inputs": x.nbytes}


def test_data_from_python_is_allocated_by_the_call_and_was_not_there_before():
    found = take(CpuDevice(), Call(lambda: torch.tensor([1.0] * 100)))
    assert (found.before_bytes, found.peak_bytes) == (0, 400)


def test_storages_that_are_resized_by_hand_count_as_they_are():
    def resize():
        tensor = torch.empty(0)
        tensor.untyped_storage().resize_(4000)
        tensor.untyped_storage().resize_(0)
        return torch.empty(250), tensor

    found = take(CpuDevice(), Call(resize))
    assert found.peak_bytes == 4000
    assert "resize_" not in vars(torch.UntypedStorage)


def test_a_storage_that_an_operator_makes_larger_counts_as_it_is():
    def grow():
        tensor = torch.empty(1)
        tensor.resize_(1000)
        return tensor

    assert take(CpuDevice(), Call(grow)).peak_bytes == 4000


def test_a_module_that_stands_at_two_places_runs_at_the_one_that_called_it():
    shared = nn.GELU()
    model = nn.Sequential(nn.Sequential(nn.Linear(8, 8), shared), nn.Sequential(nn.Linear(8, 8), shared))
    found = take(CpuDevice(), Call(model, (torch.randn(ROWS, 8),), model))
    assert sorted(place_of(found, "aten.gelu")) == ["0.1", "1.1"]


def test_a_model_that_is_called_twice_has_the_same_places_twice(training):
    found = training.follow(lambda x: training.model(training.model(x)), training.inputs[:1], optimizer=None)
    assert sorted(place_of(found, "aten.gelu")) == ["activation", "activation"]


def test_what_checkpointing_makes_anew_has_its_place(training):
    def step(x, gradient):
        checkpoint(training.model, x, use_reentrant=False).backward(gradient)

    found = training.follow(step)
    assert found.categories["activations"] == NARROW
    assert "activation" in place_of(found, "aten.gelu")
    assert found.phase == "backward"


def test_gradients_of_what_is_no_parameter_are_temporaries(training):
    def step(x, gradient):
        hidden = training.model.activation(training.model.up(x))
        hidden.retain_grad()
        training.model.down(hidden).backward(gradient)
        return hidden

    found = training.follow(step, optimizer=None)
    assert found.categories["gradients"] <= PARAMETERS
    assert found.categories["temporaries"] >= WIDE


class Pair(torch.Tensor):
    """A tensor made of two others, with no memory of its own."""

    @staticmethod
    def __new__(cls, left, right):
        return torch.Tensor._make_wrapper_subclass(cls, left.shape, dtype=left.dtype, device=left.device)

    def __init__(self, left, right):
        self.left, self.right = left, right

    def __tensor_flatten__(self):
        return ["left", "right"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Pair(inner["left"], inner["right"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        scratch = torch.empty(1000, dtype=torch.uint8)
        sides = [[getattr(one, side) if isinstance(one, Pair) else one for one in args] for side in ("left", "right")]
        pair = Pair(*(func(*side, **(kwargs or {})) for side in sides))
        del scratch
        return pair


def test_a_tensor_made_of_tensors_is_what_those_are():
    found = take(CpuDevice(), Call(lambda pair: pair * 2, (Pair(torch.ones(100), torch.ones(100)),)))
    assert found.categories == {"temporaries": 1000, "inputs": 800, "activations": 800}


def test_what_a_hook_on_gradients_holds_is_no_activation(training):
    bucket = torch.zeros(1000)

    def into_bucket(parameter):
        bucket[: parameter.numel()] += parameter.grad.flatten()

    for parameter in training.model.parameters():
        parameter.register_post_accumulate_grad_hook(into_bucket)
    found = training.follow()
    assert found.categories["other"] == bucket.nbytes


def test_sparse_gradients_are_gradients():
    table = nn.Embedding(50, WIDTH, sparse=True)
    indices = torch.arange(10)
    found = take(CpuDevice(), Call(lambda: table(indices).sum().backward(), (), table))
    # Rows and their numbers.
    assert found.categories["gradients"] == 10 * WIDTH * FLOAT + 10 * 8


def test_outputs_stand_beside_what_was_predicted_for_them(training):
    predicted = {"up": WIDE, "activation": 1, "": NARROW}
    found = training.follow(predicted=predicted)
    assert [(one.module, one.predicted_bytes, one.measured_bytes) for one in found.outputs] == [
        ("up", WIDE, WIDE),
        ("activation", 1, WIDE),
        ("", NARROW, NARROW),
    ]


def test_of_several_calls_the_largest_output_counts(training):
    def calls(x):
        for rows in (1, 64, 2):
            training.model.up(x[:rows])

    found = training.follow(calls, training.inputs[:1], optimizer=None, predicted={"up": WIDE})
    assert found.outputs[0].measured_bytes == WIDE


def test_the_output_of_a_submodule_that_does_not_run_is_unknown(training):
    found = training.follow(training.model.up, training.inputs[:1], predicted={"down": NARROW})
    assert found.outputs[0].measured_bytes is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"predicted": {"dawn": 1}}, "predicted names 'dawn'; expected a submodule of Small, such as down"),
        ({"predicted": {"up": 1}, "model": None}, "predicted is given without model"),
        ({"predicted": {"up": 1.5}}, "predicted has 1.5 for 'up'; expected whole bytes"),
        ({"model": 3}, "model is a int; expected a torch.nn.Module"),
        ({"optimizer": 3}, "optimizer is a int; expected a torch.optim.Optimizer"),
    ],
)
def test_what_cannot_be_followed_is_refused(training, given, sentence):
    with pytest.raises(BadInput, match=sentence):
        training.follow(**given)


def test_a_call_that_touches_nothing_on_the_device_is_refused():
    with pytest.raises(BadInput, match="memory saw no tensor on cpu; expected a function that works on"):
        take(CpuDevice(), Call(lambda: 3))


def test_whatever_is_raised_nothing_stays_behind(training):
    def fail(x, gradient):
        training.model(x)
        raise ValueError("in the middle")

    with pytest.raises(ValueError, match="in the middle"):
        training.follow(fail)
    assert [len(one._forward_hooks) + len(one._forward_pre_hooks) for one in training.model.modules()] == [0] * 4
    assert "resize_" not in vars(torch.UntypedStorage)
    assert torch.utils._python_dispatch._get_current_dispatch_mode() is None
    optimizers = sys.modules["torch.optim.optimizer"]
    assert not optimizers._global_optimizer_pre_hooks
    assert not optimizers._global_optimizer_post_hooks


def test_an_error_of_the_allocator_comes_through_as_it_is(training):
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        training.follow(lambda *_: torch.empty(2**50))


def test_compiled_code_runs_operator_by_operator_and_is_compiled_afterwards(training):
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(training.model, backend=backend)
    found = training.follow(compiled, training.inputs[:1], model=compiled, optimizer=None, predicted={"up": WIDE})
    assert graphs == []
    assert found.missing == ("what compiled code allocates: its operators ran one by one here",)
    assert found.outputs[0].measured_bytes == WIDE
    assert place_of(found, "aten.gelu") == ["activation"]
    # A frame that torch meets under a dispatch mode it never compiles again, and what is timed next would be slow.
    compiled(training.inputs[0])
    assert len(graphs) == 1


def test_a_transformer_layer_holds_by_its_operators_what_the_device_counts():
    layers = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True, norm_first=True), 2, enable_nested_tensor=False
    )
    optimizer = torch.optim.AdamW(layers.parameters())
    x = torch.randn(4, 64, 32)

    def step():
        layers(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    found = take(CpuDevice(), Call(step, (), layers, optimizer))
    # The device also counts what kernels take for themselves: at most a hundredth here.
    assert found.peak_bytes <= found.device_peak_bytes <= 1.01 * found.peak_bytes
    assert found.phase == "backward"
    assert all(one.place.startswith("layers.") for one in found.largest if one.made == "forward")


def test_what_an_operator_takes_for_itself_is_the_difference_to_the_device(training):
    @torch.library.custom_op("roofline_tests::with_scratch", mutates_args=())
    def with_scratch(x: torch.Tensor) -> torch.Tensor:
        scratch = torch.ones(1000)
        return x * scratch.sum()

    x = torch.ones(10)
    found = take(CpuDevice(), Call(lambda: with_scratch(x)))
    assert found.peak_bytes == 2 * x.nbytes
    # The scratch itself, its sum, and the product.
    assert found.device_peak_bytes == x.nbytes + 4000 + 4 + x.nbytes


def test_what_the_call_gives_back_is_named_where_the_counter_does_not_see_it_go(training):
    for parameter in training.model.parameters():
        parameter.grad = torch.zeros_like(parameter)

    def step(x, gradient):
        training.optimizer.zero_grad()
        training.model(x).backward(gradient)

    found = training.follow(step)
    assert found.missing == (
        "1.00 KiB that were there before the call and were given back in it, which the counter of cpu does not see go",
    )


def test_inside_a_profiler_the_device_tells_nothing_and_the_operators_do(training):
    with torch.profiler.profile():
        found = training.follow()
    assert found.device_peak_bytes is None
    assert found.missing == ("the device's own peak, which cpu does not tell here",)
    assert found.peak_bytes == sum(found.categories.values())


def test_a_call_that_passes_no_operator_is_said_to_be_unseen(training):
    found = training.follow(lambda *_: None)
    assert found.peak_bytes > 0
    assert found.missing[0] == "all that the call itself did: no operator of it was seen on cpu"
    assert training.follow().missing == ()


def test_on_a_device_with_graphs_operators_that_allocate_nothing_are_not_all_that_there_is():
    x, log = torch.ones(100), Log()
    graphs = SimpleNamespace(name="cuda:0")

    def said(device, *blocks):
        log.changes = [(one, one.size_bytes, "forward") for one in blocks]
        return tuple(unseen(device, SimpleNamespace(seen=True, log=log)))

    assert said(graphs) == (
        "what passes no operator: none of the call's operators allocated anything, as where a graph is replayed",
    )
    assert said(graphs, block(4)) == said(CpuDevice()) == ()
    # In place, on a host: there is no graph that could hide.
    assert take(CpuDevice(), Call(lambda: x.add_(1))).missing == ()


def test_a_device_that_counts_absolutely_says_what_else_was_there():
    class Counting(FakeDevice):
        def allocated(self):
            return Allocated(now_bytes=5000)

        def peak_bytes(self, call):
            call()
            return 1200

    x = torch.ones(100)
    found = take(Counting(), Call(lambda x: x + 1, (x,)))
    assert (found.device_before_bytes, found.device_peak_bytes) == (5000, 6200)


# Of the classes of a log: what is planted is seen.


def block(size, made="forward", **facts):
    return Block(size, made, (size,), "uint8", **facts)


def test_a_block_that_is_not_released_shows_in_the_peak():
    def peak(*, leaks):
        log = Log()
        for _ in range(3):
            temporary = block(100)
            log.allocated(temporary, "forward")
            if not leaks:
                log.released(temporary, "forward")
        return find_peak(log).size_bytes

    assert (peak(leaks=False), peak(leaks=True)) == (100, 300)


def test_a_phase_begins_with_what_the_one_before_left():
    log, kept = Log(), block(300)
    log.allocated(kept, "forward")
    log.released(kept, "backward")
    found = find_peak(log)
    assert (found.step, found.by_step) == ("forward", {"forward": 300, "backward": 300})


def test_activations_are_what_outlives_its_forward_pass():
    log = Log()
    kept, gone, late = block(1000), block(100), block(10)
    log.allocated(kept, "forward")
    log.allocated(gone, "forward")
    log.allocated(late, "forward")
    log.released(gone, "forward")
    log.backward_begins()
    log.released(kept, "backward")
    # Made again in a second forward pass, and given back at its end.
    again = block(5)
    log.allocated(again, "forward")
    log.released(again, "forward")
    assert categories(find_peak(log), log) == {"activations": 1010, "temporaries": 100}
    assert find_peak(log).size_bytes == 1110
    # The largest of all, after the backward and before no other.
    last = block(5000)
    log.allocated(last, "forward")
    log.released(last, "forward")
    assert categories(find_peak(log), log) == {"temporaries": 5000, "activations": 10}


def test_a_weight_is_a_parameter_whatever_else_it_is():
    tracker = Tracker(torch.device("cpu"), _no_places())
    weight = torch.ones(10)
    tracker.mark(weight, "inputs")
    tracker.mark(weight, "parameters", "weight")
    tracker.mark(weight, "buffers")
    assert categories(find_peak(tracker.log), tracker.log) == {"parameters": 40}


def _no_places():
    from pytest_roofline.measuring.memory_use.places import Places

    return Places(None, {})


def test_every_category_that_can_be_found_has_a_name():
    assert len(set(CATEGORIES)) == 8


class History:
    """torch's memory history as far as a snapshot uses it."""

    def __init__(self, monkeypatch, fails=False):
        self.asked, self.fails, self.look = [], fails, bool
        monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", self.record)
        monkeypatch.setattr(torch.cuda.memory, "_dump_snapshot", self.dump)

    def record(self, enabled="all", **_):
        self.asked.append(enabled)

    def dump(self, path):
        if self.fails:
            raise OSError("disk full")
        self.looked = self.look()
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(b"snapshot")


def test_a_snapshot_is_taken_around_the_call_and_overwrites_none(monkeypatch, tmp_path):
    history, device = History(monkeypatch), FakeDevice()
    seen = [snapshot(device, lambda: history.asked.append("call"), tmp_path / "new", "step") for _ in range(2)]
    assert history.asked == ["all", "call", None] * 2
    assert [path.name for path in seen] == ["step.pickle", "step~2.pickle"]
    assert [path.read_bytes() for path in seen] == [b"snapshot"] * 2


def test_a_call_that_runs_out_of_memory_leaves_the_history_up_to_there(monkeypatch, tmp_path):
    history, held = History(monkeypatch), []

    def call():
        tensor = torch.ones(10)
        held.append(weakref.ref(tensor))
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    history.look = lambda: held[0]() is not None
    path = snapshot(FakeDevice(), call, tmp_path, "step")
    assert history.asked == ["all", None]
    # While the call still held what it held.
    assert (path.read_bytes(), history.looked) == (b"snapshot", True)


@pytest.mark.parametrize("fails", ["call", "dump"])
def test_a_snapshot_that_fails_leaves_no_file_and_no_history(monkeypatch, tmp_path, fails):
    history = History(monkeypatch, fails=fails == "dump")

    def call():
        if fails == "call":
            raise ValueError("in the call")

    with pytest.raises((OSError, ValueError)):
        snapshot(FakeDevice(), call, tmp_path, "step")
    assert history.asked == ["all", None]
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_was_followed_is_kept(training):
    kept = []

    def forward(x):
        y = training.model(x)
        kept.append(weakref.ref(y))
        return y

    training.follow(forward, training.inputs[:1], optimizer=None)
    gc.collect()
    assert kept[0]() is None


def test_what_a_call_returned_is_not_kept_by_a_device_that_fails_behind_it():
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
        take(Failing(), Call(forward))
    assert kept[0]() is None
