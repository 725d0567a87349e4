"""The attentions that are measured side by side: which there are, what of them is timed, and what counts as right."""

import itertools
import warnings

import pytest
import torch
from torch.nn.attention import SDPBackend

from roofline_kernels.attention import implementations, operators
from roofline_kernels.attention.checking import FACTOR, FACTOR_3XTF32, float32_factor, right
from roofline_kernels.attention.implementations import (
    IMPLEMENTATIONS,
    PASSES,
    Unavailable,
    implementation,
    make_case,
    once,
    pass_of,
    plain,
)
from roofline_kernels.attention.reference import attention

CPU = torch.device("cpu")
# cuDNN and the memory-efficient back end want a GPU; `compiled` is made in another place.
ON_A_CPU = ("triton", "sdpa_flash", "sdpa_math", "eager")
NOT_ON_A_CPU = ("sdpa_cudnn", "sdpa_efficient")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]
EVERY_DTYPE = pytest.mark.parametrize("dtype", DTYPES, ids=["fp32", "bf16", "fp16"])
EVERY_PASS = pytest.mark.parametrize("passes", PASSES)
RESULTS = ("output", "dQ", "dK", "dV")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Products are small here: to share one with a second thread takes a hundred times as long on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def case_of(dtype=torch.float32, *, causal=True, batch=1, heads=2, sequence=48, head_dim=16):
    return make_case(batch, heads, sequence, head_dim, dtype, CPU, causal=causal)


class Counted:
    """The plain attention, which counts how often it was called and whether gradients were wanted."""

    def __init__(self, run=None):
        self.run = run or implementation("eager")
        self.modes = []

    def __call__(self, *arguments):
        self.modes.append(torch.is_grad_enabled())
        return self.run(*arguments)

    @property
    def calls(self):
        return len(self.modes)


def same(one, other):
    return all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


# Which there are


def test_every_implementation_is_tried_here():
    assert sorted(IMPLEMENTATIONS) == sorted([*ON_A_CPU, *NOT_ON_A_CPU, "compiled"])


def test_what_runs_on_a_cpu_is_right():
    for name, causal in itertools.product(ON_A_CPU, [False, True]):
        case = case_of(causal=causal)
        once(implementation(name), case, "both")
        assert right(case, passes="both"), (name, causal)


@pytest.mark.parametrize("name", NOT_ON_A_CPU)
@EVERY_PASS
def test_a_back_end_that_a_cpu_does_not_have_is_unavailable_in_words(name, passes):
    with pytest.raises(Unavailable, match=r"No viable backend|No available kernel"):
        pass_of(passes, implementation(name), case_of())


@pytest.mark.parametrize("architecture", ["sm_60", "sm_70", "sm_75"])
def test_an_architecture_that_our_kernels_refuse_is_unavailable_with_its_sentence(monkeypatch, architecture):
    monkeypatch.setattr(operators, "architecture_of", lambda device: architecture)
    with pytest.raises(Unavailable, match=f"flash_attention on {architecture}: "):
        pass_of("forward", implementation("triton"), case_of())


@pytest.mark.parametrize("module", ["triton", "triton.tools.tensor_descriptor"])
def test_where_triton_is_missing_or_old_our_kernels_are_unavailable(module):
    def failing(q, k, v, causal):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    with pytest.raises(Unavailable, match=f"needs Triton, .*No module named {module!r}"):
        once(failing, case_of(), "both")


