"""Bytes and FLOPs of what is measured, against numbers worked out by hand."""

import itertools
from fractions import Fraction

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from pytest_roofline import Work
from roofline_kernels.transformer import SIZES, Config, Transformer, loss_of, make_batch
from roofline_kernels.work import (
    COLLECTIVES,
    adamw_bytes,
    attention_flops,
    bus_factor,
    collective_bytes,
    copy_bytes,
    gemm_work,
    link_copy_bytes,
    stream_work,
    transformer_flops,
)


def test_a_copy_within_a_memory_reads_and_writes_every_byte():
    assert copy_bytes(7) == {"read_bytes": 7, "write_bytes": 7, "payload_bytes": 7}


def test_a_copy_over_a_link_counts_every_byte_once():
    assert link_copy_bytes(7) == {"payload_bytes": 7, "wire_bytes": 7}


def test_a_matrix_product_has_two_flops_a_term_and_moves_each_matrix_once():
    # [2, 5] · [5, 3] in bfloat16 into float32: 6 sums of 5 terms; 10 + 15 elements read, 6 written.
    assert gemm_work(2, 3, 5, operand_bytes=2, result_bytes=4) == {"flops": 60, "read_bytes": 50, "write_bytes": 24}


# BabelStream at its default size, 2^25 doubles: 2 arrays of 268,435,456 bytes for copy, mul and dot, 3 for add, triad.
def test_traffic_is_that_of_babelstream():
    for operation, moved_bytes in [
        ("copy", 536_870_912),
        ("scale", 536_870_912),
        ("add", 805_306_368),
        ("triad", 805_306_368),
        ("dot", 536_870_912),
    ]:
        assert moved_bytes == Work(**stream_work(operation, 2**25, 8)).traffic_bytes, (operation, moved_bytes)


def test_an_operation_counts_its_flops_for_each_element():
    for operation, flops in [("copy", 0), ("scale", 100), ("add", 100), ("triad", 200), ("dot", 200)]:
        assert flops == stream_work(operation, 100, 8)["flops"], (operation, flops)


def test_an_unknown_operation_is_an_error():
    with pytest.raises(KeyError):
        stream_work("nop", 100, 8)


# What the nccl-tests printed on eight A100, 8 GiB, out of place: algbw and busbw in GB/s (superbenchmark's test data).
def test_bus_bandwidth_is_that_of_the_nccl_tests():
    for operation, algbw, busbw in [
        ("all_reduce", 134.44, 235.26),
        ("all_gather", 255.31, 223.39),
        ("reduce_scatter", 264.60, 231.52),
        ("all_to_all", 256.36, 224.31),
        ("broadcast", 232.81, 232.81),
        ("reduce", 228.38, 228.38),
    ]:
        size_bytes = 8 * 2**30
        work = Work(**collective_bytes(operation, size_bytes, 8))
        seconds = size_bytes / (algbw * 1e9)
        assert work.amount("busbw_GBps") / seconds / 1e9 == pytest.approx(busbw, abs=0.02)


def test_the_factor_of_every_operation_at_1_2_4_and_8_ranks():
    for operation, factors in [
        ("all_reduce", (0, 1, "3/2", "7/4")),
        ("all_gather", (0, "1/2", "3/4", "7/8")),
        ("reduce_scatter", (0, "1/2", "3/4", "7/8")),
        ("all_to_all", (0, "1/2", "3/4", "7/8")),
        ("all_to_all_v", (0, "1/2", "3/4", "7/8")),
        ("broadcast", (1, 1, 1, 1)),
        ("reduce", (1, 1, 1, 1)),
        ("gather", (0, "1/2", "3/4", "7/8")),
        ("scatter", (0, "1/2", "3/4", "7/8")),
        ("send_recv", (1, 1, 1, 1)),
    ]:
        assert [Fraction(factor) for factor in factors] == [bus_factor(operation, ranks) for ranks in (1, 2, 4, 8)]


def test_among_one_rank_nothing_fails_and_an_empty_bus_is_flagged_by_the_metric():
    for operation in COLLECTIVES:
        work = Work(**collective_bytes(operation, 1024, 1))
        crosses = operation in ("broadcast", "reduce", "send_recv")
        assert work.metric == ("busbw_GBps" if crosses else "algbw_GBps"), operation


def test_bytes_are_whole():
    # 1000 · 2 · 5 / 6 is 1666 and two thirds.
    assert collective_bytes("all_reduce", 1000, 6) == {"algbw_bytes": 1000, "busbw_bytes": 1667}


def test_no_rank_at_all_is_refused():
    with pytest.raises(ValueError, match="a group of 0 ranks; expected one or more"):
        bus_factor("all_reduce", 0)


def test_an_unknown_collective_is_an_error():
    with pytest.raises(KeyError):
        collective_bytes("allreduce", 1024, 2)


def test_the_leaderboards_shape_is_1924_gflop():
    flops = attention_flops(1, 16, 16384, 16384, 64, causal=True, passes="both")["flops"]
    assert f"{flops / 1e12:.3f}" == "1.924"


def test_attention_is_four_flops_for_each_query_key_and_dimension():
    assert attention_flops(2, 3, 5, 7, 11) == {"flops": 4 * 2 * 3 * 5 * 7 * 11}


def test_causal_attention_counts_visible_pairs_less_half_a_key_for_each_query_on_the_diagonal():
    for alignment, seq_k, seq_q in itertools.product(
        ["top-left", "bottom-right"], [0, 1, 2, 8, 13, 64], [0, 1, 3, 8, 13, 50]
    ):
        shift = seq_k - seq_q if alignment == "bottom-right" else 0
        pairs = sum(key <= query + shift for query in range(seq_q) for key in range(seq_k))
        flops = attention_flops(1, 1, seq_q, seq_k, 1, causal=True, alignment=alignment)["flops"]
        assert flops == 4 * pairs - 2 * min(seq_q, seq_k), (alignment, seq_k, seq_q)


