"""What holds a pass against the reference: every pass in every precision is right, and every fault is seen."""

import pytest
import torch

from roofline_kernels.training import checking
from roofline_kernels.training.checking import FIRST, TOLERANCES, check
from roofline_kernels.training.executing import executed
from roofline_kernels.training.precisions import PRECISIONS
from roofline_kernels.training.steps import PASSES

from .training_cases import make_training


def done(training, passes):
    """The pass, after two calls."""
    with executed("eager", training, passes) as one:
        one.call()
        one.call()
    return one


@pytest.mark.parametrize("passes", PASSES)
@pytest.mark.parametrize("precision", ["fp32", "bf16_autocast", "fp16_autocast", "bf16"])
def test_every_pass_is_right_in_every_precision(precision, passes):
    training = make_training(precision)
    check(training, done(training, passes))


@pytest.mark.parametrize("passes", ["forward", "step"])
def test_naive_attention_is_held_against_pytorchs(passes):
    training = make_training(attention="naive")
    check(training, done(training, passes))


def test_every_precision_has_tolerances():
    assert set(TOLERANCES) == set(PRECISIONS)


def test_a_wrong_logit_is_seen():
    training = make_training()
    one = done(training, "forward")
    training.logits[1, 3, 7] += 0.01
    with pytest.raises(AssertionError, match=r"logits of sequence 1: off by 0\.01, where the largest is"):
        check(training, one)


def test_a_logit_that_is_no_number_is_seen():
    training = make_training("bf16")
    one = done(training, "forward")
    training.logits[0, 0, 0] = torch.nan
    with pytest.raises(AssertionError, match="logits of sequence 0: off by nan"):
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


@pytest.mark.parametrize("passes", ["forward_backward", "backward", "step"])
def test_a_wrong_gradient_is_seen(passes):
    training = make_training()
    training.model.get_parameter(FIRST).register_hook(lambda gradient: 1.01 * gradient)
    with pytest.raises(AssertionError, match=f"the gradient of {FIRST}: off by"):
        check(training, done(training, passes))


def test_a_gradient_that_is_not_finite_is_seen_wherever_it_is():
    training = make_training()
    training.model.norm.weight.register_hook(lambda gradient: gradient / 0)
    with pytest.raises(AssertionError, match=r"the gradient of norm\.weight is not finite"):
        check(training, done(training, "forward_backward"))


def test_a_missing_gradient_is_seen():
    training = make_training()
    training.model.norm.weight.requires_grad_(False)
    with pytest.raises(AssertionError, match=r"norm\.weight has no gradient"):
        check(training, done(training, "forward_backward"))


def test_an_optimizer_that_does_nothing_is_seen():
    training = make_training()
    one = done(training, "optimizer")
    with pytest.raises(AssertionError, match="the optimizer made 0 steps; expected 1"):
        check(training, checking.Pass("optimizer", lambda: None, one.keep))


def test_a_step_without_the_optimizer_is_seen(monkeypatch):
    training = make_training()
    one = done(training, "step")
    monkeypatch.setattr(training.optimizer, "step", lambda: None)
    # Neither moment moved, so they tell of no gradient that would be the right one.
    with pytest.raises(AssertionError, match=rf"the gradient of {FIRST}: off by|the optimizer made 0 steps"):
        check(training, one)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda state, value: state["exp_avg"].mul_(1.01), "the first moment"),
        (lambda state, value: state["exp_avg_sq"].mul_(1.01), "the second moment"),
        (lambda state, value: value.add_(1e-7), FIRST),
    ],
    ids=["mean", "square", "value"],
)
def test_an_optimizer_that_computes_something_else_is_seen(change, told):
    training = make_training()
    one = done(training, "optimizer")

    def wrong():
        one.call()
        parameter = training.model.get_parameter(FIRST)
        with torch.no_grad():
            change(training.optimizer.state[parameter], parameter)

    with pytest.raises(AssertionError, match=rf"{told}: .* elements are not what AdamW's formula gives"):
        check(training, checking.Pass("optimizer", wrong, wrong))
