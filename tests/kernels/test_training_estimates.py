"""The least memory of a pass, held against every allocation of a small model, and by hand."""

import itertools

import torch

from roofline_kernels.training.estimates import (
    activation_bytes,
    bytes_at_least,
    cast_bytes,
    saved_bytes,
)
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
    changes = [
        event.nbytes() for event in profile.kineto_results.events() if event.name() == "[memory]"
    ]
    return max(itertools.accumulate(changes, initial=0))


def least(precision, passes, attention="sdpa", execution="eager", config=CONFIG):
    how = {"precision": precision_named(precision), "attention": attention, "execution": execution}
    return bytes_at_least(config, batch=BATCH, context=CONTEXT, passes=passes, **how)


def test_no_pass_needs_less_and_none_twice_as_much():
    for precision, passes, attention in [
        ("fp32", "step", "sdpa"),
        ("fp32", "step", "naive"),
        ("bf16_autocast", "step", "naive"),
        ("bf16", "step", "sdpa"),
        ("fp32", "forward", "sdpa"),
        ("bf16_autocast", "forward", "sdpa"),
        ("bf16_autocast_uncached", "step", "sdpa"),
        ("fp32", "forward_backward", "sdpa"),
        ("fp32", "backward", "sdpa"),
    ]:
        found, bound = measured(precision, passes, attention), least(precision, passes, attention)
        assert bound <= found < 2 * bound, (precision, passes, attention)


def test_what_is_counted_is_what_stays_there():
    small, of_norms = SIZES["small"], 25 * 768
    # Parameters, gradients and two moments.
    assert least("fp32", "optimizer", config=small) == 4 * 4 * 120_945_408
    assert least("bf16", "optimizer", config=small) == 4 * 2 * 120_945_408
    # Autocast has every matrix a second time in two bytes.
    assert cast_bytes(small, precision_named("bf16_autocast")) == 2 * (120_945_408 - of_norms)
    assert cast_bytes(small, precision_named("bf16")) == 0
    kept, dropped = (
        least(name, "forward", config=small) for name in ("bf16_autocast", "bf16_autocast_uncached")
    )
    assert kept - dropped == 2 * (120_945_408 - of_norms)
    # Naive attention has a square for each head.
    fused, naive = (
        saved_bytes(
            CONFIG, batch=2, context=64, precision=precision_named("fp32"), attention=attention
        )
        for attention in ("sdpa", "naive")
    )
    assert naive - fused == 3 * (2 * 4 * 64 * 64) * 4
    # Of a compiled step nothing is counted that a compiler may compute again.
    weights = 4 * CONFIG.parameters
    assert least("fp32", "step", execution="compile") == 4 * weights
    assert (
        least("fp32", "forward", execution="compile")
        == weights + 4 * BATCH * CONTEXT * CONFIG.vocab
    )
    # "size = batch_size * context_length * d_model * 4 bytes = 2.5MB", of one sequence of 256 tokens.
    assert activation_bytes(SIZES["2.7B"], 1, 256, torch.float32) == 2.5 * 2**20
