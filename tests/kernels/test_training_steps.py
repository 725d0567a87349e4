"""The passes of a step: what each leaves behind, and that a step is what anybody's training loop does."""

import copy
import weakref

import pytest
import torch
from torch.nn.functional import cross_entropy

from roofline_kernels.training.adamw import visible_rate
from roofline_kernels.training.precisions import precision_named
from roofline_kernels.training.steps import LEARNING_RATE, Training

from .training_cases import CPU, TINY, make_training


def gradients(training):
    return [parameter.grad for parameter in training.parameters]


def values(training):
    return [parameter.detach().clone() for parameter in training.parameters]


def largest_moves(training, before):
    return [
        float((now - then).abs().max()) for now, then in zip(values(training), before, strict=True)
    ]


def same(some, others):
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def plain_loss(model, training):
    return cross_entropy(model(training.tokens).flatten(0, 1), training.targets.flatten())


def test_forward_and_backward_leave_the_loss_and_no_gradient_and_accumulating_those_of_the_mean_loss():
    training = make_training()
    training.pass_of("forward_backward")()
    assert training.loss.item() == plain_loss(training.model, training).item()
    assert gradients(training) == [None] * len(training.parameters)
    training.accumulate()
    expected = torch.autograd.grad(plain_loss(training.model, training), training.parameters)
    torch.testing.assert_close(gradients(training), list(expected))


def test_the_backward_pass_can_be_repeated_and_nothing_adds_up():
    training = make_training()
    backward = training.pass_of("backward")
    assert same(backward(), backward())
    assert gradients(training) == [None] * len(training.parameters)


def test_three_steps_are_those_of_a_plain_training_loop():
    training = make_training()
    model = copy.deepcopy(training.model).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    step = training.pass_of("step")
    for _ in range(3):
        step()
        optimizer.zero_grad()
        plain_loss(model, training).backward()
        optimizer.step()
    assert same(training.parameters, model.parameters())
    assert gradients(training) == [None] * len(training.parameters)


def test_the_optimizer_moves_by_gradients_that_stay_no_further_than_a_learning_rate_a_step():
    training = make_training()
    step = training.pass_of("optimizer")
    kept, before, steps = (
        [gradient.clone() for gradient in gradients(training)],
        values(training),
        30,
    )
    for _ in range(steps):
        step()
    assert same(gradients(training), kept)
    moved = largest_moves(training, before)
    # Each step rounds the parameter.
    assert 0 < min(moved) <= max(moved) <= 1.1 * steps * LEARNING_RATE


def test_in_float16_the_loss_is_scaled_and_the_step_is_not():
    scaled, plain = make_training("fp16_autocast"), make_training()
    for training in (scaled, plain):
        training.accumulate()
    for found, expected in zip(gradients(scaled), gradients(plain), strict=True):
        assert float((found / scaled.scale - expected).abs().max()) <= 0.02 * float(
            expected.abs().max()
        )
    scaled.drop()
    before = values(scaled)
    scaled.step()
    assert max(largest_moves(scaled, before)) == pytest.approx(LEARNING_RATE, rel=0.05)


def test_pure_bfloat16_has_no_float32_beside_it():
    training = make_training("bf16")
    training.pass_of("step")()
    states = [
        state
        for kept in training.optimizer.state.values()
        for name, state in kept.items()
        if name != "step"
    ]
    assert {tensor.dtype for tensor in (*training.parameters, *states)} == {torch.bfloat16}


def test_letting_go_of_a_training_frees_its_memory():
    for _ in range(2):
        # The first of a process leaves what torch loads on first use in frames.
        training = make_training()
        training.pass_of("step")()
        weights = weakref.ref(training.parameters[0])
        del training
    assert weights() is None


def test_a_step_for_a_graph_reads_its_rate_from_the_device():
    how = {
        "precision": precision_named("fp32"),
        "attention": "sdpa",
        "device": CPU,
        "capturable": True,
    }
    training = Training(TINY, batch=1, context=8, **how)
    rate = training.optimizer.param_groups[0]["lr"]
    with visible_rate(training.optimizer):
        inside = rate.item()
    assert (inside, rate.item()) == pytest.approx((1e-2, LEARNING_RATE))
