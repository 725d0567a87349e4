"""Rotary positions: which elements turn, how far, and in which precision."""

import cmath
import math

import torch

from roofline_kernels.decoder.rotary import Rotary, rotary_tables

HALVES = (torch.bfloat16, torch.float16)


def rotary_of(head_dim=8, theta=10_000.0, dtype=torch.float32):
    return Rotary(*rotary_tables(head_dim, 32, theta, torch.device("cpu"), dtype))


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def test_neighbours_turn_together_by_the_position_and_later_pairs_more_slowly():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).expand(1, 1, 32, 4)
    # In four dimensions the second pair turns by theta^(-2/4): a hundredth of the first, or a tenth.
    for theta, slowed in [(10_000.0, 0.01), (100.0, 0.1)]:
        fast, slow = (1 + 2j) * cmath.exp(7j), (3 + 4j) * cmath.exp(7j * slowed)
        expected = torch.tensor([fast.real, fast.imag, slow.real, slow.imag])
        torch.testing.assert_close(rotary_of(4, theta)(x)[0, 0, 7], expected)


def test_scores_depend_on_the_distance_only_and_a_gradient_is_turned_back():
    rotary = rotary_of(dtype=torch.float64)
    q, k = normal(2, 1, 1, 8, dtype=torch.float64).expand(2, 1, 32, 8)
    scores = (rotary(q) @ rotary(k).transpose(-2, -1))[0]
    torch.testing.assert_close(scores[1:, 1:], scores[:-1, :-1], rtol=0, atol=1e-12)
    x, gradient = normal(1, 1, 32, 8).requires_grad_(), normal(1, 1, 32, 8) + 1
    (turned_back,) = torch.autograd.grad(rotary_of()(x), x, rotary_of()(gradient))
    torch.testing.assert_close(turned_back, gradient)


def test_a_shorter_sequence_turns_as_the_beginning_of_a_longer_one():
    x = normal(2, 3, 32, 8)
    assert torch.equal(rotary_of()(x)[..., :5, :], rotary_of()(x[..., :5, :]))


def test_angles_far_out_are_as_exact_as_the_tables_type():
    cosines, sines = rotary_tables(64, 16_385, 10_000.0, torch.device("cpu"), torch.float32)
    angles = [16_384 * 10_000.0 ** (-2 * pair / 64) for pair in range(32)]
    for table, function in ((cosines, math.cos), (sines, math.sin)):
        torch.testing.assert_close(
            table[-1], torch.tensor([*map(function, angles)]), rtol=0, atol=1e-7
        )


def test_a_half_turns_in_float32_and_is_rounded_once_under_autocast_too():
    for dtype in HALVES:
        rotary, x = rotary_of(), normal(2, 3, 32, 8, dtype=dtype)
        assert torch.equal(rotary(x.float()).to(dtype), rotary(x)), dtype
        with torch.autocast("cpu", dtype):
            assert torch.equal(rotary(x), rotary_of()(x)), dtype
