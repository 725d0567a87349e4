"""Parameters from a seed: normal, the same everywhere, and no row twice."""

import pytest
import torch

from roofline_kernels.decoder.filling import TILE, fill_normal


def filled(*shapes, seed=3, deviation=1.0, dtype=torch.float32):
    tensors = [torch.full(shape, float("nan"), dtype=dtype) for shape in shapes]
    fill_normal([(tensor, deviation) for tensor in tensors], seed)
    return tensors


def test_values_are_normal_with_the_deviation_asked_for():
    (values,) = filled((1000, 1000), deviation=0.02)
    share_within_one = (values.abs() < 0.02).float().mean()
    found = (float(values.mean()), float(values.std()), float(share_within_one))
    assert found == pytest.approx((0.0, 0.02, 0.6827), abs=1e-3)


def test_each_tensor_has_its_own_deviation():
    tensors = torch.empty(100_000), torch.empty(100_000)
    fill_normal(zip(tensors, (0.5, 2.0), strict=True), 3)
    assert [float(tensor.std()) for tensor in tensors] == pytest.approx([0.5, 2.0], rel=0.02)


def test_the_tile_begins_anew_where_it_ends():
    (values,) = filled((TILE + 100,))
    assert torch.equal(values[TILE:], values[:100])


def test_no_row_comes_twice_in_a_matrix_of_two_tiles():
    (values,) = filled((8192, 256))
    assert len(set(map(tuple, values[:, :3].tolist()))) == 8192


def test_the_same_seed_gives_the_same_values_and_another_gives_others():
    (one,), (again,), (other,) = filled((1000,)), filled((1000,)), filled((1000,), seed=4)
    assert (torch.equal(one, again), torch.equal(one, other)) == (True, False)


def test_every_type_has_the_float32_values_rounded():
    for dtype in [torch.bfloat16, torch.float16, torch.float64]:
        assert torch.equal(filled((1000,))[0].to(dtype), filled((1000,), dtype=dtype)[0]), dtype


def test_the_programs_own_random_numbers_are_left_alone():
    before = torch.get_rng_state()
    filled((1000,))
    assert torch.equal(before, torch.get_rng_state())


def test_what_has_no_memory_is_passed_over():
    meta, real = torch.empty(5, device="meta"), torch.empty(5)
    fill_normal([(meta, 1.0), (real, 1.0)], 3)
    assert torch.equal(real, filled((5,))[0])
