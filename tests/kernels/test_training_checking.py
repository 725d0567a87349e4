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


def refused(training, one, told):
    with pytest.raises(AssertionError, match=told):
        check(training, one)


def test_every_pass_is_right_in_every_precision_and_with_naive_attention():
    cases = [
        *itertools.product(PASSES, ["fp32", "bf16_autocast", "fp16_autocast", "bf16"], ["sdpa"])
    ]
    for passes, precision, attention in [
        *cases,
        ("forward", "fp32", "naive"),
        ("step", "fp32", "naive"),
    ]:
        training = make_training(precision, attention)
        check(training, done(training, passes))


def test_a_wrong_logit_and_a_wrong_loss_are_seen():
    training = make_training()
    one = done(training, "forward")
    training.logits[1, 3, 7] += 0.01
    refused(training, one, r"logits of sequence 1: off by 0\.01, where the largest is")
    for passes in ("forward_backward", "backward", "step"):
        training = make_training()
        one, lose = done(training, passes), training.lose
        if passes == "step":
            training.lose = lambda tokens, targets, lose=lose: 1.001 * lose(tokens, targets)
        else:
            training.loss *= 1.001
        refused(training, one, "the loss: off by")


def test_a_wrong_gradient_is_seen_wherever_it_is_and_a_missing_one():
    names = ["embedding.weight", FIRST, "blocks.1.feed_forward.down.weight", "norm.weight"]
    for name, passes in itertools.product(names, ["forward_backward", "backward", "step"]):
        training = make_training()
        training.model.get_parameter(name).register_hook(lambda gradient: 1.01 * gradient)
        refused(training, done(training, passes), f"the gradient of {name}: off by")
    training = make_training()
    training.model.norm.weight.requires_grad_(False)
    refused(training, done(training, "forward_backward"), r"norm\.weight has no gradient")


def test_an_optimizer_that_does_nothing_is_seen(monkeypatch):
    training = make_training()
    idle = checking.Pass("optimizer", lambda: None, done(training, "optimizer").keep)
    refused(training, idle, r"the optimizer made 0 steps of embedding\.weight; expected 1")
    training = make_training()
    one = done(training, "step")
    monkeypatch.setattr(training.optimizer, "step", lambda: None)
    # Neither moment moved, so they tell of no gradient that would be the right one.
    refused(training, one, r"the gradient of embedding\.weight: off by|the optimizer made 0 steps")


def test_an_optimizer_that_computes_something_else_is_seen():
    changes = [
        (lambda state, value: state["exp_avg"].mul_(1.01), "the first moment of "),
        (lambda state, value: state["exp_avg_sq"].mul_(1.01), "the second moment of "),
        (lambda state, value: value.add_(1e-6), ""),
    ]
    for (change, told), name in itertools.product(
        changes, ["embedding.weight", FIRST, "norm.weight"]
    ):
        training = make_training()
        one = done(training, "optimizer")

        def wrong(training=training, one=one, change=change, name=name):
            one.call()
            parameter = training.model.get_parameter(name)
            with torch.no_grad():
                change(training.optimizer.state[parameter], parameter)

        wanted = rf"{told}{name}: .* elements are not what AdamW's formula gives"
        refused(training, checking.Pass("optimizer", wrong, wrong), wanted)


def test_a_wrong_decay_or_rate_is_seen():
    options = [
        ("fp32", "weight_decay", 0.0),
        ("bf16", "weight_decay", 1.0),
        ("fp32", "lr", 0.999),
        ("bf16", "lr", 0.9),
    ]
    for (precision, option, value), passes in itertools.product(options, ["optimizer", "step"]):
        training = make_training(precision)
        one, (group,) = done(training, passes), training.optimizer.param_groups

        def wrong(one=one, group=group, option=option, value=value):
            group[option] = value * (group["lr"] if option == "lr" else 1)
            one.call()

        refused(training, checking.Pass(passes, wrong, wrong), "AdamW's formula")


def test_the_rate_is_only_another_while_a_step_is_checked():
    for passes in ["optimizer", "step"]:
        training = make_training()
        one, rates = done(training, passes), []

        def call(training=training, one=one, rates=rates):
            rates.append(training.optimizer.param_groups[0]["lr"])
            one.call()

        check(training, checking.Pass(passes, call, call))
        assert (rates, training.optimizer.param_groups[0]["lr"]) == ([CHECKED_RATE], LEARNING_RATE)


def test_a_reference_without_room_is_made_on_the_host_and_no_failure_of_the_pass(monkeypatch):
    places = []

    def compare(reference):
        places.append(reference._place.type)
        if places == ["meta"]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return "right"

    training = make_training()
    training.device = torch.device("meta")
    assert checking._with_reference(training, compare) == "right"
    assert places == ["meta", "cpu"]

    def full(self):
        raise RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes\nand more"
        )

    for passes in ["forward", "forward_backward", "step"]:
        training = make_training()
        one = done(training, passes)
        with monkeypatch.context() as patch:
            patch.setattr(Reference, "_streams", full)
            refused(
                training,
                one,
                r"^the pass ran, but memory ran out while it was checked, on the host too",
            )
