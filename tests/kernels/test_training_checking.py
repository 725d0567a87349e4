"""What holds a pass against the reference: every pass in every precision is right, and every fault is seen."""

import itertools

import pytest
import torch

from roofline_kernels.training import checking
from roofline_kernels.training.adamw import CHECKED_RATE
from roofline_kernels.training.checking import check
from roofline_kernels.training.executing import executed
from roofline_kernels.training.reference import Reference
from roofline_kernels.training.steps import LEARNING_RATE, PASSES

from .training_cases import make_training

FIRST = "blocks.0.attention.query.weight"


def done(training, passes):
    """The pass, after two calls."""
    with executed("eager", training, passes) as one:
        one.call()
        one.call()
    return one


def test_every_pass_is_right_in_every_precision():
    for passes, precision in itertools.product(PASSES, ["fp32", "bf16_autocast", "fp16_autocast", "bf16"]):
        training = make_training(precision)
        check(training, done(training, passes))


def test_naive_attention_is_held_against_pytorchs():
    for passes in ["forward", "step"]:
        training = make_training(attention="naive")
        check(training, done(training, passes))


def test_a_wrong_logit_is_seen():
    training = make_training()
    one = done(training, "forward")
    training.logits[1, 3, 7] += 0.01
    with pytest.raises(AssertionError, match=r"logits of sequence 1: off by 0\.01, where the largest is"):
        check(training, one)


@pytest.mark.parametrize("passes", ["forward_backward", "backward", "step"])
def test_a_wrong_loss_is_seen(passes):
    training = make_training()
    one = done(training, passes)
    if passes == "step":
        lose = training.lose
        training.lose = lambda tokens, targets: 1.001 * lose(tokens, targets)
    else:
        training.loss *= 1.001
    with pytest.raises(AssertionError, match="the loss: off by"):
        check(training, one)


NAMES = [
    "embedding.weight",
    FIRST,
    "blocks.0.attention.value.weight",
    "blocks.1.feed_forward.down.weight",
    "norm.weight",
]


def test_a_wrong_gradient_is_seen_wherever_it_is():
    for name, passes in itertools.product(NAMES, ["forward_backward", "backward", "step"]):
        training = make_training()
        training.model.get_parameter(name).register_hook(lambda gradient: 1.01 * gradient)
        with pytest.raises(AssertionError, match=f"the gradient of {name}: off by"):
            check(training, done(training, passes))


def test_a_missing_gradient_is_seen():
    training = make_training()
    training.model.norm.weight.requires_grad_(False)
    with pytest.raises(AssertionError, match=r"norm\.weight has no gradient"):
        check(training, done(training, "forward_backward"))


def test_an_optimizer_that_does_nothing_is_seen():
    training = make_training()
    one = done(training, "optimizer")
    with pytest.raises(AssertionError, match=r"the optimizer made 0 steps of embedding\.weight; expected 1"):
        check(training, checking.Pass("optimizer", lambda: None, one.keep))


def test_a_step_without_the_optimizer_is_seen(monkeypatch):
    training = make_training()
    one = done(training, "step")
    monkeypatch.setattr(training.optimizer, "step", lambda: None)
    # Neither moment moved, so they tell of no gradient that would be the right one.
    with pytest.raises(AssertionError, match=r"the gradient of embedding\.weight: off by|the optimizer made 0 steps"):
        check(training, one)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda state, value: state["exp_avg"].mul_(1.01), "the first moment of "),
        (lambda state, value: state["exp_avg_sq"].mul_(1.01), "the second moment of "),
        (lambda state, value: value.add_(1e-6), ""),
    ],
    ids=["mean", "square", "value"],
)
@pytest.mark.parametrize("name", ["embedding.weight", FIRST, "norm.weight"])
def test_an_optimizer_that_computes_something_else_is_seen(change, told, name):
    training = make_training()
    one = done(training, "optimizer")

    def wrong():
        one.call()
        parameter = training.model.get_parameter(name)
        with torch.no_grad():
            change(training.optimizer.state[parameter], parameter)

    with pytest.raises(AssertionError, match=rf"{told}{name}: .* elements are not what AdamW's formula gives"):
        check(training, checking.Pass("optimizer", wrong, wrong))


@pytest.mark.parametrize(
    ("precision", "option", "value"),
    [
        ("fp32", "weight_decay", 0.0),
        ("bf16", "weight_decay", 1.0),
        ("fp32", "rate", 0.999),
        ("bf16", "rate", 0.9),
    ],
)
@pytest.mark.parametrize("passes", ["optimizer", "step"])
def test_a_wrong_decay_or_rate_is_seen(passes, precision, option, value):
    training = make_training(precision)
    one, (group,) = done(training, passes), training.optimizer.param_groups

    def wrong():
        if option == "rate":
            group["lr"] *= value
        else:
            group[option] = value
        one.call()

    with pytest.raises(AssertionError, match="AdamW's formula"):
        check(training, checking.Pass(passes, wrong, wrong))


@pytest.mark.parametrize("passes", ["optimizer", "step"])
def test_the_rate_is_only_another_while_a_step_is_checked(passes):
    training = make_training()
    one, rates = done(training, passes), []

    def call():
        rates.append(training.optimizer.param_groups[0]["lr"])
        one.call()

    check(training, checking.Pass(passes, call, call))
    assert (rates, training.optimizer.param_groups[0]["lr"]) == ([CHECKED_RATE], LEARNING_RATE)


@pytest.mark.parametrize("passes", ["forward", "forward_backward", "step"])
def test_a_reference_without_room_is_no_failure_of_the_pass(monkeypatch, passes):
    def full(self):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes\nand more")

    training = make_training()
    one = done(training, passes)
    monkeypatch.setattr(Reference, "_streams", full)
    with pytest.raises(
        AssertionError, match=r"^the pass ran, but memory ran out while it was checked, on the host too"
    ):
        check(training, one)


def test_where_a_device_has_no_room_the_reference_is_on_the_host(monkeypatch):
    places = []

    def compare(reference):
        places.append(reference._place.type)
        if places == ["meta"]:
            raise torch.OutOfMemoryError("CUDA out of memory") if hasattr(torch, "OutOfMemoryError") else MemoryError
        return "right"

    training = make_training()
    training.device = torch.device("meta")
    assert checking._with_reference(training, compare) == "right"
    assert places == ["meta", "cpu"]