def test_bottom_right_with_more_keys_is_flash_attention_3s_count():
    for seq_q, seq_k in [(1, 1024), (512, 1024), (1024, 1024)]:
        mean_keys = (max(0, seq_k - seq_q) + seq_k) / 2
        flops = attention_flops(2, 4, seq_q, seq_k, 64, causal=True, alignment="bottom-right")["flops"]
        assert flops == 2 * 4 * 2 * seq_q * mean_keys * (64 + 64), (seq_q, seq_k)


def test_what_is_no_attention_has_no_flops():
    for changes, told in [
        ({"passes": "fwd"}, "passes 'fwd'; expected one of forward, backward, both"),
        ({"heads": -1}, "expected zero or more"),
        ({"seq_k": 9, "causal": True}, "no alignment; expected alignment='top-left'"),
        ({"alignment": "left"}, "alignment 'left'; expected 'top-left' or 'bottom-right'"),
    ]:
        sizes = {"batch": 1, "heads": 1, "seq_q": 8, "seq_k": 8, "head_dim": 64}
        with pytest.raises(ValueError, match=told):
            attention_flops(**(sizes | changes))


# Small enough to count by hand, and of such sizes that no two of them can be taken for each other.
TINY = Config(d_model=12, d_ff=20, layers=3, heads=2, vocab=34)


def flops_of(config, batch, context, passes="forward"):
    shape = (config.d_model, config.d_ff, config.layers, config.vocab)
    return transformer_flops(*shape, batch, context, passes=passes)["flops"]


def counted(config, batch, context, *, attention="naive", device="cpu", passes="forward_backward"):
    """What torch counts while the model runs."""
    model = Transformer(config, context=context, attention=attention, device=device)
    tokens, targets = make_batch(config, batch, context, device)
    with FlopCounterMode(display=False) as counter:
        loss = loss_of(model(tokens), targets)
        if passes == "forward_backward":
            loss.backward()
    return counter.get_total_flops()


def test_a_transformers_flops_are_its_matrix_products():
    token = 2 * (3 * (4 * 12 * 12 + 3 * 12 * 20) + 34 * 12)
    scores_and_values = 3 * 2 * (2 * 7 * 7 * 12)
    assert flops_of(TINY, 5, 7) == 5 * (7 * token + scores_and_values)


def test_naive_attention_has_exactly_the_flops_that_torch_counts():
    for passes, device, (config, batch, context) in itertools.product(
        ["forward", "forward_backward"],
        ["cpu", "meta"],
        [(TINY, 5, 7), (TINY, 1, 1), (Config(64, 128, 2, 4, vocab=96), 2, 32)],
    ):
        assert counted(config, batch, context, device=device, passes=passes) == flops_of(config, batch, context, passes)


def test_the_small_size_has_exactly_the_flops_that_torch_counts():
    for passes, context in itertools.product(["forward", "forward_backward"], [128, 1024]):
        found = counted(SIZES["small"], 4, context, device="meta", passes=passes)
        assert found == flops_of(SIZES["small"], 4, context, passes), (passes, context)


def test_torch_leaves_out_the_fused_attention_of_cpus():
    without = flops_of(TINY, 5, 7) - 3 * attention_flops(5, 2, 7, 7, 6)["flops"]
    # Not by design: it would be right to count all of it.
    assert counted(TINY, 5, 7, attention="sdpa", passes="forward") in (without, flops_of(TINY, 5, 7))


def test_a_transformers_backward_pass_is_twice_its_forward_pass():
    for passes, forwards in [("backward", 2), ("forward_backward", 3), ("step", 3)]:
        assert flops_of(TINY, 5, 7, passes) == forwards * flops_of(TINY, 5, 7), (passes, forwards)


def test_the_count_is_palms_over_the_parameters_of_products():
    # PaLM counts 6 for each parameter: here it is those of products, all but the gains of the norms.
    small = SIZES["small"]
    products = small.parameters - (2 * small.layers + 1) * small.d_model
    token = 6 * products + 12 * small.layers * small.heads * small.head_dim * 2048
    assert flops_of(small, 4, 2048, "step") == 4 * 2048 * token


def test_what_is_no_transformer_has_no_flops():
    for changes, told in [
        ({"passes": "optimizer"}, "passes 'optimizer'; expected one of forward, backward, forward_backward, step"),
        ({"context": -1}, r"sizes \(12, 20, 3, 34, 5, -1\); expected zero or more"),
    ]:
        sizes = {"d_model": 12, "d_ff": 20, "layers": 3, "vocab": 34, "batch": 5, "context": 7}
        with pytest.raises(ValueError, match=told):
            transformer_flops(**(sizes | changes))


def test_adamw_reads_four_arrays_and_writes_three():
    assert adamw_bytes(10) == {"read_bytes": 160, "write_bytes": 120}
    assert adamw_bytes(10, 2) == {"read_bytes": 80, "write_bytes": 60}


def test_what_adamw_reads_is_what_it_holds():
    for dtype, element_bytes in [(torch.float32, 4), (torch.bfloat16, 2)]:
        parameter = torch.nn.Parameter(torch.zeros(1000, dtype=dtype))
        parameter.grad = torch.ones_like(parameter)
        optimizer = torch.optim.AdamW([parameter])
        optimizer.step()
        moments = [value for value in optimizer.state[parameter].values() if value.shape == parameter.shape]
        held = sum(value.nbytes for value in (parameter.data, parameter.grad, *moments))
        assert adamw_bytes(1000, element_bytes)["read_bytes"] == held, (dtype, element_bytes)
