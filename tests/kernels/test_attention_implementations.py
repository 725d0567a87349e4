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

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")
# cuDNN and the memory-efficient back end want a GPU; `compiled` is made in another place.
ON_A_CPU = ("triton", "sdpa_flash", "sdpa_math", "eager")
NOT_ON_A_CPU = ("sdpa_cudnn", "sdpa_efficient")
ON_HOPPER = "gluon"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
RESULTS = ("output", "dQ", "dK", "dV")


def case_of(dtype=torch.float32, *, causal=True, batch=1, heads=2):
    return make_case(batch, heads, 48, 16, dtype, CPU, causal=causal)


class Counted:
    """The plain attention, noting at each call whether gradients were wanted."""

    def __init__(self):
        self.run, self.modes = implementation("eager"), []

    def __call__(self, *arguments):
        self.modes.append(torch.is_grad_enabled())
        return self.run(*arguments)


def same(one, other):
    return all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


# Which there are


def test_what_runs_on_a_cpu_is_right_and_leaves_its_inputs_as_they_were():
    assert sorted(IMPLEMENTATIONS) == sorted([*ON_A_CPU, *NOT_ON_A_CPU, ON_HOPPER, "compiled"])
    for name, causal in itertools.product(ON_A_CPU, [False, True]):
        case, untouched = case_of(causal=causal), case_of(causal=causal)
        once(implementation(name), case, "both")
        assert right(case, passes="both"), (name, causal)
        assert same((*case.inputs, case.d_out), (*untouched.inputs, untouched.d_out)), name


def failing(error):
    def run(q, k, v, causal):
        raise error

    return run


def test_what_a_machine_does_not_have_is_unavailable_in_words(monkeypatch):
    for name, passes in itertools.product(NOT_ON_A_CPU, PASSES):
        with pytest.raises(Unavailable, match=r"No viable backend|No available kernel"):
            pass_of(passes, implementation(name), case_of())
    for module in ["triton", "triton.tools.tensor_descriptor"]:
        missing = ModuleNotFoundError(f"No module named {module!r}", name=module)
        with pytest.raises(Unavailable, match=f"needs Triton, .*No module named {module!r}"):
            once(failing(missing), case_of(), "both")
    for architecture in ["sm_60", "sm_75"]:
        monkeypatch.setattr(operators, "architecture_of", lambda device, found=architecture: found)
        with pytest.raises(Unavailable, match=f"flash_attention on {architecture}: "):
            pass_of("forward", implementation("triton"), case_of())


def test_the_reasons_that_pytorch_gives_are_told_without_where_they_arose():
    def refusing(q, k, v, causal):
        warnings.warn(
            "Kernel not used because: (Triggered internally at sdp_utils.cpp:600.)", stacklevel=1
        )
        warnings.warn("It wants a GPU. (Triggered internally at sdp_utils.cpp:7.)", stacklevel=1)
        raise RuntimeError("No available kernel. Aborting execution.\nException raised from here")

    with pytest.raises(Unavailable) as told:
        once(refusing, case_of(), "both")
    message = str(told.value)
    wanted = (
        "No available kernel. Aborting execution.",
        "Kernel not used because:",
        "It wants a GPU.",
    )
    assert [text for text in wanted if text not in message] == []
    assert [word for word in ("Triggered", "Exception raised", "\n") if word in message] == []


def test_a_name_that_there_is_not_is_refused_with_those_that_there_are():
    for name in ["sdpa", "", "compiled"]:
        told = rf"implementation is {name!r}; expected one of {', '.join(IMPLEMENTATIONS)}"
        with pytest.raises(ValueError, match=told):
            implementation(name)


def test_sdpa_is_held_to_the_back_end_of_its_name(monkeypatch):
    asked = []

    def only(backends):
        asked.extend(backends)
        return torch.nn.attention.sdpa_kernel([SDPBackend.MATH])

    monkeypatch.setattr(implementations, "sdpa_kernel", only)
    for name in IMPLEMENTATIONS:
        if name.startswith("sdpa_"):
            once(implementation(name), case_of(), "both")
    assert [one.name for one in asked] == [
        "FLASH_ATTENTION",
        "CUDNN_ATTENTION",
        "EFFICIENT_ATTENTION",
        "MATH",
    ]


# What is timed


def test_a_pass_calls_what_it_is_named_for_and_is_right():
    for passes, first, timed in [
        ("forward", False, [False]),
        ("backward", True, []),
        ("both", True, [True]),
    ]:
        run, case = Counted(), case_of()
        call = pass_of(passes, run, case)
        # What an implementation compiles or refuses comes before what is timed.
        before = len(run.modes)
        assert run.modes[0] is first, passes
        call(case)
        assert run.modes[before:] == timed, passes
        assert right(case, passes=passes)
        assert passes == "backward" or (case.out.requires_grad, case.out.grad_fn) == (False, None)


