"""Parameters from a seed: normal, the same everywhere, and no row twice."""

import pytest
import torch

from roofline_kernels.decoder.filling import CPU_STEP, TILE, fill_normal


def filled(*shapes, seed=3, deviation=1.0, dtype=torch.float32):
    tensors = [torch.full(shape, float("nan"), dtype=dtype) for shape in shapes]
    fill_normal([(tensor, deviation) for tensor in tensors], seed)
    return tensors


def test_values_are_normal_with_the_deviation_asked_for():
    (values,) = filled((1000, 1000), deviation=0.02)
    share_within_one = (values.abs() < 0.02).float().mean()
    found = (float(values.mean()), float(values.std()), float(share_within_one))
    assert found == pytest.approx((0.0, 0.02, 0.6827), abs=1e-3)


def test_values_are_drawn_as_finely_as_float32_holds_them():
    # A half has 65,536 values at most.
    assert filled((1000, 1000))[0].unique().numel() > 500_000


def test_each_tensor_has_its_own_deviation():
    tensors = torch.empty(100_000), torch.empty(100_000)
    fill_normal(zip(tensors, (0.5, 2.0), strict=True), 3)
    assert [float(tensor.std()) for tensor in tensors] == pytest.approx([0.5, 2.0], rel=0.02)


# Around the ends of a step and of the tile.
@pytest.mark.parametrize("count", [0, 1, CPU_STEP, CPU_STEP + 1, TILE - 1, TILE, TILE + 1, 2 * TILE + 5])
def test_every_element_is_filled(count):
    assert bool(filled((count,))[0].isfinite().all())


def test_the_tile_begins_anew_where_it_ends():
    (values,) = filled((TILE + 100,))
    assert torch.equal(values[TILE:], values[:100])


def test_a_tensor_goes_on_where_the_one_before_it_stopped():
    first, second = filled((70, 1001), (7, 11))
    (whole,) = filled((70 * 1001 + 77,))
    assert torch.equal(torch.cat((first.flatten(), second.flatten())), whole)


def test_no_row_comes_twice_in_a_matrix_of_two_tiles():
    (values,) = filled((8192, 256))
    assert len(set(map(tuple, values[:, :3].tolist()))) == 8192


def test_the_same_seed_gives_the_same_values_and_another_gives_others():
    (one,), (again,), (other,) = filled((1000,)), filled((1000,)), filled((1000,), seed=4)
    assert (torch.equal(one, again), torch.equal(one, other)) == (True, False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_every_type_has_the_float32_values_rounded(dtype):
    assert torch.equal(filled((1000,))[0].to(dtype), filled((1000,), dtype=dtype)[0])


def test_the_programs_own_random_numbers_are_left_alone():
    before = torch.get_rng_state()
    filled((1000,))
    assert torch.equal(before, torch.get_rng_state())


def test_parameters_are_filled_without_a_graph():
    parameter = torch.nn.Parameter(torch.empty(3, 4))
    fill_normal([(parameter, 1.0)], 3)
    assert (parameter.requires_grad, parameter.grad_fn) == (True, None)


def test_what_has_no_memory_is_passed_over():
    meta, real = torch.empty(5, device="meta"), torch.empty(5)
    fill_normal([(meta, 1.0), (real, 1.0)], 3)
    assert torch.equal(real, filled((5,))[0])
