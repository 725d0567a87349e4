"""Rotary positions: which elements turn, how far, and in which precision."""

import cmath
import math

import torch

from roofline_kernels.decoder.rotary import Rotary, rotary_tables


def tables(head_dim=8, positions=32, theta=10_000.0, device="cpu", dtype=torch.float32):
    return rotary_tables(head_dim, positions, theta, torch.device(device), dtype)


def normal(*shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


def test_neighbours_turn_together_by_the_position_and_later_pairs_more_slowly():
    x = torch.tensor([1.0, 2.0, 3.0, 4.0]).expand(1, 1, 32, 4)
    # In four dimensions the second pair turns by 10,000^(-2/4), a hundredth of the first.
    fast, slow = (1 + 2j) * cmath.exp(7j), (3 + 4j) * cmath.exp(0.07j)
    expected = torch.tensor([fast.real, fast.imag, slow.real, slow.imag])
    torch.testing.assert_close(Rotary(*tables(4))(x)[0, 0, 7], expected)


def test_the_base_slows_all_pairs_but_the_first():
    x = torch.tensor([1.0, 0.0, 1.0, 0.0]).expand(1, 1, 8, 4)
    turned = Rotary(*tables(4, theta=100.0))(x)[0, 0, 5]
    torch.testing.assert_close(turned, torch.tensor([math.cos(5), math.sin(5), math.cos(0.5), math.sin(0.5)]))


def test_scores_depend_on_the_distance_only():
    rotary = Rotary(*tables(dtype=torch.float64))
    q, k = normal(2, 1, 1, 8, dtype=torch.float64).expand(2, 1, 32, 8)
    scores = (rotary(q) @ rotary(k).transpose(-2, -1))[0]
    torch.testing.assert_close(scores[1:, 1:], scores[:-1, :-1], rtol=0, atol=1e-12)


def test_a_shorter_sequence_turns_as_the_beginning_of_a_longer_one():
    rotary, x = Rotary(*tables()), normal(2, 3, 32, 8)
    assert torch.equal(rotary(x)[..., :5, :], rotary(x[..., :5, :]))


def test_angles_far_out_are_as_exact_as_the_tables_type():
    cosines, sines = tables(64, 16_385)
    angles = [16_384 * 10_000.0 ** (-2 * pair / 64) for pair in range(32)]
    torch.testing.assert_close(cosines[-1], torch.tensor([math.cos(angle) for angle in angles]), rtol=0, atol=1e-7)
    torch.testing.assert_close(sines[-1], torch.tensor([math.sin(angle) for angle in angles]), rtol=0, atol=1e-7)


def test_a_half_turns_in_float32_and_is_rounded_once():
    for dtype in [torch.bfloat16, torch.float16]:
        rotary, x = Rotary(*tables()), normal(2, 3, 32, 8, dtype=dtype)
        assert torch.equal(rotary(x.float()).to(dtype), rotary(x)), dtype


def test_autocast_changes_nothing():
    for dtype in [torch.bfloat16, torch.float16]:
        rotary, x = Rotary(*tables()), normal(2, 3, 32, 8, dtype=dtype)
        with torch.autocast("cpu", dtype):
            cast = rotary(x)
        assert torch.equal(cast, rotary(x)), dtype


def test_a_gradient_is_turned_back():
    rotary, x, gradient = Rotary(*tables()), normal(1, 1, 32, 8).requires_grad_(), normal(1, 1, 32, 8) + 1
    (turned_back,) = torch.autograd.grad(rotary(x), x, rotary(gradient))
    torch.testing.assert_close(turned_back, gradient)