def test_backward_makes_gradients_anew_every_time():
    case, made = case_of(), []
    call = pass_of("backward", implementation("eager"), case)
    for _ in range(2):
        case.gradients = ()
        call(case)
        made.append(case.gradients)
    assert same(*made)
    assert not any(one.data_ptr() == other.data_ptr() for one, other in zip(*made, strict=True))


def test_a_forward_pass_does_not_need_the_backward_pass():
    def no_way_back(q, k, v, causal):
        out = plain(q, k, v, causal)
        if out.requires_grad:
            out.register_hook(
                lambda _: failing(RuntimeError("No available kernel. Aborting execution."))(
                    q, k, v, 0
                )
            )
        return out

    case = case_of()
    pass_of("forward", no_way_back, case)(case)
    assert right(case, passes="forward")
    for passes in ("backward", "both"):
        with pytest.raises(Unavailable, match="No available kernel"):
            pass_of(passes, no_way_back, case)


# What counts as right


def spoil(case, name, change):
    """Put something else in the place of one result."""
    found = dict(zip(RESULTS, (case.out, *case.gradients), strict=True))
    found[name] = change(found[name].clone())
    case.out, case.gradients = found["output"], tuple(found[gradient] for gradient in RESULTS[1:])


def with_element(tensor, value):
    tensor[-1, -1, 7, 3] = value
    return tensor


def with_last_row(tensor):
    tensor[-1, -1, -1] = tensor[-1, -1, 0].clone()
    return tensor


ERRORS = {
    "scaled": lambda tensor: tensor * 1.1,
    "zeros": torch.zeros_like,
    "last row that of the first": with_last_row,
    "one nan": lambda tensor: with_element(tensor, torch.nan),
    "infinite": lambda tensor: with_element(tensor, torch.inf),
    "one element off": lambda tensor: with_element(tensor, tensor[-1, -1, 7, 3] + 0.2),
    "heads turned by one": lambda tensor: tensor.roll(1, 1),
}
WRONG_ATTENTIONS = {
    "no mask": lambda q, k, v: attention(q, k, v)[0],
    "mask off by one": lambda q, k, v: attention(
        q, torch.roll(k, 1, 2), torch.roll(v, 1, 2), causal=True
    )[0],
    "scale by D": lambda q, k, v: attention(q, k, v, causal=True, scale=1 / q.shape[3])[0],
    "keys for values": lambda q, k, v: attention(q, k, k, causal=True)[0] + 0 * v,
}


def test_an_error_in_any_result_is_refused_by_name():
    for dtype, name, error in itertools.product(DTYPES, RESULTS, ERRORS):
        case = case_of(dtype)
        once(implementation("sdpa_math"), case, "both")
        spoil(case, name, ERRORS[error])
        for passes in PASSES if name == "output" else ("backward", "both"):
            with pytest.raises(AssertionError, match=rf"{name} is off by \S+; accepted is \d"):
                right(case, passes=passes)
    case = case_of(batch=2, heads=3)
    once(implementation("sdpa_math"), case, "both")
    spoil(case, "output", lambda tensor: tensor.roll(1, 0))
    with pytest.raises(AssertionError, match="output is off by"):
        right(case, passes="forward")
    case.gradients = ()
    with pytest.raises((AssertionError, ValueError)):
        right(case, passes="backward")


def test_another_attention_is_refused():
    for dtype, passes, kind in itertools.product(DTYPES, PASSES, WRONG_ATTENTIONS):
        case = case_of(dtype)
        pass_of(passes, lambda q, k, v, causal, kind=kind: WRONG_ATTENTIONS[kind](q, k, v), case)(
            case
        )
        with pytest.raises(AssertionError, match="is off by"):
            right(case, passes=passes)


def test_three_products_of_tf32_are_accepted_only_where_they_are_made(monkeypatch):
    for name, device, hip, capability, factor in [
        ("sdpa_efficient", "cuda", None, (8, 0), FACTOR_3XTF32),
        ("sdpa_efficient", "cuda", None, (7, 5), FACTOR),
        ("sdpa_efficient", "cuda", "7.2", (9, 4), FACTOR),
        ("sdpa_efficient", "cpu", None, None, FACTOR),
        ("sdpa_math", "cuda", None, (9, 0), FACTOR),
    ]:
        monkeypatch.setattr(torch.version, "hip", hip)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, found=capability: found)
        assert float32_factor(name, torch.device(device)) == factor, (name, device, hip)
