"""The least memory of a pass, held against every allocation of a small model, and by hand."""

import itertools

import torch

from roofline_kernels.training.estimates import activation_bytes, bytes_at_least, cast_bytes, saved_bytes
from roofline_kernels.training.executing import executed
from roofline_kernels.training.precisions import precision_named
from roofline_kernels.transformer import SIZES, Config

from .training_cases import make_training

# As the real ones: the feed-forward part four times as wide, and more in blocks than in the vocabulary.
CONFIG, BATCH, CONTEXT = Config(d_model=128, d_ff=512, layers=3, heads=4, vocab=1000), 2, 64


def measured(precision, passes, attention):
    """The most that was allocated at once from the model on, by torch's record of every allocation."""

    def run():
        training = make_training(precision, attention, CONFIG, BATCH, CONTEXT)
        with executed("eager", training, passes) as one:
            one.call()
            one.call()
        return training

    with torch.autograd.profiler.profile(use_kineto=True, profile_memory=True) as profile:
        kept = run()
    del kept
    changes = [event.nbytes() for event in profile.kineto_results.events() if event.name() == "[memory]"]
    return max(itertools.accumulate(changes, initial=0))


def least(precision, passes, attention="sdpa", execution="eager", config=CONFIG, batch=BATCH, context=CONTEXT):
    return bytes_at_least(
        config,
        batch=batch,
        context=context,
        passes=passes,
        precision=precision_named(precision),
        attention=attention,
        execution=execution,
    )


def test_a_step_needs_no_less_and_less_than_twice_as_much():
    for precision, attention in [("fp32", "sdpa"), ("fp32", "naive"), ("bf16_autocast", "naive"), ("bf16", "sdpa")]:
        found, bound = measured(precision, "step", attention), least(precision, "step", attention)
        assert bound <= found < 2 * bound, (precision, attention)


def test_no_pass_needs_less():
    for precision, passes in [
        ("fp32", "forward"),
        ("bf16_autocast", "forward"),
        ("fp32", "forward_backward"),
        ("fp32", "backward"),
    ]:
        found, bound = measured(precision, passes, "sdpa"), least(precision, passes)
        assert bound <= found < 2 * bound, (precision, passes)


def test_the_optimizer_holds_parameters_gradients_and_two_moments():
    small = SIZES["small"]
    assert least("fp32", "optimizer", config=small) == 4 * 4 * 120_945_408
    assert least("bf16", "optimizer", config=small) == 4 * 2 * 120_945_408


def test_autocast_keeps_every_matrix_a_second_time_in_two_bytes():
    small = SIZES["small"]
    assert cast_bytes(small, precision_named("bf16_autocast")) == 2 * (120_945_408 - 25 * 768)
    assert cast_bytes(small, precision_named("bf16")) == 0


def test_naive_attention_keeps_a_square_for_each_head():
    fused, naive = (
        saved_bytes(CONFIG, batch=2, context=64, precision=precision_named("fp32"), attention=attention)
        for attention in ("sdpa", "naive")
    )
    assert naive - fused == 3 * (2 * 4 * 64 * 64) * 4


def test_of_a_compiled_step_nothing_is_counted_that_a_compiler_may_compute_again():
    weights = 4 * CONFIG.parameters
    assert least("fp32", "step", execution="compile") == 4 * weights
    assert least("fp32", "forward", execution="compile") == weights + 4 * BATCH * CONTEXT * CONFIG.vocab


def test_one_activation_is_what_the_seeds_report_for_the_largest_model():
    # "size = batch_size * context_length * d_model * 4 bytes = 2.5MB", of one sequence of 256 tokens.
    assert activation_bytes(SIZES["2.7B"], 1, 256, torch.float32) == 2.5 * 2**20