def test_the_reasons_that_pytorch_gives_are_told_without_where_they_arose():
    def refusing(q, k, v, causal):
        warnings.warn(
            "Memory efficient kernel not used because: (Triggered internally at sdp_utils.cpp:600.)", stacklevel=1
        )
        warnings.warn("It wants a GPU. (Triggered internally at sdp_utils.cpp:7.)", stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.\nException raised from here")

    with pytest.raises(Unavailable) as told:
        once(refusing, case_of(), "both")
    message = str(told.value)
    assert "No available kernel. Aborting execution." in message
    assert "Memory efficient kernel not used because:" in message
    assert "It wants a GPU." in message
    assert [word for word in ("Triggered", "Exception raised", "\n") if word in message] == []


def test_a_name_that_there_is_not_is_refused_with_those_that_there_are():
    for name in ["flash", "sdpa", "sdpa_FLASH_ATTENTION", "", "compiled"]:
        with pytest.raises(
            ValueError, match=rf"implementation is {name!r}; expected one of {', '.join(IMPLEMENTATIONS)}"
        ):
            implementation(name)


def test_sdpa_is_held_to_the_back_end_of_its_name(monkeypatch):
    held = []

    def only(backends):
        held.extend(backends)
        return torch.nn.attention.sdpa_kernel([SDPBackend.MATH])

    monkeypatch.setattr(implementations, "sdpa_kernel", only)
    for name in IMPLEMENTATIONS:
        if name.startswith("sdpa_"):
            once(implementation(name), case_of(), "both")
    assert held == [
        SDPBackend.FLASH_ATTENTION,
        SDPBackend.CUDNN_ATTENTION,
        SDPBackend.EFFICIENT_ATTENTION,
        SDPBackend.MATH,
    ]  # fmt: skip


# Cases


def test_a_case_has_the_same_values_at_every_call():
    one, other = case_of(), case_of()
    assert same((*one.inputs, one.d_out), (*other.inputs, other.d_out))


# What is timed


def test_forward_is_one_call_that_leaves_no_graph():
    run, case = Counted(), case_of()
    call = pass_of("forward", run, case)
    before = run.calls
    call(case)
    assert run.modes[before:] == [False]
    assert (case.out.requires_grad, case.out.grad_fn) == (False, None)
    assert right(case, passes="forward")


def test_backward_does_not_go_forward_again():
    run, case = Counted(), case_of()
    call = pass_of("backward", run, case)
    before = run.calls
    for _ in range(3):
        call(case)
    assert run.calls == before
    assert right(case, passes="backward")


def test_backward_makes_gradients_anew_every_time():
    case = case_of()
    call = pass_of("backward", implementation("eager"), case)
    made = []
    for _ in range(2):
        case.gradients = ()
        call(case)
        made.append(case.gradients)
    assert same(*made)
    assert not any(one.data_ptr() == other.data_ptr() for one, other in zip(*made, strict=True))


def test_both_is_one_call_with_a_graph_that_is_gone_afterwards():
    run, case = Counted(), case_of()
    call = pass_of("both", run, case)
    before = run.calls
    case.out, case.gradients = None, ()
    call(case)
    assert run.modes[before:] == [True]
    assert case.out.grad_fn is None
    assert right(case, passes="both")


@EVERY_PASS
def test_inputs_stay_as_they_were(passes):
    case, untouched = case_of(), case_of()
    pass_of(passes, implementation("triton"), case)(case)
    assert same((*case.inputs, case.d_out), (*untouched.inputs, untouched.d_out))


def test_what_an_implementation_compiles_or_refuses_comes_before_what_is_timed():
    for passes, graph in [("forward", False), ("backward", True), ("both", True)]:
        run = Counted()
        pass_of(passes, run, case_of())
        assert run.modes[0] is graph, (passes, graph)


def no_way_back(q, k, v, causal):
    """An attention whose backward pass is refused."""
    out = plain(q, k, v, causal)
    if out.requires_grad:
        out.register_hook(refusing)
    return out


def refusing(_gradient):
    raise RuntimeError("No available kernel. Aborting execution.")


def test_a_forward_pass_does_not_need_the_backward_pass():
    case = case_of()
    pass_of("forward", no_way_back, case)(case)
    assert right(case, passes="forward")
    for passes in ("backward", "both"):
        with pytest.raises(Unavailable, match="No available kernel"):
            pass_of(passes, no_way_back, case)


# What counts as right


def done(dtype=torch.float32, **shape):
    """A case with the right results of PyTorch's own attention."""
    case = case_of(dtype, **shape)
    once(implementation("sdpa_math"), case, "both")
    return case


def results(case):
    return dict(zip(RESULTS, (case.out, *case.gradients), strict=True))


def spoil(case, name, change):
    """Put something else in the place of one result."""
    found = results(case)
    found[name] = change(found[name].clone())
    case.out, case.gradients = found["output"], tuple(found[gradient] for gradient in RESULTS[1:])


def with_last_row(tensor, value):
    tensor[-1, -1, -1] = value
    return tensor


def with_element(tensor, value):
    tensor[-1, -1, 7, 3] = value
    return tensor


ERRORS = {
    "scaled": lambda tensor: tensor * 1.1,
    "negative": lambda tensor: -tensor,
    "zeros": torch.zeros_like,
    "last row left out": lambda tensor: with_last_row(tensor, 0.0),
    "last row that of the first": lambda tensor: with_last_row(tensor, tensor[-1, -1, 0].clone()),
    "nan": lambda tensor: torch.full_like(tensor, torch.nan),
    "one nan": lambda tensor: with_element(tensor, torch.nan),
    "infinite": lambda tensor: with_element(tensor, torch.inf),
    "one element off": lambda tensor: with_element(tensor, tensor[-1, -1, 7, 3] + 0.2),
    "rows turned by one": lambda tensor: tensor.roll(1, 2),
    "heads turned by one": lambda tensor: tensor.roll(1, 1),
    "keys and columns confused": lambda tensor: tensor.roll(1, 3),
}


@EVERY_DTYPE
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", RESULTS)
def test_an_error_in_any_result_is_refused_by_name(dtype, name, error):
    case = done(dtype)
    spoil(case, name, ERRORS[error])
    for passes in PASSES if name == "output" else ("backward", "both"):
        with pytest.raises(AssertionError, match=rf"{name} is off by \S+; accepted is \d"):
            right(case, passes=passes)


@pytest.mark.parametrize(
    ("name", "device", "hip", "capability", "factor"),
    [
        ("sdpa_efficient", "cuda", None, (8, 0), FACTOR_3XTF32),
        ("sdpa_efficient", "cuda", None, (9, 0), FACTOR_3XTF32),
        ("sdpa_efficient", "cuda", None, (7, 0), FACTOR),
        ("sdpa_efficient", "cuda", None, (7, 5), FACTOR),
        ("sdpa_efficient", "cuda", "7.2", (9, 4), FACTOR),
        ("sdpa_efficient", "cpu", None, None, FACTOR),
        ("sdpa_math", "cuda", None, (9, 0), FACTOR),
    ],
)
def test_three_products_of_tf32_are_accepted_only_where_they_are_made(
    monkeypatch, name, device, hip, capability, factor
):
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert float32_factor(name, torch.device(device)) == factor


WRONG_ATTENTIONS = {
    "no mask": lambda q, k, v: attention(q, k, v)[0],
    "mask off by one": lambda q, k, v: attention(q, torch.roll(k, 1, 2), torch.roll(v, 1, 2), causal=True)[0],
    "no scale": lambda q, k, v: attention(q, k, v, causal=True, scale=1.0)[0],
    "scale by D": lambda q, k, v: attention(q, k, v, causal=True, scale=1 / q.shape[3])[0],
    "keys for values": lambda q, k, v: attention(q, k, k, causal=True)[0] + 0 * v,
}


@EVERY_DTYPE
@EVERY_PASS
@pytest.mark.parametrize("kind", WRONG_ATTENTIONS)
def test_another_attention_is_refused(dtype, passes, kind):
    case = case_of(dtype)
    pass_of(passes, lambda q, k, v, causal: WRONG_ATTENTIONS[kind](q, k, v), case)(case)
    with pytest.raises(AssertionError, match="is off by"):
        right(case, passes=passes)


def test_gradients_that_were_never_made_are_not_right():
    for passes in ["backward", "both"]:
        case = done()
        case.gradients = ()
        with pytest.raises((AssertionError, ValueError)):
            right(case, passes=passes)


def test_an_error_of_another_batch_or_head_shows_in_the_last():
    case = done(batch=2, heads=3)
    spoil(case, "output", lambda tensor: tensor.roll(1, 0))
    with pytest.raises(AssertionError, match="output is off by"):
        right(case, passes="forward")
