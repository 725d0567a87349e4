"""Parameters from a seed: normal, the same everywhere, and no row twice."""

import pytest
import torch

from roofline_kernels.decoder.filling import TILE, fill_normal


def filled(*shape, seed=3, deviation=1.0, dtype=torch.float32):
    tensor = torch.full(shape, float("nan"), dtype=dtype)
    fill_normal([(tensor, deviation)], seed)
    return tensor


def test_values_are_normal_with_the_deviation_asked_for_of_each_tensor():
    values = filled(1000, 1000, deviation=0.02)
    share_within_one = (values.abs() < 0.02).float().mean()
    found = (float(values.mean()), float(values.std()), float(share_within_one))
    assert found == pytest.approx((0.0, 0.02, 0.6827), abs=1e-3)
    tensors = torch.empty(100_000), torch.empty(100_000)
    fill_normal(zip(tensors, (0.5, 2.0), strict=True), 3)
    assert [float(tensor.std()) for tensor in tensors] == pytest.approx([0.5, 2.0], rel=0.02)


def test_the_tile_begins_anew_where_it_ends_and_no_row_comes_twice_in_a_matrix_of_two_tiles():
    values = filled(TILE + 100)
    assert torch.equal(values[TILE:], values[:100])
    assert len(set(map(tuple, filled(8192, 256)[:, :3].tolist()))) == 8192


def test_a_seed_gives_the_same_values_rounded_in_every_type_and_leaves_the_programs_own_numbers_alone():
    before = torch.get_rng_state()
    one = filled(1000)
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(one, filled(1000, seed=4))
    for dtype in [torch.float32, torch.bfloat16, torch.float16, torch.float64]:
        assert torch.equal(one.to(dtype), filled(1000, dtype=dtype)), dtype


def test_what_has_no_memory_is_passed_over():
    meta, real = torch.empty(5, device="meta"), torch.empty(5)
    fill_normal([(meta, 1.0), (real, 1.0)], 3)
    assert torch.equal(real, filled(5))
